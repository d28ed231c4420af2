"""A graph shaped like ogbn-papers100M at any scale, written as a store: `papers_graph.py OUT --scale 0.25`.

Scale 1 has the 111,059,956 nodes of ogbn-papers100M, its 1,615,685,872 directed edges (14.55 a node), 128 features in
float16, 172 classes and 1,207,179 / 125,265 / 214,338 training, validation and test nodes, the only ones with labels,
as there. What is made up: features and labels are random; nodes are ranked at random, and the node of rank r of N has
an expected in-degree, and a chance to be drawn as a source, in proportion to (r / N)**-0.6, which gives both degrees a
tail of P(d) ~ d**-2.67. Sources are drawn one by one, so that a few edges occur twice; ids say nothing of the rank.

Nothing is sorted: edges are drawn destination by destination. Every array is written from its first byte to its last,
in pieces that are a function of the seed and the piece's number alone; a run that was killed goes on after the last
piece that was synced. Peak RAM is some 200 MiB. The store takes 34.2 GiB at scale 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from pygsage.data.files.arrays import MANIFEST, write_manifest
from pygsage.data.one_graph.graph import manifest_of

NODES, EDGES, FEATURES, CLASSES = 111_059_956, 1_615_685_872, 128, 172
SPLITS = {"train": 1_207_179, "val": 125_265, "test": 214_338}
SKEW = 0.6  # of (rank / nodes)**-SKEW
ROWS = 1 << 18  # nodes a piece
STATE = "unfinished.json"


def main() -> None:
    """Makes the store, or what is missing of it, and says how fast."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="the folder to be made")
    parser.add_argument("--scale", type=float, default=0.02, help="share of ogbn-papers100M's nodes and edges")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begin, cpu = time.perf_counter(), time.process_time()
    folder = Path(args.out)
    make(folder, args.scale, args.seed)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    took, used = time.perf_counter() - begin, time.process_time() - cpu
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, NumPy {np.__version__}, seed {args.seed}"
    )
    print(f"{folder}: scale {args.scale:g}, {size / 2**30:.2f} GiB in {took:.0f} s ({used:.0f} s of CPU)")


@dataclass(frozen=True)
class Shape:
    """Counts at a scale, and which node has which rank.

    Attributes:
        factor: The node of rank r is r * factor modulo the number of nodes; `inverse` leads back.
    """

    num_nodes: int
    num_edges: int
    seed: int
    factor: int
    inverse: int

    @property
    def num_pieces(self) -> int:
        """Pieces of all nodes."""
        return -(-self.num_nodes // ROWS)

    def rows(self, piece: int) -> np.ndarray:
        """The nodes of a piece."""
        return np.arange(piece * ROWS, min((piece + 1) * ROWS, self.num_nodes))

    def random(self, kind: int, piece: int = 0) -> np.random.Generator:
        """Of one piece of one array."""
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence([self.seed, kind, piece])))


def shape_at(scale: float, seed: int) -> Shape:
    """The counts at a scale."""
    num_nodes = max(64, round(NODES * scale))
    factor = int(num_nodes * 0.6180339887) | 1
    while gcd(factor, num_nodes) != 1:
        factor += 1
    return Shape(num_nodes, max(64, round(EDGES * scale)), seed, factor, pow(factor, -1, num_nodes))


def make(folder: Path, scale: float, seed: int = 0, stop_after: int | None = None) -> None:
    """Writes the store, or goes on with it.

    Args:
        stop_after: Pieces to write at most, for tests of going on.
    """
    if (folder / MANIFEST).is_file():
        return
    shape = shape_at(scale, seed)
    (folder / "split").mkdir(parents=True, exist_ok=True)
    ids = labelled(shape, scale)
    arrays: dict[str, Any] = {
        "indptr": (np.int64, (), lambda first: islice(pointers(shape), first, None)),
        "indices": (np.int32, (), lambda first: (sources(shape, p) for p in range(first, shape.num_pieces))),
        "x": (np.float16, (FEATURES,), lambda first: (features(shape, p) for p in range(first, shape.num_pieces))),
        "y": (np.int64, (), lambda first: (labels(shape, p, ids) for p in range(first, shape.num_pieces))),
    }
    for name, chosen in ids.items():
        arrays[f"split/{name}"] = (np.int64, (), lambda first, chosen=chosen: iter([chosen][first:]))
    journal = Journal(folder, {"scale": scale, "seed": seed}, stop_after)
    described = {name: journal.write(name, np.dtype(kind), row, pieces) for name, (kind, row, pieces) in arrays.items()}
    notes = [f"Made by tools/bench/papers_graph.py, scale {scale:g}, seed {seed}: features and labels are random."]
    (folder / STATE).unlink()
    write_manifest(folder, manifest_of(f"papers-{scale:g}", CLASSES, "classes", notes, described))


def degrees(shape: Shape, piece: int) -> np.ndarray:
    """In-degrees of a piece's nodes: their expectation, rounded up or down at random."""
    rank = shape.rows(piece) * shape.inverse % shape.num_nodes
    mean = (1 - SKEW) * shape.num_edges / shape.num_nodes
    expected = mean * ((rank + 0.5) / shape.num_nodes) ** -SKEW
    return (expected + shape.random(0, piece).random(len(rank))).astype(np.int64)


