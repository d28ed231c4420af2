"""Edges sorted in bounded memory: the same bytes as in RAM, whatever the budget."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pygsage.data.one_graph import external
from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.external import EdgeBlocks, GroupedEdges, ListedEdges, write_csc
from pygsage.data.one_graph.options import add_self_loops, to_undirected
from pygsage.errors import EnvironmentLimitError


def in_memory(edge_index: Tensor, num_nodes: int, undirected: bool, self_loops: bool) -> list[Tensor]:
    edge_id = None
    if undirected:
        edge_index, edge_id = to_undirected(edge_index, edge_id, num_nodes)
    if self_loops:
        edge_index, edge_id = add_self_loops(edge_index, edge_id, num_nodes)
    indptr, indices, perm = build_csc(edge_index, num_nodes)
    return [indptr, indices, perm if edge_id is None else edge_id[perm]]


def on_disk(edges: EdgeBlocks, num_nodes: int, folder: Path, budget: int, *options: bool) -> list[bytes]:
    (folder / "work").mkdir()
    undirected, self_loops = options
    told = write_csc(
        edges, num_nodes, folder, folder / "work", undirected=undirected, self_loops=self_loops, budget_bytes=budget
    )
    assert list((folder / "work").iterdir()) == []
    assert list(told) in (["indptr", "indices", "edge_id"], ["indptr", "indices"])
    assert {path.stem for path in folder.glob("*.npy")} == {*told, "saved"}
    return [(folder / f"{name}.npy").read_bytes() for name in told]


def saved(arrays: list[Tensor], folder: Path) -> list[bytes]:
    """The bytes of their files; ids of edges that only count up are left out."""
    found = []
    if torch.equal(arrays[2], torch.arange(len(arrays[2]))):
        arrays = arrays[:2]
    for array in arrays:
        np.save(folder / "saved.npy", array.numpy())
        found.append((folder / "saved.npy").read_bytes())
    return found


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[Tensor, int]:
    num_nodes = draw(st.integers(1, 9))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=40))
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous(), num_nodes


@given(edge_lists(), st.booleans(), st.booleans(), st.sampled_from([1, 200, 500, 10**6]), st.sampled_from([1, 3, 100]))
def test_the_files_are_those_of_the_way_in_ram(
    graph: tuple[Tensor, int], undirected: bool, self_loops: bool, budget: int, block: int
) -> None:
    edge_index, num_nodes = graph
    csc = build_csc(edge_index, num_nodes)
    whole, external.BLOCK_EDGES = external.BLOCK_EDGES, block
    try:
        for edges in (ListedEdges(edge_index), ListedEdges(edge_index.to(torch.int32)), GroupedEdges(*csc)):
            with TemporaryDirectory() as name:
                folder = Path(name)
                expected = saved(in_memory(edge_index, num_nodes, undirected, self_loops), folder)
                assert on_disk(edges, num_nodes, folder, budget, undirected, self_loops) == expected
    finally:
        external.BLOCK_EDGES = whole


@pytest.mark.parametrize("undirected", [False, True])
def test_without_the_core_too(undirected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edge_index = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (2, 900)))
    expected = saved(in_memory(edge_index, 50, undirected, True), tmp_path)
    monkeypatch.setattr("pygsage.data.one_graph.external.core", None)
    assert on_disk(ListedEdges(edge_index), 50, tmp_path, 5_000, undirected, True) == expected


@pytest.mark.parametrize("undirected", [False, True])
def test_a_hub_larger_than_the_budget_is_copied_through(
    undirected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    edge_index = torch.from_numpy(rng.integers(0, 60, (2, 3_000)))
    edge_index[1, ::2] = 7
    expected = saved(in_memory(edge_index, 60, undirected, True), tmp_path)
    monkeypatch.setattr(external, "BLOCK_EDGES", 64)
    copied = []
    copy_node = external._Job.copy_node
    monkeypatch.setattr(external._Job, "copy_node", lambda *words: copied.append(words[2]) or copy_node(*words))
    assert on_disk(ListedEdges(edge_index), 60, tmp_path, 64 * 200, undirected, True) == expected
    assert copied == [7]


def test_a_full_disk_is_an_error_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    edges = ListedEdges(torch.zeros(2, 100, dtype=torch.int64))
    with pytest.raises(EnvironmentLimitError, match="No space left on device"):
        write_csc(edges, 50, tmp_path, tmp_path, budget_bytes=400)
    assert not (tmp_path / "edges.part").exists()
