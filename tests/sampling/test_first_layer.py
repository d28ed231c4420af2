"""The first layer's input is the same wherever the features lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.feature_rows import CachedRows, ColdRows, FeatureRows, ResidentRows
from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.features import joined_features
from pygsage.sampling.first_layer import FirstLayer, OnDevice, OnDeviceCached, to_device
from pygsage.sampling.placement import Placement
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.sampling.transfer import ImmediateStream, StagingCarrier

CPU = torch.device("cpu")
SEEDS = torch.tensor([4, 90, 17, 3, 60])


def graph(dtype: torch.dtype = torch.float32) -> Graph:
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(100, (2, 700), generator=generator)
    csc = build_csc(ends[:, ends[1] != 17], 100)  # node 17 has no neighbours
    x = torch.randn(100, 6, generator=generator).to(dtype)
    y = torch.randint(3, (100,), generator=generator)
    return Graph("g", csc.indptr, csc.indices, csc.perm, x, y, {"train": torch.arange(50)}, 3)


def made(first: FirstLayer, seeds: Tensor = SEEDS) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Nodes, the input, and the blocks' arrays, through buffers that are shared by the parts."""
    carrier = StagingCarrier(ImmediateStream(CPU), 1)
    drawn = first.draw(seeds, 1, 2)
    parts = carrier.send({**drawn.parts, "n_id": drawn.nodes}).take()
    blocks = [array for block in drawn.blocks for array in (block.indptr, block.indices)]
    return drawn.nodes, first.input(parts), blocks


@pytest.mark.parametrize("aggr", ["mean", "sum", "max"])
@pytest.mark.parametrize("fanouts", [(4, 3), (3, 3), (2,)])
@pytest.mark.parametrize(
    ("stored", "wanted", "bound"),
    [
        (torch.float32, torch.float32, 1e-6),
        (torch.float64, torch.float64, 1e-13),
        (torch.float16, torch.float32, 1e-6),
        (torch.float32, torch.bfloat16, 1e-2),
    ],
)
def test_all_ways_make_the_same(
    aggr: str, fanouts: tuple[int, ...], stored: torch.dtype, wanted: torch.dtype, bound: float
) -> None:
    data = graph(stored)
    sampler = NeighborSampler(data, fanouts, 5)
    rows = ResidentRows(data.x)
    layers = sampler.sample_layers(SEEDS, 1, 2)
    nodes, blocks = layers.nodes, [array for block in layers.blocks for array in (block.indptr, block.indices)]
    expected = joined_features(data.x, nodes, layers.outer_indptr, layers.outer_ids, aggr, wanted)
    assert expected.shape == (len(nodes), 12)
    assert torch.equal(expected[:, 6:], data.x[nodes].to(expected.dtype))
    ways: list[FirstLayer] = [OnDevice(sampler, to_device(data.x, rows, CPU), aggr, wanted)]
    for share in (0.0, 0.4, 1.0):
        held = torch.rand(100, generator=torch.Generator().manual_seed(1)) < share
        ways.append(OnDeviceCached(sampler, rows, held, 6, stored, aggr, wanted, CPU))
    for way in ways:
        found = made(way)
        assert torch.equal(found[0], nodes)
        assert found[1].dtype == wanted
        torch.testing.assert_close(found[1], expected, rtol=bound, atol=bound)
        assert all(torch.equal(a, b) for a, b in zip(found[2], blocks, strict=True))
        empty = made(way, SEEDS[:0])
        assert empty[1].shape == (0, 12)


def test_rows_of_a_file_and_hits_and_misses(tmp_path: Path) -> None:
    data = graph()
    np.save(tmp_path / "x.npy", data.x.numpy())
    x = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    sampler = NeighborSampler(data, (3, 3), 5)
    reached = sampler.sample_blocks(SEEDS, 1, 2)[0]
    held = torch.zeros(100, dtype=torch.bool)
    held[reached[::3]] = True
    expected = made(OnDevice(sampler, data.x, "mean", torch.float32))[1]
    in_ram = torch.zeros(100, dtype=torch.bool)
    in_ram[reached[1::3]] = True
    assert torch.equal(to_device(x, ColdRows(x), CPU), data.x)
    ways: list[FeatureRows] = [ColdRows(x), CachedRows(x, in_ram), ResidentRows(data.x)]
    for rows in ways:
        way = OnDeviceCached(sampler, rows, held, 6, torch.float32, "mean", torch.float32, CPU)
        assert way.num_held == int(held.sum())
        assert way.num_bytes == way.num_held * 24
        assert way.counts() == (0, 0)  # filling it is no batch
        for _ in range(2):
            torch.testing.assert_close(made(way)[1], expected)
        hits = 2 * len(reached[::3])
        assert way.counts() == (hits, 2 * len(reached) - hits)
        assert way.counts() == (0, 0)


def test_the_cache_holds_what_its_size_allows_and_the_hottest() -> None:
    data = graph()
    sampler = NeighborSampler(data, (3, 3), 5)
    shards = DistributedSeedSampler(50, rank=0, num_ranks=1, seed=0, global_batch_size=10)
    for size, num_rows in ((1, 0), (24 * 30 + 5, 30), (1 << 20, 100)):
        way = Placement("pinned-cuda", CPU, size).first_layer(data, ResidentRows(data.x), sampler, shards, "mean", None)
        assert isinstance(way, OnDeviceCached)
        assert way.num_held == num_rows
        made(way)
        hits, misses = way.counts()
        if num_rows == 30:
            assert hits > 0.35 * (hits + misses)  # a random 30 of 100 would be 0.3
        assert (hits == 0, misses == 0) == (num_rows == 0, num_rows == 100)
