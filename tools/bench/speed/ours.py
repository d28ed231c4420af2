"""Our side of the speed comparison: what the trainer does, one batch after the other in this thread."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import arguments
import phases
import torch

import pygsage
from pygsage.config import TrainConfig
from pygsage.data.one_graph.graph import Graph
from pygsage.distributed import World
from pygsage.native.memory import prefer_huge_pages
from pygsage.sampling.pipeline import NodeBatches
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.losses import build_loss
from pygsage.training.nodes import NodeProblem
from pygsage.training.optimizers import build_optimizer


def resident(folder: str) -> Graph:
    """The graph in RAM, as one that was read from a user's file is."""
    graph = Graph.open(Path(folder))
    arrays = [array.clone() for array in (graph.indptr, graph.indices, graph.edge_id[:0], graph.x, graph.y)]
    for array in arrays:
        prefer_huge_pages(array)  # as the trainer asks for
    return Graph(graph.name, *arrays, {"train": graph.splits["train"].clone()}, graph.num_classes)


def main(told: Any, clock: phases.Phases) -> dict[str, Any]:
    """Measures what was asked for; the trainer's threads, which prepare batches ahead, take no part."""
    torch.set_num_threads(told.threads)
    graph = resident(told.folder)
    config = TrainConfig(
        fanouts=tuple(told.fanouts),
        batch_size=told.batch_size,
        hidden=told.hidden,
        dropout=told.dropout,
        precision=told.precision,
        seed=told.seed,
    )
    problem = NodeProblem(graph)
    model = problem.build_model(config)
    versions = f"pygsage {pygsage.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    about = {"name": "pygsage", "versions": versions}
    if told.what == "inference":
        clock.start_batch()
        with clock("inference"):
            problem.predictor(model.eval(), World())
        return about
    optimizer, loss_of, seeds = build_optimizer(config, model), build_loss(config, graph), graph.splits["train"]
    sampler = NeighborSampler(graph, config.fanouts, config.seed)
    shards = DistributedSeedSampler(len(seeds), config.batch_size, rank=0, num_ranks=1, seed=config.seed)
    dtype = torch.bfloat16 if config.precision == "bf16" else None
    make = NodeBatches(graph, seeds, sampler, None, config.aggr, dtype)
    for number, shard in zip(range(told.batches + 2), shards.shards(epoch=0), strict=False):
        if number == 2:
            clock.batches.clear()
        clock.start_batch()
        if told.what == "sample":
            with clock("sample"):
                sampler.sample_layers(seeds[shard.positions], 0, shard.step)
            continue
        with clock("sample and slice"):
            batch = make(shard, 0)
        if told.what == "input":
            continue
        with clock("forward"):
            loss = loss_of(problem.scores(model, batch), batch.y) / batch.weight
        with clock("backward"):
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with clock("step"):
            optimizer.step()
        del batch, loss
    return about


if __name__ == "__main__":
    asked = arguments.parse(__doc__)
    phases.measured(lambda clock: main(asked, clock))
