"""Rows of an array that belong together, some number of them for each graph."""

from __future__ import annotations

import numpy as np

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


def gather(array: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The rows `begins[j]` to `begins[j] + lengths[j]` of each `j`, joined, copied: one array."""
    if len(begins) and not (begins[1:] != begins[:-1] + lengths[:-1]).any():
        start = int(begins[0])
        return array[start : start + int(lengths.sum())].copy()  # neighbours in the file
    total = int(lengths.sum())
    if total <= _SHORT_ROWS * len(lengths):  # a view of each piece would cost more than the rows in it
        index = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
        index += np.arange(total)
        return array.take(index, axis=0)
    return np.concatenate([array[b : b + n] for b, n in zip(begins.tolist(), lengths.tolist(), strict=True)])
