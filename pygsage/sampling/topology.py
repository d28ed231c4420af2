"""What a sampler needs of a graph, read from whatever PyG takes for data."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout

from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.hetero import build_relation, checked_edge_index, count_nodes, edges_of
from pygsage.data.one_graph.mapped import MappedGraphStore
from pygsage.errors import DatasetError
from pygsage.sampling.sample import EdgeType

Claims = dict[str | None, dict[str, int]]  # node type -> where a number of nodes was found -> that number


class Edges(NamedTuple):
    """In-neighbours of node v: `indices[indptr[v]:indptr[v + 1]]`.

    Args:
        indptr: int64 `[number of destination nodes + 1]`.
        indices: int32 or int64 `[E]`, source nodes.
        edge_id: int64 `[E]`, each edge's position in the user's list, -1 for added ones; None when they are the same.
    """

    indptr: Tensor
    indices: Tensor
    edge_id: Tensor | None


@dataclass(frozen=True, eq=False)
class HeteroEdges:
    """The edges of a graph with types.

    Attributes:
        num_nodes: Each node type's number of nodes.
        edges: Each edge type's edges, sorted by edge type.
    """

    num_nodes: dict[str, int]
    edges: dict[EdgeType, Edges]


def read_edges(data: Any) -> Edges | HeteroEdges:
    """Reads the edges of a graph of any kind that the sampler takes.

    Args:
        data: A PyG `Data` or `HeteroData`, a `Graph`, or a pair of PyG's `FeatureStore` and `GraphStore`.

    Raises:
        DatasetError: when it is none of these, or an edge is out of range.

    Costs a counting sort for edges that are not in CSC: O(E) time, 12 bytes an edge and 8 a node.
    """
    if isinstance(data, Graph):
        return Edges(data.indptr, data.indices, data.edge_id)
    if isinstance(data, Data):
        return _edges_of_data(data)
    if isinstance(data, HeteroData):
        if not data.edge_types:
            raise DatasetError("The HeteroData has no edge types; expected at least one.")
        num_nodes = count_nodes(data)
        edges = {}
        for edge_type in sorted(data.edge_types):
            source, _, target = edge_type
            edge_index = edges_of(data, edge_type)
            csc = build_relation(edge_index, num_nodes[source], num_nodes[target], f"Edge type {edge_type}")
            edges[edge_type] = Edges(*csc)
        return HeteroEdges(num_nodes, edges)
    if _is_pair(data):
        return _edges_of_stores(*data)
    raise DatasetError(
        f"The sampler was given a {type(data).__name__}; expected a torch_geometric Data or HeteroData, a Graph, or a "
        "pair of a FeatureStore and a GraphStore."
    )


def path_of(data: Any) -> Any:
    """The same data in a form that is pickled as the path of a folder; None when the edges are not mapped from one."""
    if isinstance(data, Graph):
        return data if data.folder is not None else None
    if _is_pair(data) and isinstance(data[1], MappedGraphStore):
        return data[0], copy.copy(data[1])  # what the user removes later does not concern this sampler
    return None


def _is_pair(data: Any) -> bool:
    return (
        isinstance(data, (tuple, list))
        and len(data) == 2
        and isinstance(data[0], FeatureStore)
        and isinstance(data[1], GraphStore)
    )


def _edges_of_data(data: Data) -> Edges:
    if data.edge_index is None:
        raise DatasetError("The graph has no edge_index; expected integers of shape [2, E].")
    try:
        return Edges(*build_csc(checked_edge_index(data.edge_index, "edge_index"), int(data.num_nodes or 0)))
    except ValueError as error:
        raise DatasetError(f"The graph's {error}.") from None


def _edges_of_stores(features: FeatureStore, graph: GraphStore) -> Edges | HeteroEdges:
    by_type: dict[EdgeType | None, list[EdgeAttr]] = defaultdict(list)
    for attr in graph.get_all_edge_attrs():
        by_type[None if attr.edge_type is None else tuple(attr.edge_type)].append(attr)
    if not by_type:
        raise DatasetError("The graph store has no edges.")
    if None in by_type and len(by_type) > 1:
        raise DatasetError("The graph store has edges with and without an edge type; expected one or the other.")
    chosen = {edge_type: _preferred(attrs) for edge_type, attrs in by_type.items()}
    raw = {edge_type: graph.get_edge_index(attr) for edge_type, attr in chosen.items()}
    num_nodes = _count_nodes(features, chosen, raw)

    def edges_of_type(edge_type: EdgeType | None) -> Edges:
        attr, parts = chosen[edge_type], raw[edge_type]
        source, target = _ends(edge_type)
        what = "The graph store" if edge_type is None else f"Edge type {edge_type}"
        if attr.layout == EdgeLayout.CSC:
            edges = _without_sorting(graph, edge_type, *parts)
            _check_pointers(edges.indptr, num_nodes[target], len(edges.indices), what)
            return edges
        rows, columns = parts
        if attr.layout == EdgeLayout.CSR:
            pointers = rows.to(torch.int64)
            _check_pointers(pointers, num_nodes[source], len(columns), what)
            rows = torch.repeat_interleave(torch.arange(len(pointers) - 1), pointers.diff())
        edge_index = checked_edge_index(torch.stack([rows, columns]), f"{what}'s edge index")
        return Edges(*build_relation(edge_index, num_nodes[source], num_nodes[target], what))

    if None in by_type:
        return edges_of_type(None)
    typed = sorted(edge_type for edge_type in by_type if edge_type is not None)
    return HeteroEdges(
        {str(name): num_nodes[name] for name in sorted(num_nodes, key=str)},
        {edge_type: edges_of_type(edge_type) for edge_type in typed},
    )


def _preferred(attrs: Sequence[EdgeAttr]) -> EdgeAttr:
    """The layout that costs least: as it is needed, else in the user's order."""
    order = [EdgeLayout.CSC, EdgeLayout.COO, EdgeLayout.CSR]
    return min(attrs, key=lambda attr: order.index(attr.layout))


