"""A checksum of an array that may be too large to be read: of some blocks of its rows."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from torch import Tensor

_BLOCKS, _BLOCK_ROWS = 64, 1 << 10


def sampled_blocks(array: Tensor) -> Iterator[np.ndarray]:
    """Up to 64 blocks of 1,024 rows, evenly chosen, the last one included: float32 or int64, whatever they are."""
    for first in _firsts(len(array)):
        rows = array[first : first + _BLOCK_ROWS]
        yield (rows.float() if rows.is_floating_point() else rows.long()).numpy()


def sampled_crc(array: Tensor) -> int:
    """The CRC-32 of those blocks."""
    crc = 0
    for block in sampled_blocks(array):
        values = np.ascontiguousarray(block)
        crc = zlib.crc32(f"{values.dtype} {values.shape}".encode(), crc)
        crc = zlib.crc32(values.reshape(-1).view(np.uint8).data, crc)
    return crc


def _firsts(num_rows: int) -> list[int]:
    """Where blocks begin: all of them, or 64 that are evenly chosen, the last one included."""
    last = max(0, num_rows - _BLOCK_ROWS)
    if num_rows <= _BLOCKS * _BLOCK_ROWS:
        return list(range(0, num_rows, _BLOCK_ROWS))
    return [last * number // (_BLOCKS - 1) for number in range(_BLOCKS)]
