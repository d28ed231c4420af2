"""One rank of a world that takes the first step of many small trainings on graphs, and writes down loss and gradients.

Run as a program, with the folder of a store and a file to write, it is a rank of the job in its environment; imported
it is the world of one process.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data

from pygsage.config import TrainConfig
from pygsage.data.files.ragged import pointers
from pygsage.data.many_graphs.graph_set import Changes, Features, GraphSet
from pygsage.distributed import World
from pygsage.memory.peak import PeakMemory
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.graphs import GraphProblem
from pygsage.training.loop import Clock, Progress, Trainer
from pygsage.training.losses import build_loss
from pygsage.training.report import Report
from pygsage.training.signals import StopRequest

NUM_GRAPHS = 101
NUM_TARGETS = 3
SIZES = (7, 1, 4)  # of the tables of categories


class Case(NamedTuple):
    """A first step: `labels` is a task, or `weighted`: classes with weights."""

    labels: str
    num_graphs: int  # over all ranks
    x: str
    readout: str
    norm: str
    dtype: torch.dtype


CASES = [
    *itertools.starmap(
        Case,
        itertools.product(
            ["classes"], (1, 5, 101), ("numbers", "categories"), ("mean",), ("none",), (torch.float32, torch.float64)
        ),
    ),
    *itertools.starmap(
        Case,
        itertools.product(
            ["multilabel", "regression", "weighted"], (2, 101), ("categories",), ("sum", "max"), ("layer",),
            (torch.float32, torch.float64),
        ),
    ),
]  # fmt: skip


def graphs(x: str) -> list[Data]:
    """Graphs of 0 to 40 nodes, some without edges."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for number in range(NUM_GRAPHS):
        num_nodes = int(torch.randint(41, (), generator=generator)) if number else 0
        num_edges = 3 * num_nodes if number % 7 else 0
        numbers = torch.randn(num_nodes, 6, generator=generator)
        categories = torch.stack([torch.randint(size, (num_nodes,), generator=generator) for size in SIZES], dim=1)
        edges = torch.randint(max(num_nodes, 1), (2, num_edges), generator=generator)
        made.append(Data(x=numbers if x == "numbers" else categories, edge_index=edges))
    return made


def _set(store: Path, case: Case) -> GraphSet:
    generator = torch.Generator().manual_seed(2)
    classes = (torch.rand(NUM_GRAPHS, generator=generator) ** 2 * 7).long()  # the last ones are rare
    known = torch.rand(NUM_GRAPHS, NUM_TARGETS, generator=generator) < torch.rand(NUM_GRAPHS, 1, generator=generator)
    known[:, 0] = True
    values = torch.randn(NUM_GRAPHS, NUM_TARGETS, generator=generator)
    values = (values > 0.5).float() if case.labels == "multilabel" else values
    task = "classes" if case.labels == "weighted" else case.labels
    sizes = pointers(np.array([graph.num_nodes for graph in graphs(case.x)]))
    return GraphSet(
        name="random",
        store=store / case.x,
        features=Features("numbers", 6) if case.x == "numbers" else Features("categories", len(SIZES), SIZES),
        changes=Changes(),
        nodes=sizes,
        edges=np.zeros(NUM_GRAPHS + 1, dtype=np.int64),
        y=classes if task == "classes" else torch.where(known, values, torch.nan),
        splits={"train": torch.randperm(NUM_GRAPHS, generator=generator)[: case.num_graphs]},
        num_classes=7 if task == "classes" else 0,
        task=task,
    )


def first_steps(world: World, store: Path) -> list[dict[str, Any]]:
    """For each case the loss over all ranks, and the gradients after their reduction."""
    return [_first_step(world, case, store) for case in CASES]


def _first_step(world: World, case: Case, store: Path) -> dict[str, Any]:
    config = TrainConfig(
        fanouts=(1, 1, 1), dropout=0.5, hidden=32, seed=5, epochs=1, max_steps=1, readout=case.readout,
        norm=case.norm, class_weights=case.labels == "weighted",
    )  # fmt: skip
    problem, size = GraphProblem(_set(store, case)), case.num_graphs
    shards = DistributedSeedSampler(size, rank=world.rank, num_ranks=world.size, global_batch_size=size)
    model = problem.build_model(config).to(case.dtype)
    loss = build_loss(config, problem.data)
    weights = loss.row_weights(problem.data.y[problem.data.splits["train"]])
    with ExitStack() as stack:
        pipeline = stack.enter_context(problem.batches(config, shards, weights, 1))
        progress, silent = Progress(global_batch_size=size), Report(False)
        trainer = Trainer(
            config, problem, model, pipeline, loss, world, None, silent, StopRequest(), progress, PeakMemory()
        )
        scores = trainer._evaluate(("train",))["train"]
        trainer._train_epoch(Clock())
    gradients = {name: p.grad for name, p in model.named_parameters()}
    loss_of_step = progress.loss_sum / progress.loss_weight
    return {"loss": loss_of_step, "weight": progress.loss_weight, "gradients": gradients, "scores": scores}


def main(store: Path, out: Path) -> None:
    torch.set_num_threads(1)
    with World.start() as world:
        results = first_steps(world, store)
        if world.is_main:
            torch.save(results, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