def pointers(shape: Shape) -> Iterator[np.ndarray]:
    """`indptr`, piece by piece."""
    total = 0
    yield np.zeros(1, np.int64)
    for piece in range(shape.num_pieces):
        ends = degrees(shape, piece).cumsum() + total
        total = int(ends[-1])
        yield ends


def sources(shape: Shape, piece: int) -> np.ndarray:
    """The in-neighbours of a piece's nodes."""
    num = int(degrees(shape, piece).sum())
    drawn = shape.random(1, piece).random(num, dtype=np.float32).astype(np.float64)
    drawn += shape.random(2, piece).random(num, dtype=np.float32) * 2**-24  # 24 bits are too few for all nodes
    # The inverse of the cumulated (r / N)**-0.6, (r / N)**0.4, is u**2.5.
    rank = (shape.num_nodes * (drawn * drawn * np.sqrt(drawn))).astype(np.int64)
    np.minimum(rank, shape.num_nodes - 1, out=rank)
    rank *= shape.factor
    rank %= shape.num_nodes
    return rank.astype(np.int32)


def features(shape: Shape, piece: int) -> np.ndarray:
    """Ten random bits each, evenly from -1 to 1."""
    num = len(shape.rows(piece)) * FEATURES
    bits = shape.random(3, piece).integers(0, 1 << 64, -(-num // 4), dtype=np.uint64).view(np.uint16)[:num]
    bits &= 0x03FF
    bits |= 0x4000  # 2 to 4, in float16
    values = bits.view(np.float16).reshape(-1, FEATURES)
    values -= np.float16(3)
    return values


def labelled(shape: Shape, scale: float) -> dict[str, np.ndarray]:
    """The nodes of each split, ascending, at random among all; at least one."""
    counts = {name: max(1, round(count * scale)) for name, count in SPLITS.items()}
    whole = sum(counts.values())
    random = shape.random(4)
    drawn = np.unique(random.integers(0, shape.num_nodes, 2 * whole))
    chosen = random.permutation(drawn)[:whole]
    ends = np.cumsum(list(counts.values()))[:-1]
    return {name: np.sort(part) for name, part in zip(counts, np.split(chosen, ends), strict=True)}


def labels(shape: Shape, piece: int, ids: dict[str, np.ndarray]) -> np.ndarray:
    """A class for each node of a split, -1 for all others."""
    rows = shape.rows(piece)
    found = np.full(len(rows), -1, np.int64)
    for number, chosen in enumerate(ids.values()):
        begin, end = np.searchsorted(chosen, [rows[0], rows[-1] + 1])
        found[chosen[begin:end] - rows[0]] = shape.random(5 + number, piece).integers(0, CLASSES, end - begin)
    if piece == 0:  # so that there are that many, at any scale
        found[ids["train"][0] - rows[0] : ids["train"][0] - rows[0] + 1] = CLASSES - 1
    return found


class Journal:
    """What was written and synced of each array; kept beside them until all are whole."""

    def __init__(self, folder: Path, about: dict[str, Any], stop_after: int | None) -> None:
        self._folder, self._path, self._left = folder, folder / STATE, stop_after
        self._state: dict[str, Any] = {"about": about, "arrays": {}}
        if self._path.is_file():
            self._state = json.loads(self._path.read_text())
            if self._state["about"] != about:
                raise SystemExit(f"{folder} holds an unfinished store of {self._state['about']}; delete it first.")

    def write(
        self, name: str, dtype: np.dtype, row: tuple[int, ...], pieces: Callable[[int], Iterator[np.ndarray]]
    ) -> dict[str, Any]:
        """Writes what is missing of an array; returns what the manifest says of it."""
        told = self._state["arrays"].setdefault(name, {"pieces": 0, "rows": 0, "crc32": 0, "done": None})
        if told["done"]:
            return dict(told["done"])
        path, head, unsynced = self._folder / f"{name}.npy", len(_header(dtype, (0, *row))), 0
        row_bytes = dtype.itemsize * int(np.prod(row, dtype=np.int64))
        with open(path, "r+b" if path.is_file() and told["pieces"] else "w+b") as file:
            file.truncate(head + told["rows"] * row_bytes)
            file.seek(0, os.SEEK_END)
            for piece in pieces(told["pieces"]):
                if self._left is not None:
                    self._left -= 1
                    if self._left < 0:
                        raise SystemExit("stopped")
                content = np.ascontiguousarray(piece, dtype).reshape(-1).view(np.uint8).data
                file.write(content)
                told["crc32"] = zlib.crc32(content, told["crc32"])
                told["pieces"], told["rows"] = told["pieces"] + 1, told["rows"] + len(piece)
                unsynced += len(content)
                if unsynced >= 256 << 20 or self._left is not None:
                    self._sync(file)
                    unsynced = 0
            shape = (told["rows"], *row)
            file.seek(0)
            file.write(_header(dtype, shape))
            told["done"] = {
                "file": f"{name}.npy", "dtype": dtype.name, "shape": list(shape),
                "bytes": head + told["rows"] * row_bytes, "crc32": told["crc32"],
            }  # fmt: skip
            self._sync(file)
        return dict(told["done"])

    def _sync(self, file: Any) -> None:
        file.flush()
        os.fsync(file.fileno())
        temporary = self._path.with_suffix(".part")
        temporary.write_text(json.dumps(self._state))
        temporary.replace(self._path)


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    file = BytesIO()
    told = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, told)
    return file.getvalue()


if __name__ == "__main__":
    main()
