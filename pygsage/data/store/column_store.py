"""The store of many graphs: every attribute of all graphs in one mapped array, and where each graph's rows begin.

manifest.json                  what is below, with a checksum of each file; written last
x.npy, edge_index.npy, …       all graphs joined; the joined dimension comes first
nodes.slices.npy, …            int64 [graphs + 1]: where each graph's rows begin, where graphs differ in number
z.present.npy                  bool [graphs], for what some graphs lack
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pygsage.data.files.arrays import MANIFEST, damaged, map_array, read_manifest
from pygsage.data.files.ragged import Rows
from pygsage.data.files.streams import HEADER_BYTES, checksum, header
from pygsage.data.store.schema import Column, Schema, as_tensor
from pygsage.data.store.writer import FORMAT, VERSION, manifest_checksum
from pygsage.errors import DatasetError, in_words

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class ColumnStore:
    """Many graphs as joined arrays, on the CPU: mapped from a folder, or in RAM.

    Args:
        schema: What the graphs have.
        num_graphs: How many they are.
        arrays: By name: of each column, and of each of its `slices` and `present` that the schema names.

    A store that was opened from a folder is pickled as that folder's path.
    """

    def __init__(self, schema: Schema, num_graphs: int, arrays: Mapping[str, np.ndarray]) -> None:
        self.schema, self.num_graphs, self.arrays = schema, num_graphs, dict(arrays)
        self.folder: Path | None = None
        self.notes: tuple[str, ...] = ()
        self.checked: Mapping[str, Any] | None = None  # what its writer found in it: see store/checks.py
        self.batchable: dict[type | None, bool] = {}  # what can_batch found, by the class of the graphs
        self._rows: dict[int | str, Rows] = {}
        self._plans = [_Plan(column, self.rows(column.rows), self.arrays) for column in schema.columns]

    @staticmethod
    def open(folder: str | Path) -> ColumnStore:
        """Maps a folder that `GraphWriter` wrote: nothing is read until it is used; as fast for any number of graphs.

        Raises:
            DatasetError: when the folder is missing, incomplete, truncated, or not one of ours.
        """
        folder = Path(folder).absolute()
        manifest = open_manifest(folder, "columnar")
        try:
            schema = Schema.from_dict(manifest["schema"])
            num_graphs, told = int(manifest["num_graphs"]), manifest["arrays"]
            store = ColumnStore(schema, num_graphs, {name: _map(folder, name, told[name]) for name in told})
            for plan in store._plans:
                plan.check(num_graphs)
            store.notes, store.checked = tuple(map(str, manifest["notes"])), manifest.get("checked")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
            raise damaged(folder, in_words(error)) from None
        store.folder = folder
        return store

    @property
    def num_bytes(self) -> int:
        """Size of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def rows(self, rows: int | str) -> Rows:
        """Where each graph's rows begin in an array, from a column's `rows`."""
        if rows not in self._rows:
            self._rows[rows] = Rows(rows if isinstance(rows, int) else self.arrays[rows], self.num_graphs)
        return self._rows[rows]

    def get(self, idx: int, data_class: type[Data] | type[HeteroData] | None = None) -> Any:
        """One graph, copied: it can be changed without changing the store.

        Raises:
            IndexError: when there is no such graph.
        """
        if not 0 <= idx < self.num_graphs:
            raise out_of_range(idx, self.num_graphs)
        if not self.schema.hetero:
            data = (data_class or Data)()
            mapping = data._store._mapping  # new and empty: nothing that PyG's own setters keep is out of date
            for plan in self._plans:
                if plan.present is None or plan.present[idx]:
                    mapping[plan.key] = plan.read(idx)
            return data
        data = (data_class or HeteroData)()
        for plan in self._plans:
            if plan.present is None or plan.present[idx]:
                storage = data._global_store if plan.group is None else data[plan.group]
                storage._mapping[plan.key] = plan.read(idx)
        return data

    def joined(self, column: Column) -> Tensor | list[str]:
        """An attribute of all graphs joined as PyG joins it, without a copy; texts as a list."""
        array = self.arrays[column.name]
        if column.kind == "str":
            rows = self.rows(column.rows)
            return [bytes(array[slice(*rows.span(i))]).decode() for i in range(self.num_graphs)]
        tensor = as_tensor(array, column.dtype)
        return tensor.movedim(0, column.cat_dim) if column.cat_dim else tensor

    def populate(self) -> None:
        """Reads all arrays, so that the first use of each graph waits for no disk."""
        for array in self.arrays.values():
            flat = array.reshape(-1).view(np.uint8)
            flat[:: 1 << 12].max(initial=0)

    def verify(self) -> None:
        """Compares every byte with what was written. Reads all files once, in pieces.

        Raises:
            DatasetError: naming the file that differs.
        """
        assert self.folder is not None
        told = open_manifest(self.folder, "columnar")["arrays"]
        for name, entry in told.items():
            path = self.folder / f"{name}.npy"
            if checksum(path) != entry["crc32"]:
                raise damaged(self.folder, f"{path.name} is not what was written (its checksum differs)")

    def __reduce__(self) -> tuple[Callable[..., ColumnStore], tuple[Any, ...]]:
        if self.folder is not None:
            return ColumnStore.open, (self.folder,)
        return ColumnStore, (self.schema, self.num_graphs, self.arrays)


