"""Limits of the machine that are reached, and clocks that go wrong."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faults.running import Start, outcome

GROUPS = Path("/sys/fs/cgroup/memory")


def test_c081_two_processes_with_64_descriptors(train: Start, tmp_path: Path, unbroken: Callable[[int], Any]) -> None:
    train(NOFILE=64).succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


def test_c081_too_few_descriptors_for_so_many_processes(train: Start, tmp_path: Path) -> None:
    """Twenty pipes do not fit; nothing is made."""
    said = train(procs=20, NOFILE=20).refused()
    assert "Too many open files" in said
    assert "ulimit -n" in said
    assert not (tmp_path / "run").exists()


def test_c098_the_usual_ports_are_taken_and_two_jobs_are_told_the_same_one(
    train: Start, tmp_path: Path, unbroken: Callable[[int], Any]
) -> None:
    """Our launcher asks for a port that is free, whatever the environment says."""
    with ExitStack() as stack:
        for port in (12355, 29500):
            with suppress(OSError):
                stack.enter_context(closing(socket.create_server(("127.0.0.1", port))))
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        jobs = [train(run=f"run-{number}", env=env) for number in range(2)]
        for number, job in enumerate(jobs):
            job.succeeded()
            assert outcome(tmp_path / f"run-{number}") == unbroken(2)


def test_a_clock_that_steps_back(train: Start, tmp_path: Path, unbroken: Callable[[int], Any]) -> None:
    """As when a machine asks for the time at last: nothing waits for it, and no duration is negative."""
    inject = """
import itertools, time
back = itertools.count(start=2e9, step=-3600.0)
time.time = lambda: next(back)
"""
    train("--checkpoint-every-s", "0", inject=inject).succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(value >= 0 for line in lines for name, value in line.items() if name == "seconds")


def test_a_cap_on_memory_that_is_reached(train: Start, tmp_path: Path, unbroken: Callable[[int], Any]) -> None:
    """The kernel kills a rank; who it was is said, and what to do."""
    group = GROUPS / f"pygsage-test-{tmp_path.name}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(256 << 20))
    except OSError as error:
        pytest.skip(f"no memory control group can be made: {error}")
    inject = f"""
def grow(*_):
    Path({str(group / "cgroup.procs")!r}).write_text(str(os.getpid()))
    held = bytearray(1 << 30)
if RANK == 1:
    before("pygsage.training.loop:Trainer._step", 8, grow)
"""
    try:
        said = train("--checkpoint-every-s", "0", inject=inject).refused(status=1)
    finally:
        group.rmdir()
    assert "rank 1 was killed by signal 9 (SIGKILL). The kernel's out-of-memory killer does this" in said
    train("--resume").succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)
