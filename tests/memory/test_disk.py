"""What is said of a full disk, on a small one where the system lets us make it."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from pygsage.errors import EnvironmentLimitError
from pygsage.memory.disk import full_disk, reserve, writing_to


@pytest.mark.parametrize(
    ("number", "found", "advice"),
    [
        (errno.ENOSPC, "The disk of {} is full: No space left on device", "df -h {}"),
        (errno.EDQUOT, "Your share of the disk of {} is used up: Disk quota exceeded", "quota -s"),
        (errno.EFBIG, "A file in {} has reached the largest size that is allowed: File too large", "ulimit -f"),
    ],
)
def test_each_kind_of_full_names_folder_room_and_what_to_type(
    tmp_path: Path, number: int, found: str, advice: str
) -> None:
    error = OSError(number, os.strerror(number), str(tmp_path / "x.npy"))
    for told in (full_disk(error), full_disk(error, tmp_path)):
        assert told is not None
        assert told.found.startswith(found.format(tmp_path))
        assert " free)." in told.found
        assert advice.format(tmp_path) in told.advice
        assert told.exit_status == 2


def test_other_librarys_errors_are_understood_and_others_pass(tmp_path: Path) -> None:
    def as_torch_does() -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            raise RuntimeError("unexpected pos 192 vs 80") from None

    with pytest.raises(EnvironmentLimitError, match="is full"), writing_to(tmp_path):
        as_torch_does()
    with pytest.raises(EnvironmentLimitError, match="is full"), writing_to(tmp_path, "and resume"):
        raise sqlite3.OperationalError("database or disk is full")
    for error in (OSError(errno.EACCES, "no"), RuntimeError("no"), ValueError("no"), sqlite3.OperationalError("no")):
        assert full_disk(error) is None
        with pytest.raises(type(error)), writing_to(tmp_path):
            raise error


def test_room_that_is_not_there_is_refused_before_a_mapped_file_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, start: int, length: int) -> None:
        assert (start, length) == (0, 1 << 30)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    path = tmp_path / "x"
    with open(path, "wb") as file:
        file.truncate(1 << 30)  # sparse
    with pytest.raises(EnvironmentLimitError), writing_to(tmp_path):
        reserve(path)
    assert not path.exists()
    path.write_bytes(b"")
    reserve(path)
    assert path.exists()
