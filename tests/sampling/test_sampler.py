from __future__ import annotations

import pickle

import pytest
import torch
import torch_geometric.sampler.neighbor_sampler
import torch_geometric.typing
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.utils import trim_to_layer

from pygsage import ConfigError, DatasetError, NeighborSampler
from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.keys import stream_of


def _data(num_nodes: int = 40, num_edges: int = 200, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(num_nodes, 8, generator=generator),
        edge_index=torch.randint(num_nodes, (2, num_edges), generator=generator),
        edge_attr=torch.arange(num_edges, dtype=torch.float32).view(-1, 1),
        y=torch.randint(3, (num_nodes,), generator=generator),
    )


def _graph(data: Data) -> Graph:
    csc = build_csc(data.edge_index, data.num_nodes)
    return Graph("g", csc.indptr, csc.indices, csc.perm, data.x, data.y, {}, 3)


graphs = st.builds(_data, st.integers(1, 30), st.integers(0, 120), st.integers(0, 1000))


@settings(max_examples=40)
@given(graphs, st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3), st.integers(0, 1000))
def test_pyg_loader_gets_real_edges_seeds_first_and_per_hop_counts(data: Data, fanouts: list[int], seed: int) -> None:
    seeds = torch.randperm(data.num_nodes)[: 1 + seed % data.num_nodes]
    sampler = NeighborSampler(data, fanouts, seed)
    batch = next(
        iter(NeighborLoader(data, fanouts, seeds, neighbor_sampler=sampler, batch_size=len(seeds), shuffle=False))
    )
    assert batch.batch_size == len(seeds)
    assert torch.equal(batch.n_id[: len(seeds)], seeds)
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.y, data.y[batch.n_id])
    assert len(batch.n_id.unique()) == len(batch.n_id)
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    assert len(batch.e_id.unique()) == len(batch.e_id)  # without replacement
    assert len(batch.num_sampled_nodes) == len(batch.num_sampled_edges) + 1 == len(fanouts) + 1
    assert sum(batch.num_sampled_nodes) == len(batch.n_id)
    assert sum(batch.num_sampled_edges) == batch.edge_index.size(1)
    _each_target_has_its_share(data, batch, fanouts)


def _each_target_has_its_share(data: Data, batch: Data, fanouts: list[int]) -> None:
    in_degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    drawn = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))
    begin = 0
    for fanout, count in zip(fanouts, batch.num_sampled_nodes, strict=False):
        targets = batch.n_id[begin : begin + count]
        full = in_degree[targets]
        expected = full if fanout == -1 else full.clamp(max=fanout)
        assert torch.equal(drawn[begin : begin + count], expected)
        begin += count
    assert not drawn[begin:].any()


def test_pygs_graphsage_on_all_neighbours_equals_the_full_batch() -> None:
    data = _data()
    model = GraphSAGE(8, 16, 3, 4).eval()
    whole = model(data.x, data.edge_index)
    loader = NeighborLoader(
        data, [-1, -1, -1], neighbor_sampler=NeighborSampler(data, [-1, -1, -1]), batch_size=7, shuffle=False
    )
    seen = 0
    for batch in loader:
        plain = model(batch.x, batch.edge_index)[: batch.batch_size]
        trimmed = model(
            batch.x,
            batch.edge_index,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )[: batch.batch_size]
        rows = whole[batch.n_id[: batch.batch_size]]
        torch.testing.assert_close(plain, rows)
        torch.testing.assert_close(trimmed, rows)
        seen += batch.batch_size
    assert seen == data.num_nodes


def test_c074_pygs_loader_works_where_pyg_lib_and_torch_sparse_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (torch_geometric.typing, torch_geometric.sampler.neighbor_sampler):
        for name in ("WITH_PYG_LIB", "WITH_TORCH_SPARSE"):
            monkeypatch.setattr(module, name, False, raising=False)
    data = _data()
    with pytest.warns(UserWarning, match="pyg-lib"):
        stock = NeighborLoader(data, [3], batch_size=4)
    with pytest.raises(ImportError, match="pyg-lib"):  # what PyG's own sampler does, at the first batch
        next(iter(stock))
    batch = next(iter(NeighborLoader(data, [3], neighbor_sampler=NeighborSampler(data, [3]), batch_size=4)))
    assert batch.batch_size == 4


