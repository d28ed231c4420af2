"""The features of a graph in parts: rows of this machine's parts from their files, those of others over the network."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from pygsage.data.one_graph.held_rows import HeldRows
from pygsage.data.one_graph.parts import PartRows, Parts
from pygsage.sampling.exchange import Exchange, as_bytes

_AT_ONCE = 1 << 20  # nodes that are looked at
_FILL_BYTES = 32 << 20  # of rows that are fetched at once into the cache


@dataclass
class Wanted:
    """Rows that are being read: those at hand are in `rows` already.

    Attributes:
        rows: `[n, F]`.
        missing: int64 `[m]`: where in `rows` the others go.
        places: int64 `[m]`: their storage numbers, by the rank that is asked for them.
        num_asked: int64 `[ranks]`: how many each is asked for.
    """

    rows: np.ndarray
    missing: np.ndarray
    places: np.ndarray
    num_asked: np.ndarray


class RemoteRows(PartRows):
    """Features of which some parts lie on other machines.

    Args:
        parts: The parts, of which this machine's own are here.
        exchange: Brings rows of the others; used by one thread at a time.
        servers: int64 `[parts]`: the rank that is asked for rows of a part; -1 for those that are here.

    `start` is called by any thread. `complete`, `read` and `finish` are rounds that all ranks take together: to train,
    `complete` once a step, in the order of the steps; for a pass of any number of reads `read`, then once `finish`.
    """

    def __init__(self, parts: Parts, exchange: Exchange, servers: np.ndarray) -> None:
        super().__init__(parts)
        self._exchange, self._servers = exchange, servers
        self._num_ranks = exchange.num_ranks
        self._held: HeldRows | None = None
        self._lock, self._hits, self._misses = Lock(), 0, 0
        for part in np.flatnonzero(servers < 0).tolist():
            parts.open(part)

    @property
    def num_held(self) -> int:
        """How many rows of other machines are held in RAM."""
        return len(self._held.rows) if self._held is not None else 0

    @property
    def num_bytes(self) -> int:
        """What they take."""
        return self._held.num_bytes if self._held is not None else 0

    def is_remote(self) -> Tensor:
        """Which nodes' rows lie on other machines, bool `[N]`."""
        there = self._servers >= 0
        found = np.empty(len(self.parts.place), np.bool_)
        for begin in range(0, len(found), _AT_ONCE):
            found[begin : begin + _AT_ONCE] = there[
                self.parts.part_of(self.parts.place[begin : begin + _AT_ONCE].numpy())
            ]
        return torch.from_numpy(found)

    def hold(self, held: Tensor) -> None:
        """Fetches some rows of other machines, bool `[N]`, to be at hand from now on; all ranks together."""
        room = HeldRows(held, self.parts.width, self.parts.dtype)
        ids, step = held.nonzero().flatten(), max(1, _FILL_BYTES // max(1, self.parts.row_bytes))
        for begin in range(0, len(ids), step):
            room.rows[begin : begin + step] = self.read(ids[begin : begin + step]).numpy()
        self.finish()
        self._held = room

    def start(self, ids: Tensor, count: bool = True) -> Wanted:
        """Begins to read the rows of int64 ids `[n]`: takes those that are on this machine."""
        wanted = np.ascontiguousarray(ids.numpy())
        rows = np.empty((len(wanted), self.parts.width), self.parts.dtype)
        left = np.arange(len(wanted)) if self._held is None else self._held.take(wanted, rows)
        num_hits = len(wanted) - len(left)
        places = self.parts.place.numpy()[wanted[left]].astype(np.int64)
        server = self._servers[self.parts.part_of(places)]
        here = server < 0
        self.parts.read(places[here], rows, left[here])
        order = np.flatnonzero(~here)
        order = order[np.argsort(server[order], kind="stable")]
        if count:
            with self._lock:
                self._hits += num_hits
                self._misses += len(order)
        return Wanted(rows, left[order], places[order], np.bincount(server[order], minlength=self._num_ranks))

    def complete(self, wanted: Wanted) -> Tensor:
        """Fetches the others: a round; returns the rows `[n, F]`."""
        found, _ = self._exchange.round(wanted.places, wanted.num_asked, self._serve)
        wanted.rows[wanted.missing] = found.view(self.parts.dtype).reshape(len(found), self.parts.width)
        return torch.from_numpy(wanted.rows)

    def read(self, ids: Tensor) -> Tensor:
        """As `FeatureRows.read`, and a round."""
        return self.complete(self.start(ids, count=False))

    def finish(self) -> None:
        """Takes part in the rounds of the others until all have read what they want."""
        nothing = np.empty(0, np.int64)
        while not self._exchange.round(nothing, np.zeros(self._num_ranks, np.int64), self._serve, done=True)[1]:
            pass

    def _serve(self, places: np.ndarray) -> np.ndarray:
        rows = np.empty((len(places), self.parts.width), self.parts.dtype)
        self.parts.read(places, rows)
        return as_bytes(rows)

    def counts(self) -> tuple[int, int]:
        """Rows of other machines that training found in RAM, and that it fetched, since the last call."""
        with self._lock:
            found = self._hits, self._misses
            self._hits = self._misses = 0
        return found
