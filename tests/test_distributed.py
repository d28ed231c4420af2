"""The world of ranks: real gloo groups of 2, 3 and 4 processes, each with all of its checks inside."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import pygsage
from pygsage import distributed, launched
from pygsage.distributed import PeerLostError, World
from pygsage.errors import EnvironmentLimitError
from pygsage.training.failures import RankFailedError
from pygsage.training.processes import run_ranks

HOME = str(Path(pygsage.__file__).parents[1])
PREAMBLE = """
import os, pathlib, sys, time, warnings
from pygsage.training.failures import reporting_failures
from pygsage.training.processes import hand_back, tie_to_launcher
tie_to_launcher()
import torch
import torch.distributed as dist
from pygsage.distributed import PeerLostError, World
warnings.simplefilter("error")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = pathlib.Path(os.environ["FOLDER"])

def check_collectives(world):
    assert (world.rank, world.size, world.is_main) == (rank, size, rank == 0)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
        tensor = torch.full((3, 2), rank + 1, dtype=dtype)
        assert world.sum_(tensor) is tensor
        assert (tensor == size * (size + 1) // 2).all()
    turned = torch.arange(6.0).reshape(2, 3).t()
    assert (world.sum_(turned) == size * torch.arange(6.0).reshape(2, 3).t()).all() and not turned.is_contiguous()
    weight = torch.nn.Parameter(torch.ones(2))
    assert (world.sum_(weight) == size).all() and weight.grad_fn is None
    assert world.sum_(torch.empty(0, 4)).shape == (0, 4)
    assert world.sum_(torch.tensor(2.0)) == 2.0 * size
    for tensor in (torch.tensor(rank), torch.tensor([rank == 0] * 3), torch.full((2, 2), rank, dtype=torch.int16).t()):
        expected = torch.tensor(True) if tensor.dtype == torch.bool else torch.tensor(0, dtype=tensor.dtype)
        assert world.broadcast_(tensor) is tensor and (tensor == expected).all()
    secret = {"a": [1, 2.5, None, True, "ü", float("inf")], "t": (1, 2)}
    assert world.broadcast(secret if rank == 0 else None) == {**secret, "t": [1, 2]}
    assert world.broadcast(b"\\x00raw" if rank == 0 else 5) == b"\\x00raw"
    assert world.broadcast(b"") == b"" and world.broadcast(None) is None
    long = "x" * 300_000
    assert world.broadcast(long if rank == 0 else "") == long
    assert world.gather({"rank": rank, "pad": "y" * (1000 * rank)}) == [
        {"rank": r, "pad": "y" * (1000 * r)} for r in range(size)
    ]
    assert world.gather(bytes([rank])) == [bytes([r]) for r in range(size)]
    rows = torch.full((rank, 2), float(rank))  # none on rank 0
    assert world.gather_rows(rows).tolist() == [[float(r)] * 2 for r in range(size) for _ in range(r)]
    assert world.gather_rows(torch.empty(0, 3)).shape == (0, 3)

def check_barrier(wait, name, waits_for):
    # Nobody is past the barrier before all have reached it.
    (folder / f"{name}-{rank}").touch()
    wait()
    assert all((folder / f"{name}-{r}").exists() for r in waits_for)
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., object]:
    folder = str(tmp_path_factory.mktemp("ranks"))
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)

    def start(program: str, num_procs: int, failure_grace_s: float = 2.0, **env: str) -> object:
        body = "\n".join("    " + line for line in program.splitlines())
        argv = [sys.executable, "-c", f"{PREAMBLE}\nwith reporting_failures():\n{body}\n"]
        return run_ranks(
            argv, num_procs, env={"PYTHONPATH": HOME, "FOLDER": folder, **env}, failure_grace_s=failure_grace_s
        ).value

    return start