def _without_sorting(graph: GraphStore, edge_type: EdgeType | None, indices: Tensor, indptr: Tensor) -> Edges:
    """Edges that are held in CSC; the store may know where they stood in the user's list."""
    edge_id = graph.csc()[2] if edge_type is None else graph.csc([edge_type])[2][edge_type]
    if indices.dtype != torch.int32:
        indices = indices.to(torch.int64)
    return Edges(indptr.to(torch.int64).contiguous(), indices.contiguous(), edge_id)


def _check_pointers(indptr: Tensor, num_nodes: int, num_edges: int, what: str) -> None:
    if len(indptr) != num_nodes + 1:
        raise DatasetError(f"{what} has {len(indptr)} pointers; expected {num_nodes + 1}, one more than nodes.")
    if (int(indptr[0]), int(indptr[-1])) != (0, num_edges):
        raise DatasetError(f"{what} has pointers from {indptr[0]} to {indptr[-1]}; expected 0 to {num_edges}.")


def _ends(edge_type: EdgeType | None) -> tuple[str | None, str | None]:
    return (None, None) if edge_type is None else (edge_type[0], edge_type[2])


def _count_nodes(
    features: FeatureStore, attrs: dict[EdgeType | None, EdgeAttr], raw: dict[EdgeType | None, Any]
) -> dict[str | None, int]:
    """Each node type's number of nodes, as the sizes of edges, pointers and features say."""
    claims: Claims = defaultdict(dict)
    for edge_type, attr in attrs.items():
        source, target = _ends(edge_type)
        rows, columns = attr.size or (None, None)
        if edge_type is None and rows is not None and columns is not None:
            rows = columns = max(rows, columns)  # PyG's meaning
        if rows is None and attr.layout == EdgeLayout.CSR:
            rows = len(raw[edge_type][0]) - 1
        if columns is None and attr.layout == EdgeLayout.CSC:
            columns = len(raw[edge_type][1]) - 1
        for name, count in ((source, rows), (target, columns)):
            found = claims[name]
            if count is not None:
                found[f"edge type {edge_type}"] = int(count)
    typed = None not in attrs
    for attr in features.get_all_tensor_attrs():
        size = features.get_tensor_size(copy.copy(attr))
        if isinstance(attr.group_name, str) == typed and not isinstance(attr.group_name, tuple) and size:
            claims[attr.group_name if typed else None][f"feature {attr.attr_name}"] = int(size[0])
    return {name: _agreed(name, found) for name, found in claims.items()}


def _agreed(name: str | None, found: dict[str, int]) -> int:
    what = "the nodes" if name is None else f"node type {name!r}"
    if not found:
        raise DatasetError(
            f"Neither store says how many there are of {what}.",
            "Give the edges' EdgeAttr a size=(sources, destinations).",
        )
    if len(set(found.values())) > 1:
        told = ", ".join(f"{where}: {count}" for where, count in found.items())
        raise DatasetError(f"The stores do not agree on how many there are of {what} ({told}).")
    return next(iter(found.values()))