class _Plan:
    """How one attribute of one graph is read."""

    def __init__(self, column: Column, rows: Rows, arrays: Mapping[str, np.ndarray]) -> None:
        self.column, self.group, self.key = column, column.group, column.key
        self.array = arrays[column.name]
        self.present = arrays[f"{column.name}.present"] if column.optional else None
        self.rows = rows
        self.as_tensor: Callable[[np.ndarray], Tensor] = (
            partial(as_tensor, dtype=column.dtype) if column.dtype == "bfloat16" else torch.from_numpy
        )
        turn = self._turned if self.array.ndim == 2 else self._moved
        self.read: Callable[[int], Any] = {
            "tensor": self._stacked if column.cat_dim is None else self._first if column.cat_dim == 0 else turn,
            "str": self._text,
        }.get(column.kind, self._number)

    def check(self, num_graphs: int) -> None:
        """Compares lengths, without reading more than the last."""
        shape = (self.rows.total, *self.column.shape)
        if self.array.shape != shape or self.array.dtype.name != self.column.array_dtype:
            raise ValueError(f"{self.column.label} is {self.array.dtype} {self.array.shape}; expected {shape}")
        if self.present is not None and self.present.shape != (num_graphs,):
            raise ValueError(f"{self.column.name}.present has the wrong length")

    def _number(self, idx: int) -> Any:
        return self.array.item(idx)

    def _text(self, idx: int) -> str:
        start, end = self.rows.span(idx)
        return bytes(self.array[start:end]).decode()

    def _stacked(self, idx: int) -> Tensor:
        return self.as_tensor(self.array[idx : idx + 1].copy())[0]

    def _first(self, idx: int) -> Tensor:
        start, end = self.rows.span(idx)
        return self.as_tensor(self.array[start:end].copy())

    def _turned(self, idx: int) -> Tensor:
        start, end = self.rows.span(idx)
        return self.as_tensor(self.array[start:end].T.copy())

    def _moved(self, idx: int) -> Tensor:
        start, end = self.rows.span(idx)
        moved = np.moveaxis(self.array[start:end], 0, self.column.cat_dim or 0)
        return self.as_tensor(np.array(moved, order="C"))


def out_of_range(idx: int, num_graphs: int) -> IndexError:
    """The error for a graph that is not there."""
    return IndexError(f"there is no graph {idx}; expected 0 to {num_graphs - 1}")


def open_manifest(folder: Path, backend: str | None = None) -> dict[str, Any]:
    """Reads and checks the manifest of a store of many graphs.

    Raises:
        DatasetError: when there is none, or it is damaged, or of another backend than the one named.
    """
    manifest = read_manifest(folder, {FORMAT: VERSION})
    if manifest.get("checksum") != manifest_checksum(manifest):
        raise damaged(folder, f"{MANIFEST} is not what was written (its checksum differs)")
    if backend is not None and manifest.get("backend") != backend:
        raise DatasetError(f"{folder} is a store of the backend {manifest.get('backend')}; expected {backend}.")
    return manifest


def is_store(folder: str | Path) -> bool:
    """Whether a folder has a manifest of a store of many graphs, whatever its state."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return f'"{FORMAT}"'.encode() in file.read(200)


def warn_of(notes: tuple[str, ...]) -> None:
    """Says what is worth telling about a dataset that was just made."""
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=3)


def _map(folder: Path, name: str, told: Mapping[str, Any]) -> np.ndarray:
    if not _SAFE_NAME.fullmatch(name):
        raise ValueError(f"{MANIFEST} names the file {name!r}")
    with open(folder / f"{name}.npy", "rb") as file:
        if file.read(HEADER_BYTES) != header(np.dtype(told["dtype"]), tuple(told["shape"])):
            raise ValueError(f"{name}.npy does not begin as {told['dtype']} {told['shape']}, as it was written")
    array: np.ndarray = map_array(folder, name, told).numpy()
    return array
