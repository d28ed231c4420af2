from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pygsage.sampling import reference
from pygsage.sampling.keys import GOLDEN, MASK, mix64, relation_stream, stream_of
from pygsage.sampling.sample import Relation

# Edges 1 -> 0, 2 -> 0, 3 -> 0 (twice), 0 -> 1, 4 -> 4; nodes 2, 3 and 5 have no in-neighbours.
INDPTR = torch.tensor([0, 4, 5, 5, 5, 6, 6])
INDICES = torch.tensor([1, 2, 3, 3, 0, 4], dtype=torch.int32)


def ids(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def test_a_draw_is_the_partial_shuffle_of_the_contract() -> None:
    key, a = 0x123456789ABCDEF, list(range(7))
    for j in range(3):
        t = j + (mix64((key + j * GOLDEN) & MASK) * (7 - j) >> 64)
        a[j], a[t] = a[t], a[j]
    assert reference.draw(key, 7, 3) == a[:3]


@given(st.integers(0, MASK), st.integers(0, 60), st.integers(0, 60))
def test_a_draw_has_no_repeats_and_its_beginning_is_a_smaller_draw(key: int, degree: int, fanout: int) -> None:
    drawn = reference.draw(key, degree, fanout)
    assert len(drawn) == min(degree, fanout)
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) <= set(range(degree))
    if fanout < degree:
        for smaller in range(fanout):
            assert reference.draw(key, degree, smaller) == drawn[:smaller]


@pytest.mark.parametrize("fanout", [-1, 4, 5, 100])
def test_all_neighbours_come_in_stored_order(fanout: int) -> None:
    got = reference.sample(INDPTR, INDICES, ids(0), [fanout], 0, layered=False)
    assert got.nodes.tolist() == [0, 1, 2, 3]
    assert got.hops[0].indices.tolist() == [1, 2, 3, 3]
    assert got.hops[0].positions.tolist() == [0, 1, 2, 3]


def test_first_reach_draws_for_new_nodes_only() -> None:
    got = reference.sample(INDPTR, INDICES, ids(0, 4), [-1, -1], 0, layered=False)
    assert got.nodes.tolist() == [0, 4, 1, 2, 3]
    assert got.num_nodes == [2, 5, 5]
    first, second = got.hops
    assert (first.first_target, first.indptr.tolist(), first.indices.tolist()) == (0, [0, 4, 5], [2, 3, 4, 4, 1])
    assert (second.first_target, second.indptr.tolist(), second.indices.tolist()) == (2, [0, 1, 1, 1], [0])
    assert second.positions.tolist() == [4]


def test_layered_draws_again_for_all_nodes_with_the_same_draws() -> None:
    got = reference.sample(INDPTR, INDICES, ids(0, 4), [2, 3], stream_of(0, 0, 0), layered=True)
    first, second = got.hops
    assert (first.first_target, second.first_target) == (0, 0)
    assert len(second.indptr) == got.num_nodes[1] + 1
    # Node 0 has four in-neighbours: two of them, then three, of which two are the same.
    assert second.positions[:3].tolist()[:2] == first.positions[:2].tolist()
    assert len(set(second.positions[:3].tolist())) == 3


def test_a_seed_given_twice_has_two_rows_with_one_draw() -> None:
    got = reference.sample(INDPTR, INDICES, ids(1, 0, 0), [2], 7, layered=False)
    assert got.nodes[:3].tolist() == [1, 0, 0]
    hop = got.hops[0]
    assert hop.indptr.tolist() == [0, 1, 3, 5]
    assert hop.indices[0] == 1  # node 0, by its first row
    assert hop.indices[1:3].tolist() == hop.indices[3:5].tolist()


def test_no_seeds_no_hops_and_no_graph() -> None:
    empty = reference.sample(INDPTR, INDICES, ids(), [3, 3], 0, layered=False)
    assert empty.num_nodes == [0, 0, 0]
    assert [len(hop.indices) for hop in empty.hops] == [0, 0]
    assert reference.sample(INDPTR, INDICES, ids(2, 5), [], 0, layered=True).hops == []
    assert reference.sample(ids(0), ids(), ids(), [1], 0, layered=True).num_nodes == [0, 0]


@pytest.mark.parametrize("bad", [6, -1, 2**40])
def test_a_seed_out_of_range_is_refused(bad: int) -> None:
    with pytest.raises(ValueError, match=rf"seeds\[1\] is {bad}; expected a node id from 0 to below 6"):
        reference.sample(INDPTR, INDICES, ids(0, bad), [1], 0, layered=False)


def test_a_damaged_graph_is_refused() -> None:
    with pytest.raises(ValueError, match=r"indices\[0\] is 6"):
        reference.sample(ids(0, 1), ids(6), ids(0), [1], 0, layered=False)
    with pytest.raises(ValueError, match="indptr is damaged"):
        reference.sample(ids(0, 2), ids(0), ids(0), [1], 0, layered=False)
    with pytest.raises(ValueError, match="indptr is empty"):
        reference.sample(ids(), ids(), ids(), [1], 0, layered=False)
    with pytest.raises(ValueError, match="a fanout is -2"):
        reference.sample(INDPTR, INDICES, ids(0), [-2], 0, layered=False)


def test_types_by_hand() -> None:
    # Authors 0 and 1 wrote paper 0, author 1 wrote paper 1; paper 1 cites paper 0: the message runs from 1 to 0.
    cites = Relation(("paper", "cites", "paper"), ids(0, 1, 1), ids(1), (-1, -1))
    writes = Relation(("author", "writes", "paper"), ids(0, 2, 3), ids(0, 1, 1), (-1, -1))
    by = Relation(("paper", "by", "author"), ids(0, 1, 3), ids(0, 0, 1), (-1, 0))
    sizes = {"author": 2, "paper": 2, "venue": 7}
    sample = reference.sample_hetero([cites, writes, by], sizes, {"paper": ids(0)}, 0)
    assert {name: nodes.tolist() for name, nodes in sample.nodes.items()} == {
        "author": [0, 1],
        "paper": [0, 1],
        "venue": [],
    }
    assert sample.num_nodes == {"author": [0, 2, 2], "paper": [1, 2, 2], "venue": [0, 0, 0]}
    first, second = sample.hops[writes.edge_type]
    assert (first.first_target, first.indptr.tolist(), first.positions.tolist()) == (0, [0, 2], [0, 1])
    # Paper 1 was reached by a citation in the first hop, and its author had been reached too.
    assert (second.first_target, second.indptr.tolist(), second.indices.tolist()) == (1, [0, 1], [1])
    # No author was a seed; in the second hop two of them draw, with a fanout of 0.
    assert [hop.indptr.tolist() for hop in sample.hops[by.edge_type]] == [[0], [0, 0, 0]]


def test_each_type_draws_by_its_place_the_node_and_the_stream() -> None:
    indptr, indices = ids(0, 50), torch.zeros(50, dtype=torch.int32)
    relations = [Relation(("a", name, "a"), indptr, indices, (4,)) for name in "xyz"]
    sample = reference.sample_hetero(relations, {"a": 1}, {"a": ids(0)}, 77)
    drawn = [hops[0].positions.tolist() for hops in sample.hops.values()]
    assert drawn == [reference.draw(mix64(relation_stream(77, i) ^ 0), 50, 4) for i in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]
