"""Some rows of a large array, held in RAM and found by their numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pygsage.native import core
from pygsage.native.memory import prefer_huge_pages


class HeldRows:
    """Room for some rows of an array, to be filled in ascending order of their numbers.

    Args:
        held: bool `[N]`: which of them.
        width: Values a row.
        dtype: Of the values.
        spare: Room for so many other rows, after them.

    Attributes:
        table: `[n + spare, width]`, not filled yet.
        rows: Those that are held, the first n of the table.

    Costs the rows, and 1.5 bits for each of the N.
    """

    def __init__(self, held: Tensor, width: int, dtype: np.dtype, spare: int = 0) -> None:
        self._bits, self._before = _index_of(held.numpy())
        num_held = int(held.sum())
        self.table = np.empty((num_held + spare, width), dtype)
        prefer_huge_pages(torch.from_numpy(self.table), now=False)  # it is read and written at random
        self.rows = self.table[:num_held]

    @property
    def num_bytes(self) -> int:
        """What it holds."""
        return self.rows.nbytes + self._bits.nbytes + self._before.nbytes

    def take(self, wanted: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Fills in the rows of `wanted`, int64 `[k]`, that are held; returns the places of the others in `out`."""
        if core is not None:
            missed = np.empty(len(wanted), np.int64)
            return missed[: core.take_held(self._bits, self._before, self.rows, wanted, out, missed)]
        is_held = self._is_held(wanted)
        out[is_held] = self.rows[self.place(wanted)[is_held]]
        return np.flatnonzero(~is_held)

    def find(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The place in the table of each of `wanted`, int32 `[k]`, -1 where it is not held; and which those are."""
        places = np.empty(len(wanted), np.int32)
        if core is not None:
            missed = np.empty(len(wanted), np.int64)
            return places, missed[: core.find_held(self._bits, self._before, wanted, places, missed)]
        is_held = self._is_held(wanted)
        places[:] = np.where(is_held, self.place(wanted), -1)
        return places, np.flatnonzero(~is_held)

    def place(self, ids: np.ndarray) -> np.ndarray:
        """How many rows below each are held: where it lies among them, if it does."""
        shift = (ids & 63).astype(np.uint64)
        below = self._bits[ids >> 6] & ((np.uint64(1) << shift) - np.uint64(1))
        ones = np.unpackbits(below.view(np.uint8).reshape(-1, 8), axis=1).sum(1)
        return (self._before[ids >> 6] + ones).astype(np.int64)

    def _is_held(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray((self._bits[ids >> 6] >> (ids & 63).astype(np.uint64) & np.uint64(1)).astype(bool))


def _index_of(held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A bit a row, uint64 [ceil(N / 64)], and how many are set before each word, uint32."""
    packed = np.zeros(-(-len(held) // 64) * 8, np.uint8)
    packed[: -(-len(held) // 8)] = np.packbits(held, bitorder="little")
    words = np.add.reduceat(held, np.arange(0, len(held), 64), dtype=np.uint32) if len(held) else np.empty(0, np.uint32)
    return packed.view(np.uint64), (np.cumsum(words, dtype=np.uint32) - words).astype(np.uint32)
