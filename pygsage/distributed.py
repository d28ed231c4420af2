"""The processes of one job: who they are, which device each has, and what they say to each other.

A process is a *rank*. Ranks of one machine are numbered by `local_rank`; a machine is what one launcher
started (`GROUP_RANK`), so two launchers on one host count as two machines. A job of one process starts
nothing: every method then returns at once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pygsage.attempts import attempt, under_torchrun
from pygsage.awaited import saying_who_is_awaited, watching
from pygsage.connections import notice_silence, silence_in
from pygsage.errors import EnvironmentLimitError, TrainingError
from pygsage.launched import Place, has_launcher, in_launched_job, number_of

# What gloo and NCCL say when the other side is gone. Our own mistakes, such as tensors of different sizes, come as
# RuntimeError too and must not be taken for it.
_LOST_GLOO = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting")
_LOST_NCCL = ("remote process", "aborted", "timeout", "timed out")


class PeerLostError(TrainingError):
    """A collective failed because another rank is gone or silent; the cause is that rank's own error."""

    secondary = True


@dataclass(frozen=True)
class World:
    """This process among those of its job.

    Args:
        rank: Number of the process, 0 to `size - 1`.
        size: Number of processes.
        local_rank: Number of the process on its machine.
        local_size: Number of processes on this machine.
        device: Where this rank computes.
        machine: Number of the machine.
        local_ranks: Ranks of this machine's processes, ascending; the first is its local rank 0.
        machines: Those of each machine.

    All collectives must be called by all ranks (the local ones by all ranks of a machine) in the same order. They
    raise `PeerLostError` when another rank has died.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    machine: int = 0
    local_ranks: tuple[int, ...] = (0,)
    machines: tuple[tuple[int, ...], ...] = ((0,),)
    _local_group: dist.ProcessGroup | None = field(default=None, repr=False, compare=False)
    _first_group: dist.ProcessGroup | None = field(default=None, repr=False, compare=False)
    _place: Place | None = field(default=None, repr=False, compare=False)

    @classmethod
    @contextmanager
    def start(
        cls, device: torch.device | str | Sequence[torch.device] = "cpu", timeout_s: float = 4 * 3600.0
    ) -> Iterator[World]:
        """Joins the job described by the environment (torchrun's or our launcher's); leaves it at the end.

        Args:
            device: The device of this rank, or the devices of this machine's ranks by `local_rank`.
            timeout_s: How long a collective waits for the slowest rank. Dead ranks are noticed much sooner, by their
                closed connections and by the launcher; this bounds the wait for a machine that has vanished.

        With an error inside the block no rank waits for another's end.

        Raises:
            EnvironmentLimitError: when the environment describes no job.
            PeerLostError: when a peer was lost inside the block, also in calls that are not ours.
        """
        world = cls._from_environment(device)
        if world.device.type == "cuda":
            torch.cuda.set_device(world.device)
        if world.size == 1:
            yield world
            return
        timeout = timedelta(seconds=timeout_s)
        place = Place(world.rank)
        world = replace(world, _place=place)
        orderly = False
        try:
            with _culprit_first(), world.peer_errors():
                met = _join(world, timeout)
                with watching(met, place, world.rank, world.size) if met is not None else nullcontext():
                    world = replace(world, **_local_group(world, timeout))
                    notice_silence()
                    yield world
                    world.barrier()  # else a fast rank closes connections that a slow one still reads from
                    orderly = True
        finally:
            # NCCL may wait here for operations whose peers are gone; the end of the process frees it all the same.
            if dist.is_initialized() and (orderly or world.device.type == "cpu"):
                dist.destroy_process_group()

    @classmethod
    def _from_environment(cls, device: torch.device | str | Sequence[torch.device]) -> World:
        rank, size = (number_of("RANK"), number_of("WORLD_SIZE")) if in_launched_job() else (0, 1)
        local_rank = number_of("LOCAL_RANK", rank) if in_launched_job() else 0
        local_size = number_of("LOCAL_WORLD_SIZE", size) if in_launched_job() else 1
        if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
            raise EnvironmentLimitError(
                f"The environment has RANK={rank}, WORLD_SIZE={size}, LOCAL_RANK={local_rank} and "
                f"LOCAL_WORLD_SIZE={local_size}, which describe no job.",
                "Start the ranks with torchrun, or unset RANK and WORLD_SIZE.",
            )
        own = device if isinstance(device, (str, torch.device)) else device[local_rank]
        machine = number_of("GROUP_RANK", 0) if in_launched_job() else 0
        return cls(rank, size, local_rank, local_size, torch.device(own), machine, tuple(range(local_size)))

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the one that writes and prints."""
        return self.rank == 0

    @property
    def is_local_main(self) -> bool:
        """Whether this is the first rank of its machine."""
        return self.local_rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Adds the tensor over all ranks, in place, on CPU or CUDA; returns it. Shape and dtype are the same on all."""
        if self.size > 1 and tensor.numel() > 0:
            with self._collective():
                dense = tensor.detach().contiguous()
                dist.all_reduce(dense)
                if dense.data_ptr() != tensor.data_ptr():
                    tensor.detach().copy_(dense)
        return tensor

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Overwrites the tensor with rank 0's, bit by bit; returns it. Shape and dtype are the same on all ranks."""
        if self.size > 1 and tensor.numel() > 0:
            with self._collective():
                dense = tensor.detach().contiguous()
                dist.broadcast(dense.view(-1).view(torch.uint8), src=0)  # bytes: gloo lacks some dtypes
                if dense.data_ptr() != tensor.data_ptr():
                    tensor.detach().copy_(dense)
        return tensor

    def between_machines_(self, tensor: Tensor, source: int) -> Tensor:
        """Overwrites a contiguous tensor on the CPU with that of `source`; returns it.

        Called by the first rank of each machine alone, of which `source` is one. Shape and dtype are the same on all.
        """
        if len(self.machines) > 1 and tensor.numel() > 0:
            with self._collective(of_all=False):
                dist.broadcast(tensor.view(-1).view(torch.uint8), src=source, group=self._first_group)
        return tensor

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value on every rank: bytes, or what JSON can hold (tuples come back as lists, on rank 0 too)."""
        return self._broadcast(value, 0, None)

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank, on every rank: bytes, or what JSON can hold."""
        own = _encode(value)
        if self.size == 1:
            return [_decode(own)]
        with self._collective():
            lengths = torch.zeros(self.size, dtype=torch.int64)
            lengths[self.rank] = own.numel()
            dist.all_reduce(lengths)
            padded = torch.zeros(int(lengths.max()), dtype=torch.uint8)
            padded[: own.numel()] = own
            parts = [torch.empty_like(padded) for _ in range(self.size)]
            dist.all_gather(parts, padded)
        return [_decode(part[:length]) for part, length in zip(parts, lengths.tolist(), strict=True)]

    def gather_rows(self, rows: Tensor) -> Tensor:
        """The rows of all ranks in the order of the ranks, on every rank: [n, ...], any n, in RAM.

        What follows the first dimension, and the dtype, are the same on all ranks. Costs twice the result in RAM.
        """
        rows = rows.detach().cpu().contiguous()
        if self.size == 1:
            return rows
        with self._collective():
            lengths = torch.zeros(self.size, dtype=torch.int64)
            lengths[self.rank] = len(rows)
            dist.all_reduce(lengths)
            padded = rows.new_zeros((int(lengths.max()), *rows.shape[1:]))
            if padded.numel() == 0:
                return padded
            padded[: len(rows)] = rows
            parts = [torch.empty_like(padded) for _ in range(self.size)]
            dist.all_gather(parts, padded)
        return torch.cat([part[:length] for part, length in zip(parts, lengths.tolist(), strict=True)])

    def barrier(self, patient: bool = False) -> None:
        """Returns when all ranks have called it; `patient` where the launcher need not say who is awaited."""
        if self.size > 1:
            self._wait_for(None, patient)

    def local_broadcast(self, value: Any) -> Any:
        """The value of the machine's first rank on every rank of that machine, as `broadcast`."""
        return self._broadcast(value, self.local_ranks[0], self._local_group)

    def local_barrier(self) -> None:
        """Returns when all ranks of this machine have called it."""
        if self.local_size > 1:
            self._wait_for(self._local_group)

    @contextmanager
    def peer_errors(self) -> Iterator[None]:
        """Turns the errors of torch that mean a lost peer into `PeerLostError`."""
        try:
            yield
        except RuntimeError as error:
            if not _is_peer_error(error):
                raise
            silence = silence_in(str(error))
            raise PeerLostError(
                f"rank {self.rank} lost a peer: {silence + '.' if silence else str(error).splitlines()[0]}",
                "Mend the network, then go on with --resume."
                if silence
                else "Look for the first error of another rank.",
            ) from error

    @contextmanager
    def _collective(self, patient: bool = False, *, of_all: bool = True) -> Iterator[None]:
        with self.peer_errors(), self._place.waiting(patient, of_all=of_all) if self._place else nullcontext():
            yield

    def _broadcast(self, value: Any, source: int, group: dist.ProcessGroup | None) -> Any:
        if self.size == 1 or (group is not None and self.local_size == 1):
            return _decode(_encode(value))
        with self._collective(of_all=group is None or len(self.machines) == 1):
            raw = _encode(value) if self.rank == source else torch.empty(0, dtype=torch.uint8)
            length = torch.tensor([raw.numel()], dtype=torch.int64)
            dist.broadcast(length, src=source, group=group)
            if self.rank != source:
                raw = torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(raw, src=source, group=group)
        return _decode(raw)

    def _wait_for(self, group: dist.ProcessGroup | None, patient: bool = False) -> None:
        # Not dist.barrier: with two backends that one would choose the GPU's and create a context for it.
        with self._collective(patient, of_all=group is None or len(self.machines) == 1):
            dist.all_reduce(torch.zeros(1, dtype=torch.int64), group=group)


