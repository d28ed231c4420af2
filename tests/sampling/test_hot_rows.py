"""Hot rows: those that batches read, and batches that do not change with where the rows lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pygsage.data.one_graph.feature_rows import CachedRows, ColdRows, FeatureRows, ResidentRows
from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.hot_rows import _highest, hot_rows
from pygsage.sampling.pipeline import NodeBatches
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler

NODES = 4000


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A few nodes are the sources of most edges."""
    rng = np.random.default_rng(0)
    degrees = rng.integers(0, 12, NODES)
    popular = rng.permutation(NODES)
    made = Graph(
        name="skewed",
        indptr=torch.from_numpy(np.concatenate([[0], degrees.cumsum()])),
        indices=torch.from_numpy(popular[(NODES * rng.random(degrees.sum()) ** 3).astype(np.int64)].astype(np.int32)),
        edge_id=torch.arange(int(degrees.sum())),
        x=torch.from_numpy(rng.normal(size=(NODES, 6)).astype(np.float16)),
        y=torch.from_numpy(rng.integers(0, 3, NODES)),
        splits={"train": torch.from_numpy(rng.permutation(NODES)[:300])},
        num_classes=3,
    )
    folder = tmp_path_factory.mktemp("graphs") / "skewed"
    made.save(folder)
    return Graph.open(folder)


def shards_of(graph: Graph) -> DistributedSeedSampler:
    return DistributedSeedSampler(len(graph.splits["train"]), rank=0, num_ranks=1, seed=0, global_batch_size=16)


@pytest.mark.parametrize("aggr", ["mean", "sum", "max"])
@pytest.mark.parametrize("fanouts", [(3,), (4, 3), (2, 2, 2)])
def test_no_batch_changes_with_where_the_rows_lie(graph: Graph, aggr: str, fanouts: tuple[int, ...]) -> None:
    sampler, shards, train = NeighborSampler(graph, fanouts, 0), shards_of(graph), graph.splits["train"]
    held = hot_rows(graph, train, sampler, shards, 400)
    ways: list[FeatureRows] = [ResidentRows(graph.x), ColdRows(graph.x), CachedRows(graph.x, held)]
    makers = [NodeBatches(graph, train, sampler, None, aggr, rows=rows) for rows in ways]
    for shard in list(shards.shards(0))[:4]:
        first, *others = (make(shard, 0) for make in makers)
        for other in others:
            assert torch.equal(first.x, other.x)
            assert torch.equal(first.n_id, other.n_id)
            assert torch.equal(first.y, other.y)
            assert len(first.blocks) == len(other.blocks) == len(fanouts) - 1
            for one, two in zip(first.blocks, other.blocks, strict=True):
                assert torch.equal(one.indptr, two.indptr)
                assert torch.equal(one.indices.long(), two.indices.long())
    hits, misses = ways[2].counts()
    assert min(hits, misses) > 0


def test_they_are_hit_at_least_twice_as_often_as_random_rows(graph: Graph) -> None:
    sampler, shards, train = NeighborSampler(graph, (5, 5), 0), shards_of(graph), graph.splits["train"]
    held = hot_rows(graph, train, sampler, shards, NODES // 10)
    assert int(held.sum()) == NODES // 10
    assert torch.equal(held, hot_rows(graph, train, sampler, shards, NODES // 10))
    reached = torch.cat([sampler.sample_blocks(train[s.positions], 1, s.step)[0] for s in shards.shards(1)])
    random = torch.from_numpy(np.random.default_rng(0).permutation(NODES) < NODES // 10)
    assert int(held[reached].sum()) > 2 * int(random[reached].sum())


@pytest.mark.parametrize("num_rows", [0, 1, NODES, NODES + 1])
def test_any_number_can_be_held(graph: Graph, num_rows: int) -> None:
    sampler = NeighborSampler(graph, (2,), 0)
    held = hot_rows(graph, graph.splits["train"], sampler, shards_of(graph), num_rows)
    assert int(held.sum()) == min(num_rows, NODES)


def test_the_highest_and_of_equal_ones_the_first() -> None:
    score = np.array([3, 700, 3, 65535, 0, 3], np.uint16)
    for count, expected in enumerate([[], [3], [1, 3], [0, 1, 3], [0, 1, 2, 3], [0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 5]]):
        assert np.flatnonzero(_highest(score, count)).tolist() == expected
