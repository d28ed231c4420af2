"""A run directory: what was asked for, what happened, and where to go on."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import yaml

from pygsage.config import TrainConfig
from pygsage.data.names import short_name
from pygsage.errors import RunError
from pygsage.memory.disk import full_disk, writing_to
from pygsage.training.checkpoint import load_checkpoint, write_atomically
from pygsage.training.run_folder import LOCK, check_folder

BEST_KEYS = ("model", "in_channels", "out_channels")
LAST_KEYS = ("model", "optimizer", "scheduler", "progress", "metrics_bytes")


class Run:
    """A run directory held by this process: `config.yaml`, `metrics.jsonl`, `last.pt`, `best.pt`, `model.safetensors`.

    Only rank 0 writes to it. A lock keeps a second job out for as long as this one lives.

    Use `Run.open`; then `append` lines to the metrics. `last` is the checkpoint to go on from, or None.
    """

    def __init__(self, path: Path, lock: IO[str], last: dict[str, Any] | None) -> None:
        self.path = path
        self.last = last
        self._lock = lock
        # Unbuffered: of a line that a full disk has refused nothing is left to be written when the file is closed.
        self._metrics = open(path / "metrics.jsonl", "ab", buffering=0)  # noqa: SIM115
        kept = last["metrics_bytes"] if last else 0
        self._metrics.truncate(min(kept, self._metrics.seek(0, os.SEEK_END)))
        self._metrics.seek(0, os.SEEK_END)

    @staticmethod
    def check(config: TrainConfig) -> None:
        """Refuses a run directory that `open` would refuse; makes and changes nothing.

        Raises:
            RunError: when the directory belongs to another run or job.
        """
        if config.run_dir is None:
            return
        check_folder(config)
        path = Path(config.run_dir)
        if (path / "last.pt").exists():
            load_checkpoint(path / "last.pt", LAST_KEYS)

    @staticmethod
    def open(config: TrainConfig, owners: Sequence[str] = ()) -> Run:
        """Makes the run directory, or with `resume` opens it where it was left.

        Args:
            owners: The launchers of the job, which are noted there.

        Raises:
            RunError: when the directory belongs to another run or job, or cannot be made.
        """
        Run.check(config)
        path = Path(config.run_dir) if config.run_dir else _new_path(config)
        with ExitStack() as on_error:
            lock = on_error.enter_context(_lock(path, owners))
            last = load_checkpoint(path / "last.pt", LAST_KEYS) if (path / "last.pt").exists() else None
            text = yaml.safe_dump(config.to_dict(), sort_keys=False)
            write_atomically(path / "config.yaml", text.encode())
            with writing_to(path):
                run = Run(path, lock, last)
            on_error.pop_all()
            return run

    @property
    def metrics_bytes(self) -> int:
        """Length of `metrics.jsonl` so far; a resumed run cuts the file back to the checkpoint's length."""
        return self._metrics.tell()

    def append(self, event: dict[str, Any]) -> None:
        """Adds one line to `metrics.jsonl`, whole or not at all, and sends it to the disk's queue.

        Raises:
            EnvironmentLimitError: when the disk is full.
            RunError: when it cannot be written for another reason.
        """
        line, before = json.dumps(event, allow_nan=True).encode() + b"\n", self.metrics_bytes
        try:
            while line:  # a disk that is almost full takes a part
                line = line[self._metrics.write(line) :]
        except OSError as error:
            self._metrics.truncate(before)
            told = full_disk(error, self.path, "then go on with --resume")
            raise told or RunError(
                f"'{self.path / 'metrics.jsonl'}' could not be written: {error.strerror}.",
                "Mend that, then go on with --resume.",
            ) from None

    def close(self) -> None:
        """Lets another job use the directory."""
        self._metrics.close()
        self._lock.close()


def _lock(path: Path, owners: Sequence[str]) -> IO[str]:
    """Makes the folder and holds it for this process; says whose it is."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = open(path / LOCK, "a")  # noqa: SIM115
    except OSError as error:
        told = full_disk(error, path)
        raise told or RunError(f"The run directory '{path}' cannot be written: {error.strerror}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise RunError(f"Another job is writing to the run '{path}'.", "Choose another --run-dir.") from None
    try:
        lock.truncate(0)
        lock.write(json.dumps(list(owners)))
        lock.flush()
    except OSError as error:
        lock.close()
        told = full_disk(error, path)
        raise told or RunError(f"The run directory '{path}' cannot be written: {error.strerror}.") from None
    return lock


def fresh_scratch(scratch: Path) -> None:
    """Makes an empty folder for this machine's ranks to share arrays in; what a killed job left there is removed."""
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir(parents=True)
    except OSError as error:
        told = full_disk(error, scratch.parent)
        raise told or RunError(f"The folder '{scratch}' cannot be made: {error.strerror}.") from None


def _new_path(config: TrainConfig) -> Path:
    stem = f"{short_name(config.dataset)}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1, 1000):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            continue
        except OSError as error:
            told = full_disk(error, "runs")
            raise told or RunError(
                f"'{path}' cannot be made: {error.strerror}.", "Name a folder with --run-dir."
            ) from None
    raise RunError(f"'runs/{stem}' and its numbered followers all exist.", "Name a folder with --run-dir.")
