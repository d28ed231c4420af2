"""Several machines, each with its own part of the features: the result of one process, and ends that hang nowhere.

The machines are groups of processes as torchrun starts them, on loopback or in network namespaces that a cable joins.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pygsage.cli.main import main
from tests.faults.conftest import SMALL
from tests.faults.running import Running, Start, outcome, wait_for

KILL = "os.kill(os.getpid(), 9)"
LOST = "lost a peer"


class Network(NamedTuple):
    """How the processes of each machine find the others."""

    address: str
    inject: tuple[str, str]  # what puts a process on its machine
    env: tuple[dict[str, str], dict[str, str]]


LOOPBACK = Network("127.0.0.1", ("", ""), ({"GLOO_SOCKET_IFNAME": "lo"}, {"GLOO_SOCKET_IFNAME": "lo"}))
Job = Callable[..., list[Running]]


@pytest.fixture(scope="session")
def parts(small: Path) -> tuple[Path, Path]:
    """The folder of each machine: all of the graph but the other's features."""
    store, split = small.parent / "store", small.parent / "split"
    assert main(["convert", str(small), str(store), "--quiet"]) == 0
    assert main(["partition", str(store), str(split), "--quiet"]) == 0
    folders = small.parent / "machine-0" / "graph", small.parent / "machine-1" / "graph"
    for own, folder in enumerate(folders):
        shutil.copytree(split, folder, ignore=shutil.ignore_patterns(f"part-{1 - own}"))
    return folders


