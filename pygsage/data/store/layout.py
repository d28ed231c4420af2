"""Graphs as bytes: one, several that are joined, and the ways of those that are like the one before."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pygsage.data.files.streams import Content
from pygsage.data.store.attributes import Growing, as_bytes, count_key
from pygsage.data.store.schema import Group


class Taken(NamedTuple):
    """One graph as bytes: for each attribute it has, the rows in the order of its file, and how many."""

    values: list[tuple[Growing, Content, int]]
    counts: dict[Group, int]


class Block(NamedTuple):
    """Several graphs that are joined already: for each attribute the bytes of all, and the rows of each, int64."""

    num_graphs: int
    values: list[tuple[Growing, Content, np.ndarray]]
    counts: dict[Group, np.ndarray]


class Layout:
    """The attributes of one `Data`, in their order: others that have just these are taken without a look at each rule.

    Args:
        data_class: The class of the graph.
        columns: All that are known, as the graph has them.
        count: The place of the attribute that tells the number of nodes, and whether it is that number itself.
        y: The place of labels whose length says what they belong to, and of `edge_index`; -1 for none.

    `rows` and `counts` are those of the graphs that were taken, one after the other.
    """

    most = 4096  # graphs, before they are to be settled

    def __init__(self, data_class: type, columns: list[Growing], count: tuple[int, bool], y: tuple[int, int]) -> None:
        self.columns = columns
        self.rows: list[int] = []
        self.counts: list[int] = []
        self._class: Any = data_class
        self._count, self._y = count, y
        self._keys = [column.key for column in columns]

    @staticmethod
    def of(data: Any, columns: list[Growing]) -> Layout | None:
        """The layout of a graph that was taken; None where the number of nodes is told by its ids."""
        keys = [column.key for column in columns]
        telling = count_key([column.key for column in columns if column.kind == "tensor"])
        if "num_nodes" not in keys and telling is None:
            return None
        count = (keys.index("num_nodes"), True) if "num_nodes" in keys else (keys.index(telling or ""), False)
        y = keys.index("y") if "y" in keys else -1
        if y >= 0 and (columns[y].kind != "tensor" or columns[y].shape or columns[y].cat_dim is None):
            y = -1
        return Layout(type(data), columns, count, (y, keys.index("edge_index") if "edge_index" in keys else -1))

    def take(self, data: Any, number: int) -> Taken | None:
        """The bytes of one graph; None when it is another, and has to be looked at.

        Raises:
            DatasetError: as `Intake.take`.
        """
        if type(data) is not self._class or len(self.counts) >= self.most:
            return None
        mapping = data._store._mapping
        if [key for key, value in mapping.items() if value is not None] != self._keys or len(mapping) != len(
            self._keys
        ):
            return None
        values, rows = [], []
        for column, value in zip(self.columns, mapping.values(), strict=True):
            content, num_rows = as_bytes(column, value, number)
            values.append((column, content, num_rows))
            rows.append(num_rows)
        place, is_number = self._count
        count = mapping["num_nodes"] if is_number else rows[place]
        y, edges = self._y
        if count < 0 or (y >= 0 and rows[y] not in (1, count, rows[edges] if edges >= 0 else 1)):
            return None
        self.rows += rows
        self.counts.append(count)
        return Taken(values, {None: count})
