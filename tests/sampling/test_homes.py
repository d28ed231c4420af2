"""Seeds go where their features lie, in shares that are as even as ever."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from pygsage.sampling.exchange import owners, servers
from pygsage.sampling.homes import SeedHomes
from pygsage.sampling.shard import DistributedSeedSampler, share_of


@given(st.data())
def test_shares_are_even_and_cover_each_seed_once(data: st.DataObject) -> None:
    num_homes = data.draw(st.integers(1, 4))
    of_ranks = tuple(sorted(data.draw(st.lists(st.integers(0, num_homes - 1), min_size=1, max_size=6))))
    num_seeds = data.draw(st.integers(1, 60))
    of_seeds = torch.tensor(data.draw(st.lists(st.integers(0, num_homes - 1), min_size=num_seeds, max_size=num_seeds)))
    homes = SeedHomes(of_seeds, of_ranks)
    size = len(of_ranks)
    options = {"num_ranks": size, "global_batch_size": 17, "seed": 3}
    plain = [list(DistributedSeedSampler(num_seeds, rank=r, **options).shards(2)) for r in range(size)]  # type: ignore[arg-type]
    ours = [list(DistributedSeedSampler(num_seeds, rank=r, homes=homes, **options).shards(2)) for r in range(size)]  # type: ignore[arg-type]
    for step in range(len(plain[0])):
        batch = plain[0][step].global_positions
        own = [ours[rank][step].positions for rank in range(size)]
        assert sorted(torch.cat(own).tolist()) == sorted(batch.tolist())
        for rank in range(size):
            assert len(own[rank]) == len(plain[rank][step].positions)
            assert torch.equal(ours[rank][step].global_positions, batch)
        for home in range(num_homes):  # as many as can be are at home
            there = [rank for rank in range(size) if of_ranks[rank] == home]
            kept = sum(int((of_seeds[own[rank]] == home).sum()) for rank in there)
            room = sum(len(own[rank]) for rank in there)
            assert kept == min(room, int((of_seeds[batch] == home).sum()))


def test_even_seeds_stay_at_home_in_the_order_of_the_batch() -> None:
    homes = SeedHomes(torch.arange(100) % 2, (0, 0, 1, 1))
    batch = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    own = [homes.share(batch, rank) for rank in range(4)]
    assert [set((share % 2).tolist()) for share in own] == [{0}, {0}, {1}, {1}]
    assert torch.cat(own[:2]).tolist() == [seed for seed in batch.tolist() if seed % 2 == 0]
    assert [len(share) for share in own] == [len(range(*share_of(100, rank, 4).indices(100))) for rank in range(4)]


def test_machines_share_out_the_parts() -> None:
    assert owners([0, 0, 5, 5], 2) == ([0, 0, 1, 1], [0, 1])
    assert owners([0, 1], 4) == ([0, 1], [0, 0, 1, 1])
    assert owners([0, 1, 2, 3], 2) == ([0, 0, 1, 1], [0, 1])
    assert owners([0, 0, 0], 3) == ([0, 0, 0], [0, 0, 0])
    np.testing.assert_array_equal(servers(0, [0, 0, 1, 1], [0, 1]), [-1, 2])
    np.testing.assert_array_equal(servers(1, [0, 0, 1, 1], [0, 1]), [-1, 3])
    np.testing.assert_array_equal(servers(3, [0, 0, 1, 1], [0, 1]), [1, -1])
