"""Rows of mapped files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pygsage.data.files import fetch as fetch_module
from pygsage.data.files import ragged
from pygsage.data.files.fetch import fetch, read_rows
from pygsage.native import core


def drop(path: Path) -> None:
    """Takes a file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "uint8"])
@pytest.mark.parametrize("shape", [(5000,), (5000, 3), (500, 2, 2), (9, 0), (4, 5000)])
def test_they_are_those_of_a_plain_index(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype))
    expected, ids = np.load(tmp_path / "x.npy"), np.random.default_rng(0).integers(shape[0], size=70)
    drop(tmp_path / "x.npy")
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for _ in range(2):  # cold, and warm
        found = read_rows(mapped, ids)
        assert (found.dtype, type(found)) == (expected.dtype, np.ndarray)
        assert np.array_equal(found, expected[ids])
        assert found.flags.writeable
    assert read_rows(mapped, ids[:0]).shape == (0, *shape[1:])
    assert np.array_equal(read_rows(expected, ids), expected[ids])
    turned = np.asfortranarray(expected)
    assert np.array_equal(read_rows(turned, ids), expected[ids])


def test_tensors(tmp_path: Path) -> None:
    tensor = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        values, ids = tensor.to(dtype), torch.tensor([3, 3, 39, 0])
        assert torch.equal(read_rows(values, ids), values[ids])
        assert read_rows(values, ids).dtype is dtype


@pytest.mark.skipif(core is None, reason="the native core was not built")
def test_only_what_is_asked_for_is_read_from_the_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4096, 1024), np.float32))  # 16 MiB, a page a row
    drop(tmp_path / "x.npy")
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    ids, ones = np.arange(0, 4096, 64), np.ones(64, np.int64)
    assert core is not None
    if not core.fetch_rows(mapped, ids, ones, 4):
        pytest.skip("this file system keeps its files in memory")
    assert not core.fetch_rows(mapped, ids, ones, 4)
    assert core.fetch_rows(mapped, ids + 32, ones, 4)  # nor did the first time read their neighbours
    fetch(mapped, ids, ones)
    with pytest.raises(ValueError, match="piece 1 is rows 4096 to 4097 of 4096"):
        read_rows(mapped, np.array([0, 4096]))


def test_without_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "core", None)
    monkeypatch.setattr(ragged, "core", None)
    array = np.arange(12).reshape(6, 2)
    assert read_rows(array, np.array([5, 0])).tolist() == [[10, 11], [0, 1]]
    fetch(array, np.array([0]), np.array([1]))
    with pytest.raises(IndexError):
        read_rows(array, np.array([6]))
