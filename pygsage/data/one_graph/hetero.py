"""A PyG `HeteroData`, checked: how many nodes each type has, and each edge type's in-neighbours."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from pygsage.data.one_graph.csc import Csc, build_csc
from pygsage.errors import DatasetError


def count_nodes(data: HeteroData) -> dict[str, int]:
    """The number of nodes of each type, in the order of the data.

    Raises:
        DatasetError: when a type has no count, or is named by an edge type only.
    """
    counts: dict[str, int] = {}
    for name in data.node_types:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyG warns where the sentence below says what to do
            count = data[name].num_nodes
        if count is None:
            raise DatasetError(
                f"Node type {name!r} has neither features nor a number of nodes.",
                f"Type: data[{name!r}].num_nodes = …",
            )
        x = data[name].get("x")
        if isinstance(x, Tensor) and x.size(0) != count:
            raise DatasetError(f"Node type {name!r} has x of {x.size(0)} rows, but num_nodes is {count}.")
        counts[name] = int(count)
    for edge_type in data.edge_types:
        for name in (edge_type[0], edge_type[2]):
            if name not in counts:
                raise DatasetError(
                    f"Edge type {edge_type} has the node type {name!r}, of which the data say nothing.",
                    f"Type: data[{name!r}].num_nodes = …",
                )
    return counts


def edges_of(data: HeteroData, edge_type: tuple[str, str, str]) -> Tensor:
    """The edges of one type, int64 `[2, E]`; none when the type has no `edge_index`.

    Raises:
        DatasetError: when they are not integers of that shape, or are held as a sparse matrix.
    """
    storage = data[edge_type]
    edge_index = storage.get("edge_index")
    if edge_index is None:
        for name in ("adj_t", "adj"):
            if name in storage:
                raise DatasetError(
                    f"Edge type {edge_type} has its edges in {name}; expected edge_index, integers of shape [2, E]."
                )
        return torch.empty(2, 0, dtype=torch.int64)
    return checked_edge_index(edge_index, f"edge_index of {edge_type}")


def checked_edge_index(edge_index: Any, what: str) -> Tensor:
    """The same as int64 on the CPU.

    Raises:
        DatasetError: when it is not a tensor of integers of shape `[2, E]`; `what` names it.
    """
    if not isinstance(edge_index, Tensor):
        raise DatasetError(f"{what} is a {type(edge_index).__name__}; expected integers of shape [2, E].")
    integers = not edge_index.is_floating_point() and edge_index.dtype != torch.bool
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or not integers:
        raise DatasetError(
            f"{what} is {edge_index.dtype} of shape {list(edge_index.shape)}; expected integers of shape [2, E]."
        )
    return edge_index.as_subclass(Tensor).to("cpu", torch.int64)


def build_relation(edge_index: Tensor, num_sources: int, num_targets: int, what: str) -> Csc:
    """Groups edges from one node type to another by destination, keeping their order within each.

    Args:
        edge_index: int64 `[2, E]`, source ids above destination ids.
        what: Names the edges in errors.

    Raises:
        DatasetError: for an id out of range, naming the first such edge.

    Costs as `build_csc`.
    """
    sources, targets = edge_index
    outside = (sources < 0) | (sources >= num_sources) | (targets < 0) | (targets >= num_targets)
    if outside.any():
        edge = int(outside.to(torch.uint8).argmax())
        raise DatasetError(
            f"{what}: edge {edge} is {int(sources[edge])} -> {int(targets[edge])}; expected a source from 0 to below "
            f"{num_sources} and a destination from 0 to below {num_targets}."
        )
    csc = build_csc(edge_index, max(num_sources, num_targets))
    # Beyond the destinations every pointer says the same: the end.
    indptr = csc.indptr[: num_targets + 1]
    return csc._replace(indptr=indptr.clone() if len(indptr) < len(csc.indptr) else indptr)
