"""A graph as its source gave it, before anything was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pygsage.memory.headers import ITEM_BYTES
from pygsage.memory.shapes import DatasetShape

SPLITS = ("train", "val", "test")


@dataclass
class RawGraph:
    """What a source found; `checks` and `splits` decide whether it can be used.

    Args:
        name: The dataset as the user named it.
        origin: Where it was read, for errors: a path or a class.
        x, edge_index, y: Tensors of any shape and dtype, or None when the source has none.
        splits: The source's own splits by key: `train_mask`, `val_idx`, ….
        notes: Lines worth telling the user.
        node_id: The user's own id of each row of x, int `[N]`, or None; looked at for `--relabel` only.
        grouped: Of a graph of ours, in the place of `edge_index`: indptr, indices, edge_id or None, checked when made.
        unit: What a row of y belongs to, in words: `node`, or `graph`.
    """

    name: str
    origin: str
    x: Any
    edge_index: Any
    y: Any
    splits: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    node_id: Any = None
    unit: str = "node"
    grouped: tuple[Any, Any, Any] | None = None


def shape_of_raw(raw: RawGraph) -> DatasetShape | None:
    """Counts and dtypes of what a source has read, and whether it is mapped from files; None where that is no graph."""
    x, edges, y = raw.x, raw.edge_index, raw.y
    if not all(isinstance(part, Tensor) for part in (x, edges, y)) or x.dim() != 2 or edges.dim() != 2:
        return None
    names = {key: str(part.dtype).removeprefix("torch.") for key, part in (("x", x), ("edges", edges), ("y", y))}
    if not set(names.values()) <= ITEM_BYTES.keys() or any(part.layout != torch.strided for part in (x, edges, y)):
        return None
    mapped = frozenset(key for key, part in (("x", x), ("edge_index", edges)) if _is_mapped(part))
    columns = y.size(1) if y.dim() == 2 else 1
    classes = int(y.max()) + 1 if columns == 1 and y.numel() and not y.is_floating_point() else 16
    if classes > max(x.size(0), 1):  # no labels that can be trained on: the door says what is wrong
        return None
    return DatasetShape(
        name=raw.name,
        source="its arrays",
        num_nodes=x.size(0),
        num_edges=edges.size(1),
        num_features=x.size(1),
        num_classes=columns if columns > 1 else max(1, classes),
        x_dtype=names["x"],
        index_dtype=names["edges"],
        y_dtype=names["y"],
        y_columns=columns,
        mapped=mapped,
        made="files" if "x" in mapped else "read",
    )


def _is_mapped(part: Tensor) -> bool:
    """Whether a tensor lies in a mapped file; such pages come and go with the page cache."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as lines:
            for line in lines:
                span, _, _, _, inode = line.split()[:5]
                first, last = (int(end, 16) for end in span.split("-"))
                if first <= part.data_ptr() < last:
                    return inode != "0"
    except (OSError, ValueError):
        pass
    return False
