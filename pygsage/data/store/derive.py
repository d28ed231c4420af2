"""Stores made of other stores in RAM: some of the graphs, or another value of an attribute; and PyG's own form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pygsage.data.files.ragged import gather, pointers
from pygsage.data.store.column_store import ColumnStore
from pygsage.data.store.schema import DTYPES, Column, Group, Role, Schema, label
from pygsage.errors import DatasetError


def select(store: ColumnStore, ids: Sequence[int]) -> ColumnStore:
    """Some graphs of a store, in this order, copied into RAM."""
    chosen = np.asarray(ids, dtype=np.int64)
    arrays: dict[str, np.ndarray] = {}
    for column in store.schema.columns:
        begins, lengths = store.rows(column.rows).spans(chosen)
        arrays[column.name] = gather(store.arrays[column.name], begins, lengths)
        if column.optional:
            arrays[f"{column.name}.present"] = store.arrays[f"{column.name}.present"][chosen]
    for rows in [c.rows for c in store.schema.columns] + [c.rows for c in store.schema.counts]:
        if isinstance(rows, str):
            arrays[rows] = pointers(store.rows(rows).spans(chosen)[1])
    return ColumnStore(store.schema, len(chosen), arrays)


def with_column(store: ColumnStore, key: str, values: Tensor, group: Group = None) -> ColumnStore:
    """A store in which an attribute has other values, or is new; it shares the other arrays.

    Raises:
        DatasetError: when the values are no tensor with a row a node, an edge or a graph.
    """
    shown, old = label(group, key), store.schema.column(key, group)
    if not isinstance(values, Tensor) or values.dtype not in DTYPES or values.dim() == 0:
        raise DatasetError(f"The values of {shown} are a {type(values).__name__}; expected a tensor of rows.")
    cat_dim = (old.cat_dim if old is not None else None) or 0
    values = values.detach().cpu().movedim(cat_dim, 0).contiguous()
    role, rows = _rows_for(store, shown, group, old, len(values))
    dtype = DTYPES[values.dtype]
    name = old.name if old is not None else f"{len(store.arrays)}-{key}"
    column = Column(group, key, "tensor", dtype, tuple(values.shape[1:]), cat_dim, role, rows, False, name)
    if old is not None:
        column = replace(column, optional=old.optional)
        columns = tuple(column if c is old else c for c in store.schema.columns)
    else:
        columns = (*store.schema.columns, column)
    array = values.view(torch.int16).numpy().view(np.uint16) if dtype == "bfloat16" else values.numpy()
    schema = Schema(store.schema.hetero, columns, store.schema.counts)
    return ColumnStore(schema, store.num_graphs, {**store.arrays, name: array})


def _rows_for(
    store: ColumnStore, shown: str, group: Group, old: Column | None, num_rows: int
) -> tuple[Role, int | str]:
    choices: list[tuple[str, Role, int | str]] = []
    if old is not None:
        choices.append(("rows as now", old.role, old.rows))
    edges = store.schema.column("edge_index", group)
    choices += [("nodes", "node", count.rows) for count in store.schema.counts if count.group == group]
    choices += [("edges", "edge", edges.rows)] if edges is not None else []
    choices.append(("graphs", "graph", 1))
    for _, role, rows in choices:
        if store.rows(rows).total == num_rows:
            return role, rows
    wanted = ", ".join(f"{store.rows(rows).total} ({what})" for what, _, rows in choices)
    raise DatasetError(f"The values of {shown} have {num_rows} rows; expected {wanted}.")


def collated(store: ColumnStore, data_class: type | None = None) -> tuple[Any, dict[Any, Any]]:
    """All graphs as PyG's `InMemoryDataset` keeps them: one joined object, on the memory of the store, and slices."""
    data = (data_class or (HeteroData if store.schema.hetero else Data))()
    slices: dict[Any, Any] = {count.group: {} for count in store.schema.counts if count.group is not None}
    counts = {count.group: count.rows for count in store.schema.counts}
    for column in store.schema.columns:
        storage = data.stores[0] if column.group is None else data[column.group]
        if column.key == "num_nodes":
            storage._num_nodes = np.diff(store.rows(counts[column.group]).begins()).tolist()
            storage.num_nodes = sum(storage._num_nodes)
            continue
        storage[column.key] = store.joined(column)
        own = slices if column.group is None else slices.setdefault(column.group, {})
        begins = np.arange(store.num_graphs + 1) if column.kind == "str" else store.rows(column.rows).begins()
        own[column.key] = torch.from_numpy(np.array(begins))
    return data, slices
