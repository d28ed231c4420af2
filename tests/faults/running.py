"""Commands that are harmed while they run, and how their ends are looked at."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

LIMIT_S = 60.0  # none may hang


class Running:
    """A command that was started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def pid(self) -> int:
        """Its process."""
        wait_for((self.folder / "pid").exists)
        return int((self.folder / "pid").read_text())

    def ended(self) -> int:
        """Waits for its end, and returns its status; negative for a signal."""
        try:
            wait_for((self.folder / "status").exists)
        except AssertionError:
            os.killpg(self.pid, signal.SIGKILL)
            raise AssertionError(f"it hangs; it has said: {self.out} {self.err}") from None
        return int((self.folder / "status").read_text())

    @property
    def out(self) -> str:
        """What it has written on standard output."""
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        """What it has written on standard error."""
        return (self.folder / "err").read_text()

    def refused(self, status: int = 2) -> str:
        """Waits for its end, which has to be one sentence and this status."""
        found = self.ended()
        assert found == status, (found, self.out, self.err)
        assert "Traceback" not in self.err, self.err
        assert self.err.count("\n") == 1, self.err
        return self.err

    def succeeded(self) -> None:
        """Waits for its end, which has to be a good one."""
        assert self.ended() == 0, self.err


Start = Callable[..., Running]


def wait_for(ready: Callable[[], bool]) -> None:
    """Looks until it is so."""
    deadline = time.monotonic() + LIMIT_S
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def outcome(run: Path) -> dict[str, Any]:
    """All of a run that has to be the same: weights, losses and scores."""
    weights = torch.load(run / "last.pt", weights_only=True)["model"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = {"event", "epoch", "loss", "accuracy", "num_nodes"}
    told = [{name: value for name, value in line.items() if name in kept} for line in lines]
    return {"weights": {name: w.numpy().tobytes() for name, w in weights.items()}, "told": told}


@contextmanager
def filled(folder: Path, but: int) -> Iterator[None]:
    """A disk with no more than `but` bytes free."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "ballast").write_bytes(b"\0" * max(0, free - but))
    try:
        yield
    finally:
        (folder / "ballast").unlink()
