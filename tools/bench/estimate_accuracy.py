"""Estimated against measured peak of `pygsage train`: `python tools/bench/estimate_accuracy.py`.

Each shape is written as an `.npz`, as a store of many graphs, or as a recipe, estimated before a byte of its data is
read, and trained in a process of its own; what is compared is `peak_bytes` of its result (RssAnon + RssShmem). The bar
is 10 % or 32 MiB. --phases compares phase by phase, as the run's own memory.json has them (of the first rank);
--baseline measures the process without data; --only NAME;… picks shapes; --set tuned|fresh|third|fourth picks those
that the formulas were tuned on, those that they were checked on afterwards and mended by, those that were new then, or
those that were new once more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20
BAR, BAR_BYTES = 0.10, 32 * MIB


@dataclass(frozen=True)
class Shape:
    """A graph to be made, or many, and the options it is trained with.

    Attributes:
        graphs: How many; `nodes` and `degree` are then of each.
        hubs: Destinations are drawn from a steep curve; of many graphs every hundredth has fifty times the nodes.
        source: `npz`, `columnar`, `sqlite`, `rocksdb`, or `recipe`.
        by_node: Of many graphs, that labels are of nodes, so that they are joined.
        edge_features: Of many graphs, columns of `edge_attr`.
        labels: Of one graph, columns of 0 and 1 in the place of classes.
    """

    nodes: int
    degree: int
    features: int
    dtype: str = "float32"
    classes: int = 10
    hubs: bool = False
    compressed: bool = False
    train: float = 0.1
    graphs: int = 1
    source: str = "npz"
    by_node: bool = False
    edge_features: int = 0
    labels: int = 0
    options: dict[str, Any] = field(default_factory=dict)


SHAPES = {
    "tiny": Shape(500, 4, 8),
    "small": Shape(10_000, 10, 64, options={"fanouts": (10, 10)}),
    "many features": Shape(20_000, 5, 2_000, options={"fanouts": (5, 5), "batch_size": 512}),
    "many edges": Shape(50_000, 80, 32, options={"fanouts": (10, 5), "hidden": 64}),
    "hubs": Shape(100_000, 14, 64, hubs=True, options={"fanouts": (15, 10), "hidden": 128}),
    "float16": Shape(150_000, 6, 256, dtype="float16", options={"fanouts": (5, 5), "hidden": 64}),
    "float64": Shape(100_000, 6, 256, dtype="float64", options={"fanouts": (5, 5), "hidden": 64}),
    "int8 packed": Shape(120_000, 8, 300, dtype="int8", compressed=True, options={"fanouts": (5, 5), "hidden": 32}),
    "middle": Shape(200_000, 10, 128, options={"fanouts": (10, 10)}),
    "three layers": Shape(100_000, 12, 100, options={"fanouts": (10, 10, 10), "hidden": 128}),
    "wide model": Shape(30_000, 10, 128, options={"fanouts": (10, 10), "hidden": 1_024}),
    "all neighbours": Shape(40_000, 6, 64, options={"fanouts": (-1, -1), "hidden": 128, "batch_size": 256}),
    "many classes": Shape(60_000, 8, 64, classes=1_000, options={"fanouts": (5, 5), "hidden": 64}),
    "large batches": Shape(
        100_000, 10, 64, train=0.5, options={"fanouts": (10, 5), "batch_size": 16_384, "hidden": 64}
    ),
    "undirected": Shape(80_000, 10, 64, options={"fanouts": (10, 10), "hidden": 64, "undirected": True}),
    "two ranks": Shape(150_000, 10, 128, options={"fanouts": (10, 10), "hidden": 128, "procs": 2}),
    "two small ranks": Shape(5_000, 8, 32, options={"fanouts": (5, 5), "procs": 2}),
    "from disk": Shape(300_000, 10, 128, options={"fanouts": (10, 10), "hidden": 128, "storage": "disk"}),
    "float16 from disk": Shape(
        400_000, 8, 128, dtype="float16", options={"fanouts": (5, 5), "hidden": 64, "storage": "disk"}
    ),
    "1,000 graphs": Shape(500, 4, 64, graphs=1_000, source="columnar", options={"batch_size": 64, "hidden": 128}),
    "20,000 tiny graphs": Shape(20, 3, 16, graphs=20_000, source="columnar", options={"batch_size": 64, "hidden": 64}),
    "100,000 tiny graphs": Shape(
        30, 2, 16, graphs=100_000, source="columnar", options={"batch_size": 1_024, "hidden": 256}
    ),
    "graphs, a recipe": Shape(300, 6, 100, graphs=2_000, source="recipe", options={"batch_size": 64, "hidden": 128}),
    "graphs with hubs": Shape(
        60, 5, 32, graphs=5_000, hubs=True, source="columnar", options={"batch_size": 128, "hidden": 128}
    ),
    "float64 graphs": Shape(
        400, 4, 128, dtype="float64", graphs=1_500, source="columnar", options={"batch_size": 64, "hidden": 64}
    ),
    "graphs in sqlite": Shape(40, 4, 32, graphs=10_000, source="sqlite", options={"batch_size": 128, "hidden": 128}),
    "graphs, two ranks": Shape(
        200, 4, 64, graphs=3_000, source="columnar", options={"batch_size": 64, "hidden": 128, "procs": 2}
    ),
}
# Not looked at while the formulas were made.
FRESH = {
    "fresh: small": Shape(30_000, 20, 48, options={"fanouts": (8, 8), "hidden": 192}),
    "fresh: layers": Shape(150_000, 9, 80, options={"fanouts": (6, 6, 6), "hidden": 96, "batch_size": 2_048}),
    "fresh: hubs": Shape(120_000, 12, 96, hubs=True, options={"fanouts": (12, 6), "hidden": 256}),
    "fresh: float64": Shape(70_000, 7, 300, dtype="float64", options={"fanouts": (7, 7), "hidden": 128}),
    "fresh: normed": Shape(90_000, 10, 128, options={"fanouts": (10, 5), "hidden": 256, "norm": "batch"}),
    "fresh: disk": Shape(250_000, 12, 96, options={"fanouts": (8, 8), "hidden": 256, "storage": "disk"}),
    "fresh: two ranks": Shape(120_000, 8, 96, options={"fanouts": (8, 8), "hidden": 192, "procs": 2}),
    "fresh: 500 graphs": Shape(1_500, 5, 40, graphs=500, source="columnar", options={"batch_size": 32, "hidden": 96}),
    "fresh: tiny graphs": Shape(
        12, 2, 24, graphs=60_000, source="columnar", options={"batch_size": 512, "hidden": 128}
    ),
    "fresh: float16 graphs": Shape(
        250, 5, 200, dtype="float16", graphs=2_000, source="recipe", options={"batch_size": 96, "hidden": 96}
    ),
    "fresh: hub graphs": Shape(
        100, 4, 64, graphs=4_000, hubs=True, source="sqlite", options={"batch_size": 64, "hidden": 96}
    ),
    "fresh: max, two ranks": Shape(
        150, 6, 50, graphs=4_000, source="columnar",
        options={"batch_size": 128, "hidden": 96, "procs": 2, "norm": "batch"},
    ),
}  # fmt: skip
# Written after the formulas were mended by the fresh ones, and run once.
THIRD = {
    "third: narrow": Shape(60_000, 15, 24, options={"fanouts": (12, 4), "hidden": 320}),
    "third: wide rows": Shape(12_000, 6, 3_000, options={"fanouts": (4, 4), "hidden": 96, "batch_size": 384}),
    "third: float16, disk": Shape(
        180_000, 7, 160, dtype="float16", options={"fanouts": (6, 6), "hidden": 96, "storage": "disk"}
    ),
    "third: hubs": Shape(80_000, 16, 40, hubs=True, options={"fanouts": (7, 5, 3), "hidden": 160}),
    "third: bf16": Shape(70_000, 9, 200, options={"fanouts": (9, 9), "hidden": 128, "precision": "bf16"}),
    "third: layer norm": Shape(50_000, 12, 72, options={"fanouts": (10, 10), "hidden": 224, "norm": "layer"}),
    "third: two ranks": Shape(
        40_000, 9, 56, options={"fanouts": (6, 6), "hidden": 144, "procs": 2, "undirected": True}
    ),
    "third: 200 graphs": Shape(2_500, 4, 72, graphs=200, source="columnar", options={"batch_size": 16, "hidden": 80}),
    "third: tiny graphs": Shape(
        16, 3, 10, graphs=30_000, source="columnar", options={"batch_size": 256, "hidden": 192}
    ),
    "third: rocksdb": Shape(80, 5, 48, graphs=3_000, source="rocksdb", options={"batch_size": 96, "hidden": 112}),
    "third: float64 graphs": Shape(
        220, 4, 90, dtype="float64", graphs=1_200, source="recipe",
        options={"batch_size": 48, "hidden": 72, "norm": "layer"},
    ),
    "third: joined": Shape(
        1_500, 8, 120, graphs=40, source="columnar", by_node=True, options={"fanouts": (8, 8), "hidden": 96}
    ),
    "third: joined, disk": Shape(
        3_000, 6, 64, graphs=60, source="recipe", by_node=True,
        options={"fanouts": (5, 5), "hidden": 64, "storage": "disk"},
    ),
}  # fmt: skip
# Written a session later, after the formulas of what is built on disk were made anew.
FOURTH = {
    "fourth: multi-label": Shape(40_000, 8, 80, labels=60, options={"fanouts": (6, 6), "hidden": 128}),
    "fourth: labels, disk": Shape(
        120_000, 6, 48, labels=40, options={"fanouts": (5, 5), "hidden": 64, "storage": "disk"}
    ),
    "fourth: bf16, two ranks": Shape(
        60_000, 10, 144, options={"fanouts": (8, 8), "hidden": 176, "procs": 2, "precision": "bf16"}
    ),
    "fourth: undirected, disk": Shape(
        90_000, 12, 112, dtype="float64",
        options={"fanouts": (7, 7), "hidden": 80, "storage": "disk", "undirected": True},
    ),
    "fourth: loops, disk": Shape(
        400_000, 9, 20, dtype="int8", compressed=True,
        options={"fanouts": (5, 5), "hidden": 48, "storage": "disk", "self_loops": True},
    ),
    "fourth: edge attributes": Shape(
        18, 4, 12, graphs=25_000, source="columnar", edge_features=6, options={"batch_size": 320, "hidden": 104}
    ),
    "fourth: edges, recipe": Shape(
        90, 6, 36, graphs=2_500, source="recipe", edge_features=16,
        options={"batch_size": 72, "hidden": 88, "precision": "bf16"},
    ),
    "fourth: odd width": Shape(35_000, 18, 517, options={"fanouts": (5, 5, 5), "hidden": 72, "norm": "layer"}),
}  # fmt: skip

RECIPE = """
import sys
from pygsage import Recipe
sys.path.insert(0, {tools!r})
from estimate_accuracy import ALL, graphs_of


