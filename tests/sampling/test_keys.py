from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from pygsage.sampling import keys

UINT64 = st.integers(0, keys.MASK)


def test_mix64_gives_the_published_outputs_of_splitmix64() -> None:
    states = [n * keys.GOLDEN for n in range(3)]  # the generator with seed 0
    assert [keys.mix64(s) for s in states] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(st.lists(UINT64, max_size=20))
def test_integers_arrays_and_tensors_hash_alike(numbers: list[int]) -> None:
    expected = [keys.mix64(z) for z in numbers]
    array = keys.mix64_array(np.array(numbers, dtype=np.uint64))
    assert array.dtype == np.uint64
    assert array.tolist() == expected
    tensor = keys.mix64_tensor(torch.tensor([keys.signed(z) for z in numbers], dtype=torch.int64))
    assert tensor.tolist() == [keys.signed(z) for z in expected]


@given(UINT64)
def test_signed_keeps_the_bits(z: int) -> None:
    assert -(2**63) <= keys.signed(z) < 2**63
    assert keys.signed(z) % 2**64 == z


def test_streams_of_edge_types_are_the_documented_hash_and_differ() -> None:
    assert keys.relation_stream(5, 3) == keys.mix64(5 ^ keys.mix64(3))
    streams = [keys.stream_of(0, 0, step) for step in range(100)]
    of_types = {keys.relation_stream(stream, relation) for stream in streams for relation in range(50)}
    assert len(of_types | set(streams)) == 5100


def test_streams_differ_in_each_of_seed_epoch_and_step() -> None:
    streams = {keys.stream_of(seed, epoch, step) for seed in range(20) for epoch in range(20) for step in range(20)}
    assert len(streams) == 8000
    assert keys.stream_of(1, 2, 3) == keys.stream_of(1, 2, 3)
    assert all(0 <= s <= keys.MASK for s in streams)


def test_stream_of_seeds_depends_on_ids_and_order() -> None:
    streams = [
        keys.stream_of_seeds(torch.tensor(ids, dtype=torch.int64))
        for ids in ([1, 2, 3], [3, 2, 1], [1, 2], [1, 2, 4], [], [0], [0, 0])
    ]
    assert len(set(streams)) == len(streams)
    assert streams[0] == keys.stream_of_seeds(torch.tensor([1, 2, 3]))


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_permutation_has_each_position_once(n: int) -> None:
    order = keys.permutation(n, seed=3, epoch=1)
    assert order.dtype == torch.int64
    assert sorted(order.tolist()) == list(range(n))
    assert order.equal(keys.permutation(n, seed=3, epoch=1))


def test_permutation_changes_with_seed_and_epoch() -> None:
    orders = {tuple(keys.permutation(50, seed, epoch).tolist()) for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100


def test_permutation_is_uniform() -> None:
    counts = np.zeros((5, 5), dtype=np.int64)  # item, place
    for epoch in range(2000):
        counts[keys.permutation(5, 0, epoch).numpy(), np.arange(5)] += 1
    # Rows and columns add up to 2000 each, hence 16 degrees of freedom.
    assert chisquare(counts.ravel(), ddof=8).pvalue > 1e-3
