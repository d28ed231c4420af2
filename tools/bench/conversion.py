"""Writing many small graphs to a store: rate and memory. `python tools/bench/conversion.py --graphs 100000`.

Graphs of 20 to 40 nodes and 16 features, from three kinds of sources: PyG's dataset in memory (taken in blocks), a
recipe that yields one graph at a time, and any other dataset that is read by `dataset[i]`. Figures are MB of the store
by wall time and by CPU time; extra memory is the highest anonymous memory (RssAnon) while it runs, less what it was
before. The peer is PyG's `to_on_disk_dataset` on SQLite, its default.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from graph_store import Collated, hardware
from torch_geometric.data import Data

from pygsage.data.recipe import Recipe
from pygsage.data.store.convert import to_on_disk_dataset


def main() -> None:
    """Converts from each source, and prints a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="PyG's own conversion too, once: minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=None, help="where the stores are made (default: the system's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{hardware()}\n{options.graphs:,} graphs, seed {options.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="conversion-", dir=options.folder))
    try:
        stock = Collated(options.graphs, options.seed, varied=True)
        sources: dict[str, Any] = {
            "PyG's dataset in memory": stock,
            "a recipe": Streamed(options.graphs),
            "a dataset read by [i]": Indexed(options.graphs),
        }
        for name, source in sources.items():
            runs = [_measured(folder, lambda out, s=source: to_on_disk_dataset(s, out)) for _ in range(options.rounds)]
            _print(f"ours, {name}", sorted(runs)[len(runs) // 2])
        if options.peer:
            _print("PyG, its dataset in memory", _measured(folder, lambda out: _pyg(stock, out)))
    finally:
        shutil.rmtree(folder)


def _pyg(stock: Collated, out: Path) -> None:
    stock._data_list = None
    stock.to_on_disk_dataset(str(out), log=False)


def _measured(folder: Path, convert: Callable[[Path], Any]) -> tuple[float, float, float, float]:
    """Wall seconds, CPU seconds, MB written, MiB of extra memory."""
    out = folder / "out"
    before, most, done = _anonymous_kib(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.005):
            most = max(most, _anonymous_kib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    convert(out)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    done.set()
    watcher.join()
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    shutil.rmtree(out)
    return seconds, cpu_seconds, size, max(0, most - before) / 1024


def _print(name: str, run: tuple[float, float, float, float]) -> None:
    seconds, cpu_seconds, size, extra = run
    rates = f"{size / seconds:>6.0f} MB/s, {size / cpu_seconds:>6.0f} MB per CPU s"
    print(f"{name:<34} {rates}, {size:.0f} MB in {seconds:.1f} s, {extra:.0f} MiB of extra memory", flush=True)


def _anonymous_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def _graph(number: int) -> Data:
    """One of a few that were made before: it is the writing that is measured."""
    return _GRAPHS[number % len(_GRAPHS)]


def _made() -> list[Data]:
    random = torch.Generator().manual_seed(0)
    sizes = [20 + i % 21 for i in range(256)]
    return [
        Data(
            x=torch.randn(n, 16, generator=random),
            edge_index=torch.randint(n, (2, 4 + 2 * n), generator=random),
            y=torch.tensor([n % 2]),
        )
        for n in sizes
    ]


_GRAPHS = _made()


class Streamed(Recipe):
    """Graphs one after the other."""

    def __init__(self, num_graphs: int) -> None:
        super().__init__(os.getcwd())
        self.num_graphs = num_graphs

    def graphs(self) -> Iterator[Data]:
        """Yields them."""
        for number in range(self.num_graphs or 0):
            yield _graph(number)


class Indexed:
    """Graphs by their number."""

    def __init__(self, num_graphs: int) -> None:
        self.num_graphs = num_graphs

    def __len__(self) -> int:
        return self.num_graphs

    def __getitem__(self, number: int) -> Data:
        return _graph(number)


if __name__ == "__main__":
    main()
