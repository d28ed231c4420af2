"""What datasets take, collated, as one file a graph, and as a store: `python tools/bench/memory_bill.py`.

For each dataset: the rule of thumb that circulates (graphs x nodes x features x 4 bytes); the bytes of all tensors, as
PyG collates them; the highest anonymous memory, above the process's own, while the graphs are put in a list and saved
the documented way (InMemoryDataset.save); one torch.save a graph, its bytes and the time to load all; and the same of
a store written by to_on_disk_dataset from a generator, opened and read. Each is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from graph_store import hardware
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.io import read_npz

from pygsage import OnDiskGraphs, to_on_disk_dataset
from pygsage.data.names import parse_reference
from pygsage.data.sources.recipe import open_recipe
from pygsage.memory.peak import PeakMemory, undroppable_bytes

ROOT = Path(__file__).parents[2]
MIB = 2**20


def main() -> None:
    """Prints one row a dataset, as a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cora", default=str(ROOT.parent / "shared" / "data" / "npz" / "cora.npz"), help="an .npz")
    parser.add_argument("--reddit-part", type=int, default=8, help="one in so many of Reddit's nodes")
    parser.add_argument("--tiny", type=int, default=100_000, help="how many graphs of 10 nodes")
    parser.add_argument("--folder", default=None, help="where files are made (default: the system's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(hardware(), flush=True)
    part = options.reddit_part
    datasets: dict[str, Callable[[], Iterator[Data]]] = {
        "PubMed-sized, made up": lambda: one_graph(19_717, 88_648, 500),
        f"Reddit-sized / {part}, made up": lambda: one_graph(232_965 // part, 114_615_892 // part, 602),
        "datasets/shapes.py": shapes,
        f"{options.tiny:,} graphs of 10 nodes": lambda: tiny(options.tiny),
    }
    if Path(options.cora).is_file():
        datasets = {"Cora": lambda: cora(Path(options.cora)), **datasets}
    print(
        "| dataset | rule of thumb | tensors, collated | PyG: peak to build and save | one file a graph: size, peak, "
        "load all | store: size, peak, open, read all |\n|---|---|---|---|---|---|"
    )
    for name, graphs in datasets.items():
        rule, payload = _alone(_sizes, graphs)
        (peak, _), files, store = (_alone(f, graphs, options.folder) for f in (_collated, _files, _store))
        print(
            f"| {name} | {rule / MIB:,.1f} MiB | {payload / MIB:,.1f} MiB | {peak / MIB:,.1f} MiB "
            f"({peak / payload:.1f} x) | {files[0] / MIB:,.1f}, {files[1] / MIB:,.1f} MiB, {files[2]:.2f} s "
            f"| {store[0] / MIB:,.1f}, {store[1] / MIB:,.1f} MiB, {store[2] * 1e3:.1f} ms, {store[3]:.2f} s |",
            flush=True,
        )


def cora(path: Path) -> Iterator[Data]:
    """The real one, from its file in the layout of `torch_geometric.io.read_npz`."""
    yield read_npz(str(path))


def one_graph(num_nodes: int, num_edges: int, num_features: int) -> Iterator[Data]:
    """Noise of that size."""
    random = torch.Generator().manual_seed(0)
    x = torch.empty(num_nodes, num_features).normal_(generator=random)
    edge_index = torch.randint(num_nodes, (2, num_edges), generator=random)
    yield Data(x=x, edge_index=edge_index, y=torch.randint(3, (num_nodes,), generator=random))


def shapes() -> Iterator[Data]:
    """The recipe of this project."""
    with open_recipe(parse_reference(str(ROOT / "datasets" / "shapes.py")), None) as recipe:
        yield from recipe.graphs()


def tiny(num_graphs: int) -> Iterator[Data]:
    """Graphs of 10 nodes, 20 edges and 16 features."""
    random = torch.Generator().manual_seed(0)
    for number in range(num_graphs):
        x = torch.randn(10, 16, generator=random)
        yield Data(x=x, edge_index=torch.randint(10, (2, 20), generator=random), y=torch.tensor([number % 2]))


Graphs = Callable[[], Iterator[Data]]


def _sizes(graphs: Graphs) -> tuple[float, ...]:
    num = nodes = payload = features = keys = 0
    for data in graphs():
        num, nodes, features = num + 1, nodes + data.num_nodes, data.num_features
        payload += sum(value.nbytes for value in data.to_dict().values())
        keys = len(data.keys())
    return nodes * features * 4, payload + 8 * keys * (num + 1)


def _collated(graphs: Graphs, folder: str) -> tuple[float, ...]:
    before = undroppable_bytes()
    with PeakMemory(0.002) as memory:
        InMemoryDataset.save(list(graphs()), f"{folder}/data.pt")
    return memory.peak_bytes - before, Path(folder, "data.pt").stat().st_size


def _files(graphs: Graphs, folder: str) -> tuple[float, ...]:
    from torch.serialization import safe_globals
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    before, num = undroppable_bytes(), 0
    with PeakMemory(0.002) as memory:
        for data in graphs():
            torch.save(data, f"{folder}/data_{num}.pt")
            num += 1
    size = sum(Path(folder, f"data_{number}.pt").stat().st_size for number in range(num))
    begin = time.perf_counter()
    with safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        for number in range(num):
            torch.load(f"{folder}/data_{number}.pt", weights_only=True)
    return size, memory.peak_bytes - before, time.perf_counter() - begin


def _store(graphs: Graphs, folder: str) -> tuple[float, ...]:
    before = undroppable_bytes()
    with PeakMemory(0.002) as memory:
        to_on_disk_dataset(graphs(), f"{folder}/store")
    begin = time.perf_counter()
    dataset = OnDiskGraphs(f"{folder}/store")
    opened = time.perf_counter() - begin
    begin = time.perf_counter()
    for start in range(0, len(dataset), 128):
        dataset.batch(range(start, min(start + 128, len(dataset))))
    read = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in Path(folder, "store").iterdir())
    return size, memory.peak_bytes - before, opened, read


def _alone(measure: Callable[..., tuple[float, ...]], graphs: Graphs, folder: str | None = "") -> tuple[float, ...]:
    """What a function returns in a process of its own, with a folder of its own where it takes one."""
    context = multiprocessing.get_context("fork")  # a generator cannot be sent
    ours, theirs = context.Pipe()
    place = None if folder == "" else tempfile.mkdtemp(prefix="memory-bill-", dir=folder)
    job = context.Process(target=lambda: theirs.send(measure(graphs) if place is None else measure(graphs, place)))
    job.start()
    answer: tuple[float, ...] = ours.recv()
    job.join()
    if place is not None:
        shutil.rmtree(place)
    return answer


if __name__ == "__main__":
    main()
