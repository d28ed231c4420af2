"""What a rank tells its launcher of its failure, and the error that the launcher makes of it. Loads no torch."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pygsage.errors
from pygsage.errors import PygsageError, TrainingError
from pygsage.launched import has_launcher, tell_launcher
from pygsage.memory.disk import full_disk

_HINTS = {
    signal.SIGKILL: "The kernel's out-of-memory killer does this: look at `dmesg`, and try fewer processes or a "
    "smaller --batch-size.",
    signal.SIGBUS: "A mapped file was cut short while it was read, or a disk or /dev/shm is full: look at `df`.",
}


class RankFailedError(TrainingError):
    """A rank ended in a way that the user did not cause; its traceback is part of the message when there is one."""

    def __init__(self, found: str, advice: str = "", rank: int = 0, trace: str = "") -> None:
        super().__init__(found, advice)
        self.rank = rank
        self.trace = trace

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.trace}".rstrip()


@contextmanager
def reporting_failures() -> Iterator[None]:
    """Around a rank's work: an error is handed to the launcher, which tells it, and the rank ends without a word.

    Where no launcher of ours listens (under torchrun) errors pass unchanged.

    Raises:
        SystemExit: with the error's exit status, 1 when it is not a `PygsageError`.
    """
    try:
        yield
    except Exception as error:
        if not record_failure(error):
            raise
        raise SystemExit(_status_of(full_disk(error) or error)) from None


def record_failure(error: BaseException) -> bool:
    """Sends the error to the launcher; False when there is none."""
    if not has_launcher():
        return False
    error = full_disk(error) or error
    ours = isinstance(error, PygsageError)
    failure = {
        "rank": int(os.environ["RANK"]),
        "time": time.time(),
        "kind": "peer" if getattr(error, "secondary", False) else "user" if ours else "internal",
        "error": type(error).__name__,
        "message": error.found if isinstance(error, PygsageError) else str(error),
        "advice": error.advice if isinstance(error, PygsageError) else "",
        "status": _status_of(error),
        "trace": "".join(traceback.format_exception(error)),
    }
    return tell_launcher({"failure": failure})


def error_of(record: dict[str, Any]) -> PygsageError:
    """The error that a rank has told."""
    if record["kind"] == "user":
        kind = getattr(pygsage.errors, record["error"], PygsageError)
        error: PygsageError = kind(record["message"], record["advice"])
        error.exit_status = record["status"]
        return error
    peer = record["kind"] == "peer"
    found = record["message"] if peer else f"rank {record['rank']} failed: {record['error']}: {record['message']}"
    return RankFailedError(found, record["advice"], record["rank"], record["trace"])


def silent_end(rank: int, status: int, after: str) -> RankFailedError:
    """The error of a rank that has ended without a word, and what is advised `after` that."""
    if status > 0:
        found, advice = f"rank {rank} ended with status {status} and gave no reason.", "See its output above."
        return RankFailedError(found, advice, rank)
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:  # a real-time signal
        name = ""
    found = f"rank {rank} was killed by signal {-status}{name}."
    hint = _HINTS.get(signal.Signals(-status), "") if name else ""
    return RankFailedError(found, f"{hint} {after}".strip(), rank)


def _status_of(error: BaseException) -> int:
    return error.exit_status if isinstance(error, PygsageError) else 1
