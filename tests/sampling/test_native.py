"""The native sampler equals the reference, and what they draw is fair."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, chi2_contingency, chisquare

from pygsage import native as native_core
from pygsage.errors import EnvironmentLimitError
from pygsage.sampling import native, reference
from pygsage.sampling.keys import MASK, mix64, stream_of
from pygsage.sampling.sample import Sample

needs_core = pytest.mark.skipif(not native.available(), reason="the native core is not built")
core: Any = native_core.core
ISAS = core.isas() if core is not None else []

# There are some hundreds of p-values here, all of fixed draws: of fair ones, one in a thousand suites has one as small.
SMALL = 1e-6


def flat(sample: Sample) -> list[Any]:
    hops = [(h.first_target, h.indptr.tolist(), h.indices.tolist(), h.positions.tolist()) for h in sample.hops]
    return [sample.nodes.tolist(), sample.num_nodes, hops]


def csc(src: np.ndarray, dst: np.ndarray, num_nodes: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(dst, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_nodes))]).astype(np.int64)
    return indptr, src[order].astype(dtype)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """From no edges to many: isolated nodes, self loops, multi-edges, and now and then a hub."""
    num_nodes = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_edges = draw(st.sampled_from([0, 1, 5, 60, 400]))
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    if draw(st.booleans()):
        dst[rng.random(num_edges) < 0.7] = 0
    return csc(src, dst, num_nodes, draw(st.sampled_from([np.int32, np.int64])))


@needs_core
@given(
    graph=graphs(),
    data=st.data(),
    fanouts=st.lists(st.sampled_from([-1, 0, 1, 2, 3, 10, 63, 64, 65, 150, 390]), max_size=4),
    stream=st.integers(0, MASK),
    layered=st.booleans(),
    dense_limit=st.sampled_from([0, 1 << 24]),
)
def test_equals_the_reference_element_by_element(
    graph: tuple[np.ndarray, np.ndarray],
    data: st.DataObject,
    fanouts: list[int],
    stream: int,
    layered: bool,
    dense_limit: int,
) -> None:
    indptr, indices = graph
    seeds = np.array(data.draw(st.lists(st.integers(0, len(indptr) - 2), max_size=8)), dtype=np.int64)
    arguments = (torch.from_numpy(indptr), torch.from_numpy(indices), torch.from_numpy(seeds), fanouts, stream, layered)
    expected = flat(reference.sample(*arguments))
    assert flat(native.sample(*arguments)) == expected
    for isa in core.isas():
        nodes, num_nodes, hops = core.sample(indptr, indices, seeds, fanouts, stream, layered, dense_limit, isa)
        assert [nodes.tolist(), num_nodes, [(f, *(a.tolist() for a in rest)) for f, *rest in hops]] == expected


@needs_core
@pytest.mark.parametrize(
    ("degree", "fanout"), [(40_000, 10_000), (40_000, 10), (40_000, 100), (3_000, 2_999), (700, 65)]
)
def test_a_hub_equals_the_reference(degree: int, fanout: int) -> None:
    indptr, indices = torch.tensor([0, degree, degree]), torch.arange(degree, dtype=torch.int32) % 2
    got = native.sample(indptr, indices, torch.tensor([0]), [fanout], 99, layered=False)
    assert got.hops[0].positions.tolist() == reference.draw(mix64(99 ^ 0), degree, fanout)


@needs_core
@pytest.mark.parametrize("isa", ISAS)
def test_every_set_of_instructions_draws_as_the_reference(isa: str) -> None:
    degrees = [1, 2, 9, 10, 11, 16, 17, 63, 64, 65, 66, 128, 255, 256, 257, 300, 1000, 70_000]
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    indices = np.zeros(indptr[-1], dtype=np.int32)
    nodes = np.arange(len(degrees))
    for fanout in (1, 2, 7, 8, 9, 10, 15, 16, 17, 33, 63, 64, 65):
        for stream in range(8):
            positions = core.sample(indptr, indices, nodes, [fanout], stream, False, isa=isa)[2][0][3]
            expected = [
                begin + offset
                for v, (begin, degree) in enumerate(zip(indptr.tolist(), degrees, strict=False))
                for offset in reference.draw(mix64(stream ^ v), degree, fanout)
            ]
            assert positions.tolist() == expected


@needs_core
@pytest.mark.parametrize("fanouts", [[10, 10, 10], [15, 10, 5]])
def test_layers_of_many_chunks_are_those_of_the_reference(fanouts: list[int]) -> None:
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 2000, (2, 40_000))
    dst[rng.random(40_000) < 0.2] = 7
    indptr, indices = csc(src, dst, 2000, np.int32)
    seeds = np.concatenate([rng.integers(0, 2000, 30), [7, 7]])
    arguments = (torch.from_numpy(indptr), torch.from_numpy(indices), torch.from_numpy(seeds), fanouts, 5, True)
    expected = reference.sample(*arguments)
    last = expected.hops[-1]
    for isa in core.isas():
        for dense_limit in (0, 1 << 24):
            nodes, num_nodes, blocks, ends, ids = core.sample_layers(
                indptr, indices, seeds, fanouts, 5, dense_limit, isa
            )
            assert nodes.tolist() == expected.nodes[: num_nodes[-1]].tolist()
            assert num_nodes == expected.num_nodes[:-1]
            assert ends.tolist() == last.indptr.tolist()
            assert ids.tolist() == expected.nodes[last.indices].tolist()
            if len(set(fanouts)) > 1:
                assert [rows.tolist() for _, rows in blocks] == [hop.indices.tolist() for hop in expected.hops[:-1]]


@needs_core
def test_results_do_not_depend_on_what_the_thread_sampled_before() -> None:
    rng = np.random.default_rng(0)
    big = csc(*rng.integers(0, 5000, (2, 20_000)), 5000, np.int32)
    small = csc(*rng.integers(0, 50, (2, 300)), 50, np.int32)
    seeds = np.arange(20)
    with ThreadPoolExecutor(1) as fresh:
        expected = fresh.submit(core.sample, *small, seeds, [3, 3], 5, True).result()
    for dense_limit in (1 << 24, 0):
        for graph in (big, small, big, small):
            got = core.sample(*graph, seeds, [3, 3], 5, True, dense_limit=dense_limit)
        assert got[0].tolist() == expected[0].tolist()
        assert got[2][1][2].tolist() == expected[2][1][2].tolist()


@needs_core
@pytest.mark.parametrize("num_threads", [1, 2, 8])
@pytest.mark.parametrize("dense_limit", [1 << 24, 0])
def test_c111_threads_give_the_same_batches(num_threads: int, dense_limit: int) -> None:
    rng = np.random.default_rng(1)
    graph = csc(*rng.integers(0, 3000, (2, 60_000)), 3000, np.int32)
    batches = [rng.integers(0, 3000, 64) for _ in range(32)]

    def digest(step: int) -> bytes:
        nodes, _, hops = core.sample(
            *graph, batches[step], [5, 10, 5], stream_of(0, 0, step), True, dense_limit=dense_limit
        )
        return nodes.tobytes() + b"".join(array.tobytes() for _, *arrays in hops for array in arrays)

    expected = [digest(step) for step in range(32)]
    with ThreadPoolExecutor(num_threads) as pool:
        assert list(pool.map(digest, range(32))) == expected


@needs_core
def test_reads_arrays_that_are_read_only_or_mapped(tmp_path: Any) -> None:
    indptr, indices = csc(np.array([1, 2, 0]), np.array([0, 0, 1]), 3, np.int32)
    expected = core.sample(indptr, indices, np.array([0]), [1], 3, False)[0].tolist()
    np.save(tmp_path / "indices.npy", indices)
    for mode in ("r", "c"):
        mapped = np.load(tmp_path / "indices.npy", mmap_mode=mode)
        assert core.sample(indptr, mapped, np.array([0]), [1], 3, False)[0].tolist() == expected
    for array in (indptr, indices):
        array.setflags(write=False)
    nodes = core.sample(indptr, indices, np.array([0]), [1], 3, False)[0]
    assert nodes.tolist() == expected
    assert nodes.flags.writeable


@needs_core
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_c034_wrong_ids_and_damaged_graphs_raise(dtype: torch.dtype) -> None:
    indptr, indices = torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0], dtype=dtype)

    def sample(indptr: torch.Tensor, indices: torch.Tensor, seeds: list[int], fanouts: list[int]) -> Sample:
        return native.sample(indptr, indices, torch.tensor(seeds, dtype=torch.int64), fanouts, 0, layered=False)

    for bad in (3, -1, 2**62, -(2**63)):
        with pytest.raises(ValueError, match=rf"seeds\[1\] is {bad}; expected a node id from 0 to below 3"):
            sample(indptr, indices, [0, bad], [1])
    for bad in (3, -1):
        with pytest.raises(ValueError, match=rf"indices\[1\] is {bad}; expected a node id from 0 to below 3"):
            sample(indptr, torch.tensor([1, bad, 0], dtype=dtype), [0], [-1])
    for damaged in ([0, 4, 4, 4], [2, 1, 3, 3], [-1, 1, 3, 3], [0, 2**62, 3, 3], [-(2**63), 2**62, 3, 3]):
        with pytest.raises(ValueError, match="indptr is damaged: node 0 has the edges from"):
            sample(torch.tensor(damaged), indices, [0], [1])
    with pytest.raises(ValueError, match="a fanout is -2"):
        sample(indptr, indices, [0], [-2])
    with pytest.raises(ValueError, match="indptr is empty"):
        sample(torch.tensor([], dtype=torch.int64), indices, [], [1])
    assert sample(torch.tensor([0]), indices[:0], [], [1]).num_nodes == [0, 0]


@needs_core
def test_arrays_of_another_kind_are_refused() -> None:
    indptr, indices, seeds = np.array([0, 1]), np.array([0], dtype=np.int32), np.array([0])
    for arguments in (
        (indptr.astype(np.int32), indices, seeds),
        (indptr, indices.astype(np.float32), seeds),
        (indptr, indices, seeds.astype(np.int32)),
        (indptr, indices, seeds[None]),
        (np.zeros(4, dtype=np.int64)[::2], indices, seeds),
    ):
        with pytest.raises(TypeError):
            core.sample(*arguments, [1], 0, False)


def test_without_the_core_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_core, "core", None)
    monkeypatch.setattr(native_core, "load_error", "no compiler")
    assert not native.available()
    with pytest.raises(EnvironmentLimitError, match=r"no compiler.*--sampler reference"):
        native.sample(torch.tensor([0]), torch.tensor([]), torch.tensor([]), [1], 0, layered=False)


# What is drawn is fair. One call draws for many nodes with the same number of neighbours, each by a key of its own.


def draws(num_draws: int, degree: int, fanout: int, stream: int = 0) -> np.ndarray:
    """Draws `fanout` of `degree` neighbours for each of many nodes: offsets, [num_draws, fanout]."""
    indptr = np.arange(num_draws + 1) * degree
    indices = np.zeros(num_draws * degree, dtype=np.int32)
    _, _, [(_, _, _, positions)] = core.sample(indptr, indices, np.arange(num_draws), [fanout], stream, False)
    return positions.reshape(num_draws, fanout) % degree


def inclusion_pvalue(drawn: np.ndarray, degree: int) -> float:
    """The p-value of each neighbour being in the draw equally often.

    Counts under sampling without replacement vary less than independent ones, by (degree - k) / (degree - 1).
    """
    n, k = drawn.shape
    counts = np.bincount(drawn.ravel(), minlength=degree)
    statistic = ((counts - n * k / degree) ** 2).sum() * degree / (n * k) * (degree - 1) / (degree - k)
    return float(chi2.sf(statistic, degree - 1))


SMALL_CASES = [(degree, fanout) for degree in range(2, 11) for fanout in range(1, degree)]


@needs_core
@pytest.mark.parametrize(("degree", "fanout"), SMALL_CASES)
def test_each_neighbour_is_drawn_equally_often(degree: int, fanout: int) -> None:
    drawn = draws(100_000, degree, fanout, stream=stream_of(0, degree, fanout))
    assert inclusion_pvalue(drawn, degree) > SMALL
    for place in range(fanout):  # and at each place of the draw
        assert chisquare(np.bincount(drawn[:, place], minlength=degree)).pvalue > SMALL
    for prefix in range(1, fanout):
        assert inclusion_pvalue(drawn[:, :prefix], degree) > SMALL


@needs_core
@pytest.mark.parametrize(("degree", "fanout"), [(4, 2), (5, 3), (6, 2)])
def test_each_ordered_draw_is_equally_likely(degree: int, fanout: int) -> None:
    drawn = draws(60_000, degree, fanout)
    codes = (drawn * degree ** np.arange(fanout)).sum(axis=1)
    counts = np.bincount(codes, minlength=degree**fanout)
    possible = np.prod(np.arange(degree, degree - fanout, -1))
    assert (counts > 0).sum() == possible
    assert chisquare(counts[counts > 0]).pvalue > SMALL


@needs_core
@pytest.mark.parametrize("fanout", [1, 10, 100, 10_000])
def test_a_hub_of_40_000_neighbours_is_drawn_evenly(fanout: int) -> None:
    degree, num_draws = 40_000, max(40, 40_000 // fanout)
    indptr, indices, hub = np.array([0, degree]), np.zeros(degree, dtype=np.int32), np.array([0])
    drawn = np.stack(
        [
            core.sample(indptr, indices, hub, [fanout], stream_of(0, 0, step), False)[2][0][3]
            for step in range(num_draws)
        ]
    )
    assert all(len(np.unique(row)) == fanout for row in drawn)
    # The neighbours in 400 groups of 100; the variance is that of sampling without replacement.
    counts = np.bincount(drawn.ravel() // 100, minlength=400)
    statistic = ((counts - counts.mean()) ** 2).sum() / counts.mean() * (degree - 1) / (degree - fanout)
    assert SMALL < chi2.sf(statistic, 399) < 1 - SMALL


@needs_core
@pytest.mark.parametrize("stream", [stream_of(0, 0, 1), stream_of(0, 1, 0), stream_of(1, 0, 0), 1])
def test_draws_of_two_steps_and_of_two_nodes_are_independent(stream: int) -> None:
    here, there = draws(50_000, 7, 1, stream=stream_of(0, 0, 0)), draws(50_000, 7, 1, stream=stream)
    for left, right in ((here, there), (here[:-1], here[1:]), (here[::2], here[1::2])):
        table = np.zeros((7, 7))
        np.add.at(table, (left.ravel(), right.ravel()), 1)
        assert chi2_contingency(table).pvalue > SMALL


@needs_core
def test_places_within_a_draw_are_as_independent_as_they_can_be() -> None:
    drawn = draws(60_000, 20, 5)
    for a, b in ((0, 1), (0, 4), (3, 4)):
        table = np.zeros((20, 20))
        np.add.at(table, (drawn[:, a], drawn[:, b]), 1)
        assert np.diag(table).sum() == 0
        off_diagonal = table[~np.eye(20, dtype=bool)]
        assert chisquare(off_diagonal).pvalue > SMALL


@needs_core
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("layered", [False, True])
def test_a_mapped_graph_is_drawn_alike_whether_or_not_it_is_in_memory(
    dtype: type, layered: bool, tmp_path: Path
) -> None:
    rng, num_nodes = np.random.default_rng(0), 40_000
    src, dst = rng.integers(0, num_nodes, (2, 400_000))
    dst[:30_000] = 7  # its neighbours lie on many pages
    held = csc(src, dst, num_nodes, dtype)
    for name, array in zip(("indptr", "indices"), held, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
        with open(tmp_path / f"{name}.npy", "rb+") as file:  # out of the page cache
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="c") for name in ("indptr", "indices")]
    asked = np.array([num_nodes - 1, 7])
    for seeds in (asked, np.arange(0, num_nodes, 9), asked[:0]):  # the first and the second cold, in part
        args = (torch.from_numpy(seeds), [10, 3, -1], 5, layered)
        found = native.sample(*map(torch.from_numpy, mapped), *args, is_mapped=True)
        assert flat(found) == flat(native.sample(*map(torch.from_numpy, held), *args))
