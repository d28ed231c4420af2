import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pygsage import ConfigError, DistributedSeedSampler
from pygsage.sampling.shard import StepPositions, share_of


def _epoch(num_seeds: int, num_ranks: int, epoch: int = 0, **options: object) -> list[list[list[int]]]:
    """The batches of one epoch by step, then by rank."""
    samplers = [DistributedSeedSampler(num_seeds, rank=r, num_ranks=num_ranks, **options) for r in range(num_ranks)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    return [list(step) for step in zip(*samplers, strict=True)]


@given(st.integers(1, 200), st.integers(1, 6), st.integers(1, 40), st.booleans())
def test_every_seed_once_shares_even_same_number_of_steps(
    num_seeds: int, num_ranks: int, batch_size: int, shuffle: bool
) -> None:
    steps = _epoch(num_seeds, num_ranks, batch_size=batch_size, shuffle=shuffle)
    seen = [position for step in steps for share in step for position in share]
    assert sorted(seen) == list(range(num_seeds))
    for step in steps:
        sizes = [len(share) for share in step]
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= batch_size
        assert {share.num_global for share in step} == {sum(sizes)}


@given(st.integers(1, 100), st.integers(1, 50))
def test_union_over_ranks_is_the_one_process_batch(num_seeds: int, global_batch_size: int) -> None:
    alone = _epoch(num_seeds, 1, epoch=3, global_batch_size=global_batch_size)
    for num_ranks in (2, 3, 4):
        steps = _epoch(num_seeds, num_ranks, epoch=3, global_batch_size=global_batch_size)
        assert [[p for share in step for p in share] for step in steps] == [step[0] for step in alone]


def test_c091_fewer_seeds_than_ranks_leaves_ranks_empty_and_none_padded() -> None:
    steps = _epoch(2, 4, batch_size=8)
    assert len(steps) == 1
    assert sorted(len(share) for share in steps[0]) == [0, 0, 1, 1]


def test_c089_ten_and_eleven_seeds_are_the_same_number_of_steps() -> None:
    steps = _epoch(21, 2, batch_size=3)
    assert [[len(share) for share in step] for step in steps] == [[3, 3], [3, 3], [3, 3], [1, 2]]


def test_c091_no_seeds_is_refused() -> None:
    with pytest.raises(ConfigError, match="no seed nodes"):
        DistributedSeedSampler(0)


def test_c092_epochs_differ_and_ranks_are_disjoint() -> None:
    first, second = _epoch(10, 2, 0, batch_size=5), _epoch(10, 2, 1, batch_size=5)
    assert first != second
    for step in [*first, *second]:
        assert not set(step[0]) & set(step[1])
    assert _epoch(10, 2, 1, batch_size=5) == second


def test_c093_small_seed_set_is_one_whole_batch() -> None:
    steps = _epoch(700, 1, batch_size=1024)
    assert [len(step[0]) for step in steps] == [700]


def test_without_shuffle_the_order_is_as_listed() -> None:
    assert _epoch(5, 1, batch_size=2, shuffle=False) == [[[0, 1]], [[2, 3]], [[4]]]


def test_shards_can_begin_in_mid_epoch() -> None:
    sampler = DistributedSeedSampler(100, 8, rank=1, num_ranks=3, seed=5)
    whole = [s.positions.tolist() for s in sampler.shards(4)]
    assert [s.positions.tolist() for s in sampler.shards(4, first_step=3)] == whole[3:]


def test_step_travels_with_the_positions_through_pickle() -> None:
    batch = pickle.loads(pickle.dumps(StepPositions([4, 2], epoch=7, step=3, num_global=5)))
    assert (list(batch), batch.epoch, batch.step, batch.num_global) == ([4, 2], 7, 3, 5)


@pytest.mark.parametrize(
    "options", [{"batch_size": 0}, {"global_batch_size": 0}, {"rank": 2, "num_ranks": 2}, {"rank": -1, "num_ranks": 2}]
)
def test_sizes_and_ranks_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        DistributedSeedSampler(10, **options)


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_shares_cover_each_item_once(num_items: int, num_ranks: int) -> None:
    shares = [share_of(num_items, rank, num_ranks) for rank in range(num_ranks)]
    assert shares[0].start == 0
    assert shares[-1].stop == num_items
    assert all(a.stop == b.start for a, b in pairwise(shares))
