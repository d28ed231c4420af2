"""Arrays of an .npz: mapped, or unpacked once."""

from __future__ import annotations

import mmap
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pygsage.data.sources.npz_members import read_member

ARRAYS: dict[str, np.ndarray] = {
    "float32": np.arange(12, dtype=np.float32).reshape(3, 4),
    "float16": np.arange(12, dtype=np.float16).reshape(3, 4),
    "float64": np.arange(12, dtype=np.float64).reshape(3, 4),
    "int64": np.arange(12).reshape(2, 6),
    "by columns": np.asfortranarray(np.arange(12).reshape(2, 6)),
    "other end": np.arange(12, dtype=">i4"),
    "empty": np.empty((0, 3), dtype=np.float32),
    "one": np.array(7),
}


def is_mapped(array: np.ndarray) -> bool:
    """Whether its bytes are those of a file, not a copy."""
    base: object = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return isinstance(base, mmap.mmap)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("key", ARRAYS)
def test_an_array_is_what_numpy_reads(
    tmp_path: Path, key: str, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pygsage.data.sources.npz_members._CHUNK_BYTES", 16)
    path = tmp_path / "data.npz"
    (np.savez_compressed if compressed else np.savez)(path, **ARRAYS)
    found = read_member(path, key)
    assert np.array_equal(found, ARRAYS[key])
    if not compressed:
        assert is_mapped(found) == (key != "empty")
        assert found.dtype == ARRAYS[key].dtype
    elif found.dtype.kind == "f":
        assert found.dtype == np.float32


def test_a_map_is_copy_on_write(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **ARRAYS)
    before = path.read_bytes()
    read_member(path, "float32")[:] = 9
    assert path.read_bytes() == before


@pytest.mark.parametrize("compressed", [False, True])
def test_damage_is_found(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "data.npz"
    values = np.random.default_rng(0).random(1000, dtype=np.float32)
    (np.savez_compressed if compressed else np.savez)(path, x=values)
    whole = path.read_bytes()
    damaged = (zipfile.BadZipFile, zlib.error, EOFError, ValueError)
    path.write_bytes(whole[:-200])
    with pytest.raises(damaged):
        read_member(path, "x")
    if compressed:
        path.write_bytes(whole[:2000] + bytes(100) + whole[2100:])
        with pytest.raises(damaged):
            read_member(path, "x")
    path.write_bytes(whole)
    with pytest.raises(KeyError):
        read_member(path, "y")


def test_objects_are_refused(tmp_path: Path) -> None:
    objects: Any = np.array([{}, None], dtype=object)
    np.savez(tmp_path / "data.npz", x=objects)
    with pytest.raises(ValueError, match=re.escape("which can run code when it is read")):
        read_member(tmp_path / "data.npz", "x")


def test_a_shape_that_lies_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(10))
    content = (tmp_path / "x.npy").read_bytes().replace(b"(10,)", b"(99,)")
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(ValueError, match=re.escape("it has 80 bytes; its shape (99,) needs 792")):
        read_member(tmp_path / "data.npz", "x")