def _join(world: World, timeout: timedelta) -> dist.Store | None:
    """Meets the other ranks; returns where, unless our launcher watches them."""
    backend = "cpu:gloo,cuda:nccl" if world.device.type == "cuda" else "gloo"
    meeting = os.environ.get("PYGSAGE_MEETING")
    if meeting and has_launcher():  # a socket that is open already: no port that another job may hold
        port, fd = map(int, meeting.split(","))
        store = dist.TCPStore(
            "127.0.0.1",
            port,
            is_master=world.rank == 0,
            timeout=timeout,
            wait_for_workers=False,  # the first collective waits for all
            master_listen_fd=fd if world.rank == 0 else None,
        )
        dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=timeout)
        return None
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise EnvironmentLimitError(
            f"RANK is set but {' and '.join(missing)} is not, so the ranks cannot meet.",
            "Start the ranks with torchrun, or unset RANK and WORLD_SIZE.",
        )
    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    others = f"rank {1 - world.rank}" if world.size == 2 else f"all {world.size} ranks"
    told = f"rank {world.rank} has waited {{}} for {others} to come to {where}"
    with saying_who_is_awaited(told) if world.is_local_main else nullcontext():
        met, _, _ = next(dist.rendezvous("env://", world.rank, world.size, timeout=timeout))
        # torchrun's store outlives the ranks that it starts again, which must not find the addresses of those before.
        apart = dist.PrefixStore(attempt(met, world.rank, world.size) if under_torchrun() else "attempt", met)
        dist.init_process_group(backend, store=apart, rank=world.rank, world_size=world.size, timeout=timeout)
    return apart


