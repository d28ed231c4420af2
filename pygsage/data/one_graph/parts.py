"""A graph whose features lie in several parts: nodes keep their ids, and a part holds the rows of some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.arrays import made_by, map_array, verify_array
from pygsage.data.files.fetch import read_rows
from pygsage.data.one_graph.sampled import sampled_crc
from pygsage.errors import DatasetError, in_words

X_DTYPES = ("float32", "float16")
MOST_LISTED = 16  # parts, each with a line of its own


@dataclass(frozen=True, eq=False)
class Parts:
    """Where the features of a partitioned graph lie: `part-K/x.npy` in its folder, of which some may be elsewhere.

    Args:
        folder: The folder of the graph.
        place: int32 or int64 `[N]`: the storage number of each node; a part holds a range of them.
        begins: Where each part begins among the storage numbers, and their number, N, at the end: ascending.
        num_train: Training nodes a part.
        told: What the manifest says of the graph's features, and of each part's.
        sampled_crc: Of the features before they were split, as `sampled_crc` of sampled.py.
        about: How the parts were made: `method`, `edge_cut`, the share of the edges between two parts.
    """

    folder: Path
    place: Tensor
    begins: tuple[int, ...]
    num_train: tuple[int, ...]
    told: Sequence[Mapping[str, Any]]
    width: int
    dtype: np.dtype
    about: Mapping[str, Any]
    sampled_crc: int = 0
    _open: dict[int, np.ndarray] = field(default_factory=dict, repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    @staticmethod
    def of(folder: Path, manifest: Mapping[str, Any], place: Tensor) -> Parts:
        """What a manifest says of the parts.

        Raises:
            KeyError, TypeError, ValueError: when it cannot be understood.
        """
        told, x = list(manifest["parts"]), manifest["x"]
        sizes = [int(part["x"]["shape"][0]) for part in told]
        begins = tuple(np.cumsum([0, *sizes]).tolist())
        good = len(told) > 0 and min(sizes) >= 0 and begins[-1] == len(place) == int(x["shape"][0])
        width, dtype = int(x["shape"][1]), str(x["dtype"])
        if not good or dtype not in X_DTYPES or any(part["x"]["shape"][1:] != [width] for part in told):
            raise ValueError("the sizes of its parts do not agree")
        if sampled_crc(place) != x["place_crc"]:
            raise ValueError("place.npy is not the one that was written with it")
        about = dict(manifest["partition"])
        train = tuple(int(part["num_train"]) for part in told)
        return Parts(folder, place, begins, train, told, width, np.dtype(dtype), about, int(x["sampled_crc"]))

    def __len__(self) -> int:
        """How many parts."""
        return len(self.told)

    @property
    def row_bytes(self) -> int:
        """Size of a node's features."""
        return self.width * self.dtype.itemsize

    def of_nodes(self, ids: Tensor) -> np.ndarray:
        """The part of each node, int64 `[n]`."""
        return self.part_of(self.place[ids].numpy())

    def part_of(self, places: np.ndarray) -> np.ndarray:
        """The part of each storage number, int64 `[n]`."""
        return np.searchsorted(self.begins[1:], places, side="right")

    def is_here(self, part: int) -> bool:
        """Whether the files of a part are in the folder."""
        return (self.folder / name_of(part)).is_dir()

    def open(self, part: int) -> np.ndarray:
        """Maps the features of a part, `[n, F]`, in the order of storage.

        Raises:
            DatasetError: when it is not here, or damaged.
        """
        with self._lock:
            if part not in self._open:
                folder = self.folder / name_of(part)
                if not folder.is_dir():
                    raise DatasetError(
                        f"{self.folder} has no {name_of(part)}, one of its {len(self)} parts; expected it on the "
                        "machine that trains on it.",
                        "Copy it there from the folder that pygsage partition wrote.",
                    )
                try:
                    array = map_array(folder, "x", self.told[part]["x"], (self.dtype.name,))
                    is_own = sampled_crc(array) == self.told[part]["sampled_crc"]
                except (KeyError, TypeError, ValueError, OSError) as error:
                    raise DatasetError(f"{folder} is damaged: {in_words(error)}.", self._again()) from None
                if not is_own:  # parts of one size are easily mistaken for each other when they are copied
                    raise DatasetError(
                        f"{folder} is damaged, or another part: expected the features that were written there.",
                        self._again(),
                    )
                self._open[part] = array.numpy()
            return self._open[part]

    def _again(self) -> str:
        return (
            "Copy it once more from the folder that pygsage partition wrote; or delete the whole folder and "
            f"{made_by(self.folder)}"
        )

    def read(self, places: np.ndarray, out: np.ndarray, to: np.ndarray | None = None) -> None:
        """Copies the rows of some storage numbers, int64 `[n]`, whose parts are all here.

        Args:
            out: `[m, F]`: row i goes to `out[to[i]]`, or `out[i]` without `to`.
        """
        part = self.part_of(places)
        for each in np.unique(part).tolist():
            some = np.flatnonzero(part == each)
            rows = read_rows(self.open(each), places[some] - self.begins[each])
            out[some if to is None else to[some]] = rows

    def verify(self) -> list[int]:
        """Compares every byte of the parts that are here with its checksum; returns which are not here.

        Raises:
            ValueError, OSError, KeyError: when a byte is not as it was written.
        """
        for part, told in enumerate(self.told):
            if self.is_here(part):
                self.open(part)
                try:
                    verify_array(self.folder / name_of(part), "x", told["x"])
                except ValueError as error:
                    raise ValueError(f"{name_of(part)}: {in_words(error)}") from None
        return [part for part in range(len(self)) if not self.is_here(part)]

    def describe(self) -> dict[str, Any]:
        """The parts as plain values."""
        sizes = np.diff(self.begins).tolist()
        rows = [
            {"nodes": size, "train": train, "bytes": int(told["x"]["bytes"]), "here": self.is_here(part)}
            for part, (size, train, told) in enumerate(zip(sizes, self.num_train, self.told, strict=True))
        ]
        return {"partition": dict(self.about), "parts": rows}


