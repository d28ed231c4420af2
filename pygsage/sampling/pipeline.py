"""Batches for the trainer, prepared ahead of the step by threads of the rank's own process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from pygsage.data.one_graph.feature_rows import FeatureRows, rows_of
from pygsage.data.one_graph.graph import Graph
from pygsage.memory.training import AHEAD
from pygsage.sampling.features import joined_features
from pygsage.sampling.first_layer import FirstLayer, input_dtype
from pygsage.sampling.keys import stream_of
from pygsage.sampling.library import StepSampler
from pygsage.sampling.sample import Block
from pygsage.sampling.shard import DistributedSeedSampler, SeedShard
from pygsage.sampling.transfer import Carrier, PageableCarrier, Parts, Sent, Written

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class OnItsWay(Protocol[S_co]):
    """A batch that is prepared, and on its way to the device of the step."""

    def arrive(self) -> S_co:
        """The batch there; called once, by the thread that takes the step."""


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
        seconds: Time its preparation took in its thread: `sample` and `gather`; on a GPU also `copy`, which is the
            trainer's own time.
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


@dataclass(frozen=True)
class Coming:
    """A `Batch` on its way: everything that need not be sent, and what is."""

    step: int
    stream: int
    num_blocks: int
    num_global: int
    weight: float
    seconds: dict[str, float]
    first_layer: FirstLayer | None
    sent: Sent
    device: torch.device

    def arrive(self) -> Batch:
        """As `OnItsWay.arrive`."""
        start = time.perf_counter()
        parts = self.sent.take()
        x = parts["x"] if self.first_layer is None else self.first_layer.input(parts)
        blocks = [Block(parts[f"indptr{i}"], parts[f"indices{i}"]) for i in range(self.num_blocks)]
        seconds = dict(self.seconds)
        if self.device.type != "cpu":
            seconds["copy"] = time.perf_counter() - start
        return Batch(
            self.step, self.stream, parts["n_id"], x, blocks, parts["y"], self.num_global, self.weight, seconds
        )


class BatchPipeline(Generic[S]):
    """Prepares the batches of an epoch in order, a few steps ahead.

    Args:
        make: Makes the batch of a shard of an epoch, as a pure function of both, and sends it to its device; called
            from several threads at once.
        shards: Says which seeds are this rank's in which step.
        num_threads: Threads that prepare batches. Their number changes nothing but speed.
        complete: What is left to do for what `make` has made, where ranks have to do it together: called by one thread,
            in the order of the steps. All that is begun is completed then, also when an epoch ends early: every rank
            has begun as many, since they begin a fixed number of steps ahead.

        groups: Makes them in the place of `make`, where what several need is read at once; without `complete`.

    Cost: up to `num_threads + 1` prepared batches are held at once, `AHEAD + 1` with `complete`, and what two groups
    read.
    """

    def __init__(
        self,
        make: Callable[[SeedShard, int], Any],
        shards: DistributedSeedSampler,
        num_threads: int = 1,
        complete: Callable[[Any], OnItsWay[S]] | None = None,
        groups: Groups[S] | None = None,
    ) -> None:
        self._make = make
        self._shards = shards
        self._ahead = num_threads if complete is None else AHEAD
        self._groups = groups
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="pygsage-sampler")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="pygsage-reader") if groups is not None else None
        self._last = None if complete is None else _InOrder(complete)

    def __enter__(self) -> BatchPipeline[S]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reader is not None:
            self._reader.shutdown(wait=True, cancel_futures=True)
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._last is not None:
            self._last.thread.shutdown(wait=True)

    def __len__(self) -> int:
        """Steps an epoch, the same on every rank."""
        return len(self._shards)

    def batches(self, epoch: int, first_step: int = 0) -> Generator[S, None, None]:
        """The rank's batches of an epoch, from `first_step` on, in order, on the device; one for every step."""
        waiting: deque[Future[OnItsWay[S]]] = deque()
        try:
            for make in self._made(epoch, first_step):
                made = self._threads.submit(make)
                waiting.append(made if self._last is None else self._last.thread.submit(self._last, made))
                if len(waiting) > self._ahead:
                    yield waiting.popleft().result().arrive()
            while waiting:
                yield waiting.popleft().result().arrive()
        finally:
            for future in waiting:
                if self._last is None:
                    future.cancel()
            wait(waiting)  # none uses any longer what the next epoch's batches are read into, nor waits for a peer

    def _made(self, epoch: int, first_step: int) -> Iterator[Callable[[], Any]]:
        """What makes each batch; with groups once what it needs was read, while the next group is being read."""
        shards = self._shards.shards(epoch, first_step)
        if self._groups is None or self._reader is None:
            yield from (partial(self._make, shard, epoch) for shard in shards)
            return
        groups = self._groups.read(shards, epoch)
        reading: Future[list[Callable[[], OnItsWay[S]]]] = self._reader.submit(next, groups, [])
        try:
            while ready := deque(reading.result()):
                reading = self._reader.submit(next, groups, [])
                while ready:
                    yield ready.popleft()
        finally:
            self._groups.stop()
            wait([reading])
            groups.close()


class Groups(Protocol[S]):
    """Makes batches in two steps, of which the first is done for several at once."""

    def read(self, shards: Iterator[SeedShard], epoch: int) -> Generator[list[Callable[[], OnItsWay[S]]], None, None]:
        """Reads what the next batches need, and gives what makes each of them; called by one thread, a group ahead."""

    def stop(self) -> None:
        """Ends a `read` that waits for batches to be made, which will not be."""


