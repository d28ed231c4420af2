"""One rank of a world that takes the first step of many small trainings and writes down loss and gradients.

Run as a program it is a rank of the job in its environment; imported it is the world of one process.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pygsage.config import TrainConfig
from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import Graph
from pygsage.distributed import World
from pygsage.memory.peak import PeakMemory
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.loop import Clock, Progress, Trainer
from pygsage.training.losses import build_loss
from pygsage.training.nodes import NodeProblem
from pygsage.training.report import Report
from pygsage.training.signals import StopRequest

NUM_NODES = 6000
NUM_TARGETS = 5
DTYPES = (torch.float32, torch.float64)


class Case(NamedTuple):
    """A first step: `labels` is a task, or `weighted`: classes with weights."""

    labels: str
    num_seeds: int  # over all ranks
    fanouts: tuple[int, ...]
    dropout: float
    dtype: torch.dtype


CASES = [
    *itertools.starmap(
        Case, itertools.product(["classes"], (1, 5, 4097), ((10, 10, 10), (3, 7), (-1, 2)), (0.0, 0.5), DTYPES)
    ),
    *itertools.starmap(
        Case, itertools.product(["multilabel", "regression", "weighted"], (2, 5, 4097), ((3, 7),), (0.5,), DTYPES)
    ),
]


def _graph(case: Case) -> Graph:
    generator = torch.Generator().manual_seed(1)
    hubs = (torch.rand(30_000, generator=generator) ** 3 * NUM_NODES).long()
    ends = torch.randint(NUM_NODES, (30_000,), generator=generator)
    edge_index = torch.stack([torch.cat([hubs, ends]), torch.cat([ends, hubs])])
    indptr, indices, perm = build_csc(edge_index, NUM_NODES)
    x = torch.randn(NUM_NODES, 24, generator=generator)
    classes = (torch.rand(NUM_NODES, generator=generator) ** 2 * 7).long()  # the last ones are rare
    # From nodes with all labels to nodes with one alone, so that no two ranks have the same number.
    known = torch.rand(NUM_NODES, NUM_TARGETS, generator=generator) < torch.rand(NUM_NODES, 1, generator=generator) ** 2
    known[:, 0] = True
    values = torch.randn(NUM_NODES, NUM_TARGETS, generator=generator)
    values = (values > 0.5).float() if case.labels == "multilabel" else values
    table = torch.where(known, values, torch.nan)
    task = "classes" if case.labels == "weighted" else case.labels
    return Graph(
        name="random",
        indptr=indptr,
        indices=indices,
        edge_id=perm,
        x=x.to(case.dtype),
        y=classes if task == "classes" else table,
        splits={"train": torch.randperm(NUM_NODES, generator=generator)[: case.num_seeds]},
        num_classes=7 if task == "classes" else 0,
        task=task,
    )


def first_steps(world: World, cases: list[Case] = CASES) -> list[dict[str, Any]]:
    """For each case the loss over all ranks, and the gradients after their reduction."""
    return [_first_step(world, case) for case in cases]


def _first_step(world: World, case: Case) -> dict[str, Any]:
    config = TrainConfig(
        fanouts=case.fanouts,
        dropout=case.dropout,
        hidden=64,
        seed=5,
        epochs=1,
        max_steps=1,
        class_weights=case.labels == "weighted",
    )
    graph, size = _graph(case), case.num_seeds
    shards = DistributedSeedSampler(size, rank=world.rank, num_ranks=world.size, global_batch_size=size)
    problem = NodeProblem(graph)
    model = problem.build_model(config).to(case.dtype)
    loss = build_loss(config, graph)
    weights = loss.row_weights(graph.y[graph.splits["train"]])
    with ExitStack() as stack:
        pipeline = stack.enter_context(problem.batches(config, shards, weights, 1))
        progress = Progress(global_batch_size=size)
        silent = Report(False)
        trainer = Trainer(
            config, problem, model, pipeline, loss, world, None, silent, StopRequest(), progress, PeakMemory()
        )
        trainer._train_epoch(Clock())
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return {"loss": progress.loss_sum / progress.loss_weight, "weight": progress.loss_weight, "gradients": gradients}


def main(out: Path) -> None:
    torch.set_num_threads(1)
    with World.start() as world:
        results = first_steps(world)
        if world.is_main:
            torch.save(results, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
