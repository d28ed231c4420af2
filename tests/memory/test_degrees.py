from __future__ import annotations

import math
import random

import pytest

from pygsage.memory.degrees import Degrees, degrees_as_told, degrees_of_edges, sample_sizes


def test_degrees_of_a_graph_that_can_be_drawn() -> None:
    # 0 -> 1, 0 -> 2, 1 -> 2, 2 -> 2; node 3 is alone
    found = degrees_of_edges([0, 0, 1, 2], [1, 2, 2, 2], 4, "four edges")
    assert dict(found.nodes) == {1: 1, 3: 1, 0: 2}
    assert dict(found.reached) == {0: 2, 1: 1, 3: 1}
    assert dict(found.sources) == {2: 1, 1: 2}


def test_constant_degrees_draw_exactly_the_fanout() -> None:
    sizes = sample_sizes(10**9, 20 * 10**9, 100, (10, 5), degrees_as_told("constant", 10**9, 20 * 10**9))
    assert sizes.num_edges[0] == pytest.approx(1_000)
    assert sizes.num_nodes[1] == pytest.approx(1_100, rel=1e-3)
    assert sizes.num_nodes[2] == pytest.approx(1_100 + 5_000 + 500 - 500, rel=1e-3)  # the seeds' draws are prefixes
    assert sizes.num_edges[1] == pytest.approx(1_100 * 5, rel=1e-3)


def test_all_neighbours_of_all_nodes_are_all_edges() -> None:
    sizes = sample_sizes(100, 1_000, 100, (-1, -1), None)
    assert sizes.num_nodes == (100, 100, 100)
    assert max(sizes.num_edges) == 1_000


def test_it_says_whether_the_sizes_are_expected_or_a_bound() -> None:
    told = degrees_as_told("poisson", 1_000, 5_000)
    assert sample_sizes(1_000, 5_000, 10, (5,), told).basis.startswith("degree distribution: poisson")
    assert sample_sizes(1_000, 5_000, 10, (5,), None).basis.startswith("bound")


@pytest.mark.parametrize("fanouts", [(5, 5), (10, 3), (3, 10), (4,), (-1, 2)])
@pytest.mark.parametrize("kind", ["poisson", "power"])
def test_a_bound_is_never_below_what_is_expected(fanouts: tuple[int, ...], kind: str) -> None:
    nodes, edges = 50_000, 400_000
    expected = sample_sizes(nodes, edges, 256, fanouts, degrees_as_told(kind, nodes, edges))
    bound = sample_sizes(nodes, edges, 256, fanouts, None)
    assert all(b >= e * 0.999 for b, e in zip(bound.num_nodes, expected.num_nodes, strict=True))


@pytest.mark.parametrize("kind", ["constant", "poisson", "power"])
def test_typed_distributions_have_the_mean_that_was_typed(kind: str) -> None:
    told = degrees_as_told(kind, 100_000, 1_250_000)
    mean = sum(d * w for d, w in told.nodes.items()) / sum(told.nodes.values())
    assert mean == pytest.approx(12.5, rel=0.1)


def test_a_graph_without_edges() -> None:
    told = degrees_as_told("poisson", 10, 0)
    assert sample_sizes(10, 0, 4, (3, 3), told).num_nodes == (4, 4, 4)


@pytest.mark.parametrize("hubs", [False, True])
@pytest.mark.parametrize("fanouts", [(6, 6), (8, 4)])
def test_expected_sizes_are_those_of_real_draws(fanouts: tuple[int, ...], hubs: bool) -> None:
    rng = random.Random(0)
    n, e = 5_000, 40_000
    curve = 3 if hubs else 1
    src = [int(rng.random() ** curve * n) for _ in range(e)]
    dst = [int(rng.random() ** curve * n) for _ in range(e)]
    into: dict[int, list[int]] = {}
    for s, d in zip(src, dst, strict=True):
        into.setdefault(d, []).append(s)
    counts = []
    for _ in range(30):
        reached = set(rng.sample(range(n), 64))
        orders: dict[int, list[int]] = {}
        for fanout in fanouts:
            for node in sorted(reached):
                order = orders.setdefault(node, rng.sample(into.get(node, []), len(into.get(node, []))))
                reached |= set(order[:fanout])
        counts.append(len(reached))
    expected = sample_sizes(n, e, 64, fanouts, degrees_of_edges(src, dst, n, "all"))
    assert expected.num_nodes[-1] == pytest.approx(sum(counts) / len(counts), rel=0.1)


def test_unknown_popularities_are_taken_as_even_which_reaches_the_most() -> None:
    even = sample_sizes(1_000, 9_000, 100, (9,), Degrees({9: 1}, {9: 1}, {}, ""))
    skewed = sample_sizes(1_000, 9_000, 100, (9,), Degrees({9: 1}, {9: 1}, {80: 100, 1: 1_000}, ""))
    assert even.num_nodes[1] > skewed.num_nodes[1]
    assert even.num_nodes[1] == pytest.approx(100 + 900 * -math.expm1(-0.9), rel=0.01)
