"""The features of a graph as rows to be read, wherever they lie: in RAM, in a file, or the hottest of a file in RAM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Protocol

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.fetch import read_cold
from pygsage.data.files.scan import RowFile, drop_cached
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.held_rows import HeldRows
from pygsage.data.one_graph.parts import PartRows
from pygsage.memory.disk import writing_to
from pygsage.native import core
from pygsage.native.memory import empty

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
        self._x, self._dtype = x.numpy(), x.dtype
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

    The others are read one by one (`read`), or for several batches in one pass over all of them (`find` and `fill`):
    a pass costs less than as many single rows as there are in a few batches, each of which is a page for a disk.

    Args:
        x: `[N, F]`, mapped.
        held: bool `[N]`: which rows are held.
        file: Where `x` is mapped from: it is then read past the page cache.
        spill: A new file for the rows that are not held, so that a pass reads no others. It takes their size of
            the disk, and loses its name at once.
        spare: Rows besides those that are held for which there is RAM, for the passes.

    Costs the rows that are held, which are read here once in the order of the file, and 1.5 bits for each of the N.
    """

    def __init__(
        self, x: Tensor, held: Tensor, file: RowFile | None = None, spill: Path | None = None, spare: int = 0
    ) -> None:
        super().__init__(x)
        self._held, self.spare = HeldRows(held, self._x.shape[1], self._x.dtype, spare), spare
        self._file, self._is_packed = file, False
        if file is None:
            self._fill_from_map(held.numpy())
        elif spill is None:
            self._fill(file, held.numpy(), None)
        else:
            with writing_to(spill.parent), open(spill, "wb", buffering=0) as packed:
                self._file = RowFile(spill, 0, len(held) - self.num_held, self._x.shape[1], self._x.dtype)
                spill.unlink()
                self._fill(file, held.numpy(), packed)
                os.fsync(packed.fileno())
                drop_cached(packed.fileno())
            self._is_packed = True
            file.close()
        self._lock, self._hits, self._misses = Lock(), 0, 0

    def _fill_from_map(self, held: np.ndarray) -> None:
        have = 0
        for begin in range(0, len(held), _FILL_ROWS):
            ids = np.flatnonzero(held[begin : begin + _FILL_ROWS]) + begin
            read_cold(self._x, ids, self._held.rows[have : have + len(ids)])
            have += len(ids)

    def _fill(self, file: RowFile, held: np.ndarray, packed: IO[bytes] | None) -> None:
        have = 0
        for number, (first, rows) in enumerate(file.pieces()):
            own = held[first : first + len(rows)]
            here = int(own.sum())
            np.compress(own, rows, axis=0, out=self._held.rows[have : have + here])
            have += here
            if packed is not None:
                packed.write(rows[~own].reshape(-1).view(np.uint8).data)
                if number % 16 == 0:  # what was written goes out of the page cache, which others need
                    os.fdatasync(packed.fileno())
                    drop_cached(packed.fileno())

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
        found = empty((len(wanted), self._x.shape[1]), self._dtype)
        missed = self._held.take(wanted, found.numpy())
        read_cold(self._x, wanted[missed], found.numpy(), missed)
        self._count(len(wanted), len(missed))
        return found

    @property
    def table(self) -> Tensor:
        """The rows that are held, and after them `spare` others: [n, F]."""
        return torch.from_numpy(self._held.table)

    def find(self, ids: Tensor) -> Found:
        """Where the rows of int64 ids [n] lie in the table, and which do not. Costs a sort of the latter."""
        wanted = np.ascontiguousarray(ids.numpy())
        places, missed = self._held.find(wanted)
        numbers = wanted[missed]
        if self._is_packed:
            numbers -= self._held.place(numbers)
        order = np.argsort(numbers, kind="stable")
        self._count(len(wanted), len(missed))
        return Found(places, missed[order], numbers[order])

    def fill(self, numbers: Sequence[np.ndarray], place: int) -> None:
        """Reads rows of the file by their `Found.numbers`, in one pass, into the table from a place on."""
        assert self._file is not None
        outs = []
        for each in numbers:
            outs.append(self._held.table[place : place + len(each)])
            place += len(each)
        self._file.read(numbers, outs)

    def _count(self, wanted: int, missed: int) -> None:
        with self._lock:
            self._hits += wanted - missed
            self._misses += missed

    def counts(self) -> tuple[int, int]:
        """Hits and misses since the last call."""
        with self._lock:
            found = self._hits, self._misses
            self._hits = self._misses = 0
        return found


@dataclass(frozen=True)
class Found:
    """Where rows lie that a batch needs.

    Attributes:
        places: Of each in the table, int32 [n]; -1 for those that are not held.
        missed: Where among them those stand, int64 [m], in the order of the file.
        numbers: Which rows of the file those are, int64 [m], ascending.
    """

    places: np.ndarray
    missed: np.ndarray
    numbers: np.ndarray


def rows_of(graph: Graph) -> ResidentRows | ColdRows | PartRows:
    """How the features of a graph are read when none are held in RAM for the purpose."""
    if graph.parts is not None:
        return PartRows(graph.parts)
    return ColdRows(graph.x) if graph.is_cold else ResidentRows(graph.x)


def file_of(graph: Graph) -> RowFile | None:
    """The file of a graph's features; None where they are in RAM."""
    if graph.folder is None:
        return None
    path, x = graph.folder / "x.npy", graph.x.numpy()
    return RowFile(path, path.stat().st_size - x.nbytes, len(x), x.shape[1], x.dtype)
