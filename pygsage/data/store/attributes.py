"""One attribute of one graph: what it is, whether it agrees with the graphs before, and its bytes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.streams import LARGE_BYTES, Content, Large
from pygsage.data.store.schema import DTYPES, KINDS, Group, Kind, Role, as_group, label
from pygsage.errors import DatasetError

_NODE_KEYS = ("x", "feat", "pos", "batch", "node_type", "n_id")  # where PyG looks for the number of nodes
_INT64 = range(-(2**63), 2**63)
_PACK: dict[Kind, Callable[[Any], bytes]] = {
    "int": struct.Struct("<q").pack,
    "float": struct.Struct("<d").pack,
    "bool": struct.Struct("<?").pack,
    "str": lambda text: str(text).encode(),
}


@dataclass
class Growing:
    """An attribute as far as the graphs so far tell. Its flags hold for every graph that was taken."""

    group: Group
    key: str
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    cat_dim: int | None
    name: str
    number: int
    num_present: int = 0
    first_rows: int = -1
    same_rows: bool = True
    node_like: bool = True  # as many rows as nodes, wherever it is present
    edge_like: bool = True
    one_like: bool = True
    rows_are_nodes: bool = True  # the same in all graphs, those without it included
    rows_are_edges: bool = True
    torch_dtype: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.shape = tuple(self.shape)
        self.group = as_group(self.group)
        self.torch_dtype = getattr(torch, self.dtype)

    @property
    def label(self) -> str:
        return label(self.group, self.key)

    @property
    def is_stacked(self) -> bool:
        """One value a graph, without a dimension along which graphs are joined."""
        return self.cat_dim is None and self.kind != "str"


@dataclass
class GrowingCount:
    """The numbers of nodes of one type, as far as the graphs so far tell."""

    group: Group
    name: str
    batched: bool = False
    first: int = -1
    same: bool = True

    def __post_init__(self) -> None:
        self.group = as_group(self.group)


def describe(
    data: Any, storage: Any, group: Group, key: str, value: Any, number: int, place: int, name: str, notes: list[str]
) -> Growing:
    """The column of an attribute that no graph before had."""
    shown = label(group, key)
    if not isinstance(value, Tensor):
        kind = _kind(value, shown, number)
        return Growing(group, key, kind, KINDS[kind], (), 0 if kind == "str" else None, name, place)
    _check_layout(value, shown, number)
    dtype = DTYPES[value.dtype]
    if key == "num_nodes":
        raise DatasetError(f"Graph {number}: {shown} is a tensor; expected an int.", "Write int(num_nodes).")
    if key == "edge_index" and value.numel() == 0 and not _is_whole(value.dtype):
        dtype = "int64"  # torch.empty(2, 0) is float
    cat_dim = data.__cat_dim__(key, value, storage) if value.dim() else None
    if cat_dim is not None and not isinstance(cat_dim, int):
        raise DatasetError(f"Graph {number}: {shown} is joined along {cat_dim}; expected one dimension.")
    cat_dim = None if cat_dim is None else cat_dim % value.dim()
    shape = tuple(n for d, n in enumerate(value.shape) if d != cat_dim)
    if value.requires_grad:
        notes.append(f"{shown} is kept without its gradient.")
    if type(value) is not Tensor and type(value) is not torch.nn.Parameter:
        notes.append(f"{shown} is kept as a plain tensor; it was a {type(value).__name__}.")
    if key != "edge_index" and re.search("index|batch", key) and not (value.dim() == 2 and len(value) == 2):
        notes.append(
            f"{shown} has a name with 'index' or 'batch', so PyG shifts its values in batches"
            f"{' and joins it along its last dimension' if 'index' in key else ''}; rename it if it holds no ids."
        )
    elif key in ("ptr", "face", "adj", "adj_t"):
        notes.append(f"{shown} has a name that PyG gives a meaning of its own in batches; rename it if not meant.")
    return Growing(group, key, "tensor", dtype, shape, cat_dim, name, place)


def as_bytes(column: Growing, value: Any, number: int) -> tuple[Content, int]:
    if column.kind != "tensor":
        if isinstance(value, Tensor):
            raise _other_kind(column, value, number)
        kind = _kind(value, column.label, number)
        if kind != column.kind:
            raise _other_kind(column, value, number)
        content = _PACK[kind](value)
        return content, len(content) if kind == "str" else 1
    if not isinstance(value, Tensor):
        raise _other_kind(column, value, number)
    if value.dtype is not column.torch_dtype or value.layout is not torch.strided:
        value = _recast(column, value, number)
    if value.requires_grad or type(value) is not Tensor or not value.is_cpu:
        _check_layout(value, column.label, number)
        value = value.detach().as_subclass(Tensor).cpu()
    shape, cat_dim = value.shape, column.cat_dim
    if cat_dim is None:
        rows, rest = 1, shape
    else:
        if len(shape) != len(column.shape) + 1:
            raise _other_shape(column, value, number)
        rows, rest = shape[cat_dim], shape[:cat_dim] + shape[cat_dim + 1 :]
    if rest != column.shape:
        raise _other_shape(column, value, number)
    array = (value.contiguous().view(torch.int16) if value.dtype is torch.bfloat16 else value).numpy()
    if cat_dim:
        array = array.T if len(shape) == 2 else np.moveaxis(array, cat_dim, 0)
    return Large(array) if array.nbytes >= LARGE_BYTES else array.tobytes(), rows


def unique_name(group: Group, key: str, taken: Set[str]) -> str:
    """A file's stem: readable where the names allow it, and never the same twice on any file system."""
    parts = [] if group is None else ["__".join((group,) if isinstance(group, str) else group)]
    wanted = ".".join([*parts, key])
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", wanted):
        wanted = re.sub(r"[^A-Za-z0-9_.-]", "_", wanted)[:99].lstrip(".-") or "column"
    name, suffix = wanted, 1
    while name.lower() in taken or name.lower().endswith((".slices", ".present")):
        suffix += 1
        name = f"{wanted}-{suffix}"
    return name


