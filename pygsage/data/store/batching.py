"""Batches straight from the columns: one gather an attribute, no object a graph; the same as PyG's collate."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from pygsage.data.store.column_store import ColumnStore
from pygsage.data.store.joining import JoinedGraphs, holds_ids, lacks
from pygsage.data.store.schema import Column


def can_batch(store: ColumnStore, data_class: type | None = None) -> bool:
    """Whether `make_batch` covers all attributes; PyG's own rules for the others are left to PyG."""
    if data_class not in store.batchable:
        store.batchable[data_class] = _can_batch(store, data_class)
    return store.batchable[data_class]


def _can_batch(store: ColumnStore, data_class: type | None) -> bool:
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
        if holds_ids(column) and column.group is None and column.dtype == "bool":
            return False
    return True


def make_batch(store: ColumnStore, ids: Sequence[int] | np.ndarray, data_class: type | None = None) -> Any:
    """The batch that `Batch.from_data_list` makes of these graphs, in this order; a graph may be named twice.

    Raises:
        IndexError: when there is no such graph.
        DatasetError: when a graph lacks what others have, and it is no node or edge type as a whole.
    """
    joined = JoinedGraphs(store, ids)
    batch = _empty_batch(data_class or (HeteroData if store.schema.hetero else Data))
    batch._num_graphs = len(joined)
    batch._slice_dict, batch._inc_dict = {}, {}
    for count in store.schema.counts:
        if count.group is not None:  # PyG looks for it, also where nothing but num_nodes is known
            batch._slice_dict[count.group], batch._inc_dict[count.group] = {}, {}
    no_shift = torch.zeros(len(joined), dtype=torch.int64)
    for column in store.schema.columns:
        _add(joined, column, batch, no_shift)
    for count in store.schema.counts:
        if count.batched:
            storage = batch.stores[0] if count.group is None else batch[count.group]
            storage.batch = torch.from_numpy(np.repeat(np.arange(len(joined)), joined.num_nodes(count.group)))
            storage.ptr = torch.from_numpy(joined.node_pointer(count.group).copy())
    return batch


def join_graphs(graphs: list[Any], numbers: Sequence[int] | np.ndarray) -> Any:
    """`Batch.from_data_list`, which by itself keeps of all graphs only what the first one has.

    Node and edge types that some of the graphs lack are empty there, as in `make_batch`.

    Args:
        numbers: What the graphs are called in errors.

    Raises:
        DatasetError: when a graph lacks an attribute that others have.
    """
    held = [{store._key: set(store.keys()) for store in graph.stores} for graph in graphs]
    if any(each != held[0] for each in held):
        stores = {(store._key, key): store for graph in graphs for store in graph.stores for key in store}
        graphs = [_completed(*each, stores) for each in zip(graphs, held, numbers, strict=True)]
    return Batch.from_data_list(graphs)


def _completed(graph: Any, held: dict[Any, set[str]], number: int, stores: dict[tuple[Any, str], Any]) -> Any:
    completed = copy.copy(graph)
    for (group, key), example in stores.items():
        if key in held.get(group, ()):
            continue
        value = example[key]
        dim = graph.__cat_dim__(key, value, example) if isinstance(value, Tensor) and value.dim() else None
        if group is None or held.get(group) or not (key == "num_nodes" or isinstance(dim, int)):
            raise lacks(number, key if group is None else f"{group!r}.{key}")
        completed[group][key] = 0 if key == "num_nodes" else value.narrow(dim, 0, 0)
    return completed


def _add(joined: JoinedGraphs, column: Column, batch: Any, no_shift: Tensor) -> None:
    """Joins one attribute, with what PyG needs to take it apart again."""
    ids = joined.ids_with(column)
    if ids is None:
        return
    storage = batch.stores[0] if column.group is None else batch[column.group]
    if column.key == "num_nodes":
        storage._num_nodes = joined.num_nodes(column.group).tolist()
        storage.num_nodes = sum(storage._num_nodes)
        return
    storage._mapping[column.key] = joined.values(column, ids)
    slices, increments = batch._slice_dict, batch._inc_dict
    if column.group is not None:
        slices, increments = slices.setdefault(column.group, {}), increments.setdefault(column.group, {})
    if column.cat_dim is None or column.kind == "str":
        slices[column.key] = torch.arange(len(ids) + 1)
    else:
        slices[column.key] = torch.from_numpy(joined.pointer_of(column))
    if column.kind == "str":
        increments[column.key] = None
    elif not holds_ids(column):
        increments[column.key] = no_shift[: len(ids)]
    else:
        shifts = [torch.from_numpy(shift) for shift in joined.shifts(column, 1)]
        increments[column.key] = shifts[0] if len(shifts) == 1 else torch.stack(shifts, dim=1)[:, :, None]


def _empty_batch(base: type) -> Any:
    """`Batch(_base_cls=base)`, which builds a class each time that it is called."""
    kind = _batch_class(base)
    batch = kind.__new__(kind)
    batch.__init__()
    return batch


@cache
def _batch_class(base: type) -> Any:
    return type(Batch(_base_cls=base))
