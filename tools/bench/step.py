"""CPU milliseconds of one of our training steps, by phase: prints one line of JSON.

    OMP_NUM_THREADS=1 python tools/bench/step.py /tmp/pygsage-speed/arxiv

The folder is a graph that tools/bench/speed_graphs.py made, or any other that `pygsage.data.graph.Graph.save` wrote.
What is measured is what the trainer does, one batch after the other in this thread (the trainer prepares them ahead in
others); figures are medians over the steps, CPU time of the whole process. A runner can call it in turn with those of
other libraries.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import torch

from pygsage.config import TrainConfig
from pygsage.data.graph import Graph
from pygsage.native.memory import prefer_huge_pages
from pygsage.sampling.pipeline import NodeBatches
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.spelling import parse_fanouts
from pygsage.training.losses import build_loss
from pygsage.training.nodes import sage
from pygsage.training.optimizers import build_optimizer


def resident(graph: Graph, huge_pages: bool) -> Graph:
    """The graph in RAM, as one that was read from a user's file is: mapped pages are not what is measured."""
    arrays = [array.clone() for array in (graph.indptr, graph.indices, graph.edge_id[:0], graph.x, graph.y)]
    if huge_pages:
        for array in arrays:
            prefer_huge_pages(array)
    return Graph(graph.name, *arrays, graph.splits, graph.num_classes)


def measure(graph: Graph, config: TrainConfig, warm_up: int, steps: int) -> dict[str, float]:
    """Median milliseconds of CPU by phase, and what a batch holds."""
    torch.manual_seed(config.seed)
    model = sage(config, graph.num_features, graph.num_outputs)
    optimizer, loss_of, seeds = build_optimizer(config, model), build_loss(config, graph), graph.splits["train"]
    shards = DistributedSeedSampler(len(seeds), config.batch_size, rank=0, num_ranks=1, seed=config.seed)
    sampler = NeighborSampler(graph, config.fanouts, config.seed)
    taken: dict[str, list[float]] = defaultdict(list)
    loss = torch.zeros(())
    dtype = torch.bfloat16 if config.precision == "bf16" else None
    make = NodeBatches(graph, seeds, sampler, None, config.aggr, dtype)
    parts = shards.shards(epoch=0)
    for step in range(warm_up + steps):
        part = next(parts)
        at = [time.process_time()]
        batch = make(part, 0)
        at.append(time.process_time())
        scores = model.forward_blocks(batch.x, batch.blocks, batch.n_id, batch.stream)
        loss = loss_of(scores, batch.y) / batch.weight
        at.append(time.process_time())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        at.append(time.process_time())
        optimizer.step()
        at.append(time.process_time())
        if step < warm_up:
            continue
        prepared, forward, backward, updated = (after - before for before, after in pairwise(at))
        sample = prepared * batch.seconds["sample"] / sum(batch.seconds.values())
        for phase, seconds in {
            "sample": sample,
            "gather": prepared - sample,
            "forward": forward,
            "backward": backward,
            "optimizer": updated,
            "step": at[-1] - at[0],
        }.items():
            taken[phase].append(seconds * 1e3)
        del batch
    return {phase: round(statistics.median(times), 2) for phase, times in taken.items()} | {
        "loss": float(loss.detach())
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fanouts", default="10,10,10")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--aggr", default="mean")
    parser.add_argument("--norm", default="none")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--huge-pages", action=argparse.BooleanOptionalAction, default=True, help="for the graph")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = TrainConfig(
        fanouts=parse_fanouts(arguments.fanouts),
        batch_size=arguments.batch_size,
        hidden=arguments.hidden,
        dropout=arguments.dropout,
        aggr=arguments.aggr,
        norm=arguments.norm,
        precision=arguments.precision,
    )
    graph = resident(Graph.open(arguments.graph), arguments.huge_pages)
    milliseconds = measure(graph, config, arguments.warm_up, arguments.steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"library": "pygsage", **vars(arguments), **milliseconds, "peak_bytes": peak}, default=str))


if __name__ == "__main__":
    main()
