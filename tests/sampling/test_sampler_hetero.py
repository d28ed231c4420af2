"""PyG's loaders on our sampler, on graphs with several types of nodes and edges."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import HeteroData
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv, to_hetero
from torch_geometric.sampler import NegativeSampling, NodeSamplerInput, NumNeighbors
from torch_geometric.utils import trim_to_layer

from pygsage import ConfigError, DatasetError, NeighborSampler

Hetero = Callable[..., HeteroData]
Fanouts = dict[tuple[str, str, str], list[int]]


def holds_what_pyg_promises(data: HeteroData, batch: HeteroData, fanouts: Fanouts, seeds: dict[str, Any]) -> None:
    """Every edge exists and was drawn once, each target has its share, and counts and order are right."""
    assert batch.node_types == data.node_types
    assert batch.edge_types == data.edge_types
    for name in data.node_types:
        n_id = batch[name].n_id
        first = seeds.get(name, torch.empty(0, dtype=torch.int64))
        assert torch.equal(n_id[: len(first)], first)
        assert len(n_id.unique()) == len(n_id)
        assert sum(batch[name].num_sampled_nodes) == len(n_id)
        assert batch[name].num_sampled_nodes[0] == len(first)
        if "x" in data[name]:
            assert torch.equal(batch[name].x, data[name].x[n_id])
    for edge_type in data.edge_types:
        source, _, target = edge_type
        part, whole = batch[edge_type], data[edge_type]
        ends = torch.stack([batch[source].n_id[part.edge_index[0]], batch[target].n_id[part.edge_index[1]]])
        assert torch.equal(ends, whole.edge_index[:, part.e_id])
        assert len(part.e_id.unique()) == len(part.e_id)
        if "edge_attr" in whole:
            assert torch.equal(part.edge_attr, whole.edge_attr[part.e_id])
        assert len(part.num_sampled_edges) == len(fanouts[edge_type])
        assert len(batch[target].num_sampled_nodes) == len(fanouts[edge_type]) + 1
        degree = torch.bincount(whole.edge_index[1], minlength=data[target].num_nodes)
        drawn = torch.bincount(part.edge_index[1], minlength=len(batch[target].n_id))
        begin = 0
        counts = zip(fanouts[edge_type], batch[target].num_sampled_nodes, part.num_sampled_edges, strict=False)
        for fanout, num_targets, num_edges in counts:
            targets = batch[target].n_id[begin : begin + num_targets]
            expected = degree[targets] if fanout == -1 else degree[targets].clamp(max=fanout)
            assert torch.equal(drawn[begin : begin + num_targets], expected)
            assert num_edges == int(expected.sum())
            begin += num_targets
        assert not drawn[begin:].any()


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.data())
def test_pyg_loader_gets_what_it_documents(hetero: Hetero, seed: int, choices: st.DataObject) -> None:
    data = hetero(seed)
    num_hops = choices.draw(st.integers(1, 3))
    numbers = st.lists(st.sampled_from([-1, 0, 1, 2, 5]), min_size=num_hops, max_size=num_hops)
    fanouts = {edge_type: choices.draw(numbers) for edge_type in data.edge_types}
    name = choices.draw(st.sampled_from(data.node_types))
    seeds = torch.randperm(data[name].num_nodes, generator=torch.Generator().manual_seed(seed))[:7]
    sampler = NeighborSampler(data, fanouts, seed)
    loader = NeighborLoader(data, fanouts, (name, seeds), neighbor_sampler=sampler, batch_size=7)
    batch = next(iter(loader))
    assert batch[name].batch_size == len(seeds)
    assert torch.equal(batch[name].input_id, torch.arange(len(seeds)))
    holds_what_pyg_promises(data, batch, fanouts, {name: seeds})
    plain = NeighborSampler(data, fanouts, seed, backend="reference")
    index = NodeSamplerInput(None, seeds, input_type=name)
    ours, theirs = sampler.sample_from_nodes(index, 1, 2), plain.sample_from_nodes(index, 1, 2)
    for part in ("node", "row", "col", "edge"):
        for key, value in getattr(ours, part).items():
            assert torch.equal(value, getattr(theirs, part)[key])
    assert ours.num_sampled_nodes == theirs.num_sampled_nodes


def test_the_order_of_types_changes_nothing(hetero: Hetero) -> None:
    data = hetero(3, mean_degree=40)
    shuffled = HeteroData()
    for name in reversed(data.node_types):
        shuffled[name].x = data[name].x
    for edge_type in reversed(data.edge_types):
        shuffled[edge_type].edge_index = data[edge_type].edge_index
    index = NodeSamplerInput(None, torch.arange(5), input_type="paper")
    a = NeighborSampler(data, [3, 3]).sample_from_nodes(index, 0, 0)
    b = NeighborSampler(shuffled, [3, 3]).sample_from_nodes(index, 0, 0)
    assert all(torch.equal(a.node[name], b.node[name]) for name in data.node_types)
    assert all(torch.equal(a.edge[edge_type], b.edge[edge_type]) for edge_type in data.edge_types)


def both_ways(data: HeteroData) -> HeteroData:
    """With the reverse of every edge, so that every node type is reached."""
    for source, relation, target in data.edge_types:
        if source != target:
            data[target, f"back_{relation}", source].edge_index = data[source, relation, target].edge_index.flip(0)
    return data


def test_to_hetero_graphsage_on_all_neighbours_equals_the_full_batch(hetero: Hetero) -> None:
    data = both_ways(hetero(5))
    torch.manual_seed(0)
    model = to_hetero(GraphSAGE((-1, -1), 8, 3, 4), data.metadata()).eval()
    whole = model(data.x_dict, data.edge_index_dict)["paper"]
    sampler = NeighborSampler(data, [-1, -1, -1])
    seen = 0
    for batch in NeighborLoader(data, [-1] * 3, "paper", neighbor_sampler=sampler, batch_size=4):
        rows = model(batch.x_dict, batch.edge_index_dict)["paper"][: batch["paper"].batch_size]
        torch.testing.assert_close(rows, whole[batch["paper"].n_id[: batch["paper"].batch_size]])
        seen += len(rows)
    assert seen == data["paper"].num_nodes


def test_trim_to_layer_on_all_neighbours_equals_the_full_batch(hetero: Hetero) -> None:
    data = both_ways(hetero(6))
    torch.manual_seed(0)
    layers = [HeteroConv({edge_type: SAGEConv((-1, -1), 8) for edge_type in data.edge_types}) for _ in range(2)]

    def run(part: HeteroData, counts: tuple[dict[Any, list[int]], dict[Any, list[int]]] | None) -> torch.Tensor:
        x, edges = dict(part.x_dict), dict(part.edge_index_dict)
        for i, layer in enumerate(layers):
            if counts is not None:
                x, edges, _ = trim_to_layer(i, *counts, x, edges)
            x = layer(x, edges)
        return x["paper"]

    whole = run(data, None)
    sampler = NeighborSampler(data, [-1, -1])
    for batch in NeighborLoader(data, [-1, -1], "paper", neighbor_sampler=sampler, batch_size=4):
        size = batch["paper"].batch_size
        counts = (batch.collect("num_sampled_nodes"), batch.collect("num_sampled_edges"))
        torch.testing.assert_close(run(batch, counts)[:size], whole[batch["paper"].n_id[:size]])


def test_acm_papers_in_batches(acm: HeteroData) -> None:
    sampler = NeighborSampler(acm, [6, 4])
    fanouts = {edge_type: [6, 4] for edge_type in acm.edge_types}
    seen = []
    loader = NeighborLoader(
        acm, [6, 4], ("paper", acm["paper"].train_mask), neighbor_sampler=sampler, batch_size=25, shuffle=False
    )
    for batch in loader:
        seeds = batch["paper"].input_id  # node ids, as a mask was given
        holds_what_pyg_promises(acm, batch, fanouts, {"paper": seeds})
        assert torch.equal(batch["paper"].y, acm["paper"].y[batch["paper"].n_id])
        seen += seeds.tolist()
    assert seen == acm["paper"].train_mask.nonzero().view(-1).tolist()
    assert len(seen) == 60


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_acm_links_with_negatives(acm: HeteroData, mode: str) -> None:
    edge_type = ("author", "to", "paper")
    sampler = NeighborSampler(acm, [4, 2])
    loader = LinkNeighborLoader(
        acm,
        [4, 2],
        edge_label_index=edge_type,
        neg_sampling=NegativeSampling(mode, 2),
        neighbor_sampler=sampler,
        batch_size=64,
        shuffle=True,
    )
    batch = next(iter(loader))
    authors, papers = batch["author"].n_id, batch["paper"].n_id
    truth = acm[edge_type].edge_index[:, batch[edge_type].input_id]
    if mode == "binary":
        ends = batch[edge_type].edge_label_index
        assert batch[edge_type].edge_label.tolist() == [1.0] * 64 + [0.0] * 128
        positives = torch.stack([authors[ends[0, :64]], papers[ends[1, :64]]])
    else:
        positives = torch.stack([authors[batch["author"].src_index], papers[batch["paper"].dst_pos_index]])
        assert batch["paper"].dst_neg_index.shape == (64, 2)
    assert torch.equal(positives, truth)
    seeds = {"author": authors[: batch["author"].num_sampled_nodes[0]]}
    seeds["paper"] = papers[: batch["paper"].num_sampled_nodes[0]]
    assert set(seeds["author"].tolist()) >= set(truth[0].tolist())
    holds_what_pyg_promises(acm, batch, {key: [4, 2] for key in acm.edge_types}, seeds)


def test_nations_all_neighbours_and_links(nations: HeteroData) -> None:
    sampler = NeighborSampler(nations, [-1])
    batch = next(iter(NeighborLoader(nations, [-1], "nation", neighbor_sampler=sampler, batch_size=14)))
    assert len(batch.edge_types) == 55
    for edge_type in nations.edge_types:
        assert set(batch[edge_type].e_id.tolist()) == set(range(nations[edge_type].num_edges))
    some = nations.edge_types[0]
    links = LinkNeighborLoader(
        nations, [2], edge_label_index=some, neg_sampling_ratio=1.0, neighbor_sampler=sampler, batch_size=8
    )
    for batch in links:
        ends = batch["nation"].n_id[batch[some].edge_label_index[:, batch[some].edge_label == 1]]
        assert torch.equal(ends, nations[some].edge_index[:, batch[some].input_id])


def test_links_draw_the_same_for_the_same_seeds(acm: HeteroData) -> None:
    edge_type = ("author", "to", "paper")

    def edges(seed: int) -> list[int]:
        loader = LinkNeighborLoader(
            acm, [1], edge_label_index=edge_type, neighbor_sampler=NeighborSampler(acm, [1], seed), batch_size=64
        )
        return next(iter(loader))[edge_type].e_id.tolist()

    assert edges(0) == edges(0) != edges(1)


def test_num_neighbors_in_its_forms(hetero: Hetero) -> None:
    data = hetero(7)
    every = dict.fromkeys(data.edge_types, (2, 2))
    default = NumNeighbors({("paper", "cites", "paper"): [2, 2]}, default=[2, 2])
    for form in ([2, 2], "2,2", every, NumNeighbors(every), default):
        assert {r.edge_type: tuple(r.fanouts) for r in NeighborSampler(data, form).relations} == every
    remembers = NumNeighbors([3])
    remembers.get_values([("another", "edge", "type")])
    assert NeighborSampler(data, remembers).relations[0].fanouts == (3,)
    for bad, said in [
        ({("paper", "cites", "paper"): [2]}, "Missing number of neighbors"),
        ({**every, ("x", "y", "z"): [2, 2]}, "exist in the graph"),
        ({**every, ("paper", "cites", "paper"): [2]}, "Number of hops must be the same"),
        ({**every, ("paper", "cites", "paper"): [2, -2]}, "expected a list of integers of 0 or more"),
        ([], "positive integers"),
        ([2, 0], "positive integers"),
    ]:
        with pytest.raises(ConfigError, match=said):
            NeighborSampler(data, bad)


def test_duplicate_and_missing_seeds(hetero: Hetero) -> None:
    sampler = NeighborSampler(hetero(9, mean_degree=20), [2, 2])
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0, 0]), input_type="paper"), 0, 0)
    assert out.node["paper"][:2].tolist() == [0, 0]
    empty = sampler.sample_from_nodes(NodeSamplerInput(None, torch.empty(0, dtype=torch.int64), input_type="paper"))
    assert all(counts == [0, 0, 0] for counts in empty.num_sampled_nodes.values())
    with pytest.raises(DatasetError, match="'nobody'; expected one of"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0]), input_type="nobody"))
    with pytest.raises(DatasetError, match="heterogeneous"):
        sampler.sample_blocks(torch.tensor([0]), 0, 0)


def test_survives_pickling(hetero: Hetero) -> None:
    sampler = NeighborSampler(hetero(10), [3, 3], seed=2)
    again = pickle.loads(pickle.dumps(copy.copy(sampler)))
    index = NodeSamplerInput(None, torch.tensor([0]), input_type="paper")
    assert torch.equal(sampler.sample_from_nodes(index).node["paper"], again.sample_from_nodes(index).node["paper"])
    assert again.num_nodes == sampler.num_nodes
