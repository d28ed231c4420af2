"""One rank of a world that takes the first step of many small trainings and writes down loss and gradients.

Run as a program it is a rank of the job in its environment; imported it is the world of one process. With a folder as
second word the features lie in two parts there, for two machines that share out the ranks: half of the rows come from
the other.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pygsage.config import TrainConfig
from pygsage.data.files.arrays import write_array
from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.parts import Parts
from pygsage.data.one_graph.sampled import sampled_crc
from pygsage.distributed import World
from pygsage.memory.peak import PeakMemory
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.loop import Clock, Progress, Trainer
from pygsage.training.losses import build_loss
from pygsage.training.nodes import NodeProblem
from pygsage.training.parts import PartProblem
from pygsage.training.report import Report
from pygsage.training.signals import StopRequest

NUM_NODES = 6000
NUM_TARGETS = 5
NUM_PARTS = 2
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


IN_PARTS = [
    Case("classes", 4097, (10, 10, 10), 0.5, torch.float32),  # of many seeds some rows of the other machine are held
    Case("classes", 4097, (-1, 2), 0.5, torch.float64),
    Case("classes", 5, (10, 10, 10), 0.5, torch.float64),
    Case("multilabel", 5, (3, 7), 0.5, torch.float64),
    Case("weighted", 4097, (3, 7), 0.5, torch.float64),
    Case("regression", 2, (3, 7), 0.5, torch.float32),
]


def first_steps(world: World, cases: list[Case] = CASES, folder: Path | None = None) -> list[dict[str, Any]]:
    """For each case the loss over all ranks, and the gradients after their reduction."""
    return [_first_step(world, case, folder / str(n) if folder else None) for n, case in enumerate(cases)]


def _in_parts(graph: Graph, folder: Path, world: World) -> Graph:
    """The graph with its features in the folder, in two parts of unequal size, whatever its edges."""
    part = (torch.arange(NUM_NODES) % 5 < 2).long().numpy()
    order = np.argsort(part, kind="stable")
    place = torch.empty(NUM_NODES, dtype=torch.int32)
    place[torch.from_numpy(order)] = torch.arange(NUM_NODES, dtype=torch.int32)
    told = []
    for number in range(NUM_PARTS):
        rows = graph.x.numpy()[order[part[order] == number]]
        if world.is_main:
            (folder / f"part-{number}").mkdir(parents=True)
            written = write_array(folder / f"part-{number}", "x", rows)
            told.append({"x": written, "sampled_crc": sampled_crc(torch.from_numpy(rows))})
    told = world.broadcast(told)
    begins = (0, int((part == 0).sum()), NUM_NODES)
    parts = Parts(folder, place, begins, (0, 0), told, graph.num_features, graph.x.numpy().dtype, {})
    hidden = replace(graph, x=torch.empty(graph.x.shape, dtype=graph.x.dtype, device="meta"))
    object.__setattr__(hidden, "parts", parts)
    return hidden


def _first_step(world: World, case: Case, folder: Path | None = None) -> dict[str, Any]:
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
    problem = NodeProblem(graph)
    if folder is not None:
        problem = PartProblem(_in_parts(graph, folder, world))
        problem.join(world, [rank * 2 // world.size for rank in range(world.size)])
        problem.hot_rows = 500 if case.num_seeds > 5 else 0
    shards = DistributedSeedSampler(
        size, rank=world.rank, num_ranks=world.size, global_batch_size=size, homes=problem.homes()
    )
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
    counts = torch.tensor(problem.cache_counts())
    return {
        "loss": progress.loss_sum / progress.loss_weight,
        "weight": progress.loss_weight,
        "gradients": gradients,
        "cache": world.sum_(counts).tolist(),
    }


def main(out: Path, folder: Path | None = None) -> None:
    torch.set_num_threads(1)
    with World.start() as world:
        results = first_steps(world) if folder is None else first_steps(world, IN_PARTS, folder)
        if world.is_main:
            torch.save(results, out)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
