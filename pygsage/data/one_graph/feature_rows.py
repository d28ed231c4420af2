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
from pygsage.memory.disk import writing_to
from pygsage.native import core
from pygsage.native.memory import empty, prefer_huge_pages

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
        self._bits, self._before = _index_of(held.numpy())
        self.num_held, self.spare = int(held.sum()), spare
        self._table = large((self.num_held + spare, self._x.shape[1]), self._x.dtype)
        self._held = self._table[: self.num_held]
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
            read_cold(self._x, ids, self._held[have : have + len(ids)])
            have += len(ids)

    def _fill(self, file: RowFile, held: np.ndarray, packed: IO[bytes] | None) -> None:
        have = 0
        for number, (first, rows) in enumerate(file.pieces()):
            own = held[first : first + len(rows)]
            here = int(own.sum())
            np.compress(own, rows, axis=0, out=self._held[have : have + here])
            have += here
            if packed is not None:
                packed.write(rows[~own].reshape(-1).view(np.uint8).data)
                if number % 16 == 0:  # what was written goes out of the page cache, which others need
                    os.fdatasync(packed.fileno())
                    drop_cached(packed.fileno())

    @property
    def num_bytes(self) -> int:
        """What it holds."""
        return self._held.nbytes + self._bits.nbytes + self._before.nbytes

    def read(self, ids: Tensor) -> Tensor:
        """As `FeatureRows.read`. Costs a sort of the ids that are not held."""
        wanted = np.ascontiguousarray(ids.numpy())
        found = empty((len(wanted), self._x.shape[1]), self._dtype)
        missed = self._take(wanted, found.numpy())
        read_cold(self._x, wanted[missed], found.numpy(), missed)
        self._count(len(wanted), len(missed))
        return found

    @property
    def table(self) -> Tensor:
        """The rows that are held, and after them `spare` others: [n, F]."""
        return torch.from_numpy(self._table)

    def find(self, ids: Tensor) -> Found:
        """Where the rows of int64 ids [n] lie in the table, and which do not. Costs a sort of the latter."""
        wanted = np.ascontiguousarray(ids.numpy())
        places = np.empty(len(wanted), np.int32)
        if core is not None:
            missed = np.empty(len(wanted), np.int64)
            missed = missed[: core.find_held(self._bits, self._before, wanted, places, missed)]
        else:
            is_held = self._is_held(wanted)
            places[:] = np.where(is_held, self._place(wanted), -1)
            missed = np.flatnonzero(~is_held)
        numbers = wanted[missed]
        if self._is_packed:
            numbers -= self._place(numbers)
        order = np.argsort(numbers, kind="stable")
        self._count(len(wanted), len(missed))
        return Found(places, missed[order], numbers[order])

    def fill(self, numbers: Sequence[np.ndarray], place: int) -> None:
        """Reads rows of the file by their `Found.numbers`, in one pass, into the table from a place on."""
        assert self._file is not None
        outs = []
        for each in numbers:
            outs.append(self._table[place : place + len(each)])
            place += len(each)
        self._file.read(numbers, outs)

    def _count(self, wanted: int, missed: int) -> None:
        with self._lock:
            self._hits += wanted - missed
            self._misses += missed

    def _take(self, wanted: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Fills in the rows that are held; returns the places of the others."""
        if core is not None:
            missed = np.empty(len(wanted), np.int64)
            return missed[: core.take_held(self._bits, self._before, self._held, wanted, out, missed)]
        is_held = self._is_held(wanted)
        out[is_held] = self._held[self._place(wanted)[is_held]]
        return np.flatnonzero(~is_held)

    def _is_held(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray((self._bits[ids >> 6] >> (ids & 63).astype(np.uint64) & np.uint64(1)).astype(bool))

    def _place(self, ids: np.ndarray) -> np.ndarray:
        """How many rows below each are held: where it lies among them, if it does."""
        shift = (ids & 63).astype(np.uint64)
        below = self._bits[ids >> 6] & ((np.uint64(1) << shift) - np.uint64(1))
        ones = np.unpackbits(below.view(np.uint8).reshape(-1, 8), axis=1).sum(1)
        return (self._before[ids >> 6] + ones).astype(np.int64)

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


def large(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """`numpy.empty` for what is read or written at random: in huge pages, where there are any."""
    array = np.empty(shape, dtype)
    prefer_huge_pages(torch.from_numpy(array), now=False)
    return array


def _index_of(held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A bit a row, uint64 [ceil(N / 64)], and how many are set before each word, uint32."""
    packed = np.zeros(-(-len(held) // 64) * 8, np.uint8)
    packed[: -(-len(held) // 8)] = np.packbits(held, bitorder="little")
    words = np.add.reduceat(held, np.arange(0, len(held), 64), dtype=np.uint32) if len(held) else np.empty(0, np.uint32)
    return packed.view(np.uint64), (np.cumsum(words, dtype=np.uint32) - words).astype(np.uint32)


def rows_of(graph: Graph) -> ResidentRows | ColdRows:
    """How the features of a graph are read when none are held in RAM for the purpose."""
    return ColdRows(graph.x) if graph.is_cold else ResidentRows(graph.x)


def file_of(graph: Graph) -> RowFile | None:
    """The file of a graph's features; None where they are in RAM."""
    if graph.folder is None:
        return None
    path, x = graph.folder / "x.npy", graph.x.numpy()
    return RowFile(path, path.stat().st_size - x.nbytes, len(x), x.shape[1], x.dtype)
