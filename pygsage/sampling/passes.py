"""Batches whose rows are read for several of them at once, in one pass over all rows that are not held in RAM."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle
from threading import Condition

import numpy as np
import torch

from pygsage.data.one_graph.feature_rows import CachedRows, Found
from pygsage.sampling.pipeline import Batch, Drawn, NodeBatches, OnItsWay
from pygsage.sampling.sample import Block
from pygsage.sampling.shard import SeedShard

MOST_BATCHES = 64  # a pass


class NodeGroups:
    """Groups of batches of nodes, as `sampling.pipeline.Groups`: as many as miss no more rows than there is room for.

    One half of the room is read into while batches are made from the other.

    Args:
        make: Draws and joins them, and makes those alone that miss more rows than that.
        rows: Read the rows.
    """

    def __init__(self, make: NodeBatches, rows: CachedRows) -> None:
        self._make, self._rows = make, rows
        self._changed = Condition()
        self._unmade, self._stopped = [0, 0], False

    def read(self, shards: Iterator[SeedShard], epoch: int) -> Iterator[list[Callable[[], OnItsWay[Batch]]]]:
        """As `Groups.read`."""
        self._unmade, self._stopped = [0, 0], False
        room = self._rows.spare // 2
        coming = self._drawn(shards, epoch)
        batch = next(coming, None)
        for half in cycle((0, 1)):
            if batch is None:
                return
            if len(batch[1].numbers) > room:
                yield [partial(self._make.prepare, batch[0].shard, epoch)]
                batch = next(coming, None)
                continue
            begin = place = self._rows.num_held + half * room
            group: list[Drawn] = []
            numbers: list[np.ndarray] = []
            while batch is not None and place + len(batch[1].numbers) <= begin + room and len(group) < MOST_BATCHES:
                group.append(_placed(*batch, place))
                numbers.append(batch[1].numbers)
                place += len(batch[1].numbers)
                batch = next(coming, None)
            with self._changed:
                self._changed.wait_for(lambda half=half: self._stopped or self._unmade[half] == 0)  # type: ignore[misc]
            if self._stopped:
                return
            start = time.perf_counter()
            self._rows.fill(numbers, begin)
            read_s = (time.perf_counter() - start) / len(group)
            self._unmade[half] = len(group)
            yield [partial(self._join, each, half, read_s) for each in group]

    def stop(self) -> None:
        """As `Groups.stop`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _drawn(self, shards: Iterator[SeedShard], epoch: int) -> Iterator[tuple[Drawn, Found]]:
        for shard in shards:
            drawn = self._make.draw(shard, epoch)
            yield drawn, self._rows.find(drawn.reached)

    def _join(self, drawn: Drawn, half: int, read_s: float) -> OnItsWay[Batch]:
        try:
            return self._make.join(drawn, self._rows.table, time.perf_counter() - read_s)
        finally:
            with self._changed:
                self._unmade[half] -= 1
                self._changed.notify_all()


def _placed(drawn: Drawn, found: Found, place: int) -> Drawn:
    """The batch with its rows' places in the table, where those that are missing will lie from `place` on.

    It keeps nothing of what is only needed to read rows, which is twice as large.
    """
    places = found.places
    places[found.missed] = np.arange(place, place + len(found.missed), dtype=np.int32)
    num_targets = len(drawn.nodes)
    nodes = drawn.nodes.clone()
    return replace(
        drawn,
        reached=nodes,
        nodes=nodes,
        own=torch.from_numpy(places[:num_targets].astype(np.int64)),
        ids=torch.from_numpy(places[drawn.ids.numpy()]),
        blocks=[Block(block.indptr, block.indices.clone()) for block in drawn.blocks],
    )
