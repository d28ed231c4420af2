"""The native sampler of graphs with types equals the reference, element by element."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from pygsage import native as native_core
from pygsage.sampling import native, reference
from pygsage.sampling.keys import MASK, relation_stream, stream_of
from pygsage.sampling.sample import HeteroSample, Relation

pytestmark = pytest.mark.skipif(not native.available(), reason="the native core is not built")
core: Any = native_core.core
NAMES = ["a", "b", "c"]
Case = tuple[list[Relation], dict[str, int], dict[str, torch.Tensor]]


def flat(sample: HeteroSample) -> list[Any]:
    hops = {
        key: [(h.first_target, h.indptr.tolist(), h.indices.tolist(), h.positions.tolist()) for h in hops]
        for key, hops in sample.hops.items()
    }
    return [{name: ids.tolist() for name, ids in sample.nodes.items()}, sample.num_nodes, hops]


def relation(
    rng: np.random.Generator,
    edge_type: tuple[str, str, str],
    sizes: dict[str, int],
    num_edges: int,
    fanouts: tuple[int, ...],
    dtype: torch.dtype = torch.int32,
) -> Relation:
    source, _, target = edge_type
    targets = np.sort(rng.integers(0, sizes[target], num_edges))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=sizes[target]))])
    indices = torch.from_numpy(rng.integers(0, sizes[source], num_edges)).to(dtype)
    return Relation(edge_type, torch.from_numpy(indptr.astype(np.int64)), indices, fanouts)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = {name: draw(st.integers(1, 25)) for name in NAMES[: draw(st.integers(1, 3))]}
    num_hops = draw(st.integers(0, 3))
    relations = []
    for i in range(draw(st.integers(0, 5))):
        fanouts = tuple(draw(st.sampled_from([-1, 0, 1, 2, 5, 70])) for _ in range(num_hops))
        ends = [draw(st.sampled_from(sorted(sizes))) for _ in range(2)]
        num_edges, dtype = draw(st.sampled_from([0, 1, 40, 300])), draw(st.sampled_from([torch.int32, torch.int64]))
        relations.append(relation(rng, (ends[0], f"r{i}", ends[1]), sizes, num_edges, fanouts, dtype))
    seeds = {
        name: torch.tensor(draw(st.lists(st.integers(0, size - 1), max_size=6)), dtype=torch.int64)
        for name, size in sizes.items()
        if draw(st.booleans())
    }
    return relations, sizes, seeds


@settings(max_examples=150)
@given(case=cases(), stream=st.integers(0, MASK), dense_limit=st.sampled_from([0, 10, 1 << 24]))
def test_equals_the_reference_element_by_element(case: Case, stream: int, dense_limit: int) -> None:
    relations, sizes, seeds = case
    expected = flat(reference.sample_hetero(relations, sizes, seeds, stream))
    assert flat(native.sample_hetero(relations, sizes, seeds, stream)) == expected
    none = torch.empty(0, dtype=torch.int64)
    nodes, num_nodes, _ = core.sample_hetero(
        list(sizes.values()),
        [seeds.get(name, none).numpy() for name in sizes],
        [r.indptr.numpy() for r in relations],
        [r.indices.numpy() for r in relations],
        [(list(sizes).index(r.edge_type[0]), list(sizes).index(r.edge_type[2])) for r in relations],
        [list(r.fanouts) for r in relations],
        stream,
        dense_limit=dense_limit,
    )
    assert [ids.tolist() for ids in nodes] == list(expected[0].values())
    assert num_nodes == list(expected[1].values())


@given(case=cases(), stream=st.integers(0, MASK))
def test_one_relation_draws_as_a_graph_without_types_does(case: Case, stream: int) -> None:
    relations, sizes, seeds = case
    for only in relations[:1]:
        source, _, target = only.edge_type
        if source != target:
            continue
        ids = seeds.get(target, torch.empty(0, dtype=torch.int64))
        typed = native.sample_hetero([only], sizes, {target: ids}, stream)
        plain = native.sample(only.indptr, only.indices, ids, only.fanouts, relation_stream(stream, 0), layered=False)
        assert torch.equal(typed.nodes[target], plain.nodes)
        for a, b in zip(typed.hops[only.edge_type], plain.hops, strict=True):
            assert torch.equal(a.positions, b.positions)


@pytest.mark.parametrize("num_threads", [1, 2, 8])
def test_c111_threads_give_the_same_batches(num_threads: int) -> None:
    rng = np.random.default_rng(1)
    sizes = {"a": 2000, "b": 300}
    ends = [("a", "b"), ("b", "a"), ("a", "a")]
    relations = [
        relation(rng, (source, f"r{i}", target), sizes, 20_000, (5, 10, 5)) for i, (source, target) in enumerate(ends)
    ]
    batches = [torch.from_numpy(rng.integers(0, 2000, 32)) for _ in range(32)]

    def digest(step: int) -> list[Any]:
        return flat(native.sample_hetero(relations, sizes, {"a": batches[step]}, stream_of(0, 0, step)))

    expected = [digest(step) for step in range(32)]
    with ThreadPoolExecutor(num_threads) as pool:
        assert list(pool.map(digest, range(32))) == expected


def test_relations_draw_independently_of_one_another() -> None:
    sizes, num_targets = {"a": 7, "b": 30_000}, 30_000
    indptr = torch.arange(num_targets + 1) * 7
    indices = torch.arange(7, dtype=torch.int32).repeat(num_targets)
    relations = [Relation(("a", name, "b"), indptr, indices, (1,)) for name in "rst"]
    sample = native.sample_hetero(relations, sizes, {"b": torch.arange(num_targets)}, stream_of(0, 0, 0))
    drawn = [hops[0].positions.numpy() % 7 for hops in sample.hops.values()]
    for left, right in ((0, 1), (1, 2), (0, 2)):
        table = np.zeros((7, 7))
        np.add.at(table, (drawn[left], drawn[right]), 1)
        assert chi2_contingency(table).pvalue > 1e-6


def test_c034_wrong_ids_and_damaged_graphs_raise() -> None:
    sizes = {"a": 3, "b": 2}
    good = Relation(("a", "r", "b"), torch.tensor([0, 1, 2]), torch.tensor([0, 2]), (2,))
    for sample in (native.sample_hetero, reference.sample_hetero):
        with pytest.raises(ValueError, match=r"seeds\[0\] is 2; expected a node id from 0 to below 2"):
            sample([good], sizes, {"b": torch.tensor([2])}, 0)
        with pytest.raises(ValueError, match="seeds of the unknown node type 'c'"):
            sample([good], sizes, {"c": torch.tensor([0])}, 0)
        seeds = {"b": torch.tensor([1])}
        for field, value, said in [
            ("indices", torch.tensor([0, 3]), r"indices\[1\] is 3; expected a node id from 0 to below 3"),
            ("indptr", torch.tensor([0, 1, 5]), "indptr is damaged: node 1 has the edges from 1 to 5 of 2"),
            ("indptr", torch.tensor([0, 1, 2, 2]), "has 4 elements; expected 3"),
            ("edge_type", ("a", "r", "z"), "unknown node type"),
            ("fanouts", (-2,), "a fanout is -2"),
        ]:
            with pytest.raises(ValueError, match=said):
                sample([replace(good, **{field: value})], sizes, seeds, 0)
        other = Relation(("b", "s", "a"), torch.tensor([0, 0, 0, 0]), torch.tensor([], dtype=torch.int64), (2, 2))
        with pytest.raises(ValueError, match="fanouts of different lengths"):
            sample([good, other], sizes, seeds, 0)


def test_arrays_of_another_kind_are_refused() -> None:
    good = {
        "num_nodes": [1],
        "seeds": [np.array([0])],
        "indptrs": [np.array([0, 1])],
        "indices": [np.array([0])],
        "types": [(0, 0)],
        "fanouts": [[1]],
        "stream": 0,
    }
    assert core.sample_hetero(**good)[0][0].tolist() == [0]
    for name, bad in [
        ("seeds", [np.array([0], dtype=np.int32)]),
        ("indptrs", [np.array([0, 1], dtype=np.int32)]),
        ("indices", [np.array([0.0])]),
        ("indices", [np.zeros(4, dtype=np.int64)[::2]]),
    ]:
        with pytest.raises(TypeError):
            core.sample_hetero(**{**good, name: bad})
    for name, value in [("types", [(0, 1)]), ("indptrs", [np.array([0])]), ("fanouts", []), ("seeds", [])]:
        with pytest.raises(ValueError, match="node type|elements|expected"):
            core.sample_hetero(**{**good, name: value})
