"""A store that is harmed while a job reads it: the job ends as it would have, or says what has happened."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pygsage.cli.main import main
from tests.faults.running import Start, outcome, wait_for

HARM = """
import os, shutil
store = Path("store")
def harm(*_):
    {what}
if RANK == {rank}:
    before("pygsage.training.loop:Trainer._step", 3, harm)
"""


@pytest.fixture
def store(small: Path, tmp_path: Path) -> Path:
    """The small graph as a folder of arrays, which a job maps."""
    assert main(["convert", str(small), str(tmp_path / "store"), "--quiet"]) == 0
    return tmp_path / "store"


@pytest.mark.parametrize(
    "what",
    [
        "shutil.rmtree(store)",
        "shutil.move(store, 'elsewhere')",
        "[path.chmod(0o400) for path in store.iterdir() if path.is_file()]",
    ],
    ids=["deleted", "moved", "read-only"],
)
def test_a_job_that_has_it_mapped_goes_on(
    train: Start, store: Path, tmp_path: Path, unbroken: Callable[[int], Any], what: str
) -> None:
    train(dataset=store, inject=HARM.format(what=what, rank=0)).succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


def test_made_read_only_by_its_disk(
    train: Start, small: Path, disk: Callable[[str], Path], tmp_path: Path, unbroken: Callable[[int], Any]
) -> None:
    folder = disk("1m")
    assert main(["convert", str(small), str(folder / "store"), "--quiet"]) == 0
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    train(dataset=folder / "store").succeeded()
    assert outcome(tmp_path / "run") == unbroken(2)


def test_cut_short_under_several_processes(train: Start, store: Path, tmp_path: Path) -> None:
    what = "os.truncate(store / 'x.npy', 0); os.truncate(store / 'indices.npy', 0)"
    said = train(dataset=store, inject=HARM.format(what=what, rank=1)).refused(status=1)
    assert "was killed by signal 7 (SIGBUS). A mapped file was cut short" in said
    with_it = train("--resume", dataset=store).refused()
    assert "is damaged" in with_it


def test_cut_short_under_one_process(train: Start, store: Path) -> None:
    what = "os.truncate(store / 'x.npy', 0); os.truncate(store / 'indices.npy', 0)"
    said = train(dataset=store, procs=1, inject=HARM.format(what=what, rank=None)).refused(status=1)
    assert "A mapped file was cut short while it was read" in said
    assert "is damaged" in train("--resume", dataset=store, procs=1).refused()


@pytest.mark.parametrize("name", ["x", "indices", "indptr", "y", "split/train"])
def test_a_bit_that_flips_is_found_by_verify(
    train: Start, start: Start, store: Path, tmp_path: Path, name: str
) -> None:
    """The job may end in any way, but ends; whoever looks finds the file."""
    what = f"""
    path = store / "{name}.npy"
    content = bytearray(path.read_bytes())
    content[200] ^= 64
    with open(path, "r+b") as file:
        file.write(content)"""
    ended = train(dataset=store, procs=1, inject=HARM.format(what=what, rank=None)).ended()
    assert ended in (0, 1, 2)
    assert f"{name}.npy" in start("info", store, "--verify").refused()


@pytest.mark.parametrize("name", ["manifest.json", "x.npy"])
def test_cut_short_before_a_job_opens_it(train: Start, store: Path, tmp_path: Path, name: str) -> None:
    path = store / name
    path.write_bytes(path.read_bytes()[:-7])
    said = train(dataset=store).refused()
    assert "damaged" in said
    assert name in said
    assert not (tmp_path / "run").exists()


def test_two_jobs_on_one_store(train: Start, store: Path, tmp_path: Path, unbroken: Callable[[int], Any]) -> None:
    inject = """
def meet(*_):
    Path(f"{os.getpid()}.here").touch()
    while len(list(Path().glob("*.here"))) < 2:
        pass
before("pygsage.training.loop:Trainer._step", 2, meet)
"""
    jobs = [train(dataset=store, procs=1, run=f"run-{number}", inject=inject) for number in range(2)]
    for number, job in enumerate(jobs):
        job.succeeded()
        assert outcome(tmp_path / f"run-{number}") == unbroken(1)


def test_two_jobs_on_one_run_directory(train: Start, tmp_path: Path, unbroken: Callable[[int], Any]) -> None:
    inject = """
def wait(*_):
    Path("here").touch()
    while not Path("go").exists():
        pass
before("pygsage.training.loop:Trainer._step", 8, wait)
"""
    first = train(procs=1, inject=inject)
    wait_for((tmp_path / "here").exists)
    for words in ((), ("--resume",)):
        assert "Another job is writing to the run 'run'." in train(*words).refused()
    (tmp_path / "go").touch()
    first.succeeded()
    assert outcome(tmp_path / "run") == unbroken(1)