@pytest.fixture
def free_ports() -> tuple[int, int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as one, closing(socket.create_server(("127.0.0.1", 0))) as two:
        return int(one.getsockname()[1]), int(two.getsockname()[1])


def test_c098_two_ranks_with_the_usual_ports_taken_then_through_a_master_port(
    run: Callable[..., object], free_ports: tuple[int, int]
) -> None:
    free_port, other_port = free_ports
    with ExitStack() as stack:
        for port in (12355, 29500):
            taken = stack.enter_context(closing(socket.socket()))
            try:
                taken.bind(("127.0.0.1", port))
                taken.listen()
            except OSError:
                pass  # somebody else has it, which is what we want
        value = run(
            f"""
with World.start() as world:
    check_collectives(world)
    check_barrier(world.barrier, "all", range(size))
    assert world.local_ranks == (0, 1) and world.local_size == 2
    assert world.local_broadcast(rank) == 0
    check_barrier(world.local_barrier, "local", range(size))
assert not dist.is_initialized()

# Again as under torchrun, in the same process.
del os.environ["PYGSAGE_MEETING"]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="{free_port}")
with World.start() as world:
    assert world.gather(rank) == [0, 1]

# C102: rank 0 keeps rank 1 waiting for longer than the timeout.
os.environ["MASTER_PORT"] = "{other_port}"
try:
    with World.start(timeout_s=3.0) as world:
        world.barrier()
        if rank == 0:
            while not (folder / "gave-up").exists():
                time.sleep(0.01)
        began = time.monotonic()
        world.barrier()
except PeerLostError as error:
    if rank == 1:
        assert time.monotonic() - began < 30, "waited for too long"
        assert "Timed out" in str(error)
        (folder / "gave-up").touch()
assert not dist.is_initialized()
if rank == 0:
    hand_back("done")
""",
            2,
        )
    assert value == "done"


def test_c100_three_ranks_of_which_one_raises_at_step_3(run: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(RankFailedError) as caught:
        run(
            """
done = pathlib.Path(os.environ["DONE"])
with World.start() as world:
    check_collectives(world)
    check_barrier(world.barrier, "all", range(size))
    (done / f"checked-{rank}").touch()
    try:
        for step in range(10):
            if rank == 1 and step == 3:
                (done / "raised").write_text(str(time.time()))
                raise ValueError(f"boom at step {step}")
            dist.all_reduce(torch.ones(1000))  # not through our wrapper: torch's error is understood all the same
    except RuntimeError as error:
        (done / f"lost-{rank}").touch()
        raise
""",
            3,
            DONE=str(tmp_path),
        )
    assert time.time() - float((tmp_path / "raised").read_text()) < 10
    assert caught.value.rank == 1
    assert "rank 1 failed: ValueError: boom at step 3" in str(caught.value)
    assert "Traceback" in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {
        "checked-0", "checked-1", "checked-2", "lost-0", "lost-2", "raised",
    }  # fmt: skip


def test_four_ranks_as_two_machines_of_which_one_is_killed(run: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(RankFailedError, match=r"rank 3 was killed by signal 9 \(SIGKILL\)"):
        run(
            """
done = pathlib.Path(os.environ["DONE"])
os.environ.update(GROUP_RANK=str(rank // 2), LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2")
with World.start() as world:
    check_collectives(world)
    mine = (0, 1) if rank < 2 else (2, 3)
    assert (world.machine, world.local_ranks, world.local_rank, world.local_size) == (rank // 2, mine, rank % 2, 2)
    assert world.is_local_main == (rank in (0, 2))
    assert world.local_broadcast({"from": rank}) == {"from": mine[0]}
    assert world.machines == ((0, 1), (2, 3))
    number = world._place.now()
    if world.is_local_main:
        for source in (2, 0):
            rows = torch.full((3, 2), float(rank))
            assert world.between_machines_(rows, source) is rows and (rows == source).all()
    check_barrier(world.local_barrier, "local", mine)
    assert world._place.now() == number  # compared between all ranks: those of some are not counted
    check_barrier(world.barrier, "all", range(size))
    # One machine's barrier does not wait for the other machine.
    if rank >= 2:
        while not all((folder / f"own-{r}").exists() for r in (0, 1)):
            time.sleep(0.01)
    else:
        world.local_barrier()
        (folder / f"own-{rank}").touch()
    (done / f"checked-{rank}").touch()
    world.barrier()
    if rank == 3:
        os.kill(os.getpid(), 9)
    try:
        world.sum_(torch.ones(10))
    except PeerLostError as error:
        assert str(error).startswith(f"rank {rank} lost a peer: ") and error.exit_status == 1
        raise
""",
            4,
            DONE=str(tmp_path),
        )
    assert len(list(tmp_path.glob("checked-*"))) == 4


def test_one_process_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for environ in ({}, {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}):
        monkeypatch.delenv("RANK", raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        with World.start() as world:
            assert not dist.is_initialized()
            assert world == World()
            assert world.is_main
            assert world.is_local_main
            assert world.sum_(torch.ones(2)).tolist() == [1.0, 1.0]
            assert world.broadcast_(torch.ones(1)).tolist() == [1.0]
            assert world.broadcast((1, 2)) == [1, 2]  # as with several ranks
            assert world.local_broadcast(b"x") == b"x"
            assert world.gather({"a": 1}) == [{"a": 1}]
            assert world.gather_rows(torch.ones(2, 1)).tolist() == [[1.0], [1.0]]
            world.barrier()
            world.local_barrier()


@pytest.mark.parametrize(
    "environ",
    [
        {"RANK": "0"},
        {"RANK": "x", "WORLD_SIZE": "2"},
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "3"},
        {"RANK": "0", "WORLD_SIZE": "2"},  # nowhere to meet
    ],
)
def test_an_environment_that_describes_no_job_is_refused(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    for name in ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PYGSAGE_MEETING"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EnvironmentLimitError, match="torchrun"), World.start():
        pass
    assert not dist.is_initialized()


def test_only_errors_that_mean_a_lost_peer_are_taken_for_one() -> None:
    world = World(rank=1, size=2)
    lost = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4711\nmore")
    for error in (lost, dist.DistNetworkError("the store is gone")):
        with pytest.raises(PeerLostError, match="rank 1 lost a peer"), world.peer_errors():
            raise error
    ours = (
        RuntimeError("[gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4"),
        dist.DistBackendError("NCCL error: invalid usage. Duplicate GPU detected"),
        RuntimeError("a thread timed out"),
    )
    for error in ours:
        with pytest.raises(RuntimeError), world.peer_errors():
            raise error


def test_under_torchrun_the_rank_that_failed_ends_before_those_that_lost_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else torchrun takes one of those for the cause, and terminates the other before it has told its error."""
    waits: list[float] = []
    monkeypatch.setattr(distributed.time, "sleep", waits.append)
    monkeypatch.delenv(launched.LAUNCHER, raising=False)
    with pytest.raises(ValueError, match="cause"), distributed._culprit_first():
        raise ValueError("the cause")
    assert waits == []
    with pytest.raises(PeerLostError), distributed._culprit_first():
        raise PeerLostError("lost")
    assert waits == [3.0]
    monkeypatch.setenv(launched.LAUNCHER, str(os.getppid()))  # ours reads the times of the errors
    monkeypatch.setenv(launched.PIPE, "0")
    with pytest.raises(PeerLostError), distributed._culprit_first():
        raise PeerLostError("lost")
    assert waits == [3.0]


def test_a_rank_takes_the_device_of_its_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with World.start([torch.device("cpu"), torch.device("meta")]) as world:
        assert world.device == torch.device("cpu")
