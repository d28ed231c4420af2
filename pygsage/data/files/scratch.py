"""Folders for the time of a command, which take those with them that a killed command has left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_YOUNG_S = 60.0  # one that is just being made is not locked yet


@contextmanager
def scratch_folder(beside: str | Path | None = None, prefix: str = "pygsage-") -> Iterator[Path]:
    """A new folder, deleted at the end; it is locked as long as its process lives.

    Those of the same user and prefix that no living process holds are deleted first.

    Args:
        beside: The folder to make it in; None for that of temporary files.

    Raises:
        OSError: when it cannot be made.
    """
    home = Path(beside or tempfile.gettempdir())
    _sweep(home, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _sweep(home: Path, prefix: str) -> None:
    for folder in home.glob(f"{prefix}????????"):  # as mkdtemp names them
        with suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
                continue
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - status.st_mtime > _YOUNG_S:
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