class _InOrder(Generic[S]):
    """One thread that completes batches; after one that failed it takes no other, which would be out of step."""

    def __init__(self, complete: Callable[[Any], OnItsWay[S]]) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="pygsage-exchange")
        self._complete = complete
        self._failed = False

    def __call__(self, made: Future[Any]) -> OnItsWay[S]:
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
        first_layer: Makes the first layer's input on the device, in the place of the three above.
        carrier: Brings the batches to their device; by default the CPU, where they are.
    """

    def __init__(
        self,
        graph: Graph,
        seeds: Tensor,
        sampler: StepSampler,
        seed_weights: Tensor | None = None,
        aggr: str = "mean",
        dtype: torch.dtype | None = None,
        rows: FeatureRows | None = None,
        *,
        first_layer: FirstLayer | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        self._rows = rows_of(graph) if rows is None else rows
        self._aggr = aggr
        self._dtype, self._width = input_dtype(graph.x, dtype), graph.num_features
        self._first_layer = first_layer
        self._carrier = PageableCarrier(torch.device("cpu")) if carrier is None else carrier
        self._y = graph.y
        self._seeds = seeds
        self._seed_weights = seed_weights
        self._sampler = sampler

    def __call__(self, shard: SeedShard, epoch: int) -> Batch:
        """The batch of `shard`, on its device."""
        return self.prepare(shard, epoch).arrive()

    def prepare(self, shard: SeedShard, epoch: int) -> Coming:
        """The batch of `shard`, on its way to its device."""
        if self._first_layer is not None:
            start = time.perf_counter()
            seeds = self._seeds[shard.positions]
            nodes, blocks, parts = self._first_layer.draw(seeds, epoch, shard.step)
            sampled = time.perf_counter()
            return self._send(shard, epoch, seeds, nodes, blocks, parts, sampled - start, sampled)
        drawn = self.draw(shard, epoch)
        start = time.perf_counter()
        # The same neighbours and the same sums either way; rows that have to be read are read once each.
        x = self._rows.resident if self._rows.resident is not None else self._rows.read(drawn.reached)
        return self.join(drawn, x, start)

    def draw(self, shard: SeedShard, epoch: int) -> Drawn:
        """The neighbours of `shard`; where rows have to be read, numbered within the batch."""
        start = time.perf_counter()
        seeds = self._seeds[shard.positions]
        if self._rows.resident is not None:
            layers = self._sampler.sample_layers(seeds, epoch, shard.step)
            nodes, blocks, outer, ids = layers.nodes, layers.blocks, layers.outer_indptr, layers.outer_ids
            own = reached = nodes
        else:
            reached, (first, *blocks) = self._sampler.sample_blocks(seeds, epoch, shard.step)
            nodes, own, outer, ids = reached[: first.num_dst], torch.arange(first.num_dst), first.indptr, first.indices
        return Drawn(shard, epoch, seeds, reached, nodes, own, outer, ids, blocks, time.perf_counter() - start)

    def join(self, drawn: Drawn, x: Tensor, start: float) -> Coming:
        """The batch, from rows that `drawn` numbers; `start`: when gathering them began."""

        def write(out: Tensor) -> None:
            joined_features(x, drawn.own, drawn.outer, drawn.ids, self._aggr, self._dtype, out=out)

        parts = {"x": Written((len(drawn.nodes), 2 * self._width), self._dtype, write)}
        return self._send(
            drawn.shard, drawn.epoch, drawn.seeds, drawn.nodes, drawn.blocks, parts, drawn.sample_s, start
        )

    def _send(
        self,
        shard: SeedShard,
        epoch: int,
        seeds: Tensor,
        nodes: Tensor,
        blocks: list[Block],
        parts: Parts,
        sample_s: float,
        start: float,
    ) -> Coming:
        inner = {}
        for i, block in enumerate(blocks):
            inner[f"indptr{i}"], inner[f"indices{i}"] = block.indptr, block.indices
        sent = self._carrier.send({**parts, "n_id": nodes, "y": self._y[seeds], **inner})
        seconds = {"sample": sample_s, "gather": time.perf_counter() - start}
        stream, weight = stream_of(self._sampler.seed, epoch, shard.step), step_weight(shard, self._seed_weights)
        return Coming(
            shard.step,
            stream,
            len(blocks),
            shard.num_global,
            weight,
            seconds,
            self._first_layer,
            sent,
            self._carrier.device,
        )


@dataclass(frozen=True)
class Drawn:
    """A batch of which no row was read yet.

    Attributes:
        reached: Ids of all nodes whose rows are needed, unless any row may be touched where it lies.
        own, outer, ids: What `joined_features` takes, of the rows of `reached` or of the graph.

    The others are as those of `Batch`.
    """

    shard: SeedShard
    epoch: int
    seeds: Tensor
    reached: Tensor
    nodes: Tensor
    own: Tensor
    outer: Tensor
    ids: Tensor
    blocks: list[Block]
    sample_s: float


def step_weight(shard: SeedShard, seed_weights: Tensor | None) -> float:
    """What the losses of a step, summed over all ranks, are divided by: the number of seeds, or their weight."""
    if seed_weights is None:
        return float(shard.num_global)
    # Over the seeds of all ranks and in one order: the same number everywhere, without a message.
    return float(seed_weights[shard.global_positions].numpy().sum())
