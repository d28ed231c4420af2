"""Starts commands that can be harmed while they run, and makes small disks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.running import Running, Start, outcome

SMALL = ["--gpus", "0", "--hidden", "8", "--fanouts", "4,3", "--epochs", "3", "--lr", "0.01"]


@pytest.fixture(scope="session")
def forge(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """The process that all commands are forked from."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    command = [sys.executable, str(Path(__file__).with_name("forked.py")), str(small)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"  # on a busy machine torch takes a minute: that is no fault
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


@pytest.fixture
def start(forge: subprocess.Popen[str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts `pygsage WORDS` in the test's folder."""

    def run(*words: str | Path, inject: str = "", env: dict[str, str] | None = None, **limits: int) -> Running:
        folder = tmp_path_factory.mktemp("command")
        job = {"words": [str(w) for w in words], "inject": inject, "env": env or {}, "limits": limits}
        assert forge.stdin is not None
        forge.stdin.write(json.dumps({**job, "folder": str(folder), "cwd": str(tmp_path)}) + "\n")
        forge.stdin.flush()
        return Running(folder)

    return run


@pytest.fixture
def train(start: Start, small: Path) -> Start:
    """Starts a training of 15 steps at a global batch of 40; `procs` processes, in the run directory `run`."""

    def run(*words: str | Path, dataset: Path = small, run: str | Path = "run", procs: int = 2, **how: Any) -> Running:
        size = ["--procs", str(procs), "--batch-size", str(40 // procs), "--run-dir", run, "--quiet"]
        return start("train", dataset, *SMALL, *size, *words, **how)

    return run


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of 300 nodes."""
    rng = np.random.default_rng(0)
    y, split = rng.integers(0, 3, 300), rng.permutation(300)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(
        path,
        x=(np.eye(3)[y] + rng.normal(0, 1.0, (300, 3))).astype(np.float32),
        edge_index=rng.integers(0, 300, (2, 3000)),
        y=y,
        train_idx=split[:200],
        val_idx=split[200:250],
        test_idx=split[250:],
    )
    return path


@pytest.fixture
def unbroken(train: Start, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict[str, Any]]:
    """What a run of so many processes ends with that nothing happens to; made once."""

    def outcome_of(procs: int) -> dict[str, Any]:
        home = tmp_path_factory.getbasetemp() / f"unbroken-{procs}"
        if not home.exists():
            train(run=home, procs=procs).succeeded()
        return outcome(home)

    return outcome_of


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes small disks, by size, such as 256k; skips where that is not permitted."""
    made: list[Path] = []

    def mount(size: str) -> Path:
        folder = tmp_path / f"disk-{len(made)}"
        folder.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        try:
            done = subprocess.run(["mount", *options], capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("there is no mount here")
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
        made.append(folder)
        return folder

    yield mount
    for folder in made:
        subprocess.run(["umount", "-l", str(folder)], check=True)
