"""One graph, checked and ready: in-neighbours (CSC), features, labels, splits; and its folder of `.npy` files."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.data.raw import SPLITS
from pygsage.errors import DatasetError

_FORMAT = "pygsage-graph"
_VERSION = 1
TASKS = ("classes", "multilabel", "regression")
_MANIFEST = "manifest.json"
_DTYPES = {
    "indptr": ("int64",),
    "indices": ("int32", "int64"),
    "edge_id": ("int64",),
    "x": ("float32",),
    "y": ("int64", "float32"),
}


@dataclass(frozen=True, eq=False)
class Graph:
    """A large graph for node classification, on the CPU, in RAM or mapped from a folder.

    Args:
        name: The dataset as the user named it.
        indptr: int64 `[N + 1]`; the in-neighbours of node v are `indices[indptr[v]:indptr[v + 1]]`.
        indices: int32, or int64 from 2**31 nodes on, `[E]`.
        edge_id: int64 `[E]`: each edge's position in the user's list; -1 for edges that an option added.
        x: float32 `[N, F]`, finite.
        y: int64 `[N]`, classes from 0, -1 where there is no label; for other tasks float32 `[N, C]`, NaN where a
            label is missing: 0 or 1 for `multilabel`, numbers for `regression`.
        splits: int64 node ids under those of `train`, `val`, `test` that exist.
        num_classes: The highest label plus one; 0 when the labels are no classes.
        notes: Lines worth telling the user.
        task: `classes`, `multilabel` or `regression`.

    A graph that was opened from a folder is pickled as that folder's path.
    """

    name: str
    indptr: Tensor
    indices: Tensor
    edge_id: Tensor
    x: Tensor
    y: Tensor
    splits: dict[str, Tensor]
    num_classes: int
    notes: tuple[str, ...] = ()
    task: str = "classes"
    folder: Path | None = field(default=None, init=False, repr=False)  # init=False: a changed copy has no folder

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
        own = {name: getattr(self, name) for name in _DTYPES}
        return own | {f"split/{name}": ids for name, ids in self.splits.items()}

    def save(self, folder: str | Path) -> None:
        """Writes the graph to a folder that is new or empty: all of it, or nothing.

        Written beside the folder under another name, synced, renamed. Costs no copy in RAM.

        Raises:
            DatasetError: when the folder holds something already, or cannot be written.
        """
        folder = Path(folder)
        try:
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise DatasetError(f"{folder} exists already and is not empty; expected a new folder.")
            folder.parent.mkdir(parents=True, exist_ok=True)
            unfinished = folder.with_name(f".{folder.name}.partial-{os.getpid()}-{secrets.token_hex(4)}")
            unfinished.mkdir()
            try:
                self._write(unfinished)
                os.replace(unfinished, folder)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            _sync_folder(folder.parent)
        except OSError as error:
            raise DatasetError(f"The graph cannot be written to {folder}: {error.strerror or error}.") from None

    def _write(self, folder: Path) -> None:
        (folder / "split").mkdir()
        described: dict[str, Any] = {}
        for name, tensor in self.arrays().items():
            array = tensor.numpy()
            path = folder / f"{name}.npy"
            _write_synced(path, partial(np.save, arr=array, allow_pickle=False))
            described[name] = {
                "file": f"{name}.npy",
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "bytes": path.stat().st_size,
            }
        manifest = {
            "format": _FORMAT,
            "version": _VERSION,
            "name": self.name,
            "num_classes": self.num_classes,
            "task": self.task,
            "notes": list(self.notes),
            "arrays": described,
        }
        text = json.dumps(manifest, indent=1).encode()
        _sync_folder(folder / "split")
        _write_synced(folder / _MANIFEST, lambda file: file.write(text))
        _sync_folder(folder)

    @staticmethod
    def open(folder: str | Path) -> Graph:
        """Maps the arrays of a folder that `save` wrote, copy-on-write: nothing is read until it is used.

        Raises:
            DatasetError: when the folder is missing, incomplete, truncated, or not one of ours.
        """
        folder = Path(folder).absolute()
        manifest = _read_manifest(folder)
        try:
            arrays = dict(_map_arrays(folder, manifest["arrays"]))
            splits = {name: arrays.pop(f"split/{name}") for name in SPLITS if f"split/{name}" in arrays}
            graph = Graph(
                name=str(manifest["name"]),
                splits=splits,
                num_classes=int(manifest["num_classes"]),
                notes=tuple(map(str, manifest["notes"])),
                task=str(manifest.get("task", "classes")),
                **arrays,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise _damaged(folder, f"{type(error).__name__}: {error}") from None
        _check_lengths(folder, graph)
        object.__setattr__(graph, "folder", folder)
        return graph

    def __reduce__(self) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
        if self.folder is not None:
            return Graph.open, (self.folder,)
        arrays = (self.indptr, self.indices, self.edge_id, self.x, self.y)
        return Graph, (self.name, *arrays, self.splits, self.num_classes, self.notes, self.task)


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder; expected the folder of a graph.")
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
    except FileNotFoundError:
        raise DatasetError(f"{folder} has no {_MANIFEST}: it is no graph's folder, or was never finished.") from None
    except (OSError, ValueError) as error:
        raise _damaged(folder, f"{_MANIFEST} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise DatasetError(f"{folder / _MANIFEST} was not written by pygsage; expected the folder of a graph.")
    if manifest.get("version") != _VERSION:
        raise DatasetError(
            f"{folder} is of version {manifest.get('version')}; this pygsage reads version {_VERSION}.",
            "Make it again with this version.",
        )
    return manifest


def _map_arrays(folder: Path, described: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    allowed = _DTYPES | {f"split/{name}": ("int64",) for name in SPLITS}
    for name in [*_DTYPES, "split/train"]:
        if name not in described:
            raise ValueError(f"{_MANIFEST} names no {name}")
    for name, told in described.items():
        # The names are ours to know: a manifest must not lead to other files.
        if name not in allowed or told["file"] != f"{name}.npy":
            raise ValueError(f"{_MANIFEST} names the file {told['file']!r} for {name!r}")
        path = folder / f"{name}.npy"
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{name}.npy leads out of the folder")
        if path.stat().st_size != told["bytes"]:
            raise ValueError(f"{name}.npy has {path.stat().st_size} bytes; expected {told['bytes']}")
        # Copy-on-write: torch warns about read-only memory, and crashes when it is written to.
        array = np.load(path, mmap_mode="c", allow_pickle=False)
        found = (array.dtype.name, list(array.shape))
        if found != (told["dtype"], told["shape"]) or found[0] not in allowed[name]:
            raise ValueError(f"{name}.npy is {found[0]} {found[1]}; expected {told['dtype']} {told['shape']}")
        yield name, torch.from_numpy(array)


def _check_lengths(folder: Path, graph: Graph) -> None:
    num_nodes, num_edges = len(graph.y), len(graph.indices)
    good = (
        graph.x.dim() == 2
        and all(array.dim() == 1 for name, array in graph.arrays().items() if name not in ("x", "y"))
        and graph.task in TASKS
        and (graph.y.dtype, graph.y.dim()) == ((torch.int64, 1) if graph.task == "classes" else (torch.float32, 2))
        and len(graph.x) == num_nodes
        and len(graph.indptr) == num_nodes + 1
        and len(graph.edge_id) == num_edges
        and int(graph.indptr[0]) == 0
        and int(graph.indptr[-1]) == num_edges
    )
    if not good:
        raise _damaged(folder, "the lengths of its arrays do not agree")


def _damaged(folder: Path, reason: str) -> DatasetError:
    return DatasetError(f"The graph in {folder} is damaged: {reason}.", "Delete the folder and make it again.")


def _write_synced(path: Path, write: Callable[[Any], Any]) -> None:
    with open(path, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
