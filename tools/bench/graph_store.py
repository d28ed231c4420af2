"""Reading many small graphs, ours against PyG's datasets: `python tools/bench/graph_store.py --graphs 100000`.

Graphs of 30 nodes, 64 edges and 16 features, with --varied of 20 to 40 nodes and 44 to 84 edges; one thread, warm,
random order; figures are graphs per CPU second, the median of several rounds. Peers: PyG's OnDiskDataset on SQLite,
with a schema (row by row, and by its multi_get) and without, and PyG's InMemoryDataset with its DataLoader. The reads
of a peer are joined by Batch.from_data_list.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric
from torch_geometric.data import Batch, Data, InMemoryDataset, OnDiskDataset
from torch_geometric.loader import DataLoader

import pygsage
from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.in_memory import InMemoryGraphs

NODES, EDGES, FEATURES = 30, 64, 16


def main() -> None:
    """Builds the stores, measures each way of reading, and prints figures and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument("--reads", type=int, default=20_000, help="graphs a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--varied", action="store_true", help="graphs that differ in size")
    parser.add_argument("--folder", default=None, help="where the stores are made (default: the system's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    about = "about " if options.varied else ""
    shape = f"{options.graphs:,} graphs of {about}{NODES} nodes, {EDGES} edges, {FEATURES} features"
    print(
        f"{hardware()}\n{shape}; {options.reads:,} reads, batches of {options.batch_size}, seed {options.seed}",
        flush=True,
    )
    folder = Path(tempfile.mkdtemp(prefix="graph-store-", dir=options.folder))
    try:
        _compare(options, folder)
    finally:
        shutil.rmtree(folder)


def _compare(options: argparse.Namespace, folder: Path) -> None:
    stock = Collated(options.graphs, options.seed, options.varied)
    ours = {}
    for backend in ("columnar", "sqlite"):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        ours[backend] = to_on_disk_dataset(stock, folder / backend, backend)
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
        size = sum(p.stat().st_size for p in (folder / backend).iterdir()) / 1e6
        rate = f"{size / seconds:.0f} MB/s, {size / cpu_seconds:.0f} MB per CPU s ({size:.0f} MB)"
        print(f"conversion, {backend}: {rate}")
    schema, pickled = WithSchema(folder / "schema", stock), WithoutSchema(folder / "pickled", stock)
    resident = InMemoryGraphs(folder / "columnar")
    ids = np.random.default_rng(options.seed).integers(options.graphs, size=options.reads).tolist()
    size = options.batch_size
    batches = [ids[i : i + size] for i in range(0, len(ids), size)]

    def joined(dataset: Any, read: Callable[[Any, list[int]], list[Any]]) -> Callable[[], None]:
        def way() -> None:
            for batch in batches:
                Batch.from_data_list(read(dataset, batch))

        return way

    def one_by_one(dataset: Any) -> Callable[[], None]:
        def way() -> None:
            for i in ids:
                dataset[i]

        return way

    def native(dataset: Any) -> Callable[[], None]:
        def way() -> None:
            for batch in batches:
                dataset.batch(batch)

        return way

    def loaded() -> None:
        stock._data_list = None  # as in the first epoch: later ones are faster, and hold every item
        for _ in DataLoader(stock[ids], batch_size=size):
            pass

    row_by_row = lambda dataset, batch: [dataset[i] for i in batch]  # noqa: E731
    at_once = lambda dataset, batch: dataset.multi_get(batch)  # noqa: E731
    ways: dict[str, Callable[[], None]] = {
        "ds[i]      ours, columnar on disk": one_by_one(ours["columnar"]),
        "ds[i]      ours, in memory": one_by_one(resident),
        "ds[i]      ours, sqlite": one_by_one(ours["sqlite"]),
        "ds[i]      PyG, sqlite with schema": one_by_one(schema),
        "ds[i]      PyG, sqlite without": one_by_one(pickled),
        "ds[i]      PyG, in memory": _fresh(stock, one_by_one(stock)),
        "batches    ours, columnar on disk": native(ours["columnar"]),
        "batches    ours, in memory": native(resident),
        "batches    PyG, sqlite with schema, row by row": joined(schema, row_by_row),
        "batches    PyG, sqlite with schema, multi_get": joined(schema, at_once),
        "batches    PyG, sqlite without, row by row": joined(pickled, row_by_row),
        "batches    PyG, in memory, DataLoader": loaded,
    }
    speed = {name: _graphs_per_cpu_second(way, len(ids), options.rounds) for name, way in ways.items()}
    for name, value in speed.items():
        print(f"{name:<58} {value:>10,.0f} graphs/CPU s")
    for kind in ("ds[i]", "batches"):
        mine = speed[f"{kind:<10} ours, columnar on disk"]
        for name, value in speed.items():
            if name.startswith(kind) and "PyG" in name:
                print(f"{kind}: ours on disk is {mine / value:.1f} x {name[11:]}")


def _graphs_per_cpu_second(read: Callable[[], None], num: int, rounds: int) -> float:
    read()  # warm
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        read()
        times.append(time.process_time() - begin)
    return num / statistics.median(times)


def _fresh(stock: Any, read: Callable[[], None]) -> Callable[[], None]:
    def way() -> None:
        stock._data_list = None
        read()

    return way


class Collated(InMemoryDataset):  # type: ignore[misc]
    """PyG's dataset in memory, of random graphs."""

    def __init__(self, num_graphs: int, seed: int, varied: bool = False) -> None:
        super().__init__(None)
        random = torch.Generator().manual_seed(seed)
        nodes, edges = torch.full((num_graphs,), NODES), torch.full((num_graphs,), EDGES)
        if varied:
            more = torch.randint(-10, 11, (num_graphs,), generator=random)
            nodes, edges = nodes + more, edges + 2 * more
        self.slices = {"x": _begins(nodes), "edge_index": _begins(edges), "y": torch.arange(num_graphs + 1)}
        num_nodes, num_edges = int(nodes.sum()), int(edges.sum())
        ends = torch.rand(2, num_edges, generator=random) * nodes.repeat_interleave(edges)
        self._data = Data(
            x=torch.randn(num_nodes, FEATURES, generator=random),
            edge_index=ends.long(),
            y=torch.randint(2, (num_graphs,), generator=random),
        )


def _begins(lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])


