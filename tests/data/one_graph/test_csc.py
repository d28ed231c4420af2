"""From edges to CSC, with and without the native core."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pygsage.data.one_graph import csc
from pygsage.data.one_graph.csc import build_csc

BUILDERS = ["numpy", pytest.param("native", marks=pytest.mark.skipif(csc.core is None, reason="no native core"))]


@pytest.fixture(params=BUILDERS)
def builder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(csc, "core", None)


def brute_force(edges: list[tuple[int, int]], num_nodes: int) -> tuple[list[int], list[int], list[int]]:
    indptr, indices, perm = [0], [], []
    for node in range(num_nodes):
        mine = [(i, u) for i, (u, v) in enumerate(edges) if v == node]
        perm += [i for i, _ in mine]
        indices += [u for _, u in mine]
        indptr.append(len(indices))
    return indptr, indices, perm


def check(edges: list[tuple[int, int]], num_nodes: int) -> None:
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    built = build_csc(edge_index, num_nodes)
    assert tuple(part.tolist() for part in built) == brute_force(edges, num_nodes)
    assert [part.dtype for part in built] == [torch.int64, torch.int32, torch.int64]


def test_csc_equals_brute_force(builder: None) -> None:
    @given(st.integers(1, 9), st.data())
    def against_brute_force(num_nodes: int, data: st.DataObject) -> None:
        node = st.integers(0, num_nodes - 1)
        check(data.draw(st.lists(st.tuples(node, node), max_size=40)), num_nodes)

    against_brute_force()


def test_c032_isolated_nodes_and_no_edges(builder: None) -> None:
    check([], 1)
    check([], 5)
    check([(0, 1), (1, 0), (2, 1)], 5)
    check([(0, 0)], 1)


@pytest.mark.parametrize("edge", [(0, 3), (3, 0), (-1, 0), (0, -1)])
def test_c034_ids_out_of_range_are_refused(builder: None, edge: tuple[int, int]) -> None:
    edges: Tensor = torch.tensor([(0, 1), edge, (7, 7)]).T
    with pytest.raises(ValueError, match=f"edge 1 is {edge[0]} -> {edge[1]}; expected node ids from 0 to below 3"):
        build_csc(edges, 3)


@pytest.mark.skipif(csc.core is None, reason="no native core")
def test_both_builders_agree_on_a_larger_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = torch.from_numpy(np.random.default_rng(0).integers(0, 1000, (2, 20_000)))
    native = build_csc(edges, 1000)
    monkeypatch.setattr(csc, "core", None)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(native, build_csc(edges, 1000), strict=True))
