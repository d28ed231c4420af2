"""A graph as its source gave it, before anything was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