class WithSchema(OnDiskDataset):  # type: ignore[misc]
    """PyG's dataset on disk as its documentation advises: SQLite, with a schema."""

    def __init__(self, root: Path, source: Any) -> None:
        self.source = source
        schema = {
            "x": {"dtype": torch.float, "size": (-1, FEATURES)},
            "edge_index": {"dtype": torch.long, "size": (2, -1)},
            "y": {"dtype": torch.long, "size": (-1,)},
        }
        super().__init__(str(root), schema=schema, log=False)

    def process(self) -> None:
        """Writes copies of the graphs, a thousand at a time: of a view, PyG would pickle all that it is a view of."""
        for start in range(0, len(self.source), 1000):
            self.extend([self.source.get(i).clone() for i in range(start, min(start + 1000, len(self.source)))])
        self.source._data_list = None

    def serialize(self, data: Data) -> dict[str, Any]:
        """A graph as the database takes it."""
        return {"x": data.x, "edge_index": data.edge_index, "y": data.y}

    def deserialize(self, data: dict[str, Any]) -> Data:
        """A graph from what the database has."""
        return Data.from_dict(data)


class WithoutSchema(OnDiskDataset):  # type: ignore[misc]
    """The same with PyG's default in place of a schema: every graph is pickled."""

    def __init__(self, root: Path, source: Any) -> None:
        self.source = source
        super().__init__(str(root), log=False)

    process = WithSchema.process


def hardware() -> str:
    """Processor and versions."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    model = names[0].partition(":")[2].strip() if names else platform.machine()
    versions = f"torch {torch.__version__}, PyG {torch_geometric.__version__}, NumPy {np.__version__}"
    return (
        f"{model}, {os.cpu_count()} CPUs; pygsage {pygsage.__version__}, {versions}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    main()
