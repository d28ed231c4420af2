"""Graphs of a store joined, as training needs them: features, edges, and where each graph begins; from any backend."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.ragged import pointers
from pygsage.data.store.checks import Checked, Checks, check_columns
from pygsage.data.store.column_store import ColumnStore
from pygsage.data.store.database import ColumnarDatabase, GraphDatabase, open_database
from pygsage.data.store.joining import JoinedGraphs
from pygsage.data.store.schema import Column, Schema
from pygsage.errors import DatasetError

_VALUES_AT_ONCE = 1 << 20  # of graphs that are read row by row and looked at together
_NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class GraphsRead:
    """Some graphs, one after the other.

    Attributes:
        x: Features as they are stored, [nodes, …]; None when the graphs have none.
        edge_index: int64 [2, edges]; ids count through all of these graphs.
        nodes, edges: int64 [k + 1]: where each graph's nodes and edges begin, and the end of the last.
    """

    x: Tensor | None
    edge_index: Tensor
    nodes: np.ndarray
    edges: np.ndarray


@dataclass(frozen=True, eq=False)
class GraphsScanned:
    """What has to be known of all graphs before they are trained on.

    Attributes:
        nodes, edges: int64 [graphs + 1]: where each graph's nodes and edges begin, and the end of the last.
        values: The attributes of the graphs themselves that were asked for, as `graph_values` has them.
        checked: What is in features and edges.
    """

    nodes: np.ndarray
    edges: np.ndarray
    values: dict[str, Tensor | list[str]]
    checked: Checked


class GraphReader:
    """Reads graphs of a store by their numbers; may be used by several threads.

    Args:
        folder: The store, of any backend.

    Raises:
        DatasetError: when it is no store, is damaged, or its graphs are heterogeneous.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database: GraphDatabase = open_database(folder)
        self.schema: Schema = self.database.graph_schema
        if self.schema.hetero:
            raise DatasetError(
                f"{folder} holds heterogeneous graphs; expected graphs of a single type of nodes: HeteroData is not "
                "trained yet by pygsage train.",
                "Make a Data of one type of each, with HeteroData.to_homogeneous().",
            )
        self._lock = threading.Lock()
        columns = {key: self.schema.column(key) for key in ("x", "edge_index")}
        self.x_column, self._edge_column = columns["x"], columns["edge_index"]

    @property
    def num_graphs(self) -> int:
        """How many graphs there are."""
        return len(self.database)

    @property
    def store(self) -> ColumnStore | None:
        """The arrays, where the store is columnar."""
        return self.database.store if isinstance(self.database, ColumnarDatabase) else None

    def read(self, ids: np.ndarray) -> GraphsRead:
        """The graphs of these numbers, int64 [k], in this order, copied: a gather an attribute, no object a graph.

        From a database with a row a graph they are read one by one.
        """
        store = self.store
        if store is None or len(ids) == 0:
            return self._read_rows(ids)
        joined = JoinedGraphs(store, ids)
        x = None if self.x_column is None else joined.tensor("x")
        if self._edge_column is None:
            return GraphsRead(x, _NO_EDGES, joined.node_pointer(), np.zeros(len(ids) + 1, dtype=np.int64))
        edge_index = joined.tensor("edge_index").to(torch.int64)
        return GraphsRead(x, edge_index, joined.node_pointer(), joined.pointer("edge_index"))

    def _read_rows(self, ids: np.ndarray) -> GraphsRead:
        with self._lock:  # one connection
            found = self.database.multi_get(ids.tolist())
        x = None
        if self.x_column is not None:
            nothing = torch.empty(0, *self.x_column.shape, dtype=self.x_column.torch_dtype)
            x = torch.cat([nothing, *(graph.x for graph in found)])
        edges = [_edges_of(graph) for graph in found]
        nodes = pointers(np.array([graph.num_nodes for graph in found], dtype=np.int64))
        shifted = [edge + first for edge, first in zip(edges, nodes[:-1].tolist(), strict=True)]
        edge_index = torch.cat([_NO_EDGES, *shifted], dim=1).to(torch.int64)
        return GraphsRead(x, edge_index, nodes, pointers(np.array([edge.size(1) for edge in edges], dtype=np.int64)))

    def scan(self, columns: Sequence[Column], origin: str) -> GraphsScanned:
        """Sizes, attributes of the graphs themselves, and what is found in all features and edges, in one pass.

        In a columnar store features and edges are read only where its writer has not noted what is in them. From a
        database with a row a graph all rows are read once, a few MiB at a time.

        Args:
            columns: The attributes.
            origin: The dataset, for errors.

        Raises:
            DatasetError: when an attribute is not one row a graph, or features or edges cannot be trained on.
        """
        store = self.store
        if store is None:
            return self._scan_rows(columns, origin)
        values = {column.key: self.graph_values(column) for column in columns}
        no_edges = np.zeros(self.num_graphs + 1, dtype=np.int64)
        edges = no_edges if self._edge_column is None else store.rows(self._edge_column.rows).begins()
        checked = Checked.from_dict(store.checked) or check_columns(self.schema, self.num_graphs, store.arrays, origin)
        return GraphsScanned(store.rows(self.schema.counts[0].rows).begins(), edges, values, checked)

    def _scan_rows(self, columns: Sequence[Column], origin: str) -> GraphsScanned:
        counts = np.zeros((2, self.num_graphs), dtype=np.int64)
        values: dict[str, list[Any]] = {column.key: [] for column in columns}
        checks = Checks(self.x_column, origin)
        kept: list[Any] = []
        first = num_values = 0
        for number in range(self.num_graphs):
            graph = self.database.get(number)
            counts[:, number] = graph.num_nodes, graph.num_edges
            for column in columns:
                values[column.key].append(self._value(column, graph, number))
            kept.append(graph)
            num_values += 2 * graph.num_edges + (graph.x.numel() if self.x_column is not None else 0)
            if num_values > _VALUES_AT_ONCE or number == self.num_graphs - 1:
                last = number + 1
                edges = torch.cat([_edges_of(each) for each in kept], dim=1).T
                x = None if self.x_column is None else torch.cat([each.x for each in kept])
                node_begins, edge_begins = (pointers(count[first:last]) for count in counts)
                checks.add(x, edges, node_begins, edge_begins, first)
                kept, first, num_values = [], last, 0
        stacked = {column.key: _stacked(column, values.pop(column.key)) for column in columns}
        return GraphsScanned(pointers(counts[0]), pointers(counts[1]), stacked, checks.result())

    def graph_values(self, column: Column) -> Tensor | list[str]:
        """What each graph has of an attribute of its own: a row a graph, or a text; NaN, or '', where it has none.

        Raises:
            DatasetError: when it is not one row a graph.
        """
        if self.store is not None and not column.optional and (column.rows == 1 or column.kind == "str"):
            return self.store.joined(column)
        values = [self._value(column, self.database.get(number), number) for number in range(self.num_graphs)]
        return _stacked(column, values)

    def _value(self, column: Column, graph: Any, number: int) -> Any:
        value = graph.get(column.key, None)
        if value is None or column.kind != "tensor":
            return value if value is not None or column.kind != "str" else ""
        if column.cat_dim is None:
            return value.clone()  # else it would keep all of its graph, whose row it is a part of
        if value.size(column.cat_dim) != 1:
            raise rows_error(column.key, number, list(value.shape))
        return value.squeeze(column.cat_dim).clone()

    def close(self) -> None:
        """Closes the files."""
        self.database.close()


def _edges_of(graph: Any) -> Tensor:
    edge_index: Tensor = graph.edge_index if "edge_index" in graph else _NO_EDGES
    return edge_index


def _stacked(column: Column, values: list[Any]) -> Tensor | list[str]:
    if column.kind == "str":
        return values
    known = [torch.as_tensor(value) for value in values if value is not None]
    if len(known) == len(values):
        return torch.stack(known)
    missing = torch.full_like(known[0].double(), torch.nan)
    return torch.stack([missing if value is None else torch.as_tensor(value).double() for value in values])


def rows_error(key: str, number: int, shape: Sequence[int]) -> DatasetError:
    """The error for an attribute of a graph that is not one row."""
    return DatasetError(
        f"Graph {number}: {key} is {list(shape)}; expected one row a graph, [1] or [1, columns].",
        f"For several values a graph write {key} = {key}.reshape(1, -1).",
    )
