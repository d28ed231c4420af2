"""Learning the labels of whole graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from pygsage.config import TrainConfig
from pygsage.data.many_graphs.graph_set import GraphInputs, GraphSet
from pygsage.distributed import World
from pygsage.errors import ConfigError
from pygsage.native.memory import release_buffers
from pygsage.nn.readout import GraphClassifier
from pygsage.sampling.keys import stream_of
from pygsage.sampling.pipeline import BatchPipeline, OnItsWay, step_weight
from pygsage.sampling.placement import CPU, Placement
from pygsage.sampling.shard import DistributedSeedSampler, SeedShard
from pygsage.sampling.transfer import Carrier, Sent
from pygsage.training.problem import About, Problem, seeded

_ROWS_AT_ONCE = 1 << 16  # nodes and edges of the graphs that are evaluated at a time


@dataclass(frozen=True)
class GraphBatch:
    """One rank's part of a step: whole graphs.

    Attributes:
        step: The step within its epoch.
        stream: The step's 64-bit stream, from which dropout masks are made.
        graphs: The graphs, joined.
        y: Their labels as the dataset has them, possibly none.
        weight: What the losses of the step's graphs, summed over all ranks, are divided by.
        seconds: Time its preparation took in its thread: `gather`; on a GPU also `copy`, which is the trainer's own.
    """

    step: int
    stream: int
    graphs: GraphInputs
    y: Tensor
    weight: float
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _OnItsWay:
    step: int
    stream: int
    weight: float
    seconds: dict[str, float]
    sent: Sent
    device: torch.device

    def arrive(self) -> GraphBatch:
        start = time.perf_counter()
        parts = self.sent.take()
        y = parts.pop("y")
        seconds = dict(self.seconds)
        if self.device.type != "cpu":
            seconds["copy"] = time.perf_counter() - start
        return GraphBatch(self.step, self.stream, GraphInputs(**parts), y, self.weight, seconds)


class GraphBatches:
    """Makes batches of whole graphs.

    Args:
        graphs: The graphs.
        seed: Of the dropout masks.
        seed_weights: float64 [training split]: what each graph counts for; None counts each as one.
        carrier: Brings the batches to their device; by default the CPU, where they are.
    """

    def __init__(
        self, graphs: GraphSet, seed: int, seed_weights: Tensor | None = None, carrier: Carrier | None = None
    ) -> None:
        self._carrier = CPU.carrier(1) if carrier is None else carrier
        self._graphs = graphs
        self._seed = seed
        self._seed_weights = seed_weights

    def __call__(self, shard: SeedShard, epoch: int) -> GraphBatch:
        """The batch of `shard`, on its device."""
        return self.prepare(shard, epoch).arrive()

    def prepare(self, shard: SeedShard, epoch: int) -> OnItsWay[GraphBatch]:
        """The batch of `shard`, on its way."""
        start = time.perf_counter()
        ids = self._graphs.splits["train"][shard.positions]
        sent = self._carrier.send({**vars(self._graphs.inputs(ids)), "y": self._graphs.y[ids]})
        stream, weight = stream_of(self._seed, epoch, shard.step), step_weight(shard, self._seed_weights)
        seconds = {"gather": time.perf_counter() - start}
        return _OnItsWay(shard.step, stream, weight, seconds, sent, self._carrier.device)


class GraphProblem(Problem):
    """Labels of whole graphs.

    Args:
        graphs: The graphs.
    """

    unit = "graph"

    def __init__(self, graphs: GraphSet) -> None:
        self.graphs = graphs

    @property
    def data(self) -> GraphSet:
        """The graphs."""
        return self.graphs

    def check(self, config: TrainConfig) -> None:
        """Refuses to hold features on a GPU: graphs are read whole, from their store.

        Raises:
            ConfigError: see above.
        """
        if config.placement == "cuda-cuda" or config.gpu_cache_size is not None:
            told = "--placement cuda-cuda" if config.placement == "cuda-cuda" else "--gpu-cache-size"
            raise ConfigError(
                f"{told} is for one graph with labels of nodes, and {self.graphs.name} has many graphs.",
                "Type --placement pinned-cuda." if config.placement == "cuda-cuda" else "Leave it out.",
            )

    def about(self, config: TrainConfig) -> About:
        """The size, the model, and that all neighbours are taken."""
        graphs = self.graphs
        kind = {"categories": "columns of categories", "degrees": "degree as feature"}.get(graphs.features.kind)
        features = f"{graphs.num_features:,} {kind or 'features'}"
        changes = graphs.changes
        added = ["their reverse"] * changes.undirected + ["self-loops"] * changes.self_loops
        edges = " and ".join([f"{graphs.num_edges:,} edges", *added])
        size = f"{graphs.num_graphs:,} graphs, {graphs.num_nodes:,} nodes, {edges}, {features}"
        model = f"{len(config.fanouts)} SAGE layers ({config.aggr}), {config.readout} readout"
        return About(size, model, "all neighbours (of --fanouts only the count of layers is used)", "")

    def build_model(self, config: TrainConfig) -> nn.Module:
        """A `GraphClassifier`."""
        graphs = self.graphs
        return seeded(
            config,
            lambda: GraphClassifier(
                graphs.num_features,
                config.hidden,
                len(config.fanouts),
                graphs.num_outputs,
                config.readout,
                graphs.features.table_sizes,
                dropout=config.dropout,
                aggr=config.aggr,
                norm=config.norm,
                precision=config.precision,
            ),
        )

    def batches(
        self,
        config: TrainConfig,
        shards: DistributedSeedSampler,
        seed_weights: Tensor | None,
        num_threads: int,
        placement: Placement = CPU,
    ) -> BatchPipeline[GraphBatch]:
        """Whole graphs of the training split."""
        make = GraphBatches(self.graphs, config.seed, seed_weights, placement.carrier(num_threads))
        return BatchPipeline(make.prepare, shards, num_threads)

    def scores(self, model: nn.Module, batch: GraphBatch) -> Tensor:
        """The outputs for the batch's graphs."""
        return _forward(model, batch.graphs, batch.stream)

    def predictor(
        self,
        model: nn.Module,
        world: World,
        scratch: Path | None = None,
        *,
        embeddings: bool = False,
        wanted: Tensor | None = None,
    ) -> Callable[[Tensor | slice], Tensor]:
        """Computes the graphs that are asked for, some tens of thousands of nodes and edges at a time."""

        def predict(ids: Tensor | slice) -> Tensor:
            chosen = torch.arange(self.graphs.num_graphs)[ids]
            was_training = model.training
            model.eval()
            try:
                with torch.inference_mode():
                    parts = [
                        _forward(model, _moved(self.graphs.inputs(part), world.device), None, embeddings).cpu()
                        for part in self._pieces(chosen)
                    ]
            finally:
                model.train(was_training)
                release_buffers()
            return torch.cat(parts)

        return predict

    def _pieces(self, ids: Tensor) -> Iterator[Tensor]:
        """The graphs in pieces of a bounded number of rows, at least one piece."""
        sizes = torch.from_numpy((self.graphs.nodes + self.graphs.edges).astype("int64")).diff()[ids]
        piece = (sizes.cumsum(0) - sizes) // _ROWS_AT_ONCE
        yield from ids.split(torch.unique_consecutive(piece, return_counts=True)[1].tolist() or [0])


def _forward(model: nn.Module, graphs: GraphInputs, stream: int | None, embeddings: bool = False) -> Tensor:
    out: Tensor = model(graphs.x, graphs.indptr, graphs.indices, graphs.ptr, graphs.n_id, stream, embeddings)
    return out


def _moved(graphs: GraphInputs, device: torch.device) -> GraphInputs:
    if device.type == "cpu":
        return graphs
    return GraphInputs(**{name: value.to(device) for name, value in vars(graphs).items()})
