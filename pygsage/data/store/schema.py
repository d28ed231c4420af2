"""What an attribute of many graphs is: where it belongs, its type, its shape, and how graphs are joined along it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Group = str | tuple[str, str, str] | None
Kind = Literal["tensor", "str", "int", "float", "bool"]
Role = Literal["node", "edge", "graph"]

# What a file can hold. NumPy has no bfloat16: its bits are kept as uint16.
DTYPES: dict[torch.dtype, str] = {
    getattr(torch, name): name
    for name in (
        "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip
KINDS: dict[Kind, str] = {"int": "int64", "float": "float64", "bool": "bool", "str": "uint8"}
ROLES: tuple[Role, ...] = ("node", "edge", "graph")


@dataclass(frozen=True)
class Column:
    """One attribute of all graphs, joined.

    Args:
        group: None in a homogeneous graph or for a graph's own attributes; else a node type or an edge type.
        key: The attribute's name.
        kind: What one graph has: a tensor, or a plain Python value.
        dtype: Of the tensor, by its name in torch; of plain values int64, float64, bool, or uint8 for UTF-8 text.
        shape: Of one graph's tensor without the dimension along which graphs are joined.
        cat_dim: That dimension; None when each graph has one value, stacked along a new first dimension.
        role: Whether there is a row for each node, for each edge, or whether it belongs to the whole graph.
        rows: How many rows every graph has, or the name of the array that says where each graph's rows begin.
        optional: Some graphs lack it; the array `{name}.present` says which have it.
        name: The stem of its files.

    On disk the joined dimension comes first: an `edge_index` of `[2, E]` a graph is `[sum of E, 2]`.
    """

    group: Group
    key: str
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    cat_dim: int | None
    role: Role
    rows: int | str
    optional: bool
    name: str

    @property
    def label(self) -> str:
        """The attribute as a user would write it: `x`, or `'paper'.x`."""
        return label(self.group, self.key)

    @property
    def array_dtype(self) -> str:
        """The dtype of its file, by its name in NumPy."""
        return "uint16" if self.dtype == "bfloat16" else self.dtype

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of its tensor."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


@dataclass(frozen=True)
class NodeCount:
    """How many nodes the graphs have, of one type.

    Args:
        group: The node type; None in a homogeneous graph.
        rows: The number when it is the same in every graph, or the name of the array that says where each begins.
        batched: Whether PyG gives a batch of them the vectors `batch` and `ptr`.
    """

    group: Group
    rows: int | str
    batched: bool


@dataclass(frozen=True)
class Schema:
    """Every attribute of a dataset of many graphs.

    Args:
        hetero: `HeteroData`, with node and edge types; else `Data`.
        columns: In the order in which the graphs have them.
        counts: The numbers of nodes, one entry a node type.
    """

    hetero: bool
    columns: tuple[Column, ...]
    counts: tuple[NodeCount, ...]

    def column(self, key: str, group: Group = None) -> Column | None:
        """The attribute of that name, if there is one."""
        return next((c for c in self.columns if (c.group, c.key) == (group, key)), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_dict(told: Mapping[str, Any]) -> Schema:
        """The schema that `to_dict` described.

        Raises:
            ValueError, KeyError, TypeError: when it is none.
        """
        columns = tuple(_column(entry) for entry in told["columns"])
        counts = tuple(NodeCount(**{**entry, "group": as_group(entry["group"])}) for entry in told["counts"])
        if len({(c.group, c.key) for c in columns}) < len(columns):
            raise ValueError("two columns have the same name")
        return Schema(bool(told["hetero"]), columns, counts)


def label(group: Group, key: str) -> str:
    """An attribute as a user would write it: `x`, `'paper'.x`, `('a', 'to', 'b').edge_index`."""
    return key if group is None else f"{group!r}.{key}"


def as_tensor(array: np.ndarray, dtype: str) -> Tensor:
    """The tensor on the memory of an array that a file holds."""
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _column(entry: Mapping[str, Any]) -> Column:
    column = Column(**{**entry, "group": as_group(entry["group"]), "shape": tuple(entry["shape"])})
    good = (
        column.dtype in DTYPES.values()
        and (column.kind == "tensor" or KINDS.get(column.kind) == column.dtype)
        and column.role in ROLES
        and all(isinstance(size, int) and size >= 0 for size in column.shape)
        and isinstance(column.rows, (int, str))
        and (column.cat_dim is None or isinstance(column.cat_dim, int))
    )
    if not good:
        raise ValueError(f"{column.label} is described as {dict(entry)}")
    return column


def as_group(told: Any) -> Group:
    """A group from what JSON has of it."""
    if told is None or isinstance(told, str):
        return told
    source, relation, target = map(str, told)
    return source, relation, target
