"""Makes the two graphs that speed is measured on: seeded, power-law, symmetric, with the sizes of OGB's.

    python tools/bench/speed/graphs.py arxiv products --out /tmp/pygsage-speed

Each becomes a folder that `pygsage.data.one_graph.graph.Graph.open` maps and whose `.npy` files any other library can
read: `indptr`, `indices` (in-neighbours; as the graph is symmetric also the out-neighbours), `x`, `y`, `split/train`. A
Chung-Lu graph: the ends of an edge are drawn by weights that follow a power law; loops and duplicates are thrown away.
`products` takes about two minutes, 5 GB of RAM and 3 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pygsage.data.one_graph.graph import Graph


@dataclass(frozen=True)
class Shape:
    """What a graph is like: `exponent` is that of the distribution of the degrees."""

    num_nodes: int
    num_edges: int  # directed
    num_features: int
    num_classes: int
    num_train: int
    exponent: float
    max_degree: int


SHAPES = {
    "arxiv": Shape(169_343, 2_315_598, 128, 40, 90_941, 2.3, 13_161),
    "products": Shape(2_449_029, 123_718_152, 100, 47, 196_615, 2.5, 17_481),
    # small enough to try things out with
    "tiny": Shape(2_000, 30_000, 32, 7, 1_500, 2.5, 300),
}


def weights(shape: Shape) -> np.ndarray:
    """The nodes' weights, largest first: (i + offset)**-a; the offset gives the first about the largest degree."""
    rank = np.arange(1, shape.num_nodes + 1, dtype=np.float64)
    mean = shape.num_edges / shape.num_nodes
    low, high = 0.0, 1e9
    for _ in range(80):
        offset = (low + high) / 2
        weight = (rank + offset) ** (-1 / (shape.exponent - 1))
        if weight[0] * mean * shape.num_nodes / weight.sum() > shape.max_degree:
            low = offset
        else:
            high = offset
    return (rank + high) ** (-1 / (shape.exponent - 1))


def distinct_pairs(shape: Shape, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Half as many distinct unordered pairs of nodes as there are directed edges."""
    half, n = shape.num_edges // 2, shape.num_nodes
    upto = np.cumsum(random.permutation(weights(shape)))
    upto /= upto[-1]
    keys = np.empty(0, dtype=np.int64)
    while len(keys) < half:
        missing = int((half - len(keys)) * 1.08) + 1000
        a, b = (np.minimum(np.searchsorted(upto, random.random(missing)), n - 1).astype(np.int64) for _ in range(2))
        different = a != b
        a, b = a[different], b[different]
        keys = np.unique(np.concatenate([keys, np.minimum(a, b) * n + np.maximum(a, b)]))
    if len(keys) > half:
        keys = np.delete(keys, random.choice(len(keys), len(keys) - half, replace=False))
    return keys // n, keys % n


def make(name: str, seed: int) -> Graph:
    """The graph of that name."""
    shape, random = SHAPES[name], np.random.default_rng(seed)
    n = shape.num_nodes
    u, v = distinct_pairs(shape, random)
    keys = np.concatenate([v * n + u, u * n + v])  # by destination, then source
    del u, v
    keys.sort()
    targets = keys // n
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(targets, minlength=n), out=indptr[1:])
    indices = (keys - targets * n).astype(np.int32)
    del keys, targets
    y = random.integers(0, shape.num_classes, n)
    train = np.sort(random.choice(n, shape.num_train, replace=False))
    return Graph(
        name=name,
        indptr=torch.from_numpy(indptr),
        indices=torch.from_numpy(indices),
        edge_id=torch.arange(len(indices)),
        x=torch.from_numpy(random.standard_normal((n, shape.num_features), dtype=np.float32)),
        y=torch.from_numpy(y),
        splits={"train": torch.from_numpy(train)},
        num_classes=shape.num_classes,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=SHAPES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in arguments.names:
        start = time.perf_counter()
        graph = make(name, arguments.seed)
        degree = graph.indptr.diff()
        arguments.out.mkdir(parents=True, exist_ok=True)
        graph.save(arguments.out / name)
        told = {
            "name": name,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "largest_degree": int(degree.max()),
            "without_neighbours": int((degree == 0).sum()),
            "seconds": round(time.perf_counter() - start, 1),
        }
        print(json.dumps(told))


if __name__ == "__main__":
    main()
