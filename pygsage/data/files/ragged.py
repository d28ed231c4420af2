"""Rows of an array that belong together, some number of them for each graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pygsage.native import core

_SHORT_ROWS = 128


class Rows:
    """Where the rows of each graph begin and end.

    Args:
        rows: Their number when it is the same for every graph, else int64 `[graphs + 1]` of where they begin.
        num_graphs: How many graphs there are.
    """

    def __init__(self, rows: int | np.ndarray, num_graphs: int) -> None:
        self.num_graphs = num_graphs
        self.constant = rows if isinstance(rows, int) else None
        self._begins: np.ndarray = np.empty(0, np.int64) if isinstance(rows, int) else rows
        if self.constant is None and (self._begins.shape != (num_graphs + 1,) or self._begins.item(0) != 0):
            raise ValueError("slices do not fit the number of graphs")

    @property
    def total(self) -> int:
        """The number of rows of all graphs."""
        return int(self._begins.item(-1)) if self.constant is None else self.constant * self.num_graphs

    def span(self, idx: int) -> tuple[int, int]:
        """Where the rows of one graph begin and end."""
        if self.constant is not None:
            return idx * self.constant, (idx + 1) * self.constant
        return self._begins.item(idx), self._begins.item(idx + 1)

    def spans(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows of some graphs begin, and how many they are: int64 `[k]` each."""
        if self.constant is not None:
            return ids * self.constant, np.full(len(ids), self.constant)
        begins = self._begins[ids]
        return begins, self._begins[ids + 1] - begins

    def pieces(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `spans`, and where each begins once they are joined, and the end of the last: int64 `[k + 1]`."""
        begins, lengths = self.spans(ids)
        if self.constant is not None:
            return begins, lengths, np.arange(len(ids) + 1) * self.constant
        return begins, lengths, pointers(lengths)

    def begins(self) -> np.ndarray:
        """Where each graph's rows begin, and the end of the last: int64 `[graphs + 1]`."""
        if self.constant is None:
            return self._begins
        return np.arange(self.num_graphs + 1, dtype=np.int64) * self.constant


def pointers(lengths: np.ndarray) -> np.ndarray:
    """Where each of `k` pieces begins once they are joined, and the end of the last: int64 `[k + 1]`."""
    pointer = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=pointer[1:])
    return pointer


def gather(array: np.ndarray, begins: np.ndarray, lengths: np.ndarray, total: int | None = None) -> np.ndarray:
    """The rows `begins[j]` to `begins[j] + lengths[j]` of each `j`, joined, copied: one array.

    Args:
        total: The sum of the lengths, where it is known.
    """
    if core is None or not array.flags.c_contiguous or array.ndim == 0:
        return gather_plain(array, begins, lengths)
    out = np.empty((int(lengths.sum()) if total is None else total, *array.shape[1:]), array.dtype)
    core.gather_rows(array, begins, lengths, out)
    return out


def gather_plain(array: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The same in NumPy: what `gather` is tested against, and does without the native core."""
    if len(begins) and not (begins[1:] != begins[:-1] + lengths[:-1]).any():
        start = int(begins[0])
        return array[start : start + int(lengths.sum())].copy()  # neighbours in the file
    total = int(lengths.sum())
    if total <= _SHORT_ROWS * len(lengths):  # a view of each piece would cost more than the rows in it
        index = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
        index += np.arange(total)
        return array.take(index, axis=0)
    return np.concatenate([array[b : b + n] for b, n in zip(begins.tolist(), lengths.tolist(), strict=True)])


def gather_columns(
    array: np.ndarray, begins: np.ndarray, lengths: np.ndarray, total: int, shifts: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """The same of an array `[N, C]`, turned over to `[C, total]`, with a number added to what comes from each piece.

    Args:
        total: The sum of the lengths.
        shifts: For each column int64, one number a piece; none to add nothing.
    """
    if core is None or not array.flags.c_contiguous or array.dtype not in (np.int32, np.int64):
        return gather_columns_plain(array, begins, lengths, shifts)
    out = np.empty((array.shape[1], total), array.dtype)
    core.gather_columns(array, begins, lengths, out, shifts)
    return out


def gather_columns_plain(
    array: np.ndarray, begins: np.ndarray, lengths: np.ndarray, shifts: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """The same in NumPy."""
    joined = np.ascontiguousarray(gather_plain(array, begins, lengths).T)
    for row, shift in zip(joined, shifts, strict=False):
        row += np.repeat(shift, lengths).astype(array.dtype)
    return joined
