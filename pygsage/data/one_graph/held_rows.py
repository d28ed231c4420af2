"""Some rows of a large array, held in RAM and found by their numbers."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from pygsage.native import core


class HeldRows:
    """Room for some rows of an array, to be filled in ascending order of their numbers.

    Args:
        held: bool `[N]`: which of them.
        width: Values a row.
        dtype: Of the values.

    Attributes:
        rows: `[n, width]`, not filled yet.

    Costs the rows, and 1.5 bits for each of the N.
    """

    def __init__(self, held: Tensor, width: int, dtype: np.dtype) -> None:
        self._bits, self._before = _index_of(held.numpy())
        self.rows = np.empty((int(held.sum()), width), dtype)

    @property
    def num_bytes(self) -> int:
        """What it holds."""
        return self.rows.nbytes + self._bits.nbytes + self._before.nbytes

    def take(self, wanted: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Fills in the rows of `wanted`, int64 `[k]`, that are held; returns the places of the others in `out`."""
        if core is not None:
            missed = np.empty(len(wanted), np.int64)
            return missed[: core.take_held(self._bits, self._before, self.rows, wanted, out, missed)]
        words = self._bits[wanted >> 6]
        shift = (wanted & 63).astype(np.uint64)
        is_held = (words >> shift & np.uint64(1)).astype(bool)
        below = words & ((np.uint64(1) << shift) - np.uint64(1))
        place = self._before[wanted >> 6] + np.unpackbits(below.view(np.uint8).reshape(-1, 8), axis=1).sum(1)
        out[is_held] = self.rows[place[is_held]]
        return np.flatnonzero(~is_held)


def _index_of(held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A bit a row, uint64 [ceil(N / 64)], and how many are set before each word, uint32."""
    packed = np.zeros(-(-len(held) // 64) * 8, np.uint8)
    packed[: -(-len(held) // 8)] = np.packbits(held, bitorder="little")
    words = np.add.reduceat(held, np.arange(0, len(held), 64), dtype=np.uint32) if len(held) else np.empty(0, np.uint32)
    return packed.view(np.uint64), (np.cumsum(words, dtype=np.uint32) - words).astype(np.uint32)
