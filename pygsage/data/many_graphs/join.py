"""Many graphs with labels of nodes, joined into one graph: trained on some of them, tested on others."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.arrays import ArrayWriter, map_array
from pygsage.data.many_graphs.door import split_of_words
from pygsage.data.many_graphs.reader import GraphReader
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.take import SPLIT_KEYS
from pygsage.data.store.checks import check_edges
from pygsage.data.store.column_store import ColumnStore
from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.schema import Column
from pygsage.errors import DatasetError

_EDGES_AT_ONCE = 1 << 20


def columns_of(reader: GraphReader, scratch: Path) -> ColumnStore:
    """The columns of a store: its own, or those that a database's rows are written to, read once, in `scratch`."""
    if reader.store is not None:
        return reader.store
    rows = (reader.database.get(number) for number in range(reader.num_graphs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they were told when the database was made
        to_on_disk_dataset(rows, scratch / "columns", missing="keep")
    return ColumnStore.open(scratch / "columns")


def join_graphs(store: ColumnStore, raw: RawGraph, scratch: Path | None) -> RawGraph:
    """One graph of all graphs of a store, whose ids count through them; no edge leads from one to another.

    Features and labels are the store's own arrays, mapped. A graph that says `split = "train"`, `"val"` or `"test"`
    has all its nodes in that split; else masks of nodes are taken.

    Args:
        raw: The dataset's name, origin and notes; the rest is filled in.
        scratch: A folder for the edges, whose ids are shifted; None to hold them in RAM, at 16 bytes an edge.

    Raises:
        DatasetError: when an edge leads out of its graph, or some graphs lack what others have.

    Costs RAM of a few million values and 16 bytes a graph, beside the edges.
    """
    schema = store.schema
    nodes = store.rows(schema.counts[0].rows).begins()
    raw.x = _by_node(store, "x", raw) if schema.column("x") is not None else None
    raw.y = _by_node(store, "y", raw)
    edges = schema.column("edge_index")
    raw.edge_index = torch.empty(2, 0, dtype=torch.int64)
    if edges is not None:
        raw.edge_index = _edges(store, _whole(edges, raw), nodes, raw, scratch)
    if store.num_graphs > 1:
        raw.notes.append(f"{store.num_graphs} graphs with labels of nodes are joined into one.")
    raw.splits = _splits(store, nodes, raw)
    used = {"x", "edge_index", "y", "num_nodes", "split", *raw.splits}
    unused = [column.key for column in schema.columns if column.key not in used]
    if unused:
        raw.notes.append(f"Not used: {', '.join(unused)}.")
    return raw


def _edges(store: ColumnStore, column: Column, nodes: np.ndarray, raw: RawGraph, scratch: Path | None) -> Tensor:
    """All edges, int64 `[2, E]`, piece by piece: in RAM, or mapped from a file."""
    local, begins = store.arrays[column.name], store.rows(column.rows).begins()
    check_edges(torch.from_numpy(local), nodes, begins, 0, raw.origin)
    if scratch is None:
        whole = torch.empty(2, len(local), dtype=torch.int64)
        for start, piece in _shifted(local, nodes, begins):
            whole[:, start : start + len(piece)] = torch.from_numpy(piece).T
        return whole
    with ArrayWriter(scratch, "edge_index", np.dtype(np.int64), (2,)) as writer:
        for _, piece in _shifted(local, nodes, begins):
            writer.write(piece)
        told = writer.finish()
    return map_array(scratch, "edge_index", told).T


def _shifted(local: np.ndarray, nodes: np.ndarray, begins: np.ndarray) -> Any:
    for start in range(0, len(local), _EDGES_AT_ONCE):
        piece = local[start : start + _EDGES_AT_ONCE].astype(np.int64)
        graph = np.searchsorted(begins, np.arange(start, start + len(piece)), side="right") - 1
        yield start, piece + nodes[graph][:, None]


def _splits(store: ColumnStore, nodes: np.ndarray, raw: RawGraph) -> dict[str, Any]:
    word = store.schema.column("split")
    if word is not None and word.kind == "str":
        words = store.joined(word)
        by_graph = split_of_words(list(map(str, words)))
        return {
            key: torch.cat([torch.arange(nodes[graph], nodes[graph + 1]) for graph in ids.tolist()])
            for key, ids in by_graph.items()
        }
    keys = [key for key in SPLIT_KEYS if key.endswith("_mask")]
    return {key: _by_node(store, key, raw) for key in keys if store.schema.column(key) is not None}


def _by_node(store: ColumnStore, key: str, raw: RawGraph) -> Tensor:
    """An attribute of the nodes of all graphs."""
    column = store.schema.column(key)
    assert column is not None
    value = store.joined(_whole(column, raw))
    if not isinstance(value, Tensor):
        raise DatasetError(f"{raw.origin}: {key} is text; expected numbers.")
    return value


def _whole(column: Column, raw: RawGraph) -> Column:
    if column.optional:
        raise DatasetError(f"{raw.origin}: some graphs have no {column.key}, which others have; expected it in each.")
    return column
