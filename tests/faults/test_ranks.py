"""A rank that is killed, fails, or goes astray: the others end with it, the cause is told, and the run goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.running import Start, outcome, wait_for

KILL = "os.kill(os.getpid(), 9)"
# Where a rank is killed: a function, and the number of its call.
PLACES = {
    "sampling": ("pygsage.sampling.sampler:NeighborSampler.sample_layers", 8),
    "forward": ("pygsage.training.nodes:NodeProblem.scores", 8),
    "reduction": ("pygsage.distributed:World.sum_", 8),
    "evaluation": ("pygsage.training.loop:Trainer._evaluate", 2),
}


@pytest.mark.parametrize("place", PLACES)
def test_c100_a_rank_killed_in(train: Start, tmp_path: Path, unbroken: Callable[[int], Any], place: str) -> None:
    name, number = PLACES[place]
    inject = f"if RANK == 1: before({name!r}, {number}, lambda *_: {KILL})"
    said = train("--checkpoint-every-s", "0", inject=inject).refused(status=1)
    assert "rank 1 was killed by signal 9 (SIGKILL). The kernel's out-of-memory killer does this" in said
    assert not list(tmp_path.rglob("*.partial"))
    train("--resume").succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)
    assert not list((tmp_path / "run").glob(".scratch*"))


@pytest.mark.parametrize("moment", ["written", "renamed"])
def test_c110_rank_0_killed_at_a_checkpoint(
    train: Start, tmp_path: Path, unbroken: Callable[[int], Any], moment: str
) -> None:
    name = {"written": "os:fsync", "renamed": "os:replace"}[moment]
    inject = f"""
def arm(*_):
    before({name!r}, 1, lambda *_: {KILL})
if RANK == 0:
    before("pygsage.training.loop:Trainer.save", 7, arm)
"""
    said = train("--checkpoint-every-s", "0", inject=inject).refused(status=1)
    assert "rank 0 was killed by signal 9" in said
    assert "Go on with: pygsage train --run-dir run --resume" in said
    train("--resume").succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


def test_c102_an_evaluation_that_takes_its_time_on_rank_0(
    train: Start, tmp_path: Path, unbroken: Callable[[int], Any]
) -> None:
    """All ranks evaluate, and those that are done wait for the others as long as it takes."""
    inject = """
def slowly(*_):
    Path(f"evaluates-{RANK}").touch()
    while RANK == 0 and not Path("evaluates-1").exists():
        pass
    if RANK == 0:
        __import__("time").sleep(1.5)
before("pygsage.training.loop:Trainer._evaluate", 2, slowly)
"""
    train(inject=inject).succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


def test_a_sampler_thread_of_one_rank_raises(train: Start, tmp_path: Path, unbroken: Callable[[int], Any]) -> None:
    inject = """
def fail(*_):
    raise RuntimeError("a thread broke")
if RANK == 1:
    before("pygsage.sampling.sampler:NeighborSampler.sample_layers", 8, fail)
"""
    failed = train("--checkpoint-every-s", "0", inject=inject)
    assert failed.ended() == 1
    assert "rank 1 failed: RuntimeError: a thread broke" in failed.err
    assert "in fail" in failed.err
    train("--resume").succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


def test_a_loss_that_is_nan_on_one_rank_stops_all_before_the_step(
    train: Start, tmp_path: Path, unbroken: Callable[[int], Any]
) -> None:
    """All say where, and the weights of the last good step are in the checkpoint."""
    inject = """
def spoil(trainer, batch, clock):
    if RANK == 1:
        object.__setattr__(batch, "weight", float("nan"))
before("pygsage.training.loop:Trainer._step", 8, spoil)
"""
    said = train("--checkpoint-every-s", "0", inject=inject).refused(status=1)
    assert (
        "The loss is nan at step 3 of epoch 2 (on rank 1), or its gradient is not finite; the weights were not" in said
    )
    train("--resume").succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_in_the_midst_of_it(
    train: Start, tmp_path: Path, unbroken: Callable[[int], Any], signum: signal.Signals, status: int
) -> None:
    inject = """
def wait(trainer, *_):
    Path("here").touch()
    while not trainer.stop.code:  # the launcher passes the signal on when it looks next
        pass
if RANK == 0:
    before("pygsage.training.loop:Trainer._step", 8, wait)
"""
    running = train(inject=inject)
    wait_for((tmp_path / "here").exists)
    os.kill(running.pid, signum)
    said = running.refused(status)
    assert "Stopped by a signal after step" in said
    assert "Go on with: pygsage train --run-dir run --resume" in said
    train("--resume").succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


def test_a_launcher_that_is_killed_takes_its_ranks_with_it(
    train: Start, tmp_path: Path, unbroken: Callable[[int], Any]
) -> None:
    inject = """
def wait(*_):
    Path(f"rank-{RANK}").write_text(str(os.getpid()))
    while True:
        signal.pause()
if RANK is not None:
    before("pygsage.training.loop:Trainer._step", 8, wait)
"""
    (tmp_path / "tmp").mkdir()
    running = train("--checkpoint-every-s", "0", inject=inject, env={"TMPDIR": str(tmp_path / "tmp")})
    wait_for(lambda: all((tmp_path / f"rank-{r}").exists() and (tmp_path / f"rank-{r}").read_text() for r in range(2)))
    os.kill(running.pid, signal.SIGKILL)
    assert running.ended() == -9
    for rank in range(2):
        wait_for(partial(_has_ended, int((tmp_path / f"rank-{rank}").read_text())))
    assert list((tmp_path / "tmp").iterdir()) == []
    train("--resume").succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)
    assert not list((tmp_path / "run").glob(".scratch*"))


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
