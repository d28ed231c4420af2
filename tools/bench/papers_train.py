"""Training on a graph that is larger than the memory it may take: `papers_train.py STORE … [--cap 8]`.

The stores are those of papers_graph.py. Each is read once, so that it is warm, and trained on for some steps without a
cap; with `--cap` then in a memory control group of that many GiB (root and cgroup v1), and the cache of hot rows is
compared with one of as many random rows on the same batches. Nothing is evaluated (--eval-every 0).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from memory_cap import GIB, under_cap

import pygsage
from pygsage.data.files.fetch import load
from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.hot_rows import hot_rows
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler

FANOUTS = (10, 10, 10)


def main() -> None:
    """Trains, and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--cap", type=float, default=None, help="GiB of a hard cap; none: uncapped only")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--procs", type=int, default=1)
    parser.add_argument("--no-warm", action="store_true", help="leave the uncapped run out")
    args = parser.parse_args()
    found: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, one thread a process",
        "versions": f"pygsage {pygsage.__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        "options": f"{args.steps} steps of 1,024 seeds, fanouts 10,10,10, hidden 256, seed 0, {args.procs} process(es)",
    }
    folder = Path(tempfile.mkdtemp(prefix="papers-train-"))
    try:
        for store in map(Path, args.stores):
            found[store.name] = measured(store, args, folder)
            print(json.dumps({store.name: found[store.name]}, indent=1), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found, indent=1))


def measured(store: Path, args: Any, folder: Path) -> dict[str, Any]:
    """One store, without a cap and with it."""
    told: dict[str, Any] = {}
    if not args.no_warm:
        edges = told["sampled_edges_a_step"] = edges_of_a_step(store)
        read_once(store)
        one = trained(store, folder / f"{store.name}-one", args, None, num_steps=1)
        told["uncapped"] = trained(store, folder / f"{store.name}-warm", args, None)
        cpu_s = (told["uncapped"]["cpu_s"] - one["cpu_s"]) / (args.steps - 1)  # without what comes before the steps
        told["uncapped"] |= {"cpu_s_a_step": round(cpu_s, 4), "cpu_us_a_sampled_edge": round(cpu_s / edges * 1e6, 4)}
    if args.cap is not None:
        drop(store)  # pages that others have read do not count for the group: it would go beyond its cap
        told["capped"] = trained(store, folder / f"{store.name}-capped", args, int(args.cap * GIB))
        if not args.no_warm:
            told["ratio"] = round(told["capped"]["step_s"] / told["uncapped"]["step_s"], 3)
        held = told["capped"].get("hot_rows")
        if held:
            told["hit_rates_of_same_size"] = hit_rates(store, held)
    return told


def trained(store: Path, run: Path, args: Any, cap: int | None, num_steps: int | None = None) -> dict[str, Any]:
    """What a run says of itself, and the memory group of it."""
    steps = num_steps or args.steps
    words = [sys.executable, "-m", "pygsage", "train", str(store.absolute()), "--run-dir", str(run), "--json"]
    words += ["--gpus", "0", "--max-steps", str(steps), "--epochs", "1000", "--eval-every", "0"]
    words += ["--procs", str(args.procs), "--fanouts", ",".join(map(str, FANOUTS))]
    before = _children_cpu_s()
    ended = under_cap(words, cap if cap is not None else 1 << 62, run.parent)
    cpu_s = _children_cpu_s() - before
    if ended["status"] != 0:
        return {"step_s": float("nan"), **ended}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    memory = json.loads((run / "memory.json").read_text())["of_first_rank"]
    result = {
        "status": ended["status"],
        "killed": ended["killed"],
        "seconds": ended["seconds"],
        "group_peak_bytes": ended["group_peak_bytes"],
        "cpu_s": round(cpu_s, 2),
        "step_s": round(sum(line["seconds"] for line in epochs) / steps, 4),
        "phases_s": {k: round(sum(e.get(k, 0) for e in epochs), 2) for k in ("wait", "sample", "gather", "forward")},
        "estimated_peak_bytes": memory["estimated_bytes"]["peak"],
        "measured_peak_bytes": memory["measured_bytes"]["peak"],
        "loss": epochs[-1]["loss"],
    }
    if "cache_hits" in epochs[0]:
        hits, misses = (sum(line[f"cache_{what}"] for line in epochs) for what in ("hits", "misses"))
        line = next(line for line in ended["all_errors"] if line.startswith("features: "))
        result |= {"hit_rate": round(hits / (hits + misses), 4), "misses_a_step": misses // steps}
        result["hot_rows"] = int(line.partition("in RAM ")[2].partition(" hot")[0].replace(",", ""))
    return result


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def edges_of_a_step(store: Path) -> int:
    """The mean of eight steps."""
    graph, sampler, shards = _sampling(store)
    total = 0
    for shard in list(shards.shards(0))[:8]:
        _, blocks = sampler.sample_blocks(graph.splits["train"][shard.positions], 0, shard.step)
        total += sum(len(block.indices) for block in blocks)
    return total // 8


def hit_rates(store: Path, num_rows: int) -> dict[str, float]:
    """Of batches of the second epoch: with rows as they are chosen, and with as many at random."""
    graph, sampler, shards = _sampling(store)
    train = graph.splits["train"]
    random = torch.zeros(graph.num_nodes, dtype=torch.bool)
    random[torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))[:num_rows]] = True
    rates: dict[str, float] = {}
    for share in (1.0, 0.25, 0.1):
        some = int(share * num_rows)
        caches = {"hot": hot_rows(graph, train, sampler, shards, some), "random": random}
        hits, reads = dict.fromkeys(caches, 0), 0
        for shard in list(shards.shards(1))[:8]:
            reached, _ = sampler.sample_blocks(train[shard.positions], 1, shard.step)
            reads += len(reached)
            for name, held in caches.items():
                hits[name] += int(held[reached].sum())
        rates[f"hot, {some / graph.num_nodes:.1%} of rows"] = round(hits["hot"] / reads, 4)
        rates[f"random, {some / graph.num_nodes:.1%} of rows"] = round(hits["random"] * share / reads, 4)
    return rates


def _sampling(store: Path) -> tuple[Graph, NeighborSampler, DistributedSeedSampler]:
    graph = Graph.open(store)
    for array in (graph.indptr, graph.indices):  # else each page is waited for alone
        load(array.numpy())
    shards = DistributedSeedSampler(len(graph.splits["train"]), rank=0, num_ranks=1, seed=0, global_batch_size=1024)
    return graph, NeighborSampler(graph, FANOUTS, 0), shards


def drop(store: Path) -> None:
    """Takes the files out of the page cache."""
    for path in store.rglob("*.npy"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_once(store: Path) -> None:
    """Has the files in the page cache."""
    for path in sorted(store.rglob("*.npy")):
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


if __name__ == "__main__":
    main()
