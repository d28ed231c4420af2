"""Batches straight from the columns: one gather an attribute, no object a graph; the same as PyG's collate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from pygsage.data.ragged import gather, pointers
from pygsage.data.schema import Column, Group
from pygsage.data.store import ColumnStore, as_tensor, out_of_range
from pygsage.errors import DatasetError


def can_batch(store: ColumnStore, data_class: type | None = None) -> bool:
    """Whether `make_batch` covers all attributes; PyG's own rules for the others are left to PyG."""
    if data_class is not None and (
        data_class.__inc__ not in (Data.__inc__, HeteroData.__inc__)  # type: ignore[attr-defined]
        or data_class.__cat_dim__ not in (Data.__cat_dim__, HeteroData.__cat_dim__)  # type: ignore[attr-defined]
    ):
        return False
    groups = {count.group for count in store.schema.counts}
    for column in store.schema.columns:
        if column.key == "ptr" or "batch" in column.key:
            return False
        if isinstance(column.group, tuple) and "index" in column.key:
            ends = {column.group[0], column.group[2]}
            if column.shape != (2,) or not ends <= groups or column.dtype != "int64":
                return False
        if _shifts(column) and column.group is None and column.dtype == "bool":
            return False
    return True


def make_batch(store: ColumnStore, ids: Sequence[int] | np.ndarray, data_class: type | None = None) -> Any:
    """The batch that `Batch.from_data_list` makes of these graphs, in this order; a graph may be named twice.

    Raises:
        IndexError: when there is no such graph.
        DatasetError: when a graph lacks what others have, and it is no node or edge type as a whole.
    """
    ids = np.asarray(ids, dtype=np.int64)
    if len(ids) == 0:
        raise DatasetError("A batch of no graphs was asked for; expected at least one.")
    for worst in (int(ids.min()), int(ids.max())):
        if not 0 <= worst < store.num_graphs:
            raise out_of_range(worst, store.num_graphs)
    hetero = store.schema.hetero
    batch = _empty_batch(data_class or (HeteroData if hetero else Data))
    batch._num_graphs = len(ids)
    batch._slice_dict, batch._inc_dict = {}, {}
    for count in store.schema.counts:
        if count.group is not None:  # PyG looks for it, also where nothing but num_nodes is known
            batch._slice_dict[count.group], batch._inc_dict[count.group] = {}, {}
    maker = _Maker(store, ids)
    for number, column in enumerate(store.schema.columns):
        maker.add(number, column, batch)
    for count in store.schema.counts:
        if count.batched:
            storage = batch.stores[0] if count.group is None else batch[count.group]
            storage.batch = torch.from_numpy(np.repeat(maker.graph_numbers, maker.num_nodes(count.group)))
            storage.ptr = torch.from_numpy(maker.node_pointers(count.group).copy())
    return batch


def _empty_batch(base: type) -> Any:
    """`Batch(_base_cls=base)`, which builds a class each time that it is called."""
    kind = _batch_class(base)
    batch = kind.__new__(kind)
    batch.__init__()
    return batch


@cache
def _batch_class(base: type) -> Any:
    return type(Batch(_base_cls=base))


