"""Takes graphs one at a time, checks each against those before it, and learns what all of them are: the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pygsage.data.files.streams import Content
from pygsage.data.store.attributes import (
    Growing,
    GrowingCount,
    as_bytes,
    count_nodes,
    describe,
    role_of,
    uneven,
    unique_name,
)
from pygsage.data.store.layout import Block, Layout, Taken
from pygsage.data.store.schema import Column, Group, NodeCount, Schema, label
from pygsage.errors import DatasetError

Missing = Literal["refuse", "keep"]
_BATCHED_KEYS = {"num_nodes", "x", "pos", "batch", "adj", "adj_t", "edge_index", "face"}


class Intake:
    """Learns the schema of a stream of graphs.

    Args:
        missing: What to do when some graphs lack an attribute: `refuse`, or `keep` it missing there.
        state: What `state()` returned, to go on from there.

    Node and edge types may be missing in some graphs of a `HeteroData` dataset either way.
    """

    def __init__(self, missing: Missing = "refuse", state: Mapping[str, Any] | None = None) -> None:
        self.missing = missing
        self.num_graphs = 0
        self.hetero: bool | None = None
        self.columns: list[Growing] = []
        self.counts: dict[Group, GrowingCount] = {}
        self.notes: list[str] = []
        if state is not None:
            self.num_graphs, self.hetero, self.notes = state["num_graphs"], state["hetero"], list(state["notes"])
            self.columns = [Growing(**entry) for entry in state["columns"]]
            counts = [GrowingCount(**entry) for entry in state["counts"]]
            self.counts = {count.group: count for count in counts}
        self._layout: Layout | None = None  # of the graph before; what was learnt by it is settled later
        self._by_key = {(c.group, c.key): c for c in self.columns}
        self._names = {c.name.lower() for c in self.columns} | {c.name.lower() for c in self.counts.values()}

    def state(self) -> dict[str, Any]:
        """All that was learnt, as plain values that JSON can hold."""
        self._settle()
        columns = [{k: v for k, v in asdict(column).items() if k != "torch_dtype"} for column in self.columns]
        counts = [asdict(count) for count in self.counts.values()]
        return {
            "num_graphs": self.num_graphs,
            "hetero": self.hetero,
            "notes": self.notes,
            "columns": columns,
            "counts": counts,
        }

    def take(self, data: Any, number: int | None = None) -> Taken:
        """Checks one graph and returns its bytes; a graph that is refused changes nothing.

        Args:
            number: What to call it in errors, if not by how many were taken before.

        Raises:
            DatasetError: naming the graph and the attribute.
        """
        number = self.num_graphs if number is None else number
        if self._layout is not None:
            taken = self._layout.take(data, number)
            if taken is not None:
                self.num_graphs += 1
                return taken
            self._settle()
        hetero = isinstance(data, HeteroData)
        if not hetero and not isinstance(data, Data):
            raise DatasetError(
                f"Graph {number} is a {type(data).__name__}; expected a torch_geometric Data or HeteroData."
            )
        if self.hetero is not None and hetero != self.hetero:
            expected = "HeteroData" if self.hetero else "Data"
            raise DatasetError(f"Graph {number} is a {type(data).__name__}; expected {expected}, as the graphs before.")
        values: list[tuple[Growing, Content, int]] = []
        counts: dict[Group, int] = {}
        batched: set[Group] = set()
        new: list[Growing] = []
        notes: list[str] = []
        first_edges: dict[Group, int] = {}
        for storage in data.stores:
            group: Group = storage._key if hetero else None
            found = self._take_storage(data, storage, group, number, values, new, notes)
            if "edge_index" in found:
                first_edges[group] = found["edge_index"]
            if (not hetero or isinstance(group, str)) and storage._mapping:
                count = count_nodes(storage._mapping, found, number, group)
                if count is None and group is not None:
                    raise DatasetError(
                        f"Graph {number}: nothing tells how many {group!r} nodes there are; expected num_nodes or x.",
                        f"Write data[{group!r}].num_nodes = ….",
                    )
                counts[group] = count or 0
                if not _BATCHED_KEYS.isdisjoint(storage._mapping) or any("node" in key for key in storage._mapping):
                    batched.add(group)
            self._check_y(storage._mapping, found, group, counts, number)
        if not values:
            raise DatasetError(f"Graph {number} has no attributes; expected at least num_nodes.")
        self._check_missing(values, new, number)
        self._commit(values, counts, batched, first_edges, new, notes, hetero, data)
        if not hetero and len(values) == len(self.columns):
            self._layout = Layout.of(data, [column for column, _, _ in values])
        return Taken(values, counts)

    def allows(self, block: Block) -> bool:
        """Whether `take` would take each of the graphs of a block, which has the attributes of those before."""
        edges = {column.group: rows for column, _, rows in block.values if column.key == "edge_index"}
        for column, _, rows in block.values:
            if column.key == "y" and column.kind == "tensor" and not column.shape and column.cat_dim == 0:
                good = rows == 1
                for same in (block.counts.get(column.group), edges.get(column.group)):
                    good = good if same is None else good | (rows == same)
                if not good.all():
                    return False
        return len(block.values) == len(self.columns)

    def take_block(self, block: Block) -> None:
        """Learns from all graphs of a block that is allowed at once."""
        self._settle()
        self._learn({column.number: rows for column, _, rows in block.values}, block.counts)
        self.num_graphs += block.num_graphs

    def _settle(self) -> None:
        """Learns from the graphs that were taken by the layout of the one before them."""
        layout, self._layout = self._layout, None
        if layout is not None and layout.counts:
            rows = np.array(layout.rows, dtype=np.int64).reshape(len(layout.counts), -1).T
            counts: dict[Group, np.ndarray] = {None: np.array(layout.counts, dtype=np.int64)}
            self._learn({c.number: n for c, n in zip(layout.columns, rows, strict=True)}, counts)

    def _learn(self, rows: Mapping[int, np.ndarray], counts: Mapping[Group, np.ndarray]) -> None:
        """What `_commit` does, for many graphs that have all attributes: the rows of each, by the column's number."""
        edges = {column.group: rows[column.number] for column in self.columns if column.key == "edge_index"}
        for count in self.counts.values():
            count.same &= bool((counts[count.group] == count.first).all())
        for column in self.columns:
            here = rows[column.number]
            column.num_present += len(here)
            column.same_rows &= bool((here == column.first_rows).all())
            are_nodes = bool((here == counts.get(column.group, -1)).all())
            are_edges = bool((here == edges.get(column.group, -1)).all())
            column.node_like, column.rows_are_nodes = column.node_like & are_nodes, column.rows_are_nodes & are_nodes
            column.edge_like, column.rows_are_edges = column.edge_like & are_edges, column.rows_are_edges & are_edges
            column.one_like &= bool((here == 1).all())

    def finish(self) -> Schema:
        """The schema of all graphs that were taken.

        Raises:
            DatasetError: when there was none.
        """
        self._settle()
        if self.num_graphs == 0:
            raise DatasetError(
                "There are no graphs left; expected at least one.", "Look at pre_filter, and the source."
            )
        counts = {
            c.group: NodeCount(c.group, c.first if c.same else f"{c.name}.slices", c.batched)
            for c in self.counts.values()
        }
        edges = {c.group: c for c in self.columns if c.key == "edge_index"}
        columns = tuple(self._column(c, counts.get(c.group), edges.get(c.group)) for c in self.columns)
        return Schema(bool(self.hetero), columns, tuple(counts.values()))

    def _column(self, c: Growing, count: NodeCount | None, edges: Growing | None) -> Column:
        rows: int | str
        if c.is_stacked:
            rows = 1
        elif c.same_rows:
            rows = c.first_rows
        elif count is not None and c.rows_are_nodes:
            rows = count.rows
        elif edges is not None and c.rows_are_edges:
            rows = f"{edges.name}.slices"
        else:
            rows = f"{c.name}.slices"
        optional = c.num_present < self.num_graphs
        return Column(c.group, c.key, c.kind, c.dtype, c.shape, c.cat_dim, role_of(c), rows, optional, c.name)

    def _take_storage(
        self,
        data: Any,
        storage: Any,
        group: Group,
        number: int,
        values: list[tuple[Growing, Content, int]],
        new: list[Growing],
        notes: list[str],
    ) -> dict[str, int]:
        found: dict[str, int] = {}
        for key, value in storage._mapping.items():
            if value is None:
                continue
            column = self._by_key.get((group, key))
            if column is None:
                name = unique_name(group, key, self._names | {c.name.lower() for c in new})
                place = len(self.columns) + len(new)
                column = describe(data, storage, group, key, value, number, place, name, notes)
                new.append(column)
            content, rows = as_bytes(column, value, number)
            values.append((column, content, rows))
            found[key] = rows
        return found

    def _check_y(
        self, mapping: Mapping[str, Any], found: dict[str, int], group: Group, counts: dict[Group, int], number: int
    ) -> None:
        y = mapping.get("y")
        if not isinstance(y, Tensor) or y.dim() != 1 or (rows := found["y"]) in (1, counts.get(group)):
            return
        if rows != found.get("edge_index", -1):
            shown = label(group, "y")
            raise DatasetError(
                f"Graph {number}: {shown} has shape [{rows}], which is neither one label nor one for each of "
                f"{counts.get(group, 0)} nodes: a batch would join all such labels in one row.",
                f"For {rows} labels a graph write {shown} = {shown}.unsqueeze(0), of shape [1, {rows}].",
            )

    def _check_missing(self, values: list[tuple[Growing, Content, int]], new: list[Growing], number: int) -> None:
        if self.missing == "keep" or self.num_graphs == 0 or (not new and len(values) == len(self.columns)):
            return
        known = {column.group for column in self.columns}
        for column in new:
            if column.group in known or column.group is None:
                raise uneven(f"Graph {number} has {column.label}, which no graph before has", column)
        here = {column.group for column, _, _ in values}
        have = {column.number for column, _, _ in values}
        for column in self.columns:
            if column.number not in have and (column.group in here or column.group is None):
                raise uneven(f"Graph {number} has no {column.label}, which graphs before have", column)

    def _commit(
        self,
        values: list[tuple[Growing, Content, int]],
        counts: dict[Group, int],
        batched: set[Group],
        num_edges: dict[Group, int],
        new: list[Growing],
        notes: Iterable[str],
        hetero: bool,
        data: Any,
    ) -> None:
        late = self.num_graphs > 0
        for column in new:
            self.columns.append(column)
            self._names.add(column.name.lower())
            self._by_key[column.group, column.key] = column
            if late:
                column.first_rows = 0
        self.notes += [note for note in notes if note not in self.notes]
        new_groups = counts.keys() - self.counts.keys()
        for group in counts:
            if group in new_groups:
                name = unique_name(group, "nodes", self._names)
                self._names.add(name.lower())
                self.counts[group] = GrowingCount(group, name, group in batched, first=0 if late else -1)
        for count in self.counts.values():
            n = counts.get(count.group, 0)
            count.first = n if count.first < 0 else count.first
            count.same &= n == count.first
        for column, _, rows in values:
            column.num_present += 1
            column.first_rows = rows if column.first_rows < 0 else column.first_rows
            column.same_rows &= rows == column.first_rows
            n, e = counts.get(column.group, -1), num_edges.get(column.group, -1)
            if rows != n:
                column.node_like = column.rows_are_nodes = False
            if rows != e:
                column.edge_like = column.rows_are_edges = False
            if rows != 1:
                column.one_like = False
        if late:
            self._commit_absent({column.number for column, _, _ in values}, counts, num_edges, new, new_groups)
        if not late:
            self.hetero = hetero
            kind = type(data)
            if kind not in (Data, HeteroData):
                self.notes.append(f"The graphs are of class {kind.__module__}.{kind.__qualname__}.")
        self.num_graphs += 1

    def _commit_absent(
        self,
        have: set[int],
        counts: Mapping[Group, int],
        num_edges: Mapping[Group, int],
        new: list[Growing],
        new_groups: Set[Group],
    ) -> None:
        new_edges = {column.group for column in new if column.key == "edge_index"}
        for column in new:  # in the graphs before, it had no rows, and its group may have had no nodes or edges
            column.rows_are_nodes &= column.group in new_groups
            column.rows_are_edges &= column.group in new_edges
        if len(have) == len(self.columns):
            return
        for column in self.columns:
            if column.number not in have:
                column.same_rows &= column.first_rows == 0
                column.rows_are_nodes &= counts.get(column.group, 0) == 0
                column.rows_are_edges &= num_edges.get(column.group, 0) == 0
