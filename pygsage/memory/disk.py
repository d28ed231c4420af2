"""A disk that is full: one sentence for it, wherever it was met."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pygsage.errors import EnvironmentLimitError
from pygsage.memory.decide import size_text

_FULL = {
    errno.ENOSPC: "The disk of {} is full",
    errno.EDQUOT: "Your share of the disk of {} is used up",
    errno.EFBIG: "A file in {} has reached the largest size that is allowed",
}
_HINTS = {
    errno.ENOSPC: "Make room there (`df -h {0}; df -i {0}`)",
    errno.EDQUOT: "Make room there (`quota -s`)",
    errno.EFBIG: "Raise the limit (`ulimit -f`)",
}


def full_disk(error: BaseException, folder: str | Path | None = None, then: str = "") -> EnvironmentLimitError | None:
    """The error to raise in the place of one that means a full disk, else None.

    Args:
        error: What was caught; an `OSError`, what another library made of one, or SQLite's own.
        folder: Where was written; by default that of the file which the error names.
        then: What to do when there is room again.
    """
    cause = _cause(error)
    if cause is None:
        return None
    if folder is None:
        folder = Path(str(cause.filename)).parent if cause.filename else "the file that was written to"
    number = cause.errno or errno.ENOSPC
    found = f"{_FULL[number].format(folder)}: {os.strerror(number)}{_room(Path(folder))}."
    return EnvironmentLimitError(found, f"{_HINTS[number].format(folder)}{f', {then}' if then else ''}.")


@contextmanager
def writing_to(folder: str | Path | None = None, then: str = "") -> Iterator[None]:
    """Turns the errors of a full disk into one sentence; others pass.

    Raises:
        EnvironmentLimitError: when the disk is full.
    """
    try:
        yield
    except Exception as error:
        told = full_disk(error, folder, then)
        if told is None:
            raise
        raise told from None


def reserve(path: Path) -> None:
    """Takes the room for all of a file that is there but sparse, where the system can.

    A full disk is then an error here; at a later write to the mapped file it would be a bus error.

    Raises:
        OSError: when there is too little room; the file is deleted.
    """
    size = path.stat().st_size
    if not size or not hasattr(os, "posix_fallocate"):
        return
    try:
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def has_room(path: Path | None, num_bytes: int) -> bool:
    """Whether a file can be made there that takes so much, and as much is left for others."""
    try:
        return path is not None and shutil.disk_usage(path.parent).free >= 2 * num_bytes
    except OSError:
        return False


def _cause(error: BaseException) -> OSError | None:
    """torch's writer raises an error of its own where the file's was raised, SQLite one that is no OSError at all."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError):
            return seen if seen.errno in _FULL else None
        if type(seen).__name__ == "OperationalError" and "disk is full" in str(seen):
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        seen = seen.__context__ if isinstance(seen, RuntimeError) else None
    return None


def _room(folder: Path) -> str:
    try:
        usage = shutil.disk_usage(folder if folder.is_dir() else folder.parent)
    except OSError:
        return ""
    return f" ({size_text(usage.free)} of {size_text(usage.total)} free)"