def role_of(c: Growing) -> Role:
    if c.kind != "tensor" or c.is_stacked:
        return "node" if c.key == "num_nodes" else "graph"
    if c.key in ("edge_index", "edge_attr", "edge_weight") or (c.edge_like and "edge" in c.key):
        return "edge"
    if isinstance(c.group, tuple):
        return "edge" if c.edge_like else "graph"
    if c.one_like and c.key.startswith(("y", "graph")):
        return "graph"
    if c.node_like:
        return "node"
    return "edge" if c.edge_like else "graph"


def count_nodes(mapping: Mapping[str, Any], found: Mapping[str, int], number: int, group: Group) -> int | None:
    """The number of nodes, as PyG finds it, without its warnings; None when nothing tells."""
    told = mapping.get("num_nodes")
    if told is not None:
        if told < 0:
            raise DatasetError(f"Graph {number}: {label(group, 'num_nodes')} is {told}; expected 0 or more.")
        return int(told)
    telling = count_key([key for key in found if isinstance(mapping[key], Tensor)])
    if telling is not None:
        return found[telling]
    for key in ("edge_index", "face"):
        if isinstance(mapping.get(key), Tensor):
            return int(mapping[key].max()) + 1 if mapping[key].numel() else 0
    return None


def count_key(keys: Sequence[str]) -> str | None:
    """Which of some tensors has a row a node, as PyG finds it; None when none has."""
    if "x" in keys:
        return "x"
    return next((key for key in keys if key in _NODE_KEYS or "node" in key), None)


def _kind(value: Any, shown: str, number: int) -> Kind:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Integral):
        if value not in _INT64:
            raise DatasetError(f"Graph {number}: {shown} is {value}; expected an int of 64 bits.")
        return "int"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        return "str"
    advice = "Make it a tensor, or leave it out: del data." + shown.rpartition(".")[2]
    if type(value).__name__ == "SparseTensor":
        advice = "Keep the edges as edge_index: row, col, _ = adj.coo(); edge_index = torch.stack([row, col])."
    elif type(value).__module__ == "numpy":
        advice = "Write torch.as_tensor(…)."
    shape = f" of {len(value)}" if isinstance(value, (list, tuple, dict)) else ""
    raise DatasetError(
        f"Graph {number}: {shown} is a {type(value).__name__}{shape}; expected a tensor, str, int, float or bool.",
        advice,
    )


def _check_layout(value: Tensor, shown: str, number: int) -> None:
    if value.layout is not torch.strided:
        raise DatasetError(
            f"Graph {number}: {shown} is a sparse tensor; expected a dense one.",
            f"Keep edges as edge_index: edge_index = {shown}.to_sparse_coo().coalesce().indices().",
        )
    if value.is_nested or value.is_quantized or value.device.type == "meta":
        raise DatasetError(f"Graph {number}: {shown} is a nested, quantized or meta tensor; expected a dense one.")
    if value.dtype not in DTYPES:
        raise DatasetError(f"Graph {number}: {shown} is {value.dtype}; expected one of {', '.join(DTYPES.values())}.")


def _is_whole(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex and dtype is not torch.bool


def _recast(column: Growing, value: Tensor, number: int) -> Tensor:
    """Ids of another width, or none at all, take the dtype of the graphs before; anything else is refused."""
    _check_layout(value, column.label, number)
    wanted: torch.dtype = column.torch_dtype
    if value.dtype is wanted:
        return value
    if column.key == "edge_index" and value.numel() == 0:
        return value.to(wanted)
    if "index" in column.key and _is_whole(value.dtype) and _is_whole(wanted):
        limits = torch.iinfo(wanted)
        if value.numel() == 0 or (int(value.min()) >= limits.min and int(value.max()) <= limits.max):
            return value.to(wanted)
        raise DatasetError(
            f"Graph {number}: {column.label} has ids up to {int(value.max())}, beyond {column.dtype}, which it is in "
            "the graphs before.",
            f"Make it int64 in every graph: {column.label} = {column.label}.long().",
        )
    raise DatasetError(
        f"Graph {number}: {column.label} is {DTYPES[value.dtype]}; expected {column.dtype}, as in the graphs before.",
        f"Make it one dtype in every graph: {column.label} = {column.label}.to(torch.{column.dtype}).",
    )


def _other_kind(column: Growing, value: Any, number: int) -> DatasetError:
    found = "tensor" if isinstance(value, Tensor) else type(value).__name__
    return DatasetError(
        f"Graph {number}: {column.label} is a {found}; expected {column.kind}, as in the graphs before.",
        "Make it one type in every graph.",
    )


def _other_shape(column: Growing, value: Tensor, number: int) -> DatasetError:
    sizes: list[Any] = list(column.shape)
    if column.cat_dim is not None:
        sizes.insert(column.cat_dim, "*")
    joined = ""
    if "index" in column.key and column.key != "edge_index":
        joined = "PyG joins attributes with 'index' in their name along the last dimension: rename it, such as to _idx."
    return DatasetError(
        f"Graph {number}: {column.label} has shape {list(value.shape)}; expected [{', '.join(map(str, sizes))}], as in "
        "the graphs before.",
        joined,
    )


def uneven(found: str, column: Growing) -> DatasetError:
    return DatasetError(
        f"{found} (None counts as missing); expected the same attributes in every graph.",
        f"Set {column.label} in every graph, in pre_transform for example, or give missing='keep'.",
    )
