"""Random rows of a file that is not in the page cache, against `np.memmap[idx]`: `python tools/bench/cold_rows.py`.

Each way reads rows of its own, drawn anew, after the file was dropped from the page cache; that it was, is checked by
the bytes that the process then reads from the disk. Wall time, the median of several rounds in turn.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import pygsage
from pygsage.data.files.fetch import read_cold, read_rows

CHUNK = 1 << 16


def main() -> None:
    """Writes the file, reads it in each way, and prints figures and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4.0, help="size of the file")
    parser.add_argument("--features", type=int, default=128, help="float32 a row")
    parser.add_argument("--reads", type=int, default=8192, help="rows a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 4, 16, 32], help="of ours; 16 is what is used")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=None, help="where the file is made (default: the system's)")
    options = parser.parse_args()
    num_rows = int(options.gib * 2**30) // (4 * options.features)
    versions = f"pygsage {pygsage.__version__}, torch {torch.__version__}, NumPy {np.__version__}"
    print(f"{_processor()}, {os.cpu_count()} CPUs, {_disk(options.folder)}; {versions}, {platform.release()}")
    print(f"{num_rows:,} rows of {options.features} float32; {options.reads:,} reads a round, seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="cold-rows-", dir=options.folder) as folder:
        path = Path(folder) / "x.npy"
        _write(path, num_rows, options.features, options.seed)
        ways: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"np.memmap[idx]": lambda x, ids: x[ids]}
        for threads in options.threads:
            ways[f"ours, {threads} threads"] = lambda x, ids, t=threads: read_rows(x, ids, t)  # type: ignore[misc]
        ways["ours, in the file's order"] = _in_order
        random = np.random.default_rng(options.seed)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        read: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, way in ways.items():
                took, kib = _cold(path, way, random.integers(num_rows, size=options.reads))
                seconds[name].append(took)
                read[name].append(kib)
    peer = statistics.median(seconds["np.memmap[idx]"])
    for name, times in seconds.items():
        median = statistics.median(times)
        spread = f"{min(times) * 1e3:.0f} to {max(times) * 1e3:.0f} ms"
        rate = f"{options.reads / median:>9,.0f} rows/s, {statistics.median(read[name]):>6.1f} KiB read a row"
        print(f"{name:<24} {median * 1e3:>8.1f} ms ({spread:<16}) {rate}, {peer / median:>5.1f} x")


def _in_order(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """As training reads rows that are not held in RAM."""
    out = np.empty((len(ids), x.shape[1]), x.dtype)
    read_cold(x, ids, out)
    return out


def _cold(path: Path, way: Callable[[np.ndarray, np.ndarray], np.ndarray], ids: np.ndarray) -> tuple[float, float]:
    _drop(path)
    x = np.load(path, mmap_mode="r")
    before, begin = _read_bytes(), time.perf_counter()
    found = way(x, ids)
    took = time.perf_counter() - begin
    kib = (_read_bytes() - before) / 1024 / len(ids)
    assert np.array_equal(found, x[ids])
    if kib < 0.9 * x.itemsize * x.shape[1] / 1024:
        raise SystemExit("The file was not dropped from the page cache: the disk was hardly read.")
    return took, kib


def _drop(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def _read_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])


def _write(path: Path, num_rows: int, num_features: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    file = np.lib.format.open_memmap(path, "w+", np.float32, (num_rows, num_features))
    for start in range(0, num_rows, CHUNK):
        file[start : start + CHUNK] = random.random((min(CHUNK, num_rows - start), num_features), dtype=np.float32)
    file.flush()


def _disk(folder: str | None) -> str:
    here = os.path.realpath(folder or tempfile.gettempdir())
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    point = max((m for m in mounts if here.startswith(m[1])), key=lambda m: len(m[1]))
    return f"{point[2]} on {point[0]}"


def _processor() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