class Made(Recipe):
    num_graphs = {num_graphs}

    def graphs(self):
        return graphs_of(ALL[{name!r}])
"""


def graphs_of(shape: Shape) -> Iterator[Any]:
    """Many graphs, one by one, the same for the same shape."""
    import torch
    from torch_geometric.data import Data

    random = torch.Generator().manual_seed(0)
    for number in range(shape.graphs):
        n = shape.nodes * (50 if shape.hubs and number % 100 == 0 else 1)
        n = max(2, int(n * (0.5 + float(torch.rand(1, generator=random)))))
        x = torch.randn(n, shape.features, generator=random).to(getattr(torch, shape.dtype))
        edges = torch.randint(0, n, (2, n * shape.degree), generator=random)
        if shape.by_node:
            u, y = torch.rand(n, generator=random), torch.randint(shape.classes, (n,), generator=random)
            masks = {"train_mask": u < shape.train, "val_mask": (u >= shape.train) & (u < shape.train + 0.1)}
            yield Data(x=x, edge_index=edges, y=y, **masks, test_mask=u >= shape.train + 0.1)
        else:
            data = Data(x=x, edge_index=edges, y=torch.tensor([number % shape.classes]))
            if shape.edge_features:
                data.edge_attr = torch.randn(edges.size(1), shape.edge_features, generator=random)
            yield data


def write(shape: Shape, path: Path) -> None:
    """Makes the graph: the same for the same shape."""
    import numpy as np

    rng = np.random.default_rng(0)
    num_edges = shape.nodes * shape.degree
    ends = rng.random((2, num_edges))
    if shape.hubs:
        ends **= 3
    edges = (ends * shape.nodes).astype(np.int64)
    x = rng.standard_normal((shape.nodes, shape.features), dtype=np.float32)
    x = (x * 20).astype(shape.dtype) if shape.dtype.startswith("int") else x.astype(shape.dtype)
    u = rng.random(shape.nodes)
    masks = {"train_mask": u < shape.train, "val_mask": (u >= shape.train) & (u < shape.train + 0.1)}
    masks["test_mask"] = ~(masks["train_mask"] | masks["val_mask"])
    y = rng.integers(0, shape.classes, shape.nodes)
    if shape.labels:
        y = rng.integers(0, 2, (shape.nodes, shape.labels)).astype(np.float32)
    save = np.savez_compressed if shape.compressed else np.savez
    save(path, x=x, edge_index=edges, y=y, **masks)


SETS = {"tuned": SHAPES, "fresh": FRESH, "third": THIRD, "fourth": FOURTH}
ALL = {**SHAPES, **FRESH, **THIRD, **FOURTH}


def make(name: str, shape: Shape, folder: Path) -> Path:
    """Writes a shape to a folder, and returns what `train` takes for it."""
    if shape.source == "npz":
        write(shape, folder / "graph.npz")
        return folder / "graph.npz"
    if shape.source == "recipe":
        tools = str(Path(__file__).resolve().parent)
        (folder / "made.py").write_text(RECIPE.format(tools=tools, num_graphs=shape.graphs, name=name))
        return folder / "made.py"
    from pygsage import to_on_disk_dataset

    to_on_disk_dataset(graphs_of(shape), folder / "store", shape.source)
    return folder / "store"


def main() -> None:
    """Prints the table, and how many shapes meet the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=None, help="names of shapes, separated by semicolons")
    parser.add_argument("--set", default="tuned", choices=list(SETS), help="which shapes")
    parser.add_argument("--phases", action="store_true", help="phase by phase, of the first rank")
    parser.add_argument("--baseline", action="store_true", help="measure the process without data")
    told = parser.parse_args()
    print(_versions(), flush=True)
    if told.baseline:
        print_baseline()
        return
    shapes = ALL if told.only else SETS[told.set]
    names = [name for name in shapes if told.only is None or name in told.only.split(";")]
    met = []
    head = f"{'shape':<22} {'held':<17}"
    print(f"{head} {'estimated':>10} {'measured':>10} {'ratio':>6} {'difference':>11}   in MiB", flush=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            met += compare(name, shapes[name], Path(folder), told.phases)
    print(f"{sum(met)} of {len(met)} within {BAR:.0%} or {BAR_BYTES // MIB} MiB")


def compare(name: str, shape: Shape, folder: Path, phases: bool) -> list[bool]:
    """Estimates and trains one shape; prints a line, with `phases` one for each phase; says which met the bar."""
    path = make(name, shape, folder)
    words = ["train", str(path), "--gpus", "0", "--epochs", "2", "--max-steps", "30", "--seed", "1", "--json"]
    for option, value in shape.options.items():
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{option.replace('_', '-')}"] if value is True else [f"--{option.replace('_', '-')}={shown}"]
    words += ["--run-dir", str(folder / "run"), "--quiet"]
    words += ["--split", "random:.6/.2/.2"] if shape.graphs > 1 and not shape.by_node else []
    cache = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "pygsage", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=cache)
    result = json.loads(done.stdout.splitlines()[-1])
    told = json.loads((folder / "run" / "memory.json").read_text())
    met = [_line(name, told["storage"] or "", result["estimated_peak_bytes"] or 0, result["peak_bytes"])]
    estimated, measured = (told["of_first_rank"][f"{kind}_bytes"] for kind in ("estimated", "measured"))
    if phases:
        met += [_line(f"  {p}", "", estimated[p], measured[p]) for p in measured if p in estimated and p != "peak"]
    return met


