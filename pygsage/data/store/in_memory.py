"""Datasets of many graphs that are read into memory."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.data.dataset import Dataset

from pygsage.data.store.column_store import ColumnStore
from pygsage.data.store.derive import collated, select, with_column
from pygsage.data.store.intake import Missing
from pygsage.data.store.stored import Filter, StoredGraphs, Transform
from pygsage.data.store.writer import GraphWriter
from pygsage.errors import DatasetError

_READ_ONLY = "The arrays of an InMemoryGraphs are read only."
_WITH_ATTR = "Use dataset.with_attr('y', values), which gives a changed copy."


class InMemoryGraphs(StoredGraphs, InMemoryDataset):
    """PyG's `InMemoryDataset` over a columnar store whose arrays are mapped and read into memory once.

    Given the path of a store, it opens that. A subclass has a generator `graphs()`, whose store is made in
    `processed_dir` when it is not there, the same that `OnDiskGraphs` makes; or, as in PyG, a `process()` that calls
    `save(graphs, self.processed_paths[0])` and a constructor that calls `load`, which here write and read a store.
    Plain values come back as they were, a number as a number.

    All processes of a machine share the memory. It is pickled as a path. No item is kept once it was handed out, and
    changing one changes neither the dataset nor the next.

    Args:
        root: The folder of a store, or PyG's `root` of a subclass.
        transform: Applied to each graph that is read.
        pre_transform, pre_filter: Applied once, the filter first, to what `graphs()` yields.
        log: Print a line when processing begins and ends.
        force_reload: Process again.
        missing: What to do when some graphs lack an attribute: `refuse`, or `keep` it missing there.
        data_class: The class of the graphs that come out, if not `Data` or `HeteroData`.

    Raises:
        DatasetError: when there is no store, or it is damaged, or was made with other options.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        transform: Transform | None = None,
        pre_transform: Transform | None = None,
        pre_filter: Filter | None = None,
        log: bool = True,
        force_reload: bool = False,
        *,
        missing: Missing = "refuse",
        data_class: type | None = None,
    ) -> None:
        self.missing, self.data_class = missing, data_class
        self._store: ColumnStore | None = None
        self._data_list = None
        Dataset.__init__(
            self, None if root is None else str(root), transform, pre_transform, pre_filter, log, force_reload
        )
        self._check_store()
        self.load(str(self.store_path))

    @classmethod
    def save(cls, data_list: Iterable[Any], path: str) -> None:
        """Writes graphs to a store, one at a time; `data_list` may be a generator.

        Raises:
            DatasetError: when a graph does not go with those before, or there is none.
        """
        with GraphWriter(path, missing=cls.missing, overwrite=True, unfinished="restart") as writer:
            for data in data_list:
                writer.add(data)
            writer.finish()

    def load(self, path: str, data_cls: type | None = None) -> None:
        """Opens a store that `save` or a converter wrote, and reads it into memory.

        Raises:
            DatasetError: when it is none, or is damaged.
        """
        self._store = ColumnStore.open(path)
        self._store.populate()
        if data_cls is not None and data_cls not in (Data, HeteroData):
            self.data_class = data_cls

    @property
    def store(self) -> ColumnStore:
        """The arrays."""
        if self._store is None:
            raise DatasetError(f"{type(self).__name__} holds no graphs yet; expected load(path) before it is read.")
        return self._store

    @property
    def _columns(self) -> ColumnStore | None:
        return self.store

    def len(self) -> int:
        """How many graphs there are in the store."""
        return self.store.num_graphs

    def get(self, idx: int) -> Any:
        """The graph of that number in the store, copied, not transformed.

        Raises:
            IndexError: when there is none.
        """
        return self.store.get(idx, self.data_class)

    def copy(self, idx: Any = None) -> InMemoryGraphs:
        """A dataset of these graphs alone, in memory of its own."""
        dataset = copy.copy(self)
        dataset._store = select(self.store, self._resolved(idx))
        dataset._indices = None
        return dataset

    def with_attr(self, key: str, values: Tensor, group: Any = None) -> InMemoryGraphs:
        """A copy in which an attribute has other values, or is new; the other attributes share their memory.

        Args:
            values: For all graphs of the store, joined as `dataset.x` is: a row a node, a row an edge or a row a graph.
            group: The node or edge type, in heterogeneous graphs.

        Raises:
            DatasetError: when the number of rows is none of these.
        """
        dataset = copy.copy(self)
        dataset._store = with_column(self.store, key, values, group)
        return dataset

    @property
    def data(self) -> Any:
        """A copy of all attributes of all graphs joined, with PyG's warning."""
        warnings.warn(f"This is a copy: a change to it does not reach the dataset. {_WITH_ATTR}", stacklevel=2)
        return copy.deepcopy(self._data)

    @data.setter
    def data(self, value: Any) -> None:
        raise DatasetError(_READ_ONLY, f"{_WITH_ATTR} In process(), use save(graphs, path), and load(path) after it.")

    @property
    def _data(self) -> Any:
        return None if self._store is None else collated(self._store, self.data_class)[0]

    @property
    def slices(self) -> dict[Any, Any] | None:
        """Where each graph begins in each joined attribute, as PyG keeps it."""
        return None if self._store is None else collated(self._store, self.data_class)[1]

    def __getattr__(self, key: str) -> Any:
        store = self.__dict__.get("_store")
        if store is not None and not key.startswith("__") and store.schema.column(key) is not None:
            column = store.schema.column(key)
            if self._indices is None and "index" not in key and key not in ("face", "num_nodes"):
                return store.joined(column)
            return make_joined(self, key)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{key}'")

    def to(self, device: int | str) -> InMemoryGraphs:
        """Itself for the CPU; other devices are refused: the arrays are shared between processes.

        Raises:
            DatasetError: for a device that is not the CPU.
        """
        if torch.device(device).type != "cpu":
            raise DatasetError(f"{_READ_ONLY} They stay on the CPU.", "Move each batch: batch.to(device).")
        return self

    def cuda(self, device: int | str | None = None) -> InMemoryGraphs:
        """Refused, as `to`.

        Raises:
            DatasetError: always.
        """
        return self.to("cuda")


def make_joined(dataset: InMemoryGraphs, key: str) -> Any:
    """An attribute of a subset, or one that holds node ids, joined as a batch of all graphs has it."""
    plain = copy.copy(dataset)
    plain.transform = None
    return plain.batch(range(len(plain)))[key]
