"""Some graphs of a store joined to one, as plain tensors: what a batch has, without PyG's object around it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.fetch import fetch
from pygsage.data.files.ragged import gather, gather_columns
from pygsage.data.store.column_store import ColumnStore, out_of_range
from pygsage.data.store.schema import Column, Group, as_tensor, label
from pygsage.errors import DatasetError


class JoinedGraphs:
    """Graphs of a store, side by side in the order in which they are named; a graph may be named twice.

    An attribute is gathered when it is asked for, one native copy each (where the store's files are not in memory, with
    many reads at once), and ids of nodes are shifted by the number of
    nodes before, as PyG's batches have them. `joined.tensor("x")`, `joined.tensor("edge_index")` and
    `joined.node_pointer()` are all that a model needs.

    Args:
        store: Where they lie.
        ids: Their numbers.

    Raises:
        IndexError: when there is no such graph.
        DatasetError: when none is named.
    """

    def __init__(self, store: ColumnStore, ids: Sequence[int] | np.ndarray) -> None:
        self.store, self.ids = store, np.asarray(ids, dtype=np.int64)
        if len(self.ids) == 0:
            raise DatasetError("A batch of no graphs was asked for; expected at least one.")
        for worst in (self.ids.min(), self.ids.max()):
            if not 0 <= worst < store.num_graphs:
                raise out_of_range(int(worst), store.num_graphs)
        self._pieces: dict[int | str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._counts = {count.group: count.rows for count in store.schema.counts}

    def __len__(self) -> int:
        return len(self.ids)

    def num_nodes(self, group: Group = None) -> np.ndarray:
        """How many nodes each graph has, of one type: int64 `[graphs]`."""
        return self._pieces_of(self._counts[group])[1]

    def node_pointer(self, group: Group = None) -> np.ndarray:
        """Where the nodes of each graph begin, and the end of the last: int64 `[graphs + 1]`."""
        return self._pieces_of(self._counts[group])[2]

    def pointer(self, key: str, group: Group = None) -> np.ndarray:
        """The same of the rows of an attribute; of `edge_index`, where the edges of each graph begin."""
        return self.pointer_of(self._column(key, group))

    def pointer_of(self, column: Column) -> np.ndarray:
        """The same of a column of the store."""
        return self._pieces_of(column.rows)[2]

    def tensor(self, key: str, group: Group = None) -> Tensor:
        """An attribute of all of them, joined: a copy.

        Raises:
            KeyError: when the graphs have no such attribute, or it is no tensor.
            DatasetError: when some of these graphs lack it, or all do.
        """
        column = self._column(key, group)
        ids = self.ids_with(column)
        if ids is None:
            raise DatasetError(f"The graphs {self.ids[:5].tolist()} … have no {column.label}; expected one in each.")
        value = self.values(column, ids)
        if not isinstance(value, Tensor):
            raise KeyError(f"{column.label} is text")
        return value

    def ids_with(self, column: Column) -> np.ndarray | None:
        """Which of the graphs have an attribute: all of them, or none, or those that have its node or edge type.

        Raises:
            DatasetError: when some have it, and others have the rest of its type.
        """
        if not column.optional:
            return self.ids
        present = self.store.arrays[f"{column.name}.present"][self.ids]
        if present.all():
            return self.ids
        if not present.any():
            return None
        if column.group is None or not self._is_absent(column.group, self.ids[~present]):
            lacking = int(self.ids[~present][0])
            raise lacks(lacking, column.label)
        return self.ids[present] if column.cat_dim is None and column.key != "num_nodes" else self.ids

    def values(self, column: Column, ids: np.ndarray) -> Tensor | list[str]:
        """An attribute of those graphs that have it, joined: a tensor, or a list of texts."""
        array = self.store.arrays[column.name]
        if column.cat_dim is None:
            value = as_tensor(array[ids], column.dtype)
            return self._shifted(column, value.to(torch.get_default_dtype()) if column.kind == "float" else value)
        begins, lengths, pointer = self._pieces_of(column.rows)
        if self.store.folder is not None:
            fetch(array, begins, lengths)
        if column.kind == "str":
            ends = begins + lengths
            return [bytes(array[b:e]).decode() for b, e in zip(begins.tolist(), ends.tolist(), strict=True)]
        if column.dtype in ("int32", "int64") and array.ndim - column.cat_dim == 1:  # [N, C], or ids [N]
            turned = array if array.ndim == 2 else array[:, None]
            joined = gather_columns(turned, begins, lengths, int(pointer[-1]), self.shifts(column, turned.shape[1]))
            return torch.from_numpy(joined if array.ndim == 2 else joined[0])
        joined = gather(array, begins, lengths, int(pointer[-1]))
        if column.cat_dim:
            joined = np.ascontiguousarray(np.moveaxis(joined, 0, column.cat_dim))
        return self._shifted(column, as_tensor(joined, column.dtype))

    def shifts(self, column: Column, num: int) -> list[np.ndarray]:
        """What PyG adds to the ids in an attribute: for each of its `num` rows int64 `[graphs]`; empty for no ids."""
        if not holds_ids(column):
            return []
        if isinstance(column.group, tuple):
            return [self.node_pointer(column.group[0])[:-1], self.node_pointer(column.group[2])[:-1]]
        return [self.node_pointer(None)[:-1]] * num

    def _shifted(self, column: Column, value: Tensor) -> Tensor:
        if not holds_ids(column) or isinstance(column.group, tuple):
            return value
        begins = self.node_pointer(None)[:-1]
        if column.cat_dim is None:
            return value.add_(torch.from_numpy(begins))
        shift = torch.from_numpy(np.repeat(begins, self._pieces_of(column.rows)[1]))
        return value.add_(shift.view([-1 if d == column.cat_dim else 1 for d in range(value.dim())]))

    def _column(self, key: str, group: Group) -> Column:
        column = self.store.schema.column(key, group)
        if column is None:
            raise KeyError(f"the graphs have no {label(group, key)}")
        return column

    def _pieces_of(self, rows: int | str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if rows not in self._pieces:
            self._pieces[rows] = self.store.rows(rows).pieces(self.ids)
        return self._pieces[rows]

    def _is_absent(self, group: Group, ids: np.ndarray) -> bool:
        columns = [c for c in self.store.schema.columns if c.group == group]
        return not any(c.optional is False or self.store.arrays[f"{c.name}.present"][ids].any() for c in columns)


def holds_ids(column: Column) -> bool:
    """Whether PyG adds the number of nodes before to the values of this attribute."""
    if column.kind == "str":
        return False
    if isinstance(column.group, tuple):
        return "index" in column.key
    return column.group is None and ("index" in column.key or column.key == "face")


def lacks(number: int, label: str) -> DatasetError:
    """The error of a batch whose graphs do not have the same attributes."""
    return DatasetError(
        f"Graph {number} has no {label}, which others of its batch have; expected all or none.",
        f"Put such graphs in batches of their own, or set {label} in every graph.",
    )
