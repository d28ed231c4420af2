"""Rows of a mapped array that does not fit in RAM: asked for ahead, in order of place, a bounded piece at a time."""

from __future__ import annotations

import numpy as np

from pygsage.native import core

PIECE_BYTES = 16 << 20  # of pages that are asked for ahead; twice as many are wanted in the page cache at a time
_PAGE_BYTES = 4096


def cold_rows(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """`x[ids]`, read from the disk with many pages on their way at once.

    Args:
        x: `[N, F]`, mapped from a file.
        ids: int64 `[n]`, in any order, repeats included.

    Costs a sort, and the result; pages that were read and not used again go when the kernel needs the room.
    """
    if core is None:
        return np.take(x, ids, axis=0)
    order = np.argsort(ids, kind="stable")
    ascending = ids[order]
    rows = np.empty((len(ids), x.shape[1]), dtype=x.dtype)
    row_bytes = x.shape[1] * x.itemsize
    step = max(1, PIECE_BYTES // (_PAGE_BYTES * (1 + row_bytes // _PAGE_BYTES)))
    core.will_need(x, ascending[:step])
    for begin in range(0, len(ids), step):
        core.will_need(x, ascending[begin + step : begin + 2 * step])
        rows[order[begin : begin + step]] = x[ascending[begin : begin + step]]
    return rows
