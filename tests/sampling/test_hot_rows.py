"""Hot rows: those that batches read, and batches that do not change with where the rows lie."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pygsage.data.one_graph.feature_rows import CachedRows, ColdRows, FeatureRows, ResidentRows, file_of
from pygsage.data.one_graph.graph import Graph
from pygsage.errors import DatasetError
from pygsage.sampling.hot_rows import _highest, hot_rows, plan_reads
from pygsage.sampling.passes import NodeGroups
from pygsage.sampling.pipeline import Batch, BatchPipeline, NodeBatches
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


def same(one: Batch, two: Batch) -> bool:
    pairs = [(one.x, two.x), (one.n_id, two.n_id), (one.y, two.y)]
    for first, second in zip(one.blocks, two.blocks, strict=True):
        pairs += [(first.indptr, second.indptr), (first.indices, second.indices)]
    return all(torch.equal(a, b.to(a.dtype)) for a, b in pairs) and (one.step, one.stream) == (two.step, two.stream)


@pytest.mark.parametrize("spare", [2, 1500, 4000, 20_000])  # too little for some batches, for several, for all
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_no_batch_changes_with_how_many_are_read_at_once(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: int, packed: bool, compiled: bool
) -> None:
    if not compiled:
        monkeypatch.setattr("pygsage.data.one_graph.feature_rows.core", None)
    sampler, shards, train = NeighborSampler(graph, (4, 3), 0), shards_of(graph), graph.splits["train"]
    held = hot_rows(graph, train, sampler, shards, 400)
    rows = CachedRows(graph.x, held, file_of(graph), tmp_path / "rows" if packed else None, spare)
    assert not list(tmp_path.iterdir())  # it has no name any longer
    make = NodeBatches(graph, train, sampler, None, "mean", rows=rows)
    plain = NodeBatches(graph, train, sampler, None, "mean", rows=ResidentRows(graph.x))
    with BatchPipeline(make, shards, 2, groups=NodeGroups(make, rows)) as pipeline:
        for _ in pipeline.batches(0):  # given up in the midst of it
            break
        for epoch, first_step in ((0, 0), (1, 3)):
            found = list(pipeline.batches(epoch, first_step))
            wanted = [plain(shard, epoch) for shard in shards.shards(epoch, first_step)]
            assert len(found) == len(wanted) > 10
            assert all(map(same, wanted, found))
    hits, misses = rows.counts()
    assert min(hits, misses) > 0


def test_a_file_that_is_cut_short_is_told(graph: Graph, tmp_path: Path) -> None:
    graph.save(tmp_path / "cut")
    cut = Graph.open(tmp_path / "cut")
    sampler, shards, train = NeighborSampler(cut, (4, 3), 0), shards_of(cut), cut.splits["train"]
    held = hot_rows(cut, train, sampler, shards, 400)
    rows = CachedRows(cut.x, held, file_of(cut), None, 4000)
    make = NodeBatches(cut, train, sampler, rows=rows)
    os.truncate(tmp_path / "cut" / "x.npy", 4096)
    said = pytest.raises(DatasetError, match=r"x\.npy was cut short while it was read")
    with BatchPipeline(make, shards, 1, groups=NodeGroups(make, rows)) as pipeline, said:
        next(pipeline.batches(0))


def test_a_plan_takes_no_more_than_it_is_given(graph: Graph) -> None:
    graph = replace(graph, x=torch.zeros(NODES, 128, dtype=torch.float16))
    sampler, shards, train = NeighborSampler(graph, (4, 3), 0), shards_of(graph), graph.splits["train"]
    spares = set()
    for num_rows in (0, 100, 2000, 3900, NODES, NODES + 5):
        plan = plan_reads(graph, train, sampler, shards, num_rows, packed=True)
        assert int(plan.held.sum()) + plan.spare <= min(num_rows, NODES)
        spares.add(plan.spare > 0)
    assert spares == {True, False}


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
