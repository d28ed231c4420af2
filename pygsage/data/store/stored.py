"""What datasets of many graphs have in common, in memory and on disk: how they are made, and how they are read."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data.dataset import Dataset, files_exist

from pygsage.data.files.fingerprint import (
    check_options,
    describe_callable,
    describe_raw,
    describe_settings,
    read_options,
    write_options,
)
from pygsage.data.store.batching import can_batch, join_graphs, make_batch
from pygsage.data.store.column_store import ColumnStore, is_store, warn_of
from pygsage.data.store.intake import Missing
from pygsage.data.store.writer import GraphWriter
from pygsage.errors import DatasetError

# What PyG and our classes keep in a dataset before it is made; the rest is of a subclass's own constructor.
_NO_SETTINGS = {
    *("root", "transform", "pre_transform", "pre_filter", "log", "force_reload", "missing", "data_class", "backend"),
    *("_indices", "_data_list", "_store", "_db", "_writer", "_num_appended"),
}


class StoredGraphs(Dataset):
    """Base of `InMemoryGraphs` and `OnDiskGraphs`."""

    backend = "columnar"
    missing: Missing = "refuse"
    data_class: type | None = None

    # Making it

    def graphs(self) -> Iterator[Any]:
        """Yields the graphs as PyG `Data` or `HeteroData`, one after the other: what a subclass writes."""
        raise NotImplementedError(f"{type(self).__name__} has no method graphs(self); expected one that yields Data")

    @property
    def has_process(self) -> bool:
        """Whether the class makes its graphs, by `graphs` or `process`; else a store is opened."""
        kind = type(self)
        return kind.graphs is not StoredGraphs.graphs or kind.process is not StoredGraphs.process

    @property
    def processed_file_names(self) -> str:
        """The folder of the store in `processed_dir`."""
        return f"graphs-{self.backend}"

    @property
    def store_path(self) -> Path:
        """The folder of the store."""
        return Path(self.processed_paths[0]) if self.has_process else Path(self.root)

    def process(self) -> None:
        """Writes what `graphs` yields, one graph at a time, filtered and transformed.

        Raises:
            DatasetError: when a graph does not go with those before, or none is left.
        """
        with self._open_writer() as writer:
            if not writer.is_whole:
                self._stream(writer)
            writer.finish()
        warn_of(tuple(writer.intake.notes))

    def _open_writer(self) -> GraphWriter:
        return GraphWriter(
            self.processed_paths[0],
            self.backend,
            self._options(),
            missing=self.missing,
            overwrite=True,
            unfinished="restart" if self.force_reload else "auto",
        )

    def _run_process(self) -> None:
        self.process()

    def _stream(self, writer: GraphWriter) -> None:
        for number, data in enumerate(self.graphs()):
            if number < writer.num_done:
                continue
            if self.pre_filter is not None and not self.pre_filter(data):
                writer.pass_over()
                continue
            writer.add(data if self.pre_transform is None else self.pre_transform(data))

    def _options(self) -> dict[str, Any]:
        paths: list[str] = []
        with suppress(NotImplementedError):
            paths = self.raw_paths
        before = (read_options(self.processed_dir) or {}).get("raw")
        return {
            "pre_transform": describe_callable(self.pre_transform),
            "pre_filter": describe_callable(self.pre_filter),
            "raw": describe_raw(paths, before),
            **describe_settings(vars(self), self.root, but=_NO_SETTINGS),
        }

    def _process(self) -> None:
        """PyG's, without its pickled files, with an error in place of its warning about other options, and once.

        Of several processes that need it at a time, the ranks of a run say, one makes it, and the others wait.
        """
        if not self.force_reload and files_exist(self.processed_paths):
            check_options(self.processed_dir, read_options(self.processed_dir), self._options())
            return
        os.makedirs(self.processed_dir, exist_ok=True)
        with open(Path(self.processed_dir) / ".lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            options = self._options()
            if not self.force_reload and files_exist(self.processed_paths):  # another process was first
                check_options(self.processed_dir, read_options(self.processed_dir), options)
                return
            if self.log and "PYTEST_CURRENT_TEST" not in os.environ:
                print("Processing...", file=sys.stderr)
            write_options(self.processed_dir, options)
            self._run_process()
            if self.log and "PYTEST_CURRENT_TEST" not in os.environ:
                print("Done!", file=sys.stderr)

    def _check_store(self) -> None:
        if not self.has_process and not is_store(self.root):
            raise DatasetError(
                f"{self.root} holds no store of graphs; expected a folder that to_on_disk_dataset or pygsage convert "
                "wrote, or a class with a method graphs(self)."
            )

    # Reading it

    @property
    def _columns(self) -> ColumnStore | None:
        """The store, where it is columnar."""
        raise NotImplementedError

    def __getitems__(self, positions: Sequence[int]) -> list[Any]:
        """The graphs at some positions of this dataset, transformed: what a loader asks for."""
        return [self[position] for position in positions]

    def batch(self, positions: Sequence[int] | Tensor | np.ndarray | slice) -> Any:
        """One `Batch` of the graphs at some positions, as `Batch.from_data_list` makes it of `self[i]`.

        Node and edge types that some of them lack are empty there; PyG's own keeps only those of the first graph.

        Without a transform it is made straight from the columns, with no object a graph: some ten times as fast.

        Raises:
            IndexError: when there is no such graph.
            DatasetError: when some of them have an attribute that others lack.
        """
        if isinstance(positions, slice):
            positions = range(*positions.indices(len(self)))
        store = self._columns
        if self.transform is not None or store is None or not can_batch(store, self.data_class):
            positions = positions.tolist() if isinstance(positions, (Tensor, np.ndarray)) else positions
            return join_graphs(self.__getitems__(positions), self.ids_at(positions))
        return make_batch(store, self.ids_at(positions), self.data_class)

    def ids_at(self, positions: Sequence[int] | Tensor | np.ndarray) -> np.ndarray:
        """The numbers in the store of the graphs at some positions of this dataset or subset: int64.

        Raises:
            IndexError: when there is no such position.
        """
        wanted: np.ndarray = np.asarray(positions, dtype=np.int64)
        num = len(self)
        if len(wanted) and not -num <= wanted.min() <= wanted.max() < num:
            worst = int(wanted.max() if wanted.max() >= num else wanted.min())
            raise IndexError(f"there is no position {worst}; expected 0 to {num - 1}")
        wanted = np.where(wanted < 0, wanted + num, wanted)
        return wanted if self._indices is None else np.asarray(self.indices(), dtype=np.int64)[wanted]

    def loader(self, batch_size: int = 1, shuffle: bool = False, **options: Any) -> DataLoader[Any]:
        """A loader of batches that `batch` makes; `options` go to `torch.utils.data.DataLoader`.

        Workers get the path of the store, never its arrays.
        """
        return DataLoader(_Positions(len(self)), batch_size, shuffle, collate_fn=self.batch, **options)

    def to_on_disk_dataset(self, root: str | Path, backend: str = "columnar", **options: Any) -> Any:
        """Writes these graphs, those of a subset for a subset, to a new store: see `pygsage.to_on_disk_dataset`."""
        from pygsage.data.store.convert import to_on_disk_dataset  # it imports this module

        return to_on_disk_dataset(self, root, backend, **options)

    @property
    def num_classes(self) -> int:
        """The number of classes, as PyG counts them; without a transform no graph is made for it."""
        store = self._columns
        column = None if store is None or self.transform is not None else store.schema.column("y")
        if store is None or column is None or column.kind == "str" or self._indices is not None:
            count: int = super().num_classes
            return count
        return int(self._infer_num_classes(store.joined(column)))

    def _resolved(self, idx: Any) -> list[int]:
        selected = self if idx is None else self.index_select(idx)
        return list(selected.indices())


class _Positions(torch.utils.data.Dataset[int]):
    """The numbers from 0 on: a loader over them hands the numbers of a batch to its `collate_fn`."""

    def __init__(self, num: int) -> None:
        self._num = num

    def __len__(self) -> int:
        return self._num

    def __getitem__(self, position: int) -> int:
        return position

    def __getitems__(self, positions: list[int]) -> list[int]:
        return positions


Transform = Callable[[Any], Any]
Filter = Callable[[Any], bool]
