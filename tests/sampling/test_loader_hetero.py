"""Our loader on graphs with several types: ranks, epochs, workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader as PyGNeighborLoader

from pygsage import DistributedSeedSampler, NeighborLoader, NeighborSampler

Hetero = Callable[..., HeteroData]


@pytest.fixture(scope="module")
def data(hetero: Hetero) -> HeteroData:
    return hetero(11, mean_degree=10, max_nodes=200)


def content(loader: Any) -> list[Any]:
    batches = []
    for batch in loader:
        nodes = {name: (batch[name].n_id.tolist(), batch[name].x.sum().item()) for name in batch.node_types}
        batches.append((nodes, {edge_type: batch[edge_type].e_id.tolist() for edge_type in batch.edge_types}))
    return batches


def test_a_mask_gives_its_papers_and_passes_differ(data: HeteroData) -> None:
    mask = torch.rand(data["paper"].num_nodes, generator=torch.Generator().manual_seed(0)) < 0.5
    loader = NeighborLoader(data, [3, 2], ("paper", mask), batch_size=16, shuffle=True)
    seen = [batch["paper"].input_id for batch in loader]
    assert sorted(torch.cat(seen).tolist()) == mask.nonzero().view(-1).tolist()
    loader.set_epoch(0)
    first = content(loader)
    assert content(loader) != first
    loader.set_epoch(0)
    assert content(loader) == first


def test_c111_workers_change_nothing(data: HeteroData) -> None:  # spawned ones: in tests/data/test_stores.py
    fanouts = {edge_type: [3, 2] for edge_type in data.edge_types}
    alone = NeighborLoader(data, fanouts, "paper", batch_size=64, shuffle=True, seed=4)
    helped = NeighborLoader(
        data, fanouts, "paper", batch_size=64, shuffle=True, seed=4, num_workers=2, multiprocessing_context="fork"
    )
    assert content(helped) == content(alone)


def test_workers_of_pygs_own_loader_change_nothing(data: HeteroData) -> None:
    sampler = NeighborSampler(data, [3, 2])
    alone = PyGNeighborLoader(data, [3, 2], "paper", neighbor_sampler=sampler, batch_size=64)
    helped = PyGNeighborLoader(
        data, [3, 2], "paper", neighbor_sampler=sampler, batch_size=64, num_workers=2, multiprocessing_context="fork"
    )
    assert content(helped) == content(alone)


def test_union_of_ranks_is_the_batch_of_one_process(data: HeteroData) -> None:
    papers = ("paper", torch.arange(20))
    alone = next(iter(NeighborLoader(data, [3], papers, batch_size=20, shuffle=True, rank=0, num_ranks=1)))
    shards = [DistributedSeedSampler(20, global_batch_size=20, rank=rank, num_ranks=3) for rank in range(3)]
    parts = [next(iter(NeighborLoader(data, [3], papers, batch_sampler=shard))) for shard in shards]
    assert [part["paper"].batch_size for part in parts] == [6, 7, 7]
    seeds = torch.cat([part["paper"].n_id[: part["paper"].batch_size] for part in parts])
    assert torch.equal(seeds, alone["paper"].n_id[:20])
    for edge_type in data.edge_types:
        union = torch.cat([part[edge_type].e_id for part in parts])
        assert set(union.tolist()) == set(alone[edge_type].e_id.tolist())


def test_a_rank_without_seeds_gets_an_empty_batch(data: HeteroData) -> None:
    batch = next(iter(NeighborLoader(data, [3], ("paper", [1]), rank=0, num_ranks=2)))
    assert batch["paper"].batch_size == 0
    assert batch.num_nodes == batch.num_edges == 0
    assert batch["author"].x.shape == (0, 5)