def test_trim_to_layer_keeps_what_inner_layers_need() -> None:
    data = _data()
    loader = NeighborLoader(data, [3, 2], neighbor_sampler=NeighborSampler(data, [3, 2]), batch_size=5)
    batch = next(iter(loader))
    x, edge_index, _ = trim_to_layer(1, batch.num_sampled_nodes, batch.num_sampled_edges, batch.x, batch.edge_index)
    assert x.size(0) == sum(batch.num_sampled_nodes[:-1])
    assert edge_index.size(1) == batch.num_sampled_edges[0]
    assert int(edge_index[1].max()) < 5


def test_duplicate_seeds_keep_their_places_and_their_neighbours() -> None:
    data = _data()
    sampler = NeighborSampler(data, [-1, -1])
    seeds = torch.tensor([3, 7, 3])
    out = sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
    assert torch.equal(out.node[:3], seeds)
    model = GraphSAGE(8, 16, 2, 4).eval()
    rows = model(data.x[out.node], torch.stack([out.row, out.col]))[:3]
    torch.testing.assert_close(rows, model(data.x, data.edge_index)[seeds])


@settings(max_examples=40)
@given(graphs, st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3), st.integers(0, 50))
def test_blocks_use_prefixes_of_one_draw_at_every_hop(data: Data, fanouts: list[int], step: int) -> None:
    sampler = NeighborSampler(_graph(data), fanouts, seed=1)
    seeds = torch.arange(min(4, data.num_nodes))
    n_id, blocks = sampler.sample_blocks(seeds, epoch=2, step=step)
    assert torch.equal(n_id[: len(seeds)], seeds)
    assert len(blocks) == len(fanouts)
    inner_targets = len(seeds)
    for hop, (block, fanout) in enumerate(zip(reversed(blocks), fanouts, strict=True)):
        assert len(block.indptr) - 1 == inner_targets
        alone = NeighborSampler(_graph(data), [fanout], seed=1)
        direct, (expected,) = alone.sample_blocks(n_id[:inner_targets], epoch=2, step=step)
        assert torch.equal(block.indptr, expected.indptr)
        assert torch.equal(n_id[block.indices], direct[expected.indices])
        reached = set(n_id[:inner_targets].tolist()) | set(n_id[block.indices].tolist())
        inner_targets = len(n_id) if hop == len(fanouts) - 1 else len(blocks[-hop - 2].indptr) - 1
        assert set(n_id[:inner_targets].tolist()) == reached


def test_equal_fanouts_give_the_same_blocks_as_the_layered_draw() -> None:
    data = _data(200, 3000)
    sampler = NeighborSampler(data, [4, 4, 4], seed=3)
    n_id, blocks = sampler.sample_blocks(torch.arange(9), 0, 0)
    sample = sampler._draw(torch.arange(9), stream_of(3, 0, 0), layered=True)
    assert torch.equal(n_id, sample.nodes)
    for block, hop in zip(blocks, reversed(sample.hops), strict=True):
        assert torch.equal(block.indptr, hop.indptr)
        assert torch.equal(block.indices, hop.indices)


def test_native_and_reference_backends_agree() -> None:
    data = _data(100, 2000)
    for fanouts in ([5, 5], [2, 7, 3], [-1, 2]):
        ours = NeighborSampler(data, fanouts, 1).sample_blocks(torch.arange(0, 100, 7), 1, 2)
        plain = NeighborSampler(data, fanouts, 1, backend="reference").sample_blocks(torch.arange(0, 100, 7), 1, 2)
        assert torch.equal(ours[0], plain[0])
        for a, b in zip(ours[1], plain[1], strict=True):
            assert torch.equal(a.indptr, b.indptr)
            assert torch.equal(a.indices, b.indices)


