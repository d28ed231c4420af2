"""The features of a graph as rows to be read, wherever they lie: in RAM, in a file, or the hottest of a file in RAM."""

from __future__ import annotations

from threading import Lock
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.fetch import read_cold
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.held_rows import HeldRows
from pygsage.data.one_graph.parts import PartRows
from pygsage.native import core

_FILL_ROWS = 1 << 18


class FeatureRows(Protocol):
    """Rows of features by node id; who reads them need not know where they lie."""

    @property
    def resident(self) -> Tensor | None:
        """The whole array, where any row of it may be touched where it lies; None where rows have to be read."""

    def read(self, ids: Tensor) -> Tensor:
        """The rows [n, F] of int64 ids [n], of the dtype that is stored; called from several threads at once."""

    def counts(self) -> tuple[int, int]:
        """Rows that were found in a cache and rows that were not, since the last call."""

    def finish(self) -> None:
        """Ends a pass over the features; where they come from other ranks, all have to call it, and it serves them."""


class ResidentRows:
    """Rows of an array in RAM, or mapped from a file that the page cache holds.

    Args:
        x: `[N, F]`.
    """

    def __init__(self, x: Tensor) -> None:
        self.resident: Tensor | None = x

    def read(self, ids: Tensor) -> Tensor:
        """As `FeatureRows.read`."""
        assert self.resident is not None
        # NumPy gathers with one thread and without the GIL; torch would start a second pool of threads here.
        return torch.from_numpy(np.take(self.resident.numpy(), ids.numpy(), axis=0))

    def counts(self) -> tuple[int, int]:
        """None are counted."""
        return 0, 0

    def finish(self) -> None:
        """Nobody waits for it."""


class ColdRows:
    """Rows of a file that is larger than the page cache: each read asks for all of its pages at once.

    Args:
        x: `[N, F]`, mapped. The kernel is told that it is touched in no order.
    """

    resident: Tensor | None = None

    def __init__(self, x: Tensor) -> None:
        self._x = x.numpy()
        if core is not None:
            core.at_random(self._x)

    def read(self, ids: Tensor) -> Tensor:
        """As `FeatureRows.read`. Costs a sort of the ids."""
        out = np.empty((len(ids), self._x.shape[1]), self._x.dtype)
        read_cold(self._x, ids.numpy(), out)
        return torch.from_numpy(out)

    def counts(self) -> tuple[int, int]:
        """None are counted."""
        return 0, 0

    def finish(self) -> None:
        """Nobody waits for it."""


class CachedRows(ColdRows):
    """The same with some rows held in RAM: reads give the same numbers, sooner.

    Args:
        x: `[N, F]`, mapped.
        held: bool `[N]`: which rows are held.

    Costs the rows that are held, which are read here once in the order of the file, and 1.5 bits for each of the N.
    """

    def __init__(self, x: Tensor, held: Tensor) -> None:
        super().__init__(x)
        self._held = HeldRows(held, self._x.shape[1], self._x.dtype)
        have = 0
        for begin in range(0, len(held), _FILL_ROWS):
            ids = np.flatnonzero(held[begin : begin + _FILL_ROWS].numpy()) + begin
            read_cold(self._x, ids, self._held.rows[have : have + len(ids)])
            have += len(ids)
        self._lock, self._hits, self._misses = Lock(), 0, 0

    @property
    def num_held(self) -> int:
        """How many rows it holds."""
        return len(self._held.rows)

    @property
    def num_bytes(self) -> int:
        """What it holds."""
        return self._held.num_bytes

    def read(self, ids: Tensor) -> Tensor:
        """As `FeatureRows.read`. Costs a sort of the ids that are not held."""
        wanted = np.ascontiguousarray(ids.numpy())
        out = np.empty((len(wanted), self._x.shape[1]), self._x.dtype)
        missed = self._held.take(wanted, out)
        read_cold(self._x, wanted[missed], out, missed)
        with self._lock:
            self._hits += len(wanted) - len(missed)
            self._misses += len(missed)
        return torch.from_numpy(out)

    def counts(self) -> tuple[int, int]:
        """Hits and misses since the last call."""
        with self._lock:
            found = self._hits, self._misses
            self._hits = self._misses = 0
        return found


def rows_of(graph: Graph) -> ResidentRows | ColdRows | PartRows:
    """How the features of a graph are read when none are held in RAM for the purpose."""
    if graph.parts is not None:
        return PartRows(graph.parts)
    return ColdRows(graph.x) if graph.is_cold else ResidentRows(graph.x)
