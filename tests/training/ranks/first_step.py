"""One rank of a world that takes the first step of many small trainings and writes down loss and gradients.

Run as a program it is a rank of the job in its environment; imported it is the world of one process.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from pygsage.config import TrainConfig
from pygsage.data.csc import build_csc
from pygsage.data.graph import Graph
from pygsage.distributed import World
from pygsage.sampling.pipeline import BatchPipeline
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.loop import Clock, Progress, Trainer
from pygsage.training.rank import build_model
from pygsage.training.report import Report
from pygsage.training.signals import StopRequest

NUM_NODES = 6000
CASES = list(
    itertools.product(
        (1, 2, 5, 4097),  # seeds in the step, over all ranks
        ((10, 10, 10), (3, 7), (-1, 2)),
        (0.0, 0.5),
        (torch.float32, torch.float64),
    )
)


def _graph(num_seeds: int, dtype: torch.dtype) -> Graph:
    generator = torch.Generator().manual_seed(1)
    hubs = (torch.rand(30_000, generator=generator) ** 3 * NUM_NODES).long()
    ends = torch.randint(NUM_NODES, (30_000,), generator=generator)
    edge_index = torch.stack([torch.cat([hubs, ends]), torch.cat([ends, hubs])])
    indptr, indices, perm = build_csc(edge_index, NUM_NODES)
    return Graph(
        name="random",
        indptr=indptr,
        indices=indices,
        edge_id=perm,
        x=torch.randn(NUM_NODES, 24, generator=generator).to(dtype),
        y=torch.randint(7, (NUM_NODES,), generator=generator),
        splits={"train": torch.randperm(NUM_NODES, generator=generator)[:num_seeds]},
        num_classes=7,
    )


def first_steps(world: World, cases: list[Any] = CASES) -> list[dict[str, Any]]:
    """For each case the loss over all ranks, and the gradients after their reduction."""
    return [_first_step(world, *case) for case in cases]


def _first_step(
    world: World, num_seeds: int, fanouts: tuple[int, ...], dropout: float, dtype: torch.dtype
) -> dict[str, Any]:
    config = TrainConfig(fanouts=fanouts, dropout=dropout, hidden=64, epochs=1, max_steps=1)
    graph = _graph(num_seeds, dtype)
    shards = DistributedSeedSampler(num_seeds, rank=world.rank, num_ranks=world.size, global_batch_size=num_seeds)
    sampler = NeighborSampler(graph, fanouts, seed=5)
    model = build_model(config, graph.num_features, graph.num_classes).to(dtype)
    with ExitStack() as stack:
        pipeline = stack.enter_context(BatchPipeline(graph, graph.splits["train"], sampler, shards))
        progress = Progress(global_batch_size=num_seeds)
        trainer = Trainer(
            config, graph, model, pipeline, world, None, Report(False), StopRequest(), progress
        )
        trainer._train_epoch(Clock())
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return {"loss": progress.loss_sum / num_seeds, "gradients": gradients}


def main(out: Path) -> None:
    torch.set_num_threads(1)
    with World.start() as world:
        results = first_steps(world)
        if world.is_main:
            torch.save(results, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