class _Maker:
    def __init__(self, store: ColumnStore, ids: np.ndarray) -> None:
        self.store, self.ids = store, ids
        self.graph_numbers = np.arange(len(ids))
        self._spans: dict[int | str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._counts = {count.group: count.rows for count in store.schema.counts}

    def num_nodes(self, group: Group) -> np.ndarray:
        return self._spanned(self._counts[group])[1]

    def node_pointers(self, group: Group) -> np.ndarray:
        return self._spanned(self._counts[group])[2]

    def add(self, number: int, column: Column, batch: Any) -> None:
        """Joins one attribute, with what PyG needs to take it apart again."""
        ids = self.ids
        if column.optional:
            present = self.store.arrays[f"{column.name}.present"][ids]
            if not present.any():
                return
            if not present.all():
                if column.group is None or not self._group_is_absent(column.group, ids[~present]):
                    lacking = int(ids[~present][0])
                    raise DatasetError(
                        f"Graph {lacking} has no {column.label}, which others of its batch have; expected all or none.",
                        f"Put such graphs in batches of their own, or set {column.label} in every graph.",
                    )
                if column.cat_dim is None and column.key != "num_nodes":
                    ids = ids[present]
        storage = batch.stores[0] if column.group is None else batch[column.group]
        if column.key == "num_nodes":
            storage._num_nodes = self.num_nodes(column.group).tolist()
            storage.num_nodes = sum(storage._num_nodes)
            return
        value, pointer = self._join(column, ids)
        incs = self._shift(column, value, pointer)
        if column.kind == "float":
            value = value.to(torch.get_default_dtype())
        storage[column.key] = value
        slices, increments = batch._slice_dict, batch._inc_dict
        if column.group is not None:
            slices, increments = slices.setdefault(column.group, {}), increments.setdefault(column.group, {})
        slices[column.key] = torch.from_numpy(pointer)
        increments[column.key] = incs

    def _join(self, column: Column, ids: np.ndarray) -> tuple[Any, np.ndarray]:
        array = self.store.arrays[column.name]
        if column.cat_dim is None:
            return as_tensor(array[ids], column.dtype), np.arange(len(ids) + 1)
        begins, lengths, pointer = self._spanned(column.rows)
        if column.kind == "str":
            ends = begins + lengths
            texts = [bytes(array[b:e]).decode() for b, e in zip(begins.tolist(), ends.tolist(), strict=True)]
            return texts, np.arange(len(ids) + 1)
        constant = self.store.rows(column.rows).constant
        if constant:  # each graph is one row of a table
            table = array.reshape(self.store.num_graphs, -1)
            joined = table.take(ids, axis=0).reshape(-1, *array.shape[1:])
        else:
            joined = gather(array, begins, lengths)
        if column.cat_dim:
            joined = np.ascontiguousarray(np.moveaxis(joined, 0, column.cat_dim))
        return as_tensor(joined, column.dtype), pointer.copy()

    def _shift(self, column: Column, value: Any, pointer: np.ndarray) -> Tensor | None:
        """Adds to node ids the number of nodes before, in place, and returns what was added, as PyG keeps it."""
        if column.kind == "str":
            return None
        if not _shifts(column):
            return torch.zeros(len(pointer) - 1, dtype=torch.int64)
        lengths = np.diff(pointer)
        if not isinstance(column.group, tuple):
            begins = self.node_pointers(None)[:-1]
            shift = torch.from_numpy(np.repeat(begins, lengths))
            value += (
                shift
                if column.cat_dim is None
                else shift.view([-1 if d == column.cat_dim else 1 for d in range(value.dim())])
            )
            return torch.from_numpy(begins.copy())
        source, _, target = column.group
        ends = [self.node_pointers(source)[:-1], self.node_pointers(target)[:-1]]
        for row, begins in enumerate(ends):
            value[row] += torch.from_numpy(np.repeat(begins, lengths))
        return torch.from_numpy(np.stack(ends, axis=1)[:, :, None])

    def _spanned(self, rows: int | str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if rows not in self._spans:
            begins, lengths = self.store.rows(rows).spans(self.ids)
            self._spans[rows] = begins, lengths, pointers(lengths)
        return self._spans[rows]

    def _group_is_absent(self, group: Group, ids: np.ndarray) -> bool:
        columns = [c for c in self.store.schema.columns if c.group == group]
        return not any(c.optional is False or self.store.arrays[f"{c.name}.present"][ids].any() for c in columns)


def _shifts(column: Column) -> bool:
    """Whether PyG adds the number of nodes before to the values of this attribute."""
    if isinstance(column.group, tuple):
        return "index" in column.key
    return column.group is None and ("index" in column.key or column.key == "face")
