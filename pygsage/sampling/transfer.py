"""How what the sampler's threads prepare comes to the device of the step: at once, or by reused pinned memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pygsage.errors import EnvironmentLimitError
from pygsage.native.memory import empty

ALIGNED = 256  # bytes: any dtype may be seen there, and a GPU reads from there in whole lines
_COPIED_BY_TORCH = 1 << 15  # elements, from which on it shares a copy between threads


class Written(NamedTuple):
    """A tensor that `write` fills in, in memory that is given to it: that from which it is sent."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    write: Callable[[Tensor], object]


Parts = Mapping[str, Tensor | Written]


class Sent(Protocol):
    """Tensors on their way to a device."""

    def take(self) -> dict[str, Tensor]:
        """The tensors there, by name; called once, in the thread that computes with them."""


class Carrier(Protocol):
    """Brings tensors to the device of the step."""

    @property
    def device(self) -> torch.device:
        """Where to."""

    def send(self, parts: Parts) -> Sent:
        """Sends tensors that lie on the CPU; called from several threads at once."""


@dataclass(frozen=True)
class Waiting:
    """Tensors on the CPU, which are copied when they are taken, if at all."""

    parts: dict[str, Tensor]
    device: torch.device

    def take(self) -> dict[str, Tensor]:
        """As `Sent.take`; on a GPU it returns when the copies have been made."""
        return {name: part.to(self.device) for name, part in self.parts.items()}


class PageableCarrier:
    """Copies when the tensors are taken, from ordinary memory; none where the step is on the CPU.

    Args:
        device: Where to.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def send(self, parts: Parts) -> Waiting:
        """As `Carrier.send`."""
        return Waiting({name: _made(part) for name, part in parts.items()}, self.device)


class Copy(Protocol):
    """A copy that was begun."""

    def wait(self) -> None:
        """Returns when it has been made, so that its source may be written to."""

    def precede(self, arrived: Tensor) -> None:
        """What this thread asks of the device from now on sees the copy; its memory is not given away before."""


class CopyStream(Protocol):
    """Makes copies to a device in order, beside what the device computes."""

    device: torch.device

    def memory(self, num_bytes: int) -> Tensor:
        """uint8 [num_bytes] on the CPU, from which copies are made."""

    def copy(self, source: Tensor) -> tuple[Tensor, Copy]:
        """Begins a copy; its source must not change before `Copy.wait` has returned."""


class _Done:
    def wait(self) -> None:
        pass

    def precede(self, arrived: Tensor) -> None:
        pass


class ImmediateStream:
    """Copies that are made before they are said to have begun, by any device that torch has.

    Args:
        device: Where to.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def memory(self, num_bytes: int) -> Tensor:
        """As `CopyStream.memory`."""
        return torch.empty(num_bytes, dtype=torch.uint8)

    def copy(self, source: Tensor) -> tuple[Tensor, Copy]:
        """As `CopyStream.copy`."""
        return source.to(self.device, copy=True), _Done()


class CudaStream:
    """Copies from pinned memory on a CUDA stream of their own.

    Args:
        device: Where to, with its number.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)

    def memory(self, num_bytes: int) -> Tensor:
        """As `CopyStream.memory`.

        Raises:
            EnvironmentLimitError: when the system pins no more.
        """
        with torch.cuda.device(self.device):  # a thread begins with GPU 0, and would start a context there
            try:
                return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
            except RuntimeError as error:
                raise EnvironmentLimitError(
                    f"{num_bytes / 2**20:.0f} MiB of memory could not be pinned: {str(error).splitlines()[0]}.",
                    "Type --placement cpu-cuda, which pins none.",
                ) from None

    def copy(self, source: Tensor) -> tuple[Tensor, Copy]:
        """As `CopyStream.copy`."""
        with torch.cuda.stream(self._stream):  # which also makes its device the current one
            arrived = torch.empty(len(source), dtype=torch.uint8, device=self.device)
            arrived.copy_(source, non_blocking=True)
            done = torch.cuda.Event(blocking=True)  # a thread that waits for it sleeps
            done.record(self._stream)
        return arrived, _CudaCopy(done)


@dataclass(frozen=True)
class _CudaCopy:
    done: torch.cuda.Event

    def wait(self) -> None:
        self.done.synchronize()

    def precede(self, arrived: Tensor) -> None:
        current = torch.cuda.current_stream(arrived.device)
        current.wait_event(self.done)
        # The memory came from the copying stream, which would else hand it out again while the step reads it.
        arrived.record_stream(current)


def copy_stream(device: torch.device) -> CopyStream:
    """The stream that copies to a device."""
    return CudaStream(device) if device.type == "cuda" else ImmediateStream(device)


@dataclass
class _Buffer:
    memory: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    last: Copy = field(default_factory=_Done)


class StagingCarrier:
    """Writes the tensors side by side into one of a few buffers, and copies them to the device as one, asynchronously.

    A buffer is lent to one thread at a time, and is not written to before the copy from it has ended.

    Args:
        stream: Makes the copies.
        num_buffers: As many as there are threads that send; one more lets a copy go on while all of them write.

    Cost: each buffer is as large as the largest that was sent, up to a power of two.
    """

    def __init__(self, stream: CopyStream, num_buffers: int) -> None:
        self.device = stream.device
        self._stream = stream
        self._free: Queue[_Buffer] = Queue()
        for _ in range(num_buffers):
            self._free.put(_Buffer())

    def send(self, parts: Parts) -> Sent:
        """As `Carrier.send`. Waits for a buffer whose copy has ended."""
        places, num_bytes = {}, 0
        for name, part in parts.items():
            places[name] = _Place(num_bytes, tuple(part.shape), part.dtype)
            num_bytes += -(-places[name].num_bytes // ALIGNED) * ALIGNED
        with self._lent(num_bytes) as buffer:
            for name, part in parts.items():
                there = places[name].within(buffer.memory)
                if isinstance(part, Written):
                    part.write(there)
                elif part.numel() < _COPIED_BY_TORCH:
                    there.copy_(part)
                else:  # by NumPy, which starts no threads
                    _bytes_of(there)[:] = _bytes_of(part.contiguous())
            arrived, buffer.last = self._stream.copy(buffer.memory[:num_bytes])
            return _Staged(arrived, buffer.last, places)

    @contextmanager
    def _lent(self, num_bytes: int) -> Iterator[_Buffer]:
        buffer = self._free.get()
        try:
            buffer.last.wait()
            if len(buffer.memory) < num_bytes:
                # torch pins powers of two.
                buffer.memory = self._stream.memory(1 << max(0, num_bytes - 1).bit_length())
            yield buffer
        finally:
            self._free.put(buffer)


@dataclass(frozen=True)
class _Place:
    begin: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def within(self, memory: Tensor) -> Tensor:
        return memory[self.begin : self.begin + self.num_bytes].view(self.dtype).view(self.shape)


@dataclass(frozen=True)
class _Staged:
    arrived: Tensor
    copy: Copy
    places: dict[str, _Place]

    def take(self) -> dict[str, Tensor]:
        self.copy.precede(self.arrived)
        return {name: place.within(self.arrived) for name, place in self.places.items()}


def _bytes_of(tensor: Tensor) -> np.ndarray:
    return tensor.view(-1).view(torch.uint8).numpy()


def _made(part: Tensor | Written) -> Tensor:
    if not isinstance(part, Written):
        return part
    out = empty(part.shape, part.dtype)
    part.write(out)
    return out