def test_no_seeds_and_no_edges_are_fine() -> None:
    data = Data(x=torch.zeros(3, 2), edge_index=torch.empty(2, 0, dtype=torch.int64))
    sampler = NeighborSampler(data, [2, 2])
    for seeds in (torch.empty(0, dtype=torch.int64), torch.tensor([2])):
        n_id, blocks = sampler.sample_blocks(seeds, 0, 0)
        assert torch.equal(n_id, seeds)
        assert [len(block.indices) for block in blocks] == [0, 0]
        out = sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
        assert out.row.numel() == out.col.numel() == 0
        assert out.num_sampled_nodes == [len(seeds), 0, 0]


def test_c086_direction_is_against_the_edges_from_targets_to_sources() -> None:
    star = Data(x=torch.zeros(6, 1), edge_index=torch.tensor([[0] * 5, [1, 2, 3, 4, 5]]))
    sampler = NeighborSampler(star, [-1])
    centre, _ = sampler.sample_blocks(torch.tensor([0]), 0, 0)
    leaf, _ = sampler.sample_blocks(torch.tensor([4]), 0, 0)
    assert centre.tolist() == [0]
    assert leaf.tolist() == [4, 0]


def test_added_edges_have_edge_id_minus_one() -> None:
    csc = build_csc(torch.tensor([[0, 1], [1, 0]]), 2)
    graph = Graph("g", csc.indptr, csc.indices, torch.tensor([-1, 0]), torch.zeros(2, 1), torch.zeros(2), {}, 1)
    out = NeighborSampler(graph, [-1]).sample_from_nodes(NodeSamplerInput(None, torch.tensor([0, 1])))
    assert NeighborSampler(graph, [-1]).edge_permutation[out.edge].tolist() == [-1, 0]


def test_a_stock_loader_draws_by_its_seeds_and_the_sampler_seed() -> None:
    data = _data(200, 4000)

    def nodes(seed: int, seeds: list[int]) -> list[int]:
        out = NeighborSampler(data, [3], seed).sample_from_nodes(NodeSamplerInput(None, torch.tensor(seeds)))
        return out.node.tolist()

    assert nodes(0, [1, 2, 3]) == nodes(0, [1, 2, 3])
    assert nodes(0, [1, 2, 3]) != nodes(1, [1, 2, 3])
    assert sorted(nodes(0, [1, 2, 3])) != sorted(nodes(0, [3, 2, 1]))


def test_link_loader_runs_on_the_sampler() -> None:
    data = _data()
    loader = LinkNeighborLoader(
        data, [3, 3], neighbor_sampler=NeighborSampler(data, [3, 3]), neg_sampling_ratio=1.0, batch_size=16
    )
    batch = next(iter(loader))
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    positives = batch.edge_label_index[:, batch.edge_label == 1]
    assert torch.equal(batch.n_id[positives], data.edge_index[:, batch.input_id])


def test_survives_pickling() -> None:
    sampler = NeighborSampler(_data(), [3, 3], seed=2)
    again = pickle.loads(pickle.dumps(sampler))
    seeds = torch.arange(5)
    assert torch.equal(sampler.sample_blocks(seeds, 1, 1)[0], again.sample_blocks(seeds, 1, 1)[0])


@pytest.mark.parametrize("fanouts", [[], [0], [-2], [3, 0]])
def test_fanouts_out_of_range_are_refused(fanouts: list[int]) -> None:
    with pytest.raises(ConfigError, match="num_neighbors"):
        NeighborSampler(_data(), fanouts)


def test_what_is_not_one_graph_is_refused() -> None:
    with pytest.raises(DatasetError, match="HeteroData has no edge types"):
        NeighborSampler(HeteroData(), [2])
    with pytest.raises(ConfigError, match="a dict of edge types, but the graph has none"):
        NeighborSampler(_data(), {("a", "to", "b"): [2]})
    with pytest.raises(DatasetError, match=r"shape \[5, 2\]"):
        NeighborSampler(Data(x=torch.zeros(9, 1), edge_index=torch.zeros(5, 2, dtype=torch.int64)), [2])
    with pytest.raises(DatasetError, match="no edge_index"):
        NeighborSampler(Data(x=torch.zeros(2, 1)), [2])


def test_c034_an_edge_out_of_range_is_an_error_not_a_crash() -> None:
    with pytest.raises(DatasetError, match="3 -> 1"):
        NeighborSampler(Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 3], [1, 1]]), num_nodes=3), [2])
