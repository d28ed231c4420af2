"""What is looked at in every feature and edge of many graphs before they are trained on: once, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.arrays import map_array
from pygsage.data.files.ragged import Rows
from pygsage.data.one_graph.checks import INTEGERS
from pygsage.data.store.schema import Column, Schema, as_tensor
from pygsage.errors import DatasetError

VERSION = 1  # of these checks: what a store says of others is not believed
_VALUES_AT_ONCE = 1 << 19
_GRAPHS_AT_ONCE = 1 << 16


@dataclass
class Checked:
    """What was found where nothing is wrong: all edges stay in their graph, all features are finite in float32.

    Attributes:
        lowest, highest: Of integer features, of each column; empty for other features and for none.
        most_neighbours: The highest in-degree, where there are no features; else 0.
        version: Of the checks.
    """

    lowest: list[int]
    highest: list[int]
    most_neighbours: int = 0
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_dict(told: Mapping[str, Any] | None) -> Checked | None:
        """What a manifest says of these very checks; None where it says nothing, or of others."""
        if not told or told.get("version") != VERSION:
            return None
        return Checked(list(map(int, told["lowest"])), list(map(int, told["highest"])), int(told["most_neighbours"]))


def can_check(x: Column | None) -> bool:
    """Whether features are a table of real numbers, as training takes them."""
    return x is None or (
        x.kind == "tensor"
        and x.cat_dim == 0
        and len(x.shape) <= 1
        and 0 not in x.shape
        and "complex" not in x.dtype
        and not x.optional
    )


class Checks:
    """Looks at graphs piece by piece.

    Args:
        x: The column of features; None where there are none.
        origin: The dataset, for errors.
    """

    def __init__(self, x: Column | None, origin: str) -> None:
        self._x, self._origin = x, origin
        self._width = 1 if x is None or not x.shape else x.shape[0]
        self._is_whole = x is not None and x.torch_dtype in INTEGERS
        width = self._width if self._is_whole else 0
        self._lowest = torch.zeros(width, dtype=torch.int64)
        self._highest = torch.full((width,), -1, dtype=torch.int64)
        self._most = 0

    def add(
        self, x: Tensor | None, edges: Tensor, node_begins: np.ndarray, edge_begins: np.ndarray, first: int
    ) -> None:
        """Looks at some graphs, one after the other.

        Args:
            x: Their features; None where there are none.
            edges: int [E, 2], ids within each graph.
            node_begins, edge_begins: int64 [k + 1]: where each graph's rows begin in the two, and the end of the last.
            first: The number of the first of the graphs.

        Raises:
            DatasetError: naming the graph, and the edge or the node.
        """
        rows = max(1, _VALUES_AT_ONCE // self._width)
        for start in range(0, len(x) if x is not None else 0, rows):
            assert x is not None
            self._add_x(x[start : start + rows].reshape(-1, self._width), start, node_begins, first)
        check_edges(edges, node_begins, edge_begins, first, self._origin)
        if self._x is None and len(edges):
            joined = edges[:, 1].numpy() + np.repeat(node_begins[:-1], np.diff(edge_begins))
            self._most = max(self._most, int(np.bincount(joined).max()))

    def result(self) -> Checked:
        """What was found."""
        return Checked(self._lowest.tolist(), self._highest.tolist(), self._most)

    def _add_x(self, x: Tensor, start: int, begins: np.ndarray, first: int) -> None:
        if self._is_whole:
            if len(x):
                self._lowest = torch.minimum(self._lowest, x.amin(0).to(torch.int64))
                self._highest = torch.maximum(self._highest, x.amax(0).to(torch.int64))
            return
        if x.dtype == torch.bool:
            return
        wrong = ~torch.isfinite(x.to(torch.float32))
        if wrong.any():
            row, column = wrong.nonzero()[0].tolist()
            graph = int(np.searchsorted(begins, start + row, side="right")) - 1
            raise DatasetError(
                f"{self._origin}: graph {first + graph}: x is {x[row, column].item():g} at node "
                f"{start + row - int(begins[graph])}, column {column}; expected finite numbers that float32 can hold.",
                "Fill them first, for example with numpy.nan_to_num.",
            )


def check_edges(edges: Tensor, node_begins: np.ndarray, edge_begins: np.ndarray, first: int, origin: str) -> None:
    """Refuses edges that lead out of their graph; the arguments are those of `Checks.add`.

    Raises:
        DatasetError: naming the graph and the edge.
    """
    for start in range(0, len(edges), _VALUES_AT_ONCE):
        ids = edges[start : start + _VALUES_AT_ONCE].numpy()
        end = start + len(ids)
        low = int(np.searchsorted(edge_begins, start, side="right")) - 1
        high = int(np.searchsorted(edge_begins, end, side="left"))
        lengths = np.diff(np.clip(edge_begins[low : high + 1], start, end))
        most = np.repeat(np.diff(node_begins[low : high + 1]), lengths)
        outside = (ids < 0) | (ids >= most[:, None])
        if outside.any():
            edge = int(outside.any(axis=1).argmax())
            graph = int(np.searchsorted(edge_begins, start + edge, side="right")) - 1
            source, destination = ids[edge].tolist()
            raise DatasetError(
                f"{origin}: graph {first + graph}: edge {start + edge - int(edge_begins[graph])} of edge_index is "
                f"{source} -> {destination}, and the graph has {int(most[edge])} nodes; expected node ids from 0 to "
                f"{int(most[edge]) - 1} in each graph.",
                "Ids count from 0 in each graph, not through all of them.",
            )


def check_columns(schema: Schema, num_graphs: int, arrays: Mapping[str, np.ndarray], origin: str) -> Checked:
    """Looks at all graphs of a columnar store, in the order of its files: each is read once, nothing is copied.

    Args:
        arrays: The files, by name.

    Raises:
        DatasetError: naming the first graph that is wrong.

    Holds some 10 MB, and for graphs without features 16 bytes an edge of the largest.
    """
    x, edge_index = schema.column("x"), schema.column("edge_index")

    def begins(rows: int | str) -> np.ndarray:
        return Rows(rows if isinstance(rows, int) else arrays[rows], num_graphs).begins()

    checks = Checks(x, origin)
    nodes = begins(schema.counts[0].rows)
    edges = np.zeros_like(nodes) if edge_index is None else begins(edge_index.rows)
    pairs = np.empty((0, 2), dtype=np.int64) if edge_index is None else arrays[edge_index.name]
    features = None if x is None else as_tensor(arrays[x.name], x.dtype)
    for first, last in _pieces(nodes, edges):
        checks.add(
            None if features is None else features[nodes[first] : nodes[last]],
            torch.from_numpy(pairs[edges[first] : edges[last]]),
            nodes[first : last + 1] - nodes[first],
            edges[first : last + 1] - edges[first],
            first,
        )
    return checks.result()


def check_written(
    folder: Path, schema: Schema, num_graphs: int, told: Mapping[str, Any]
) -> tuple[Checked | None, list[str]]:
    """What the writer of a columnar store notes of it; None, and a line, where training refuses a graph.

    Args:
        told: The files, as a manifest has them.
    """
    edges = schema.column("edge_index")
    is_plain = not schema.hetero and bool(schema.counts) and can_check(schema.column("x"))
    if not is_plain or (edges is not None and (edges.optional or edges.cat_dim != 1 or edges.shape != (2,))):
        return None, []
    used = [column for key in ("x", "edge_index") if (column := schema.column(key)) is not None]
    names = [*(column.name for column in used), *(column.rows for column in used), schema.counts[0].rows]
    arrays = {name: map_array(folder, name, told[name]).numpy() for name in names if isinstance(name, str)}
    try:
        return check_columns(schema, num_graphs, arrays, "It"), []
    except DatasetError as error:
        return None, [f"Kept as given, but training will refuse it. {error.found}"]


def _pieces(nodes: np.ndarray, edges: np.ndarray) -> Iterator[tuple[int, int]]:
    """Graphs by and by: the first of each piece, and the one after its last."""
    first, num_graphs = 0, len(nodes) - 1
    while first < num_graphs:
        end = min(num_graphs, first + _GRAPHS_AT_ONCE)
        for begins in (nodes, edges):
            end = min(end, int(np.searchsorted(begins, begins[first] + _VALUES_AT_ONCE, side="right")) - 1)
        last = max(end, first + 1)
        yield first, last
        first = last
