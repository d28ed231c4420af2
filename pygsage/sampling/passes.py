"""Batches whose rows are read for several of them at once, in one pass over all rows that are not held in RAM."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
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

    One half of the room is read into while batches are made from the other, and those of a third group are drawn.

    Args:
        make: Draws and joins them, and makes those alone that miss more rows than that.
        rows: Read the rows.
    """

    def __init__(self, make: NodeBatches, rows: CachedRows) -> None:
        self._make, self._rows = make, rows
        self._changed = Condition()
        self._unmade, self._stopped = [0, 0], False

    def read(
        self, shards: Iterator[SeedShard], epoch: int
    ) -> Generator[list[Callable[[], OnItsWay[Batch]]], None, None]:
        """As `Groups.read`. A thread draws the batches of the next group while the rows of one are being read."""
        self._unmade, self._stopped = (
            [0, 0],
            False,
        )  # now, and not when the first group is asked for: `stop` may be sooner
        return self._read(shards, epoch)

    def _read(
        self, shards: Iterator[SeedShard], epoch: int
    ) -> Generator[list[Callable[[], OnItsWay[Batch]]], None, None]:
        groups = self._groups(shards, epoch)
        with ThreadPoolExecutor(1, thread_name_prefix="pygsage-drawer") as drawer:
            drawing = drawer.submit(next, groups, None)
            while (group := drawing.result()) is not None:
                drawing = drawer.submit(next, groups, None)
                if isinstance(group, SeedShard):
                    yield [partial(self._make.prepare, group, epoch)]
                    continue
                half = group.half
                with self._changed:
                    self._changed.wait_for(lambda half=half: self._stopped or self._unmade[half] == 0)  # type: ignore[misc]
                if self._stopped:
                    return
                start = time.perf_counter()
                self._rows.fill(group.numbers, self._begin(half))
                read_s = (time.perf_counter() - start) / len(group.drawn)
                self._unmade[half] = len(group.drawn)
                yield [partial(self._join, each, half, read_s) for each in group.drawn]

    def stop(self) -> None:
        """As `Groups.stop`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _begin(self, half: int) -> int:
        """Where a half of the room begins in the table."""
        return self._rows.num_held + half * (self._rows.spare // 2)

    def _groups(self, shards: Iterator[SeedShard], epoch: int) -> Iterator[_Group | SeedShard | None]:
        """The batches in order, group by group; alone one that misses more rows than there is room for."""
        room = self._rows.spare // 2
        coming = self._drawn(shards, epoch)
        batch = next(coming, None)
        half = 0
        while batch is not None:
            if len(batch[1].numbers) > room:
                yield batch[0].shard
                batch = next(coming, None)
                continue
            group, place, end = _Group(half, [], []), self._begin(half), self._begin(half) + room
            while batch is not None and place + len(batch[1].numbers) <= end and len(group.drawn) < MOST_BATCHES:
                group.drawn.append(_placed(*batch, place))
                group.numbers.append(batch[1].numbers)
                place += len(batch[1].numbers)
                batch = next(coming, None)
            yield group
            half ^= 1

    def _drawn(self, shards: Iterator[SeedShard], epoch: int) -> Iterator[tuple[Drawn, Found]]:
        for shard in shards:
            if self._stopped:
                return
            drawn = self._make.draw(shard, epoch)
            yield drawn, self._rows.find(drawn.reached)

    def _join(self, drawn: Drawn, half: int, read_s: float) -> OnItsWay[Batch]:
        try:
            return self._make.join(drawn, self._rows.table, time.perf_counter() - read_s)
        finally:
            with self._changed:
                self._unmade[half] -= 1
                self._changed.notify_all()


@dataclass
class _Group:
    """Batches whose missing rows, by their `Found.numbers`, go into one half of the room."""

    half: int
    drawn: list[Drawn]
    numbers: list[np.ndarray]


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
