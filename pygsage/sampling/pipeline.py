"""Batches for the trainer, prepared ahead of the step by threads of the rank's own process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from pygsage.data.cold import cold_rows
from pygsage.data.graph import Graph
from pygsage.sampling.keys import stream_of
from pygsage.sampling.sample import Block
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler, SeedShard

S = TypeVar("S")


@dataclass(frozen=True)
class Batch:
    """One rank's part of a step, ready for the model.

    Attributes:
        step: The step within its epoch.
        stream: The step's 64-bit stream, from which dropout masks are made.
        n_id: Ids of the nodes reached, int64 [n], seeds first.
        x: Their features, float32 [n, F].
        blocks: One a layer, outermost first.
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

    Cost: up to `num_threads + 1` prepared batches are held at once.
    """

    def __init__(
        self, make: Callable[[SeedShard, int], S], shards: DistributedSeedSampler, num_threads: int = 1
    ) -> None:
        self._make = make
        self._shards = shards
        self._num_threads = num_threads
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="pygsage-sampler")

    def __enter__(self) -> BatchPipeline[S]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def __len__(self) -> int:
        """Steps an epoch, the same on every rank."""
        return len(self._shards)

    def batches(self, epoch: int, first_step: int = 0) -> Generator[S, None, None]:
        """The rank's batches of an epoch, from `first_step` on, in order; one for every step."""
        waiting: deque[Future[S]] = deque()
        try:
            for shard in self._shards.shards(epoch, first_step):
                waiting.append(self._threads.submit(self._make, shard, epoch))
                if len(waiting) > self._num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class NodeBatches:
    """Makes batches of nodes and their sampled neighbours.

    Args:
        graph: The graph; its features and labels are gathered row by row.
        seeds: Node ids to train on, int64 [n].
        sampler: Draws the neighbours; called from several threads at once.
        seed_weights: float64 [n]: what each seed counts for in a step's mean, such as its number of known labels;
            None counts each as one.
    """

    def __init__(
        self, graph: Graph, seeds: Tensor, sampler: NeighborSampler, seed_weights: Tensor | None = None
    ) -> None:
        self._x = graph.x.numpy()
        self._rows = cold_rows if graph.is_cold else partial(np.take, axis=0)
        self._y = graph.y
        self._seeds = seeds
        self._seed_weights = seed_weights
        self._sampler = sampler

    def __call__(self, shard: SeedShard, epoch: int) -> Batch:
        """The batch of `shard`."""
        start = time.perf_counter()
        seeds = self._seeds[shard.positions]
        n_id, blocks = self._sampler.sample_blocks(seeds, epoch, shard.step)
        sampled = time.perf_counter()
        # NumPy gathers with one thread and without the GIL; torch would start a second pool of threads here.
        x = torch.from_numpy(self._rows(self._x, n_id.numpy())).float()  # of float16, which a store may hold
        y = self._y[seeds]
        seconds = {"sample": sampled - start, "gather": time.perf_counter() - sampled}
        stream = stream_of(self._sampler.seed, epoch, shard.step)
        weight = step_weight(shard, self._seed_weights)
        return Batch(shard.step, stream, n_id, x, blocks, y, shard.num_global, weight, seconds)


def step_weight(shard: SeedShard, seed_weights: Tensor | None) -> float:
    """What the losses of a step, summed over all ranks, are divided by: the number of seeds, or their weight."""
    if seed_weights is None:
        return float(shard.num_global)
    # Over the seeds of all ranks and in one order: the same number everywhere, without a message.
    return float(seed_weights[shard.global_positions].numpy().sum())
