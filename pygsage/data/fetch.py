"""Rows of mapped files that are not in memory yet, read many at once."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pygsage.data.ragged import gather
from pygsage.native import core

THREADS = 16  # they wait for the disk, not for a core

Rows = TypeVar("Rows", np.ndarray, Tensor)


def read_rows(array: Rows, ids: Rows | np.ndarray, threads: int = THREADS) -> Rows:
    """The rows of these numbers, `array[ids]`, copied; from a mapped file with many reads under way at once.

    Where a few of them that are looked at are in memory, it copies at once. Without the native core it is `array[ids]`.

    Args:
        array: A NumPy array, or a tensor on the CPU, on a mapped file or in RAM; contiguous.
        ids: int64 `[k]`, each from 0 on.
        threads: How many at most wait for the disk.

    Raises:
        ValueError: for a number out of range.
        IndexError: the same, without the native core.

    Costs the rows. Reads whole pages of the file, and no others.
    """
    if isinstance(array, Tensor):
        bits = array.view(torch.int16) if array.dtype is torch.bfloat16 else array
        return torch.from_numpy(_read(bits.numpy(), ids, threads)).view(array.dtype)
    return _read(array, ids, threads)


def _read(array: np.ndarray, ids: Tensor | np.ndarray, threads: int) -> np.ndarray:
    wanted = np.ascontiguousarray(ids, dtype=np.int64)
    if core is None or array.ndim == 0 or not array.flags.c_contiguous:
        return array.take(wanted, axis=0)
    ones = np.ones(len(wanted), dtype=np.int64)
    core.fetch_rows(array, wanted, ones, threads)
    return gather(array, wanted, ones, len(wanted))


def fetch(array: np.ndarray, begins: np.ndarray, lengths: np.ndarray, threads: int = THREADS) -> None:
    """Has the pieces of a mapped array that are about to be joined read, many at once, where they are not in memory."""
    if core is not None and array.ndim and array.flags.c_contiguous:
        core.fetch_rows(array, begins, lengths, threads)
