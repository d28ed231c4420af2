"""One graph, checked and ready: in-neighbours (CSC), features, labels, splits; and its folder of `.npy` files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.arrays import (
    MANIFEST,
    counts_up,
    damaged,
    map_array,
    read_manifest,
    verify_array,
    write_array,
    write_folder,
    write_manifest,
)
from pygsage.data.one_graph.parts import Parts
from pygsage.data.one_graph.raw import SPLITS
from pygsage.errors import in_words
from pygsage.memory.hot import is_cold
from pygsage.memory.machine import read_machine
from pygsage.native import core

FORMAT = "pygsage-graph"
VERSION = 1
TASKS = ("classes", "multilabel", "regression")
_DTYPES = {
    "indptr": ("int64",),
    "indices": ("int32", "int64"),
    "x": ("float32", "float16"),
    "y": ("int64", "float32"),
}
_OPTIONAL = {"edge_id": ("int64",), "node_id": ("int64",)}
_ORDER, _AS_GIVEN = "edge_order", "as given"  # in the place of ids that would only count up
_PLACE = {"place": ("int32", "int64")}


@dataclass(frozen=True, eq=False)
class Graph:
    """A large graph for node classification, on the CPU, in RAM or mapped from a folder.

    Args:
        name: The dataset as the user named it.
        indptr: int64 `[N + 1]`; the in-neighbours of node v are `indices[indptr[v]:indptr[v + 1]]`.
        indices: int32, or int64 from 2**31 nodes on, `[E]`.
        edge_id: int64 `[E]`: each edge's position in the user's list; -1 for edges that an option added. None where
            that list is by destination already, so that the positions are 0 … E-1.
        x: float32 `[N, F]`, finite; or float16, if it was built on disk from such: rows are widened when gathered.
        y: int64 `[N]`, classes from 0, -1 where there is no label; for other tasks float32 `[N, C]`, NaN where a
            label is missing: 0 or 1 for `multilabel`, numbers for `regression`.
        splits: int64 node ids under those of `train`, `val`, `test` that exist.
        num_classes: The highest label plus one; 0 when the labels are no classes.
        notes: Lines worth telling the user.
        task: `classes`, `multilabel` or `regression`.
        node_id: int64 `[N]`: the user's own id of each node, if `--relabel` gave them numbers; else None.

    Of a graph that `pygsage partition` wrote, `x` has a shape and a dtype and no data (torch's `meta` device): its rows
    lie in `parts`.

    A graph that was opened from a folder is pickled as that folder's path, with its splits if those are others.
    """

    name: str
    indptr: Tensor
    indices: Tensor
    edge_id: Tensor | None
    x: Tensor
    y: Tensor
    splits: dict[str, Tensor]
    num_classes: int
    notes: tuple[str, ...] = ()
    task: str = "classes"
    node_id: Tensor | None = None
    folder: Path | None = field(default=None, init=False, repr=False)  # init=False: a changed copy has no folder
    is_split_anew: bool = field(default=False, init=False, repr=False)
    is_cold: bool = field(default=False, init=False, repr=False)  # mapped, and too large for the page cache
    parts: Parts | None = field(default=None, init=False, repr=False)  # where the features lie, if they are split

    @property
    def num_nodes(self) -> int:
        """Number of nodes, isolated ones included."""
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return self.indices.size(0)

    @property
    def num_features(self) -> int:
        """Number of features a node."""
        return self.x.size(1)

    @property
    def num_outputs(self) -> int:
        """Width of a model's output: the classes, or the columns of `y`."""
        return self.num_classes if self.task == "classes" else self.y.size(1)

    def arrays(self) -> dict[str, Tensor]:
        """Every array by the name it has in a folder: `x`, …, `split/train`, …."""
        own = {name: getattr(self, name) for name in (*_DTYPES, *_OPTIONAL) if getattr(self, name) is not None}
        return own | {f"split/{name}": ids for name, ids in self.splits.items()}

    def save(self, folder: str | Path) -> None:
        """Writes the graph to a folder that is new or empty: all of it, or nothing.

        Written beside the folder under another name, synced, renamed. Costs no copy in RAM.

        Raises:
            DatasetError: when the folder holds something already, or cannot be written.
        """
        write_folder(folder, self._write)

    def _write(self, folder: Path) -> None:
        (folder / "split").mkdir()
        arrays = self.arrays()
        if self.edge_id is not None and counts_up(self.edge_id.numpy()):
            del arrays["edge_id"]
        described = {name: write_array(folder, name, tensor.numpy()) for name, tensor in arrays.items()}
        write_manifest(folder, manifest_of(self.name, self.num_classes, self.task, self.notes, described))

    @staticmethod
    def open(folder: str | Path) -> Graph:
        """Maps the arrays of a folder that `save` wrote, copy-on-write: nothing is read until it is used.

        Raises:
            DatasetError: when the folder is missing, incomplete, truncated, or not one of ours.
        """
        folder = Path(folder).absolute()
        manifest = read_manifest(folder, {FORMAT: VERSION})
        try:
            arrays = dict(_map_arrays(folder, manifest["arrays"], "parts" in manifest))
            if manifest.get(_ORDER) not in (None, _AS_GIVEN):
                raise ValueError(
                    f"{MANIFEST} says of {_ORDER}: {manifest[_ORDER]!r}; expected {_AS_GIVEN!r}, or nothing"
                )
            if ("edge_id" in arrays) == (manifest.get(_ORDER) == _AS_GIVEN):
                told = "is there too" if "edge_id" in arrays else "is missing"
                raise ValueError(f"edge_id {told}: {MANIFEST} says of {_ORDER}: {manifest.get(_ORDER)!r}")
            splits = {name: arrays.pop(f"split/{name}") for name in SPLITS if f"split/{name}" in arrays}
            parts = Parts.of(folder, manifest, arrays.pop("place")) if "parts" in manifest else None
            if parts is not None:
                dtype = torch.from_numpy(np.empty(0, parts.dtype)).dtype
                arrays["x"] = torch.empty(len(parts.place), parts.width, dtype=dtype, device="meta")
            graph = Graph(
                name=str(manifest["name"]),
                splits=splits,
                num_classes=int(manifest["num_classes"]),
                notes=tuple(map(str, manifest["notes"])),
                task=str(manifest.get("task", "classes")),
                edge_id=arrays.pop("edge_id", None),
                **arrays,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise damaged(folder, in_words(error)) from None
        _check_lengths(folder, graph)
        object.__setattr__(graph, "folder", folder)
        object.__setattr__(graph, "parts", parts)
        object.__setattr__(graph, "is_cold", parts is None and _read_at_random(graph))
        return graph

    @staticmethod
    def verify(folder: str | Path) -> None:
        """Opens a folder, and compares every byte that is here with its checksum; reads all of it once.

        Raises:
            DatasetError: when a byte is not as it was written, or the folder cannot be opened.
        """
        folder = Path(folder).absolute()
        parts = Graph.open(folder).parts
        manifest = read_manifest(folder, {FORMAT: VERSION})
        try:
            if manifest["crc32"] != _checksum(manifest):
                raise ValueError(f"{MANIFEST} is not what was written")
            for name, told in manifest["arrays"].items():
                verify_array(folder, name, told)
            if parts is not None:
                parts.verify()
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise damaged(folder, in_words(error)) from None

    def split_anew(self, splits: dict[str, Tensor], notes: Iterable[str]) -> Graph:
        """The same graph, in its folder if it has one, with other splits than those there."""
        changed = replace(self, splits=splits, notes=tuple(notes))
        kept = {name: getattr(self, name) for name in ("folder", "is_cold", "parts")}
        for name, value in {**kept, "is_split_anew": True}.items():
            object.__setattr__(changed, name, value)
        return changed

    def __reduce__(self) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
        if self.folder is not None and self.is_split_anew:
            return _open_split_anew, (self.folder, self.splits, self.notes)
        if self.folder is not None:
            return Graph.open, (self.folder,)
        arrays = (self.indptr, self.indices, self.edge_id, self.x, self.y)
        return Graph, (self.name, *arrays, self.splits, self.num_classes, self.notes, self.task, self.node_id)


def _read_at_random(graph: Graph) -> bool:
    """Whether features are too large for the page cache; edges, where they are, are then not read around each node."""
    if core is None:
        return False
    available = read_machine().memory_available_bytes
    if available is None or not is_cold(graph.x.nbytes, available):
        return False
    if graph.indices.nbytes > available // 4:
        for array in (graph.indices, graph.indptr):
            core.at_random(array.reshape(1, -1).numpy())
    return True


def _open_split_anew(folder: Path, splits: dict[str, Tensor], notes: tuple[str, ...]) -> Graph:
    return Graph.open(folder).split_anew(splits, notes)


def manifest_of(
    name: str, num_classes: int, task: str, notes: Iterable[str], arrays: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """The manifest of a graph's folder.

    Args:
        arrays: What `write_array` told of each.
        more: Further entries, such as the fingerprint of what it was made from.
    """
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "num_classes": num_classes,
        "task": task,
        "notes": list(notes),
        "arrays": arrays,
        **({} if "edge_id" in arrays else {_ORDER: _AS_GIVEN}),
        **more,
    }
    return {**manifest, "crc32": _checksum(manifest)}


def _checksum(manifest: dict[str, Any]) -> int:
    told = {key: value for key, value in manifest.items() if key != "crc32"}
    return zlib.crc32(json.dumps(told, sort_keys=True).encode())


def _map_arrays(folder: Path, described: dict[str, Any], in_parts: bool) -> Iterator[tuple[str, Tensor]]:
    needed = {k: v for k, v in _DTYPES.items() if k != "x"} | _PLACE if in_parts else _DTYPES
    allowed = needed | _OPTIONAL | {f"split/{name}": ("int64",) for name in SPLITS}
    for name in needed:
        if name not in described:
            raise ValueError(f"{MANIFEST} names no {name}")
    for name, told in described.items():
        # The names are ours to know: a manifest must not lead to other files.
        if name not in allowed:
            raise ValueError(f"{MANIFEST} names the file {told['file']!r} for {name!r}")
        yield name, map_array(folder, name, told, allowed[name])


def _check_lengths(folder: Path, graph: Graph) -> None:
    num_nodes, num_edges = len(graph.y), len(graph.indices)
    good = (
        graph.x.dim() == 2
        and all(array.dim() == 1 for name, array in graph.arrays().items() if name not in ("x", "y"))
        and graph.task in TASKS
        and (graph.y.dtype, graph.y.dim()) == ((torch.int64, 1) if graph.task == "classes" else (torch.float32, 2))
        and len(graph.x) == num_nodes
        and len(graph.indptr) == num_nodes + 1
        and (graph.edge_id is None or len(graph.edge_id) == num_edges)
        and (graph.node_id is None or len(graph.node_id) == num_nodes)
        and int(graph.indptr[0]) == 0
        and int(graph.indptr[-1]) == num_edges
    )
    if not good:
        raise damaged(folder, "the lengths of its arrays do not agree")
