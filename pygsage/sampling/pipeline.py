"""Batches for the trainer, prepared ahead of the step by threads of the rank's own process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from pygsage.data.one_graph.feature_rows import FeatureRows, rows_of
from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.features import joined_features
from pygsage.sampling.keys import stream_of
from pygsage.sampling.sample import Block
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler, SeedShard

S = TypeVar("S")
AHEAD = 4  # steps that batches are begun before they are needed, where ranks complete them together


@dataclass(frozen=True)
class Batch:
    """One rank's part of a step, ready for the model.

    Attributes:
        step: The step within its epoch.
        stream: The step's 64-bit stream, from which dropout masks are made.
        n_id: Ids of the nodes that the first layer puts out, int64 [n], seeds first.
        x: The first layer's input, [n, 2 F]: the aggregate of each one's neighbours' features, and its own.
        blocks: One a layer but the first, outermost first.
        y: Labels of the seeds as the graph has them, int64 [number of seeds] or float32 [.., C], possibly empty.
        num_global: Seeds in this step over all ranks.
        weight: What the losses of the step's seeds, summed over all ranks, are divided by.
        seconds: Time its preparation took in its thread: `sample` and `gather`.
    """

    step: int
    stream: int
    n_id: Tensor
    x: Tensor
    blocks: list[Block]
    y: Tensor
    num_global: int
    weight: float
    seconds: dict[str, float] = field(default_factory=dict)

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        if device.type == "cpu":
            return self
        blocks = [Block(b.indptr.to(device), b.indices.to(device)) for b in self.blocks]
        return Batch(
            self.step,
            self.stream,
            self.n_id.to(device),
            self.x.to(device),
            blocks,
            self.y.to(device),
            self.num_global,
            self.weight,
            self.seconds,
        )


class BatchPipeline(Generic[S]):
    """Prepares the batches of an epoch in order, a few steps ahead.

    Args:
        make: Makes the batch of a shard of an epoch, as a pure function of both; called from several threads at once.
        shards: Says which seeds are this rank's in which step.
        num_threads: Threads that prepare batches. Their number changes nothing but speed.
        complete: What is left to do for what `make` has made, where ranks have to do it together: called by one thread,
            in the order of the steps. All that is begun is completed then, also when an epoch ends early: every rank
            has begun as many, since they begin a fixed number of steps ahead.

    Cost: up to `num_threads + 1` prepared batches are held at once, `AHEAD + 1` with `complete`.
    """

    def __init__(
        self,
        make: Callable[[SeedShard, int], Any],
        shards: DistributedSeedSampler,
        num_threads: int = 1,
        complete: Callable[[Any], S] | None = None,
    ) -> None:
        self._make = make
        self._shards = shards
        self._ahead = num_threads if complete is None else AHEAD
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="pygsage-sampler")
        self._last = None if complete is None else _InOrder(complete)

    def __enter__(self) -> BatchPipeline[S]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._last is not None:
            self._last.thread.shutdown(wait=True)

    def __len__(self) -> int:
        """Steps an epoch, the same on every rank."""
        return len(self._shards)

    def batches(self, epoch: int, first_step: int = 0) -> Generator[S, None, None]:
        """The rank's batches of an epoch, from `first_step` on, in order; one for every step."""
        waiting: deque[Future[S]] = deque()
        try:
            for shard in self._shards.shards(epoch, first_step):
                made = self._threads.submit(self._make, shard, epoch)
                waiting.append(made if self._last is None else self._last.thread.submit(self._last, made))
                if len(waiting) > self._ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                if self._last is None:
                    future.cancel()
                else:
                    future.exception()  # waits for it


class _InOrder(Generic[S]):
    """One thread that completes batches; after one that failed it takes no other, which would be out of step."""

    def __init__(self, complete: Callable[[Any], S]) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="pygsage-exchange")
        self._complete = complete
        self._failed = False

    def __call__(self, made: Future[Any]) -> S:
        if self._failed:
            raise RuntimeError("a batch before this one failed")
        try:
            return self._complete(made.result())
        except BaseException:
            self._failed = True
            raise


class NodeBatches:
    """Makes batches of nodes and their sampled neighbours.

    Args:
        graph: The graph; its features and labels are gathered row by row.
        seeds: Node ids to train on, int64 [n].
        sampler: Draws the neighbours; called from several threads at once.
        seed_weights: float64 [n]: what each seed counts for in a step's mean, such as its number of known labels;
            None counts each as one.
        aggr: How the first layer aggregates: `mean`, `sum` or `max`.
        dtype: Of the first layer's input: by default that of the features, float32 for float16.
        rows: How the features are read: by default as `rows_of` has it.
    """

    def __init__(
        self,
        graph: Graph,
        seeds: Tensor,
        sampler: NeighborSampler,
        seed_weights: Tensor | None = None,
        aggr: str = "mean",
        dtype: torch.dtype | None = None,
        rows: FeatureRows | None = None,
    ) -> None:
        self._rows = rows_of(graph) if rows is None else rows
        self._aggr = aggr
        self._dtype = dtype
        self._y = graph.y
        self._seeds = seeds
        self._seed_weights = seed_weights
        self._sampler = sampler

    def __call__(self, shard: SeedShard, epoch: int) -> Batch:
        """The batch of `shard`."""
        start = time.perf_counter()
        seeds = self._seeds[shard.positions]
        # The same neighbours and the same sums either way; rows that have to be read are read once each.
        if self._rows.resident is not None:
            layers, x = self._sampler.sample_layers(seeds, epoch, shard.step), self._rows.resident
            nodes, blocks, outer, ids = layers.nodes, layers.blocks, layers.outer_indptr, layers.outer_ids
            own = nodes
            sampled = time.perf_counter()
        else:
            reached, (first, *blocks) = self._sampler.sample_blocks(seeds, epoch, shard.step)
            nodes, own, outer, ids = reached[: first.num_dst], torch.arange(first.num_dst), first.indptr, first.indices
            sampled = time.perf_counter()
            x = self._rows.read(reached)
        x = joined_features(x, own, outer, ids, self._aggr, self._dtype)
        seconds = {"sample": sampled - start, "gather": time.perf_counter() - sampled}
        return self._batch(shard, epoch, nodes, x, blocks, seconds)

    def _batch(
        self, shard: SeedShard, epoch: int, nodes: Tensor, x: Tensor, blocks: list[Block], seconds: dict[str, float]
    ) -> Batch:
        stream = stream_of(self._sampler.seed, epoch, shard.step)
        weight = step_weight(shard, self._seed_weights)
        y = self._y[self._seeds[shard.positions]]
        return Batch(shard.step, stream, nodes, x, blocks, y, shard.num_global, weight, seconds)


def step_weight(shard: SeedShard, seed_weights: Tensor | None) -> float:
    """What the losses of a step, summed over all ranks, are divided by: the number of seeds, or their weight."""
    if seed_weights is None:
        return float(shard.num_global)
    # Over the seeds of all ranks and in one order: the same number everywhere, without a message.
    return float(seed_weights[shard.global_positions].numpy().sum())
