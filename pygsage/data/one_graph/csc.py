"""From a list of edges to in-neighbours grouped by destination (CSC)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pygsage.native import core


class Csc(NamedTuple):
    """In-neighbours of node v: `indices[indptr[v]:indptr[v + 1]]`.

    Args:
        indptr: int64 `[N + 1]`.
        indices: int32, or int64 from 2**31 nodes on, `[E]`; the sources.
        perm: int64 `[E]`, for each position the edge's place in the list it was built from.
    """

    indptr: Tensor
    indices: Tensor
    perm: Tensor


def build_csc(edge_index: Tensor, num_nodes: int) -> Csc:
    """Groups edges by destination, keeping their order within each: a stable counting sort.

    Args:
        edge_index: int64 `[2, E]`.

    Raises:
        ValueError: for an id outside `[0, num_nodes)`, naming the first such edge.

    O(N + E) time in the native core; with NumPy, which gives the same result, it costs a sort. Beside the result
    (8 bytes a node, 12 an edge) it needs up to 8 bytes a node, and with NumPy 8 more an edge.
    """
    index_dtype = np.dtype(np.int32 if num_nodes < 2**31 else np.int64)
    sources, destinations = edge_index.contiguous().numpy()
    if core is None:
        arrays = _build(sources, destinations, num_nodes, index_dtype)
    else:
        arrays = core.build_csc(sources, destinations, num_nodes, index_dtype.name)
    return Csc(*(torch.from_numpy(array) for array in arrays))


def _build(
    sources: np.ndarray, destinations: np.ndarray, num_nodes: int, index_dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    outside = (sources < 0) | (sources >= num_nodes) | (destinations < 0) | (destinations >= num_nodes)
    if outside.any():
        edge = int(outside.argmax())
        raise ValueError(
            f"edge {edge} is {sources[edge]} -> {destinations[edge]}; expected node ids from 0 to below {num_nodes}"
        )
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(destinations, minlength=num_nodes), out=indptr[1:])
    perm = np.argsort(destinations, kind="stable")
    return indptr, sources[perm].astype(index_dtype, copy=False), perm
