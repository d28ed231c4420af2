from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pygsage import DatasetError, NeighborSampler
from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.topology import HeteroEdges, read_edges

Hetero = Callable[..., HeteroData]


def in_layout(edge_index: Tensor, size: tuple[int, int], layout: str) -> tuple[Tensor, Tensor]:
    if layout == "coo":
        return edge_index[0], edge_index[1]
    by = 1 if layout == "csc" else 0
    order = edge_index[by].argsort(stable=True)
    pointers = torch.zeros(size[by] + 1, dtype=torch.int64)
    pointers[1:] = torch.bincount(edge_index[by], minlength=size[by]).cumsum(0)
    other = edge_index[1 - by][order]
    return (other, pointers) if layout == "csc" else (pointers, other)


def stores_of(data: HeteroData, layout: str, sized: bool = True) -> tuple[MyFeatureStore, MyGraphStore]:
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in data.node_types:
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
    for edge_type in data.edge_types:
        size = (data[edge_type[0]].num_nodes, data[edge_type[2]].num_nodes)
        parts = in_layout(data[edge_type].edge_index, size, layout)
        graph.put_edge_index(parts, edge_type=edge_type, layout=layout, size=size if sized else None)
    return features, graph


def as_given(data: HeteroData, edges: Any, edge_type: tuple[str, str, str], layout: str) -> Tensor:
    """Each place of the sampler's edges as a position in the data's edge list."""
    if layout == "coo":
        return edges.edge_id
    order = data[edge_type].edge_index[1 if layout == "csc" else 0].argsort(stable=True)
    return order if edges.edge_id is None else order[edges.edge_id]


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
def test_stores_in_every_layout_give_the_edges_of_the_data(hetero: Hetero, layout: str, sized: bool) -> None:
    data = hetero(2)
    expected, got = read_edges(data), read_edges(stores_of(data, layout, sized))
    assert isinstance(expected, HeteroEdges)
    assert isinstance(got, HeteroEdges)
    assert got.num_nodes == expected.num_nodes
    for edge_type, edges in expected.edges.items():
        assert torch.equal(got.edges[edge_type].indptr, edges.indptr)
        for v in range(len(edges.indptr) - 1):  # within a node the order is the store's
            place = slice(int(edges.indptr[v]), int(edges.indptr[v + 1]))
            assert sorted(got.edges[edge_type].indices[place].tolist()) == sorted(edges.indices[place].tolist())
        ids = as_given(data, got.edges[edge_type], edge_type, layout)
        assert torch.equal(data[edge_type].edge_index[0][ids], got.edges[edge_type].indices.to(torch.int64))


@pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
def test_pyg_loaders_on_pyg_s_test_stores(hetero: Hetero, layout: str) -> None:
    data = hetero(4)
    pair = stores_of(data, layout)
    sampler = NeighborSampler(pair, [3, 2])
    batch = next(iter(NeighborLoader(pair, [3, 2], "paper", neighbor_sampler=sampler, batch_size=6)))
    for edge_type in data.edge_types:
        source, _, target = edge_type
        edge_index = batch[edge_type].edge_index
        pairs = set(map(tuple, data[edge_type].edge_index.T.tolist()))
        ends = zip(batch[source].n_id[edge_index[0]].tolist(), batch[target].n_id[edge_index[1]].tolist(), strict=True)
        assert set(ends) <= pairs
    assert torch.equal(batch["author"].x, data["author"].x[batch["author"].n_id])
    some = ("paper", "cites", "paper")
    links = (some, data[some].edge_index)
    loader = LinkNeighborLoader(pair, [2], links, neighbor_sampler=sampler, batch_size=4, neg_sampling="binary")
    part = next(iter(loader))
    ends = part["paper"].n_id[part[some].edge_label_index[:, :4]]
    assert torch.equal(ends, data[some].edge_index[:, :4])


@pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
def test_stores_of_one_graph(layout: str) -> None:
    generator = torch.Generator().manual_seed(0)
    data = Data(x=torch.randn(20, 3, generator=generator), edge_index=torch.randint(20, (2, 90), generator=generator))
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    parts = in_layout(data.edge_index, (20, 20), layout)
    graph.put_edge_index(parts, edge_type=None, layout=layout, size=(20, 20))
    sampler = NeighborSampler((features, graph), [-1, -1])
    ours = NeighborSampler(data, [-1, -1])
    batch = next(
        iter(NeighborLoader((features, graph), [-1, -1], torch.arange(4), neighbor_sampler=sampler, batch_size=4))
    )
    same = next(iter(NeighborLoader(data, [-1, -1], torch.arange(4), neighbor_sampler=ours, batch_size=4)))
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert sorted(batch.n_id.tolist()) == sorted(same.n_id.tolist())
    assert batch.num_sampled_edges == same.num_sampled_edges
    assert (sampler.edge_permutation is None) == (layout == "csc")


def test_a_heterodata_is_a_pair_of_stores_too(hetero: Hetero) -> None:
    data = hetero(2)
    pair, whole = read_edges((data, data)), read_edges(data)
    assert isinstance(pair, HeteroEdges)
    assert isinstance(whole, HeteroEdges)
    for edge_type, edges in whole.edges.items():
        assert torch.equal(pair.edges[edge_type].indices, edges.indices)


def test_stores_that_do_not_fit_are_refused(hetero: Hetero) -> None:
    data = hetero(2)
    some = ("paper", "cites", "paper")
    num_papers = data["paper"].num_nodes

    def refused(features: Any, graph: Any, said: str) -> None:
        with pytest.raises(DatasetError, match=said):
            NeighborSampler((features, graph), [2])

    features, graph = stores_of(data, "coo")
    refused(features, MyGraphStore(), "has no edges")
    bigger = copy.copy(features)
    bigger.store = {**features.store, ("paper", "x"): (torch.arange(num_papers + 1), torch.zeros(num_papers + 1, 2))}
    refused(bigger, graph, "do not agree on how many there are of node type 'paper'")
    graph.put_edge_index((torch.tensor([0]), torch.tensor([0])), edge_type=None, layout="coo", size=(1, 1))
    refused(features, graph, "with and without an edge type")

    for parts, layout, said in [
        ((torch.tensor([num_papers]), torch.tensor([0])), "coo", rf"edge 0 is {num_papers} -> 0"),
        ((torch.tensor([0]), torch.zeros(num_papers + 1, dtype=torch.int64)), "csc", "pointers from 0 to 0"),
        ((torch.tensor([0]), torch.tensor([0, 1])), "csc", "do not agree|has 2 pointers"),
    ]:
        graph = MyGraphStore()
        graph.put_edge_index(parts, edge_type=some, layout=layout, size=(num_papers, num_papers))
        refused(features, graph, said)
    graph = MyGraphStore()
    graph.put_edge_index((torch.tensor([0]), torch.tensor([0])), edge_type=some, layout="coo")
    refused(MyFeatureStore(), graph, "Neither store says how many there are of node type 'paper'")


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(DatasetError, match="given a list; expected"):
        read_edges([1, 2])
    with pytest.raises(DatasetError, match="HeteroData has no edge types"):
        read_edges(HeteroData())


def test_a_graph_is_read_where_it_lies() -> None:
    parts = torch.tensor([0, 1, 1]), torch.tensor([1], dtype=torch.int32), torch.tensor([-1])
    graph = Graph("g", *parts, torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64), {}, 1)
    edges = read_edges(graph)
    assert edges[0] is graph.indptr
    assert edges[1] is graph.indices
