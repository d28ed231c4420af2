"""What a graph in parts costs on the network: `partition.py [STORE …] [--nodes 200000] [--metis-memory]`.

Each store (one graph, which `pygsage convert` wrote), or without any a made one with communities and hubs, is split for
two machines with two ranks each, by METIS and by ranges of ids. The batches of some steps are then drawn as the ranks
draw them, and the rows counted that lie on the other machine, with and without a cache of 15 % of all rows, and with
seeds dealt out without regard to where they lie. They are the numbers that a run's metrics.jsonl adds up by epoch.

--metis-memory instead measures what METIS takes beside what is estimated, each graph in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.partition import _by_metis, partition_graph, share_both_ways
from pygsage.memory.partition import PartitionConfig, metis_bytes
from pygsage.sampling.exchange import owners
from pygsage.sampling.homes import SeedHomes
from pygsage.sampling.hot_rows import hot_rows
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler

MACHINES = [0, 0, 1, 1]  # of each rank
CACHE = 0.15


def main() -> None:
    """Measures, and prints one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*")
    parser.add_argument("--nodes", type=int, default=200_000, help="of the graph that is made")
    parser.add_argument("--fanouts", default="10,10,10")
    parser.add_argument("--batch-size", type=int, default=256, help="of each of the four ranks")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--metis-memory", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(_metis_here(json.loads(args.one))))
        return
    if args.metis_memory:
        for kind in ("power", "uniform", "communities"):
            for degree in (4, 16):
                for parts in (2, 16):
                    job = json.dumps({"nodes": args.nodes, "degree": degree, "kind": kind, "parts": parts})
                    command = [sys.executable, __file__, "--one", job]
                    print(
                        subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True
                    )
        return
    with tempfile.TemporaryDirectory() as folder:
        stores = [Path(store) for store in args.stores]
        if not stores:
            made(args.nodes, 10, "communities").save(Path(folder) / "made")
            stores = [Path(folder) / "made"]
        for number, store in enumerate(stores):
            for method in ("metis", "range"):
                out = Path(folder) / f"{method}-{number}"
                partition_graph(PartitionConfig(str(store), str(out), 2, method=method))  # type: ignore[arg-type]
                print(json.dumps({"store": str(store), "method": method, **count(out, args)}), flush=True)


def count(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Rows of the other machine in a step of all ranks: seeds anywhere, at home, with the cache, with a random one."""
    graph = Graph.open(folder)
    parts = graph.parts
    assert parts is not None
    train, fanouts = graph.splits["train"], tuple(map(int, args.fanouts.split(",")))
    sampler = NeighborSampler(graph, fanouts)
    of_ranks, of_parts = owners(MACHINES, len(parts))
    home = torch.tensor(of_parts)[torch.from_numpy(parts.of_nodes(torch.arange(graph.num_nodes)))]
    reached = dict.fromkeys(("rows", "seeds_anywhere", "seeds_at_home", "cached", "random_rows"), 0)
    num_held = int(CACHE * graph.num_nodes)
    steps = 0
    for rank in range(len(MACHINES)):
        options: dict[str, Any] = {"rank": rank, "num_ranks": len(MACHINES), "batch_size": args.batch_size}
        shards = DistributedSeedSampler(len(train), homes=SeedHomes(home[train], tuple(of_ranks)), **options)
        remote = home != of_ranks[rank]
        held = hot_rows(graph, train, sampler, shards, num_held, remote)
        chance = torch.zeros(graph.num_nodes, dtype=torch.bool)
        candidates = remote.nonzero().flatten()
        chance[candidates[torch.randperm(len(candidates), generator=torch.Generator().manual_seed(0))[:num_held]]] = (
            True
        )
        steps = min(args.steps, len(shards))
        for shard in islice(shards.shards(0), steps):
            ids, _ = sampler.sample_blocks(train[shard.positions], 0, shard.step)
            away = ids[remote[ids]]
            reached["rows"] += len(ids)
            reached["seeds_at_home"] += len(away)
            reached["cached"] += int((~held[away]).sum())
            reached["random_rows"] += int((~chance[away]).sum())
        for shard in islice(DistributedSeedSampler(len(train), **options).shards(0), steps):
            ids, _ = sampler.sample_blocks(train[shard.positions], 0, shard.step)
            reached["seeds_anywhere"] += int(remote[ids].sum())
    about = {"nodes": graph.num_nodes, "edges": graph.num_edges, "row_bytes": parts.row_bytes, **parts.describe()}
    del about["parts"]
    hits = 1 - reached["cached"] / max(1, reached["seeds_at_home"])
    a_step = {f"{name}_a_step": round(value / steps) for name, value in reached.items()}
    return {**about, "num_train": parts.num_train, "steps": steps, **a_step, "hit_rate": round(hits, 4)}


def made(num_nodes: int, degree: int, kind: str) -> Graph:
    """A graph with hubs (`power`), with edges anywhere (`uniform`), or with groups of 1,000 nodes and hubs in them."""
    rng = np.random.default_rng(0)
    num_edges = num_nodes * degree
    number = rng.permutation(num_nodes)  # so that ids say nothing of groups or hubs
    target = rng.integers(0, num_nodes, num_edges)
    hubs = rng.random(num_edges) ** (1 if kind == "uniform" else 3)
    source = (hubs * num_nodes).astype(np.int64)
    if kind == "communities":
        size = min(1000, num_nodes)
        inside = np.minimum(target // size * size + (hubs * size).astype(np.int64), num_nodes - 1)
        source = np.where(rng.random(num_edges) < 0.8, inside, source)
    indptr, indices, perm = build_csc(torch.from_numpy(number[np.stack([source, target])]), num_nodes)
    return Graph(
        name=kind,
        indptr=indptr,
        indices=indices,
        edge_id=perm,
        x=torch.from_numpy(rng.normal(size=(num_nodes, 16)).astype(np.float32)),
        y=torch.from_numpy(rng.integers(0, 10, num_nodes)),
        splits={"train": torch.from_numpy(rng.permutation(num_nodes)[: num_nodes // 10])},
        num_classes=10,
    )


def _metis_here(job: dict[str, Any]) -> dict[str, Any]:
    """What METIS takes in this process above what it had before the call, and what is estimated."""
    graph = made(job["nodes"], job["degree"], job["kind"])
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    _by_metis(graph, PartitionConfig("store", "out", job["parts"]))
    taken = _status("VmHWM") - before
    told = metis_bytes(graph.num_nodes, graph.num_edges, share_both_ways(graph))
    return {**job, "measured_mib": taken >> 20, "estimated_mib": told >> 20, "ratio": round(told / taken, 3)}


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