@pytest.fixture
def machines(start: Start, parts: tuple[Path, Path]) -> Job:
    """Starts a training of 15 steps at a global batch of 40 on two machines, in the run directory `run`."""

    def run(
        *words: str, ranks: int = 2, run: str | Path = "run", inject: str = "", network: Network = LOOPBACK
    ) -> list[Running]:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        started = []
        for rank in range(ranks):
            machine, local = divmod(rank, ranks // 2)
            of_torchrun = {
                "RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": ranks // 2,
                "GROUP_RANK": machine, "MASTER_ADDR": network.address, "MASTER_PORT": port,
            }  # fmt: skip
            env = {**{name: str(value) for name, value in of_torchrun.items()}, **network.env[machine]}
            how = ["--batch-size", str(40 // ranks), "--run-dir", str(run), "--quiet"]
            code = f"RANK = {rank}\n{network.inject[machine]}\n{inject}"
            # The folder has a name of its own on each machine: what a run is made from is rank 0's.
            started.append(start("train", parts[machine], *SMALL, *how, *words, inject=code, env=env))
        return started

    return run


@pytest.fixture
def whole(machines: Job, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The run directory of a job of so many ranks that nothing happens to; made once."""

    def run_of(ranks: int) -> Path:
        home = tmp_path_factory.getbasetemp() / f"machines-{ranks}"
        if not home.exists():
            for running in machines(run=home, ranks=ranks):
                running.succeeded()
        return home

    return run_of


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_result_of_one_process(ranks: int, whole: Callable[[int], Path], train: Start, tmp_path: Path) -> None:
    run = whole(ranks)
    train(procs=1, run="alone").succeeded()
    for kind in ("epoch", "val", "test"):
        ours, alone = events(run, kind), events(tmp_path / "alone", kind)
        assert [event["loss"] for event in ours] == pytest.approx([event["loss"] for event in alone], rel=2e-6)
        assert [event.get("accuracy") for event in ours] == [event.get("accuracy") for event in alone]
    for event in events(run, "epoch"):
        assert event["remote_rows"] == event["cache_misses"] > 0
        assert event["cache_hits"] > 0
        assert event["remote_bytes"] == event["remote_rows"] * (3 * 4 + 8)
    assert not list(run.glob(".scratch*"))


def test_without_a_cache_and_without_evaluation(machines: Job, whole: Callable[[int], Path], tmp_path: Path) -> None:
    for running in machines("--remote-cache", "0", "--eval-every", "0"):
        running.succeeded()
    plain, cached = events(tmp_path / "run", "epoch"), events(whole(2), "epoch")
    assert [event["loss"] for event in plain] == [event["loss"] for event in cached]
    for without, with_cache in zip(plain, cached, strict=True):
        assert without["cache_hits"] == 0
        assert without["remote_rows"] == with_cache["remote_rows"] + with_cache["cache_hits"]


def test_steps_that_end_within_an_epoch_and_a_resumed_run(
    machines: Job, whole: Callable[[int], Path], tmp_path: Path
) -> None:
    """Batches that were begun are completed by all, and the next epoch begins in step."""
    for running in machines("--max-steps", "7"):
        running.succeeded()
    for running in machines("--resume", "--max-steps", "15"):
        running.succeeded()
    assert outcome(tmp_path / "run") == outcome(whole(2))


def test_a_signal_to_one_machine_stops_both(machines: Job, whole: Callable[[int], Path], tmp_path: Path) -> None:
    inject = """
def wait(trainer, *_):
    Path("here").touch()
    while not trainer.stop.code:
        pass
if RANK == 1:
    before("pygsage.training.loop:Trainer._step", 8, wait)
"""
    ranks = machines(inject=inject)
    wait_for((tmp_path / "here").exists)
    os.kill(ranks[1].pid, signal.SIGTERM)
    for running in ranks:
        assert "Stopped by a signal after step" in running.refused(143)
    for running in machines("--resume"):
        running.succeeded()
    assert outcome(tmp_path / "run") == outcome(whole(2))


@pytest.mark.parametrize("place", ["exchange", "evaluation", "filling", "sampling"])
def test_c100_a_rank_killed_while_others_wait_for_its_rows(
    place: str, machines: Job, whole: Callable[[int], Path], tmp_path: Path
) -> None:
    name, number = {
        "exchange": ("pygsage.sampling.remote_rows:RemoteRows.complete", 9),
        "evaluation": ("pygsage.sampling.remote_rows:RemoteRows.finish", 3),  # after the one that fills the cache
        "filling": ("pygsage.sampling.remote_rows:RemoteRows._serve", 1),
        "sampling": ("pygsage.sampling.remote_rows:RemoteRows.start", 9),
    }[place]
    ranks = machines("--checkpoint-every-s", "0", inject=f"if RANK == 1: before({name!r}, {number}, lambda *_: {KILL})")
    assert ranks[1].ended() == -9
    assert LOST in ranks[0].refused(1)
    for running in machines("--resume"):
        running.succeeded()
    assert outcome(tmp_path / "run") == outcome(whole(2))


def test_a_thread_of_one_rank_raises(machines: Job, whole: Callable[[int], Path], tmp_path: Path) -> None:
    inject = """
def fail(*_):
    raise RuntimeError("a thread broke")
if RANK == 1:
    before("pygsage.sampling.part_batches:PartBatches.draft", 9, fail)
"""
    ranks = machines("--checkpoint-every-s", "0", inject=inject)
    assert ranks[1].ended() == 1
    assert "RuntimeError: a thread broke" in ranks[1].err
    assert LOST in ranks[0].refused(1)
    for running in machines("--resume"):
        running.succeeded()
    assert outcome(tmp_path / "run") == outcome(whole(2))


def test_a_loss_that_is_nan_on_one_rank_stops_all(machines: Job, tmp_path: Path) -> None:
    inject = """
def spoil(trainer, batch, clock):
    if RANK == 1:
        object.__setattr__(batch, "weight", float("nan"))
before("pygsage.training.loop:Trainer._step", 8, spoil)
"""
    for running in machines(inject=inject):
        assert "The loss is nan at step 3 of epoch 2 (on rank 1)" in running.refused(1)


def test_c102_all_ranks_evaluate_and_the_slowest_is_waited_for(
    machines: Job, whole: Callable[[int], Path], tmp_path: Path
) -> None:
    """One that takes long is no reason to end a run: what ends with its process or its machine is noticed otherwise."""
    inject = """
import torch
import torch.distributed as dist
def wait(*_):
    backends = [group._get_backend(torch.device("cpu")) for group in dist.distributed_c10d._world.pg_map]
    least = min(backend.options._timeout.total_seconds() for backend in backends)
    Path(f"rank-{RANK}").write_text(f"{len(backends)} {least:.0f}")
    while RANK == 1 and not Path("go").exists():
        pass
before("pygsage.training.loop:Trainer._evaluate", 1, wait)
"""
    ranks = machines(inject=inject)
    wait_for(lambda: all((tmp_path / f"rank-{rank}").exists() for rank in range(2)))
    (tmp_path / "go").touch()
    for running in ranks:
        running.succeeded()
    for rank in range(2):  # that of all, of each machine, and of the exchange
        num_groups, least = map(int, (tmp_path / f"rank-{rank}").read_text().split())
        assert num_groups >= 3
        assert least == 4 * 3600
    assert outcome(tmp_path / "run") == outcome(whole(2))


def test_a_part_that_one_machine_lacks_is_told_by_all(machines: Job, parts: tuple[Path, Path], tmp_path: Path) -> None:
    away = parts[1] / "part-1"
    away.rename(parts[1] / "part-x")
    try:
        for running in machines():
            said = running.refused()
            assert f"{parts[1]} has no part-1, which machine 1 of 2 trains on; expected it there." in said
    finally:
        (parts[1] / "part-x").rename(away)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def cable() -> Iterator[Network]:
    """Two network namespaces joined by a pair of virtual Ethernet devices; skips where that is not permitted."""
    names = [f"pygsage-{os.getpid()}-{end}" for end in "ab"]
    devices = [f"pg{os.getpid() % 10**6}{end}" for end in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", devices[0], "netns", names[0], "type", "veth", "peer", "name", devices[1], "netns", names[1])
        for end, (name, device) in enumerate(zip(names, devices, strict=True)):
            ip("-n", name, "addr", "add", f"10.213.77.{end + 1}/24", "dev", device)
            for each in ("lo", device):
                ip("-n", name, "link", "set", each, "up")
        enter = [
            f"fd = os.open('/run/netns/{name}', os.O_RDONLY)\n"
            "assert ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000) == 0\n"
            for name in names
        ]
        env = [{"GLOO_SOCKET_IFNAME": device} for device in devices]
        yield Network("10.213.77.1", (enter[0], enter[1]), (env[0], env[1]))
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        told = getattr(error, "stderr", "") or str(error)
        pytest.skip(f"network namespaces cannot be made: {told.strip()}")
    finally:
        for name in names:
            if Path("/run/netns", name).exists():
                ip("netns", "del", name)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def test_two_machines_on_a_cable_that_is_cut(
    cable: Network, machines: Job, whole: Callable[[int], Path], tmp_path: Path
) -> None:
    """Both sides say so and end, and the run goes on when the cable is mended, with the result of an unbroken one."""
    inject = """
import pygsage.connections
pygsage.connections.SILENT_S = 3  # 20 take long
def wait(*_):
    Path("here").touch()
    while not Path("cut").exists():
        pass
if RANK == 0:
    before("pygsage.training.loop:Trainer._step", 8, wait)
"""
    ranks = machines("--checkpoint-every-s", "0", ranks=4, inject=inject, network=cable)
    wait_for((tmp_path / "here").exists)
    namespace, device = f"pygsage-{os.getpid()}-b", cable.env[1]["GLOO_SOCKET_IFNAME"]
    ip("-n", namespace, "link", "set", device, "down")
    (tmp_path / "cut").touch()
    said = [running.refused(1) for running in ranks]  # within 60 s, or it is said that they hang
    assert all(LOST in each for each in said), said
    for side in (said[:2], said[2:]):
        assert any("has gone silent" in each and "Mend the network, then go on with --resume." in each for each in side)
    ip("-n", namespace, "link", "set", device, "up")
    for running in machines("--resume", ranks=4, network=cable):
        running.succeeded()
    assert outcome(tmp_path / "run") == outcome(whole(4))
