from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pygsage.data.files.scratch import scratch_folder


def test_it_lasts_as_long_as_its_block_whatever_happens(tmp_path: Path) -> None:
    def fail() -> None:
        with scratch_folder(tmp_path) as folder:
            (folder / "x.npy").write_bytes(b"1")
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_and_what_is_in_use_stays(tmp_path: Path) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with scratch_folder(tmp_path) as folder:
            (folder / "x.npy").write_bytes(b"1")
            os.write(write, b"made")
            signal.pause()
    assert os.read(read, 4) == b"made"
    (left,) = tmp_path.iterdir()
    other = tmp_path / "pygsage-is-the-users"
    other.mkdir()
    old = 0.0
    for path in (left, other):
        os.utime(path, (old, old))
    with scratch_folder(tmp_path):
        assert left.exists()  # its process lives
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for descriptor in (read, write):
        os.close(descriptor)
    os.utime(left)
    with scratch_folder(tmp_path):
        assert left.exists()  # it may be one that is not locked yet
    os.utime(left, (old, old))
    with scratch_folder(tmp_path) as folder:
        assert folder.exists()
        assert not left.exists()
    assert list(tmp_path.iterdir()) == [other]
