"""`torchrun --max-restarts`: a job whose rank was killed goes on by itself, and a mistake is not taken for that."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import SMALL
from tests.faults.running import Running, Start, outcome

# torchrun's own agent; it forks the ranks instead of starting an interpreter for each, which takes seconds.
TORCHRUN = """
import sys
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

def rank(words):
    from pygsage.cli.main import main
    exec(AS_RANK, {{**INJECTED, "RANK": int(os.environ["RANK"])}})
    sys.exit(main(words))

def launch(words):
    os.makedirs({folder!r}, exist_ok=True)
    os.chdir({folder!r})
    how = LaunchConfig(
        min_nodes={nodes}, max_nodes={nodes}, nproc_per_node=2 // {nodes}, start_method="fork", max_restarts=1,
        rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:{port}", rdzv_configs={configs}, run_id="job",
        monitor_interval=0.05, local_addr="127.0.0.1",
    )
    try:
        elastic_launch(how, rank)(words)
    except ChildFailedError:
        return 1
    return 0

import pygsage.cli.main as cli
AS_RANK, INJECTED = {inject!r}, globals()
real = cli.main
def main(words):
    cli.main = real
    return launch(words)
cli.main = main
"""
ONCE = '(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")'


@pytest.fixture
def torchrun(start: Start, small: Path) -> Callable[..., Running]:
    """Starts a training of 15 steps on two ranks, of which each begins with `inject`."""

    def run(*words: str | Path, inject: str = "", folder: str = ".", port: int = 0, first: bool = True) -> Running:
        """Of one machine, or where a port is given of one of two, whose disk is a folder."""
        how = ["--batch-size", "20", "--run-dir", "run", "--quiet", "--checkpoint-every-s", "0"]
        env = {"GLOO_SOCKET_IFNAME": "lo"}
        configs = {"is_host": first, "timeout": 60} if port else {}
        nodes = 2 if port else 1
        code = TORCHRUN.format(inject=inject, folder=folder, nodes=nodes, port=port, configs=configs)
        return start("train", small, *SMALL, *how, *words, inject=code, env=env)

    return run


def test_a_rank_that_is_killed_costs_the_steps_since_the_checkpoint(
    torchrun: Callable[..., Running], tmp_path: Path, unbroken: Callable[[int], Any]
) -> None:
    inject = f"""
if RANK == 1 and {ONCE}:
    before("pygsage.training.loop:Trainer._step", 8, lambda *_: os.kill(os.getpid(), 9))
if not {ONCE}:  # it begins where it was, not at the first step
    def told(trainer, *_):
        Path("began").write_text(str(trainer.progress.total_steps))
    before("pygsage.training.loop:Trainer._train_epoch", 1, told)
"""
    torchrun(inject=inject).succeeded()
    assert (tmp_path / "began").read_text() == "7"
    assert outcome(tmp_path / "run") == unbroken(2)


def test_killed_before_the_first_checkpoint_it_begins_anew(
    torchrun: Callable[..., Running], tmp_path: Path, unbroken: Callable[[int], Any]
) -> None:
    kill = f'if {ONCE}: before("pygsage.training.loop:Trainer._step", 1, lambda *_: os.kill(os.getpid(), 9))'
    torchrun(inject=kill).succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


def test_a_run_of_another_job_is_refused_each_time(torchrun: Callable[..., Running], tmp_path: Path) -> None:
    torchrun("--max-steps", "7").succeeded()
    before = outcome(tmp_path / "run")
    again = torchrun()
    assert again.ended() == 1
    assert again.err.count("'run' already holds a run. Type --resume to go on with it") == 2  # at first, and once again
    assert outcome(tmp_path / "run") == before


def test_a_rank_that_is_killed_on_one_of_two_machines_costs_the_same(
    torchrun: Callable[..., Running], tmp_path: Path, unbroken: Callable[[int], Any]
) -> None:
    """Each has a disk of its own: the checkpoints are rank 0's. The launcher of the other machine counts no restart."""
    inject = """
if RANK == 1 and not os.path.exists("killed"):
    def kill(*_):
        Path("killed").touch()
        os.kill(os.getpid(), 9)
    before("pygsage.training.loop:Trainer._step", 8, kill)
def told(trainer, *_):
    with open(f"began-{RANK}", "a") as file:
        file.write(os.environ["TORCHELASTIC_RESTART_COUNT"] + f" {trainer.progress.total_steps} ")
before("pygsage.training.loop:Trainer._train_epoch", 1, told)
"""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    machines = [torchrun(inject=inject, folder=name, port=port, first=name == "one") for name in ("one", "two")]
    for machine in machines:
        machine.succeeded()
    home, other = (tmp_path / ("one" if (tmp_path / "one" / f"began-{rank}").exists() else "two") for rank in (0, 1))
    assert (home / "began-0").read_text() == "0 0 0 7 "  # what began again counts for the other machine only
    assert (other / "began-1").read_text() == "0 0 1 7 "
    assert outcome(home / "run") == unbroken(2)
    assert not (other / "run" / "last.pt").exists()
