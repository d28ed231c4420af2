"""Learning the labels of nodes of one graph, from sampled neighbours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from pygsage import native
from pygsage.config import TrainConfig
from pygsage.data.files.fetch import load
from pygsage.data.one_graph.feature_rows import CachedRows, FeatureRows, file_of, rows_of
from pygsage.data.one_graph.graph import Graph
from pygsage.distributed import World
from pygsage.memory.decide import size_text
from pygsage.memory.disk import has_room
from pygsage.native.memory import prefer_huge_pages
from pygsage.nn.inference import layerwise_inference
from pygsage.nn.sage import GraphSAGE
from pygsage.sampling.first_layer import FirstLayer, OnDeviceCached
from pygsage.sampling.hot_rows import hot_rows, plan_reads
from pygsage.sampling.library import LIBRARIES, StepSampler, check_sampler, step_sampler
from pygsage.sampling.passes import NodeGroups
from pygsage.sampling.pipeline import Batch, BatchPipeline, NodeBatches
from pygsage.sampling.placement import CPU, Placement
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.problem import About, Problem, seeded


class NodeProblem(Problem):
    """Labels of nodes.

    Args:
        graph: The graph.
    """

    unit = "node"

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._rows: FeatureRows = rows_of(graph)
        self._first_layer: FirstLayer | None = None  # where the device makes its input

    @property
    def data(self) -> Graph:
        """The graph."""
        return self.graph

    def check(self, config: TrainConfig) -> None:
        """Refuses a sampler that is not there."""
        check_sampler(config.sampler)

    def about(self, config: TrainConfig) -> About:
        """The graph's size, the model, and how neighbours are drawn."""
        graph = self.graph
        size = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features"
        model = f"{len(config.fanouts)} SAGE layers ({config.aggr})"
        fanouts = ",".join(map(str, config.fanouts))
        return About(size, model, f"fanouts {fanouts}", f"sampler {check_sampler(config.sampler)}")

    def build_model(self, config: TrainConfig) -> nn.Module:
        """A `GraphSAGE`."""
        return seeded(config, lambda: sage(config, self.graph.num_features, self.graph.num_outputs))

    def batches(
        self,
        config: TrainConfig,
        shards: DistributedSeedSampler,
        seed_weights: Tensor | None,
        num_threads: int,
        placement: Placement = CPU,
    ) -> BatchPipeline[Batch]:
        """Sampled neighbourhoods of training nodes."""
        sampler = step_sampler(self.graph, config.fanouts, config.seed, config.sampler)
        graph, dtype = self.graph, torch.bfloat16 if config.precision == "bf16" else None
        if graph.folder is None:  # in RAM, and its rows are read in random order
            for array in (graph.x, graph.indptr, graph.indices):
                prefer_huge_pages(array)
        if self.hot_rows and graph.folder is not None:
            # The edges first: sampling waits for one page at a time.
            for array in (graph.indptr, graph.indices):
                load(array.numpy())
            if not placement.gathers:
                return self._read_ahead(sampler, shards, seed_weights, config.aggr, dtype, num_threads, placement)
            held = hot_rows(graph, graph.splits["train"], sampler, shards, self.hot_rows)
            self._rows = CachedRows(graph.x, held)
        first = self._first_layer = placement.first_layer(graph, self._rows, sampler, shards, config.aggr, dtype)
        make = NodeBatches(
            graph,
            graph.splits["train"],
            sampler,
            seed_weights,
            config.aggr,
            dtype,
            self._rows,
            first_layer=first,
            carrier=placement.carrier(num_threads),
        )
        return BatchPipeline(make.prepare, shards, num_threads)

    def _read_ahead(
        self,
        sampler: StepSampler,
        shards: DistributedSeedSampler,
        seed_weights: Tensor | None,
        aggr: str,
        dtype: torch.dtype | None,
        num_threads: int,
        placement: Placement,
    ) -> BatchPipeline[Batch]:
        """With rows that batches often need in RAM, and the others read for one batch or for several at once."""
        graph, train, file = self.graph, self.graph.splits["train"], file_of(self.graph)
        spill = self.spill if file is not None and has_room(self.spill, file.num_bytes) else None
        plan = plan_reads(graph, train, sampler, shards, self.hot_rows, packed=spill is not None)
        if not plan.spare:  # row by row: no pass over a file
            spill = None
        rows = CachedRows(graph.x, plan.held, file, spill, plan.spare)
        self._rows = rows
        carrier = placement.carrier(num_threads)
        make = NodeBatches(graph, train, sampler, seed_weights, aggr, dtype, rows, carrier=carrier)
        groups = NodeGroups(make, rows) if plan.spare else None
        return BatchPipeline(make.prepare, shards, num_threads, groups=groups)

    def ready(self) -> list[str]:
        """How much of the features is held in RAM, where they are read from a file, and on the device."""
        lines = []
        if isinstance(self._rows, CachedRows):
            told = self._held(self._rows.num_held, self._rows.num_bytes)
            how = ", the others read for several steps at once" if self._rows.spare else ""
            lines.append(
                f"features: read from {self.graph.folder}; in RAM {told} a process, chosen by sampling batches "
                f"beforehand{how}"
            )
        if isinstance(self._first_layer, OnDeviceCached):
            told = self._held(self._first_layer.num_held, self._first_layer.num_bytes)
            lines.append(f"features: on each GPU {told}, chosen by sampling batches beforehand; the others are sent")
        return lines

    def _held(self, num_rows: int, num_bytes: int) -> str:
        return f"{num_rows:,} hot rows ({num_rows / max(1, self.graph.num_nodes):.0%}), {size_text(num_bytes)}"

    def cache_counts(self) -> tuple[int, int]:
        """As `Problem.cache_counts`; where the device has a cache, its own."""
        return (self._rows if self._first_layer is None else self._first_layer).counts()

    def scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """The outputs for the batch's seeds."""
        return cast(GraphSAGE, model).forward_blocks(batch.x, batch.blocks, batch.n_id, batch.stream)

    def predictor(
        self,
        model: nn.Module,
        world: World,
        scratch: Path | None = None,
        *,
        embeddings: bool = False,
        wanted: Tensor | None = None,
    ) -> Callable[[Tensor | slice], Tensor]:
        """Computes all nodes, or those that are wanted, at once over all their neighbours, and then looks them up."""
        graph = self.graph
        outputs = layerwise_inference(
            model,
            self._x(),
            graph.indptr,
            graph.indices,
            world=world,
            scratch=scratch,
            device=world.device,
            last_hidden=embeddings,
            wanted=wanted,
            features=self._rows,
            on_all_machines=self._evaluates_together(),
        )
        return lambda nodes: outputs[nodes]

    def _evaluates_together(self) -> bool:
        """Whether machines share an inference: what they would send is more than what most networks carry in time."""
        return False

    def _x(self) -> Tensor:
        """The features as an inference sees them."""
        return self.graph.x


def sage(config: TrainConfig, in_channels: int, out_channels: int) -> GraphSAGE:
    """The `GraphSAGE` that the options describe, drawn from torch's generator."""
    return GraphSAGE(
        in_channels,
        config.hidden,
        len(config.fanouts),
        out_channels,
        dropout=config.dropout,
        aggr=config.aggr,
        norm=config.norm,
        precision=config.precision,
    )


def sampler_note(config: TrainConfig) -> list[str]:
    """A warning where sampling is slow because the native core is missing, and what a library's sampler costs."""
    if config.sampler in LIBRARIES:
        return [
            f"note: {config.sampler} draws from torch's generator: a run repeats on the same number of processes, and "
            "another number draws other neighbours"
        ]
    if config.sampler == "auto" and native.core is None:
        return [f"note: without the native sampler ({native.load_error}) sampling is slow: see pygsage doctor"]
    return []
