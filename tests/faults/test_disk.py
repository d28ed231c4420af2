"""A disk that gets full: one sentence that names the folder, and nothing that is half written is taken for whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pygsage import OnDiskGraphs
from pygsage.errors import DatasetError
from tests.faults.running import Start, filled, outcome

KIB = 1 << 10
RECIPE = """
import torch
from torch_geometric.data import Data
import pygsage

class Many(pygsage.Recipe):
    def graphs(self):
        for number in range(400):
            yield Data(x=torch.full((20, 16), float(number)), edge_index=torch.zeros(2, 30, dtype=torch.long))
"""


def full(said: str, folder: Path) -> None:
    assert re.search(rf"is full: No space left on device \([\d.]+ \w+ of [\d.]+ \w+ free\)\. .*df -h {folder}", said), (
        said
    )


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
def test_while_converting(start: Start, disk: Callable[[str], Path], tmp_path: Path, backend: str) -> None:
    (tmp_path / "many.py").write_text(RECIPE)
    small = disk("2m")
    words = ["convert", "many.py", small / "store", "--backend", backend, "--quiet"]
    with filled(small, but=300 * KIB):
        said = start(*words).refused()
        full(said, small)
        assert "resume" in said
        assert not (small / "store").exists()
        for partial in small.glob(".store*"):
            if partial.is_dir():
                with pytest.raises(DatasetError):
                    OnDiskGraphs(partial)
    start(*words, "--resume").succeeded()
    store = OnDiskGraphs(small / "store")
    assert len(store) == 400
    assert [float(graph.x[0, 0]) for graph in store] == list(range(400))


@pytest.mark.parametrize("procs", [1, 2])
def test_at_a_checkpoint(
    train: Start, disk: Callable[[str], Path], tmp_path: Path, unbroken: Callable[[int], Any], procs: int
) -> None:
    small = disk("256k")
    inject = """
def fill(*_):
    with open("disk-0/ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            pass
if RANK in (None, 0):
    before("pygsage.training.loop:Trainer.save", 7, fill)
"""
    said = train("--checkpoint-every-s", "0", run=small / "run", procs=procs, inject=inject).refused()
    full(said, small / "run")
    assert "--resume" in said
    (small / "ballast").unlink()
    assert not list((small / "run").glob("*.partial"))
    train("--resume", run=small / "run", procs=procs).succeeded()
    assert outcome(small / "run") == unbroken(procs)


def test_at_a_line_of_the_metrics(
    train: Start, disk: Callable[[str], Path], tmp_path: Path, unbroken: Callable[[int], Any]
) -> None:
    """Of which a part fits."""
    small = disk("256k")
    inject = """
from pygsage.training.run import Run
def fill(run, *_):
    run._metrics.write(b" " * (4096 - run.metrics_bytes % 4096 - 10))  # ten bytes of the page are left
    with open("disk-0/ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            pass
before("pygsage.training.run:Run.append", 3, fill)
"""
    said = train(run=small / "run", procs=1, inject=inject).refused()
    full(said, small / "run")
    assert (small / "run" / "metrics.jsonl").read_bytes().endswith(b"      ")  # nothing of the line
    (small / "ballast").unlink()
    train("--resume", run=small / "run", procs=1).succeeded()
    assert outcome(small / "run") == unbroken(1)


def test_while_the_graph_is_shared_with_the_ranks(train: Start, disk: Callable[[str], Path]) -> None:
    small = disk("256k")
    with filled(small, but=40 * KIB):
        full(train(run=small / "run").refused(), small / "run" / r"\.scratch-0")
    train("--resume", run=small / "run").succeeded()


def test_on_standard_output(train: Start, tmp_path: Path) -> None:
    """Of `pygsage train > log`."""
    inject = "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    said = train("--no-quiet", procs=1, inject=inject).refused()
    assert "is full: No space left on device" in said


@pytest.mark.parametrize("name", ["TMPDIR", "/dev/shm"])
def test_c082_several_processes_need_no_room_in(
    train: Start, disk: Callable[[str], Path], tmp_path: Path, unbroken: Callable[[int], Any], name: str
) -> None:
    """What they say comes through pipes, and what they share lies in the run directory."""
    small = disk("16k")
    env, inject = {"TMPDIR": str(small)}, ""
    if name == "/dev/shm":
        inject = f"""
if RANK is None:
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, bind, private, below = 0x20000, 0x1000, 1 << 18, 0x4000
    assert libc.unshare(new_mounts) == 0
    assert libc.mount(b"none", b"/", None, private | below, None) == 0
    assert libc.mount({str(small)!r}.encode(), b"/dev/shm", None, bind, None) == 0
    assert os.statvfs("/dev/shm").f_bavail == 0
"""
        env = {}
    with filled(small, but=0):
        assert "missing.npz does not exist" in train(dataset=Path("missing.npz"), inject=inject, env=env).refused()
        train(inject=inject, env=env).succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


def test_a_file_that_may_not_get_larger(train: Start, tmp_path: Path, unbroken: Callable[[int], Any]) -> None:
    said = train(procs=1, FSIZE=2 * KIB).refused()
    assert "has reached the largest size that is allowed: File too large" in said
    assert "ulimit -f" in said
    train("--resume", procs=1).succeeded()
    assert outcome(tmp_path / "run") == unbroken(1)