@contextmanager
def _culprit_first() -> Iterator[None]:
    """Holds back the loss of a peer where a foreign launcher would take the first rank to end for the cause.

    torchrun terminates all others then, among them the rank that failed, before it has told its error.
    """
    try:
        yield
    except PeerLostError:
        if not has_launcher():
            time.sleep(3.0)
        raise


def _local_group(world: World, timeout: timedelta) -> dict[str, Any]:
    """The ranks of this machine and, with several machines, a group of them: collective over all ranks."""
    machines = world.gather(world.machine)
    members = {machine: [r for r, m in enumerate(machines) if m == machine] for machine in sorted(set(machines))}
    own = members[world.machine]
    if len(own) != world.local_size or own.index(world.rank) != world.local_rank:
        raise EnvironmentLimitError(
            f"rank {world.rank} has LOCAL_RANK={world.local_rank} and LOCAL_WORLD_SIZE={world.local_size}, but "
            f"GROUP_RANK={world.machine} holds the ranks {own}.",
            "Start the ranks with torchrun.",
        )
    if len(members) == 1:
        return {"local_ranks": tuple(own), "machines": (tuple(own),)}
    # Every rank takes part in making every group, in the same order.
    groups = {m: dist.new_group(ranks, timeout=timeout, backend="gloo") for m, ranks in members.items()}
    first = dist.new_group([ranks[0] for ranks in members.values()], timeout=timeout, backend="gloo")
    whole = tuple(map(tuple, members.values()))
    return {
        "local_ranks": tuple(own),
        "machines": whole,
        "_local_group": groups[world.machine],
        "_first_group": first if world.rank == own[0] else None,
    }


def _is_peer_error(error: RuntimeError) -> bool:
    text = str(error)
    if isinstance(error, dist.DistBackendError):
        return any(sign in text for sign in _LOST_NCCL)
    lost = any(sign in text for sign in _LOST_GLOO) or bool(silence_in(text))
    return isinstance(error, dist.DistError) or ("gloo" in text and lost)


def _encode(value: Any) -> Tensor:
    raw = b"b" + value if isinstance(value, bytes) else b"j" + json.dumps(value).encode()
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


def _decode(raw: Tensor) -> Any:
    content = raw.numpy().tobytes()
    return content[1:] if content[:1] == b"b" else json.loads(content[1:])
