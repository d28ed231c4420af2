from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import HeteroData

from pygsage.data.one_graph.hetero import build_relation, checked_edge_index, count_nodes, edges_of
from pygsage.errors import DatasetError

TYPE = ("a", "to", "b")


def _data() -> HeteroData:
    data = HeteroData()
    data["a"].x = torch.zeros(3, 2)
    data["b"].num_nodes = 4
    data[TYPE].edge_index = torch.tensor([[0, 2], [3, 3]])
    return data


def test_c022_a_type_with_only_a_number_of_nodes_is_counted() -> None:
    assert count_nodes(_data()) == {"a": 3, "b": 4}


def test_types_without_a_count_are_refused() -> None:
    data = _data()
    data["c"].y = torch.zeros(3)
    with pytest.raises(DatasetError, match=r"'c' has neither features nor a number.*data\['c'\].num_nodes"):
        count_nodes(data)
    data = _data()
    data["a", "to", "d"].edge_index = torch.tensor([[0], [0]])
    with pytest.raises(DatasetError, match=r"the node type 'd', of which the data say nothing"):
        count_nodes(data)
    data = _data()
    data["a"].num_nodes = 5
    with pytest.raises(DatasetError, match="x of 3 rows, but num_nodes is 5"):
        count_nodes(data)


def test_edges_of_a_type() -> None:
    data = _data()
    assert edges_of(data, TYPE).tolist() == [[0, 2], [3, 3]]
    data["a", "none", "b"].edge_attr = torch.zeros(0, 1)
    assert edges_of(data, ("a", "none", "b")).shape == (2, 0)
    data["a", "sparse", "b"].adj_t = torch.zeros(4, 3).to_sparse()
    with pytest.raises(DatasetError, match="has its edges in adj_t; expected edge_index"):
        edges_of(data, ("a", "sparse", "b"))


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        (torch.zeros(2, 3), r"torch.float32 of shape \[2, 3\]"),
        (torch.zeros(2, 3, dtype=torch.bool), "torch.bool"),
        (torch.zeros(3, 2, dtype=torch.int64), r"shape \[3, 2\]"),
        ([[0], [1]], "a list"),
    ],
)
def test_edges_of_another_kind_are_refused(edges: object, said: str) -> None:
    with pytest.raises(DatasetError, match=f"it.* {said}"):
        checked_edge_index(edges, "it")


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 40), st.integers(0, 1000))
def test_relations_are_grouped_by_destination(num_sources: int, num_targets: int, num_edges: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.stack([torch.randint(n, (num_edges,), generator=generator) for n in (num_sources, num_targets)])
    csc = build_relation(edges, num_sources, num_targets, "r")
    assert len(csc.indptr) == num_targets + 1
    for v in range(num_targets):
        place = slice(int(csc.indptr[v]), int(csc.indptr[v + 1]))
        assert csc.perm[place].tolist() == (edges[1] == v).nonzero().view(-1).tolist()
        assert csc.indices[place].tolist() == edges[0][edges[1] == v].tolist()


@pytest.mark.parametrize("edge", [(3, 0), (0, 4), (-1, 0), (0, -1)])
def test_c034_an_edge_out_of_range_is_refused(edge: tuple[int, int]) -> None:
    edges = torch.tensor([[0, edge[0]], [1, edge[1]]])
    with pytest.raises(DatasetError, match=f"r: edge 1 is {edge[0]} -> {edge[1]}; expected a source from 0 to below 3"):
        build_relation(edges, 3, 4, "r")
