"""Options that change a graph, against brute force and against PyG."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import to_undirected as pyg_to_undirected

from pygsage.data.one_graph.options import add_self_loops, normalize_features, to_undirected

Edges = list[tuple[int, int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    num_nodes = draw(st.integers(1, 8))
    node = st.integers(0, num_nodes - 1)
    return num_nodes, draw(st.lists(st.tuples(node, node), max_size=30))


def as_tensor(edges: Edges) -> Tensor:
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous()


def as_pairs(edge_index: Tensor) -> Edges:
    return [(int(u), int(v)) for u, v in edge_index.T.tolist()]


def reversed_ones_added(edges: Edges) -> tuple[Edges, list[int]]:
    """The same, slow and obvious."""
    kept = [(edge, i) for i, edge in enumerate(edges) if edge not in edges[:i]]
    added = [(v, u) for (u, v), _ in kept if (v, u) not in edges]
    return [edge for edge, _ in kept] + added, [i for _, i in kept] + [-1] * len(added)


@given(graphs())
def test_undirected_equals_brute_force_and_pyg(graph: tuple[int, Edges]) -> None:
    num_nodes, edges = graph
    given_edges = as_tensor(edges)
    edge_index, edge_id = to_undirected(given_edges, None, num_nodes)
    assert (as_pairs(edge_index), edge_id.tolist()) == reversed_ones_added(edges)
    assert sorted(as_pairs(edge_index)) == as_pairs(pyg_to_undirected(given_edges, num_nodes=num_nodes))
    kept = edge_id >= 0
    assert torch.equal(edge_index[:, kept], given_edges[:, edge_id[kept]])
    assert as_pairs(given_edges) == edges  # untouched


@given(graphs())
def test_undirected_twice_is_undirected_once(graph: tuple[int, Edges]) -> None:
    num_nodes, edges = graph
    once, ids = to_undirected(as_tensor(edges), None, num_nodes)
    twice, ids_twice = to_undirected(once, ids, num_nodes)
    assert torch.equal(once, twice)
    assert torch.equal(ids, ids_twice)


def test_undirected_with_many_nodes_does_not_overflow() -> None:
    num_nodes = 2**31 - 1
    edges = as_tensor([(num_nodes - 1, num_nodes - 2), (0, num_nodes - 1), (num_nodes - 1, num_nodes - 1)])
    edge_index, edge_id = to_undirected(edges, None, num_nodes)
    assert edge_id.tolist() == [0, 1, 2, -1, -1]
    assert as_pairs(edge_index)[3:] == [(num_nodes - 2, num_nodes - 1), (num_nodes - 1, 0)]


@given(graphs())
def test_self_loops_go_to_nodes_without_one(graph: tuple[int, Edges]) -> None:
    num_nodes, edges = graph
    edge_index, edge_id = add_self_loops(as_tensor(edges), None, num_nodes)
    missing = [(v, v) for v in range(num_nodes) if (v, v) not in edges]
    assert as_pairs(edge_index) == edges + missing
    assert edge_id.tolist() == list(range(len(edges))) + [-1] * len(missing)


def test_c040_a_row_of_zeros_stays_finite() -> None:
    x = normalize_features(torch.tensor([[0.0, 0.0], [3.0, 1.0]]))
    assert x.tolist() == [[0.0, 0.0], [0.75, 0.25]]


@given(st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=1, max_size=9))
def test_normalising_equals_pyg_and_happens_in_place(rows: list[list[float]]) -> None:
    x = torch.tensor(rows)
    expected = NormalizeFeatures()(Data(x=x.clone())).x
    scaled = normalize_features(x)
    assert scaled.data_ptr() == x.data_ptr()
    assert torch.equal(scaled, expected)