def _line(name: str, basis: str, estimated: int, measured: int) -> bool:
    difference = estimated - measured
    met = abs(difference) <= max(BAR * measured, BAR_BYTES)
    numbers = f"{estimated / MIB:10.1f} {measured / MIB:10.1f} {estimated / measured:6.2f} {difference / MIB:+11.1f}"
    print(f"{name:<22} {basis:<17} {numbers}   {'' if met else 'MISSED'}".rstrip(), flush=True)
    return met


def print_baseline() -> None:
    """What a rank takes without data: a graph of 50 nodes, one step; alone and as one of two."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.npz"
        write(Shape(50, 4, 4), path)
        for procs in (1, 2):
            words = ["train", str(path), "--gpus", "0", "--procs", str(procs), "--fanouts", "2,2", "--hidden", "8"]
            words += ["--max-steps", "1", "--json", "--quiet", "--run-dir", f"{folder}/run{procs}"]
            done = subprocess.run(
                [sys.executable, "-m", "pygsage", *words], stdout=subprocess.PIPE, text=True, check=True
            )
            peak = json.loads(done.stdout.splitlines()[-1])["peak_bytes"]
            print(f"{procs} rank{'s' if procs > 1 else ' '}: {peak / procs / MIB:.1f} MiB each")


def _versions() -> str:
    import torch
    import torch_geometric

    from pygsage.memory.machine import read_machine

    machine = read_machine()
    torches = f"torch {torch.__version__}, PyG {torch_geometric.__version__}"
    memory = (machine.memory_of_host_bytes or 0) / 2**30
    return (
        f"{torches}, Python {platform.python_version()}, {os.cpu_count()} cores, {memory:.1f} GiB, {platform.machine()}"
    )


if __name__ == "__main__":
    main()