class PartRows:
    """Features that lie in parts which are all on this machine, as `FeatureRows`.

    Args:
        parts: The parts; each is mapped when it is first needed.
    """

    resident: Tensor | None = None

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def read(self, ids: Tensor) -> Tensor:
        """As `FeatureRows.read`."""
        places = self.parts.place[ids].numpy().astype(np.int64, copy=False)
        out = np.empty((len(places), self.parts.width), self.parts.dtype)
        self.parts.read(places, out)
        return torch.from_numpy(out)

    def counts(self) -> tuple[int, int]:
        """None are counted."""
        return 0, 0

    def finish(self) -> None:
        """Nobody waits for it."""


def name_of(part: int) -> str:
    """The folder of a part."""
    return f"part-{part}"


def parts_text(answer: Mapping[str, Any]) -> list[str]:
    """Lines on what `Parts.describe` told."""
    about: Mapping[str, Any] = answer["partition"]
    rows: Sequence[Mapping[str, Any]] = answer["parts"]
    lines = [
        f"parts        {len(answer['parts'])} ({about['method']}), {about['edge_cut']:.1%} of the edges between them"
    ]
    listed = [
        f"  {name_of(part):<10} {row['nodes']:,} nodes, {row['train']:,} to train, {row['bytes'] / 2**20:,.1f} MiB"
        f"{'' if row['here'] else ', not here'}"
        for part, row in enumerate(rows)
    ]
    if len(listed) <= MOST_LISTED:
        return lines + listed
    nodes, train, sizes = ([row[key] for row in rows] for key in ("nodes", "train", "bytes"))
    away = sum(not row["here"] for row in rows)
    return [
        *lines,
        f"  a part     {min(nodes):,} to {max(nodes):,} nodes, {min(train):,} to {max(train):,} to train, "
        f"{min(sizes) / 2**20:,.1f} to {max(sizes) / 2**20:,.1f} MiB{f'; {away:,} not here' if away else ''}",
        "             (--json lists each)",
    ]
