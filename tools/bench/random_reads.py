"""How fast rows are read that training misses, against plain random reads of the same disk: `random_reads.py STORE`.

The peer is fio's random reads of pages past the page cache, where fio is installed, and besides threads that each
read one page at a time so (O_DIRECT, os.preadv). Ours reads distinct rows of `x.npy` that are in no cache, as training
does. What counts is what the disk has delivered. In turn, the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pygsage.data.files.fetch import THREADS, read_cold
from pygsage.data.one_graph.feature_rows import file_of
from pygsage.data.one_graph.graph import Graph

PAGE = 4096


def main() -> None:
    """Prints one JSON object: MB/s."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--reads", type=int, default=100_000, help="rows a round")
    parser.add_argument("--depth", type=int, nargs="*", default=[THREADS, 64], help="reads of the peer at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=8, help="that are read in one pass")
    parser.add_argument("--misses", type=int, default=300_000, help="rows of each of them")
    args = parser.parse_args()
    store, random = Path(args.store), np.random.default_rng(0)
    graph = Graph.open(store)
    x, path = graph.x.numpy(), store / "x.npy"
    found: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        for depth in args.depth:
            found.setdefault(f"random pages, O_DIRECT, {depth} at once", []).append(
                random_pages(path, args.reads, depth)
            )
        if shutil.which("fio"):
            for depth in args.depth:
                found.setdefault(f"fio, random pages, {depth} at once", []).append(fio(path, args.reads, depth))
        ids = np.sort(random.choice(len(x), args.reads, replace=False))
        drop(path)
        out, pages = np.empty((len(ids), x.shape[1]), x.dtype), len(np.unique(ids * x.strides[0] // PAGE))
        start = time.perf_counter()
        read_cold(x, ids, out)
        found.setdefault("ours, row by row: pages", []).append(pages * PAGE / (time.perf_counter() - start) / 1e6)
        found.setdefault("ours, row by row: rows alone", []).append(
            found["ours, row by row: pages"][-1] * out.nbytes / pages / PAGE
        )
        file = file_of(graph)
        assert file is not None
        lists = [np.sort(random.choice(len(x), args.misses, replace=False)) for _ in range(args.batches)]
        outs = [np.empty((len(each), x.shape[1]), x.dtype) for each in lists]
        with file:
            start = time.perf_counter()
            file.read(lists, outs)
            took = time.perf_counter() - start
        found.setdefault("ours, one pass: file", []).append(file.num_bytes / took / 1e6)
        found.setdefault("ours, one pass: rows alone", []).append(sum(each.nbytes for each in outs) / took / 1e6)
    told = {name: round(statistics.median(values), 1) for name, values in found.items()}
    peer = max(value for name, value in told.items() if "random pages" in name)
    print(json.dumps({"MB/s": told, "row by row / peer": round(told["ours, row by row: pages"] / peer, 2)}, indent=1))


def random_pages(path: Path, reads: int, depth: int) -> float:
    """MB/s of random pages, so many at once."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    pages = path.stat().st_size // PAGE

    def read(thread: int) -> None:
        buffer = mmap.mmap(-1, PAGE)
        for page in np.random.default_rng(thread).integers(0, pages, reads // depth).tolist():
            os.preadv(descriptor, [buffer], page * PAGE)

    start = time.perf_counter()
    with ThreadPoolExecutor(depth) as threads:
        list(threads.map(read, range(depth)))
    took = time.perf_counter() - start
    os.close(descriptor)
    return reads // depth * depth * PAGE / took / 1e6


def fio(path: Path, reads: int, depth: int) -> float:
    """MB/s of fio's random reads of pages."""
    words = ["fio", "--name=pages", f"--filename={path.absolute()}", "--readonly", "--rw=randread", "--bs=4k"]
    words += ["--direct=1", "--ioengine=libaio", f"--iodepth={depth}", f"--io_size={reads * PAGE}", "--norandommap"]
    words += ["--output-format=json"]
    told = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    return float(told["jobs"][0]["read"]["bw_bytes"]) / 1e6


def drop(path: Path) -> None:
    """Takes a file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


if __name__ == "__main__":
    main()
