"""Rows of mapped files that are not in memory yet, read many at once."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.ragged import gather
from pygsage.native import core

THREADS = 16  # they wait for the disk, not for a core
PIECE_PAGES = 1 << 14  # asked for before they are copied: 64 MiB of the page cache
_PAGE_BYTES = 4096
_COPIED_BYTES = 1 << 20  # at once

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


def read_cold(array: np.ndarray, ids: np.ndarray, out: np.ndarray, places: np.ndarray | None = None) -> None:
    """Rows of a mapped array that is larger than the page cache, read in the order of the file, each page once.

    Args:
        array: `[N, F]`, contiguous.
        ids: int64 `[k]`, in any order, repeats included.
        out: `[m, F]`, of the same dtype: row `ids[i]` goes to `out[places[i]]`, or `out[i]` without places.

    Raises:
        ValueError, IndexError: for a number out of range.

    Costs a sort of the ids, and the rows of a piece; asks for `PIECE_PAGES` pages at a time.
    """
    if len(ids) == 0:
        return
    order = np.argsort(ids, kind="stable")
    ascending = ids[order]
    if places is not None:
        order = places[order]
    if core is None:
        out[order] = array.take(ascending, axis=0)
        return
    row_bytes = max(1, array.itemsize * array.shape[1])
    step, few = max(1, PIECE_PAGES // (1 + row_bytes // _PAGE_BYTES)), max(1, _COPIED_BYTES // row_bytes)
    for begin in range(0, len(ids), step):
        wanted = ascending[begin : begin + step]
        pages = wanted * row_bytes // _PAGE_BYTES
        first = np.concatenate([[0], np.flatnonzero(np.diff(pages) > 1) + 1])  # where a page is left out
        last = np.concatenate([first[1:], [len(wanted)]]) - 1
        # Some are in memory as a rule and some are not: to look at a few would tell nothing.
        core.fetch_rows(array, wanted[first], wanted[last] + 1 - wanted[first], THREADS, False)
        for at in range(begin, begin + len(wanted), few):  # each is a copy on its way
            out[order[at : min(at + few, begin + len(wanted))]] = array[wanted[at - begin : at - begin + few]]


def fetch(array: np.ndarray, begins: np.ndarray, lengths: np.ndarray, threads: int = THREADS) -> None:
    """Has the pieces of a mapped array that are about to be joined read, many at once, where they are not in memory."""
    if core is not None and array.ndim and array.flags.c_contiguous:
        core.fetch_rows(array, begins, lengths, threads)


def load(array: np.ndarray) -> None:
    """Has all of a mapped array read into the page cache, in pieces, many at once. Costs no memory of its own."""
    rows = max(1, (1 << 20) // max(1, array.itemsize))
    begins = np.arange(0, len(array), rows)
    fetch(array, begins, np.minimum(rows, len(array) - begins))
