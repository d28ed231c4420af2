"""From the user's own node ids, any whole numbers, to rows of x."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.arrays import new_array
from pygsage.data.one_graph.checks import INTEGERS, check_dense, check_edge_list, shape_of, to_cpu
from pygsage.data.one_graph.raw import RawGraph
from pygsage.errors import DatasetError

_CHUNK_EDGES = 1 << 21


def relabel(raw: RawGraph, num_nodes: int, scratch: Path | None = None) -> Tensor:
    """Puts rows of x in the place of ids in `edge_index` and the index splits of `raw`.

    The rows belong to the ids in `node_id`; without it, to the ids in `edge_index` in ascending order, if they are
    as many as the rows.

    Args:
        scratch: A folder for the new `edge_index`, which is then mapped from there, where it may not fit in RAM.

    Returns:
        int64 `[N]`: the id of each row.

    Raises:
        DatasetError: when `node_id` is malformed, or is missing and cannot be told from the edges.
    """
    edge_index = check_edge_list(raw, convert=scratch is None)
    if raw.node_id is None:
        ids = _different(edge_index.numpy())
        if len(ids) != num_nodes:
            raise DatasetError(
                f"{raw.origin}: edge_index holds {len(ids)} different ids and x has {num_nodes} rows; expected one id "
                "a row for --relabel.",
                "Store node_id [N], the id of each row: nodes without edges have a row too.",
            )
        order = None
    else:
        ids, order = _own_ids(raw, num_nodes)
    if scratch is None or edge_index.numel() == 0:
        raw.edge_index = _rows(raw, "edge_index", edge_index, ids, order)
    else:
        raw.edge_index = _rows_on_disk(raw, edge_index, ids, order, scratch / "relabelled.npy")
    splits = dict(raw.splits)
    for key, value in splits.items():
        # What is no list of ids is refused later, with the other splits.
        if key.endswith("_idx") and isinstance(value, Tensor) and value.dtype in INTEGERS and value.numel():
            value = to_cpu(raw, key, value)
            check_dense(raw, key, value)
            splits[key] = _rows(raw, key, value.to(torch.int64), ids, order)
    raw.splits = splits
    raw.notes.append(f"Nodes have ids of their own, {ids[0]} to {ids[-1]}; they are numbered by the rows of x.")
    return torch.from_numpy(ids if order is None else ids[np.argsort(order)])


def _own_ids(raw: RawGraph, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids in ascending order, and the row of each."""
    node_id = to_cpu(raw, "node_id", raw.node_id)
    check_dense(raw, "node_id", node_id)
    if node_id.dtype not in INTEGERS or not node_id.numel() == num_nodes == max(node_id.shape, default=0):
        found = f"{shape_of(node_id)} of {str(node_id.dtype).removeprefix('torch.')}"
        raise DatasetError(f"{raw.origin}: node_id is {found}; expected one whole number for each of {num_nodes} rows.")
    ids = node_id.flatten().to(torch.int64).numpy()
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        raise DatasetError(f"{raw.origin}: node_id holds {twice[0]} more than once; expected each id once.")
    return ids, order


def _different(values: np.ndarray) -> np.ndarray:
    """The different values, int64, ascending; in pieces, so that it costs their number and not that of the values."""
    found = np.empty(0, dtype=np.int64)
    for start in range(0, values.shape[1], _CHUNK_EDGES):
        some = np.unique(values[:, start : start + _CHUNK_EDGES]).astype(np.int64, copy=False)
        found = np.union1d(found, some) if start else some
    return found


def _rows_on_disk(raw: RawGraph, edge_index: Tensor, ids: np.ndarray, order: np.ndarray | None, path: Path) -> Tensor:
    rows = new_array(path, np.dtype(np.int64), tuple(edge_index.shape))
    for start in range(0, rows.shape[1], _CHUNK_EDGES):
        some = slice(start, start + _CHUNK_EDGES)
        rows[:, some] = _rows(raw, "edge_index", edge_index[:, some].to(torch.int64), ids, order).numpy()
    return torch.from_numpy(rows)


def _rows(raw: RawGraph, key: str, values: Tensor, ids: np.ndarray, order: np.ndarray | None) -> Tensor:
    wanted = values.numpy()
    place = np.searchsorted(ids, wanted).clip(max=len(ids) - 1)
    strange = ids[place] != wanted
    if strange.any():
        raise DatasetError(
            f"{raw.origin}: {key} holds {wanted[strange][0]}, which is no node's id ({int(strange.sum())} in all); "
            f"expected ids of {'node_id' if order is not None else 'edge_index'}."
        )
    return torch.from_numpy(place if order is None else order[place])
