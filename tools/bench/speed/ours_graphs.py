"""Our side of graph-level training: a store on disk, the trainer's own batches, model, loss and optimiser."""

from __future__ import annotations

import argparse
import platform
import tempfile
from contextlib import ExitStack
from typing import Any

import graph_arguments
import phases
import torch
from pyg_graphs import Made

import pygsage
from pygsage.config import TrainConfig
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.graphs import GraphBatches, GraphProblem
from pygsage.training.losses import build_loss
from pygsage.training.opening import open_problem
from pygsage.training.optimizers import build_optimizer


def main(told: argparse.Namespace, clock: phases.Phases) -> dict[str, Any]:
    """Measures; the trainer's threads, which prepare batches ahead, take no part."""
    torch.set_num_threads(told.threads)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        pygsage.to_on_disk_dataset(Made(told.graphs, told.seed), f"{folder}/store")
        config = TrainConfig(
            dataset=f"{folder}/store",
            split="random:.9/.05/.05",
            fanouts=(-1,) * told.layers,
            hidden=told.hidden,
            dropout=told.dropout,
            precision=told.precision,
            batch_size=told.batch_size,
            seed=told.seed,
        )
        problem = open_problem(config, stack)
        assert isinstance(problem, GraphProblem)
        model = problem.build_model(config)
        optimizer, loss_of = build_optimizer(config, model), build_loss(config, problem.data)
        num_train = len(problem.data.splits["train"])
        shards = DistributedSeedSampler(num_train, config.batch_size, rank=0, num_ranks=1, seed=config.seed)
        make = GraphBatches(problem.graphs, config.seed)
        for number, shard in zip(range(told.batches + 2), shards.shards(epoch=0), strict=False):
            if number == 2:
                clock.batches.clear()
            clock.start_batch()
            with clock("slice"):
                batch = make(shard, 0)
            with clock("forward"):
                loss = loss_of(problem.scores(model, batch), batch.y) / batch.weight
            with clock("backward"):
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
            with clock("step"):
                optimizer.step()
            del batch, loss
    versions = f"pygsage {pygsage.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    return {"name": "pygsage from disk", "versions": versions}


if __name__ == "__main__":
    asked = graph_arguments.parse(__doc__)
    phases.measured(lambda clock: main(asked, clock))
