"""From the options of a run to a graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.io import read_npz as read_gnn_benchmark
from torch_geometric.utils import add_remaining_self_loops, to_undirected

from pygsage.config import TrainConfig
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open import graph_from_data, open_graph, read_source
from pygsage.errors import ConfigError, DatasetError

Write = Callable[..., Path]
RawFolder = Callable[[str, str], Path]


def opened(path: Path | str, **options: Any) -> Graph:
    return open_graph(TrainConfig(dataset=str(path), offline=True, **options))


def pairs(graph: Graph) -> list[tuple[int, int]]:
    """Directed edges in CSC order, as source and destination."""
    destinations = torch.arange(graph.num_nodes).repeat_interleave(graph.indptr.diff())
    return list(zip(graph.indices.tolist(), destinations.tolist(), strict=True))


def refused(said: str, path: Path | str, **options: Any) -> None:
    with pytest.raises((DatasetError, ConfigError), match=re.escape(said)) as caught:
        opened(path, **options)
    assert caught.value.exit_status == 2


def test_a_file_becomes_a_graph(ring_npz: Write) -> None:
    path = ring_npz()
    graph = opened(path)
    assert graph.name == str(path)
    assert pairs(graph) == [(5, 0), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert graph.edge_id.tolist() == [5, 0, 1, 2, 3, 4]
    assert (graph.x.dtype, graph.y.dtype) == (torch.float32, torch.int64)
    assert (graph.indptr.dtype, graph.indices.dtype, graph.edge_id.dtype) == (torch.int64, torch.int32, torch.int64)
    assert {name: ids.tolist() for name, ids in graph.splits.items()} == {
        "train": [0, 1, 2],
        "val": [3],
        "test": [4, 5],
    }
    assert graph.num_classes == 2
    assert graph.notes == ()


def test_digits_is_the_default() -> None:
    graph = open_graph(TrainConfig(seed=3))
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (1797, 17970, 64, 10)
    assert torch.equal(graph.indptr.diff(), torch.full((1797,), 10))
    assert {name: len(ids) for name, ids in graph.splits.items()} == {"train": 1078, "val": 360, "test": 359}
    again = open_graph(TrainConfig(seed=3))
    ours, theirs = graph.arrays(), again.arrays()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_added_edges_have_no_id(ring_npz: Write) -> None:
    path = ring_npz(edge_index=np.array([[0, 1, 1, 0, 3, 2], [1, 0, 2, 1, 3, 4]]))
    plain = opened(path)
    both = opened(path, undirected=True, self_loops=True)
    edges = np.load(path)["edge_index"]
    wanted = add_remaining_self_loops(to_undirected(torch.from_numpy(edges), num_nodes=6), num_nodes=6)[0]
    assert set(pairs(both)) == set(map(tuple, wanted.T.tolist()))
    assert len(pairs(both)) == len(set(pairs(both)))
    assert len(pairs(plain)) == 6  # duplicates stay without --undirected
    for edge, edge_id in zip(pairs(both), both.edge_id.tolist(), strict=True):
        assert edge_id == -1 or edge == tuple(edges[:, edge_id])
    assert sorted(e for e in both.edge_id.tolist() if e >= 0) == [0, 1, 2, 4, 5]


def test_features_are_normalised_when_asked(ring_npz: Write) -> None:
    path = ring_npz()
    assert torch.equal(opened(path).x, torch.arange(12.0).reshape(6, 2))
    scaled = opened(path, normalize_features=True).x
    assert torch.allclose(scaled.sum(1), torch.ones(6))


def test_new_splits_replace_the_files_own(ring_npz: Write) -> None:
    path = ring_npz(train_mask=np.zeros(3))  # not even looked at
    y = np.array([0, 1, 0, 1, -1, -1])
    graph = opened(ring_npz("labelled.npz", y=y), split="random:.5/.25/.25", seed=1)
    assert sorted(torch.cat(list(graph.splits.values())).tolist()) == [0, 1, 2, 3]
    graph = opened(path, split="per-class:1/1", seed=1)
    assert {name: len(ids) for name, ids in graph.splits.items()} == {"train": 2, "val": 2, "test": 2}
    refused("expected at least 4 of each class", path, split="per-class:2/2")
    refused("--split-id picks one of the own splits", path, split="random:.5/.25/.25", split_id=0)


def test_a_random_split_too_small_to_train_is_refused(ring_npz: Write) -> None:
    refused("the training split is empty", ring_npz(), split="random:.01/.5/.49")


def test_no_split_says_what_to_type(ring_npz: Write) -> None:
    path = ring_npz(train_mask=None, val_mask=None, test_mask=None)
    refused("no training split (masks found: none); expected train_mask or train_idx. Type --split random:.6", path)
    graph = open_graph(TrainConfig(dataset=str(path)), need_split=False)
    assert graph.splits == {}
    assert "add --split random:.6/.2/.2" in graph.notes[0]


def test_c076_several_splits_need_a_choice(ring_npz: Write) -> None:
    path = ring_npz(train_mask=np.eye(6, dtype=bool), val_mask=None, test_mask=None)
    refused("--split-id is missing", path)
    assert opened(path, split_id=2).splits["train"].tolist() == [2]
    graph = open_graph(TrainConfig(dataset=str(path)), need_split=False)
    assert graph.splits["train"].tolist() == [0]
    assert graph.notes[0] == "The dataset has 6 splits; shown is --split-id 0."


def test_c086_a_star_against_the_direction_is_noted(ring_npz: Write) -> None:
    path = ring_npz(
        edge_index=np.array([[0] * 5, [1, 2, 3, 4, 5]]),
        train_mask=None,
        val_mask=None,
        test_mask=None,
        train_idx=np.array([0]),
        val_idx=np.array([1, 2]),
        test_idx=np.array([3]),
    )
    note = "1 of 1 training nodes have no in-neighbours (messages run from source to destination); if edges mean both"
    assert opened(path).notes[0].startswith(note)
    assert opened(path).notes[0].endswith("add --undirected.")
    assert opened(path, undirected=True).notes == ()


def test_c086_half_of_the_training_nodes_may_lack_neighbours(ring_npz: Write) -> None:
    edges = np.array([[0], [1]])
    path = ring_npz("half.npz", edge_index=edges, train_mask=np.arange(6) < 2)
    assert opened(path).notes == ()
    more = ring_npz("more.npz", edge_index=edges)
    assert "2 of 3 training nodes" in opened(more).notes[0]
    assert "--undirected" not in opened(ring_npz("all.npz", edge_index=np.array([[5], [5]])), undirected=True).notes[0]


def test_c020_c032_a_graph_without_edges_trains_on_features(ring_npz: Write) -> None:
    path = ring_npz(edge_index=np.empty((2, 0), dtype=np.float32))
    graph = opened(path, undirected=True)
    assert graph.num_edges == 0
    assert graph.indptr.tolist() == [0] * 7
    assert graph.notes == ("The graph has no edges: each node is classified by its own features.",)
    assert pairs(opened(path, self_loops=True)) == [(v, v) for v in range(6)]


def test_c032_a_single_node_is_a_graph(ring_npz: Write) -> None:
    path = ring_npz(
        x=np.ones((1, 1)),
        y=np.zeros(1, dtype=int),
        edge_index=np.empty((2, 0)),
        train_mask=np.ones(1, dtype=bool),
        val_mask=None,
        test_mask=None,
    )
    graph = opened(path, self_loops=True, undirected=True)
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (1, 1, 1)


def test_c031_c032_isolated_nodes_count(ring_npz: Write) -> None:
    graph = opened(ring_npz(edge_index=np.array([[0, 1], [1, 2]])))
    assert graph.num_nodes == 6
    assert len(graph.indptr) == 7


def test_c034_an_edge_beyond_the_nodes_is_refused_with_the_file(ring_npz: Write) -> None:
    path = ring_npz(edge_index=np.array([[0, 6, 1], [1, 2, 0]]))
    refused(f"{path}: edge 1 of edge_index has the source 6, and x has 6 rows", path)


def test_c103_float_labels_with_nan_outside_the_splits(ring_npz: Write) -> None:
    y = np.array([[0], [1], [0], [1], [1], [np.nan]])
    path = ring_npz("good.npz", y=y, test_mask=np.array([0, 0, 0, 0, 1, 0], dtype=bool))
    assert opened(path).y.tolist() == [0, 1, 0, 1, 1, -1]
    y[1] = np.nan
    refused("the train split has nodes without a label (1 in all, such as node 1)", ring_npz("bad.npz", y=y))
    assert 5 not in torch.cat(list(opened(path, split="random:.4/.3/.3").splits.values()))


def test_c105_marks_of_no_label(ring_npz: Write) -> None:
    y = np.array([0, 1, -1, 1, 1, -100])
    refused("the train split has nodes without a label (1 in all, such as node 2)", ring_npz(y=y))
    splits = opened(ring_npz(y=y), split="random:.4/.3/.3").splits
    assert sorted(torch.cat(list(splits.values())).tolist()) == [0, 1, 3, 4]


def test_a_root_goes_with_sources_that_have_one(ring_npz: Write, tmp_path: Path) -> None:
    refused("--root goes with pyg: datasets, ogbn- datasets and recipes", ring_npz(), root=str(tmp_path))
    refused("--root goes with pyg: datasets", "digits", root=str(tmp_path))


def test_a_graph_of_the_api_is_prepared_like_a_file(ring_npz: Write, raw: Callable[..., Any]) -> None:
    ring = raw()
    data = Data(x=ring.x, edge_index=ring.edge_index, y=ring.y, **ring.splits)
    before = {key: data[key].clone() for key in data.keys()}  # noqa: SIM118
    options: dict[str, Any] = {"undirected": True, "normalize_features": True}
    ours = graph_from_data(data, TrainConfig(dataset="my graph", **options))
    theirs = opened(ring_npz(), **options)
    assert ours.name == "my graph"
    assert all(torch.equal(array, theirs.arrays()[name]) for name, array in ours.arrays().items())
    assert all(torch.equal(data[key], value) for key, value in before.items())  # the user's own stays as it is


def test_a_dataset_of_the_api_holds_one_graph(raw: Callable[..., Any]) -> None:
    ring = raw()
    data = Data(x=ring.x, edge_index=ring.edge_index, y=ring.y, **ring.splits)

    class Some(InMemoryDataset):
        def __init__(self, graphs: list[Data]) -> None:
            super().__init__()
            self.data, self.slices = self.collate(graphs)

    config = TrainConfig(dataset="mine")
    assert graph_from_data(Some([data]), config).num_nodes == 6
    for value, said in (
        (Some([data, data]), "mine holds 2 graphs; expected one graph with node labels"),
        (HeteroData({"paper": {"x": ring.x}}), "mine is heterogeneous (node types paper)"),
        (ring.x, "mine holds a Tensor; expected one graph"),
        (Data(edge_index=ring.edge_index, y=ring.y), "mine has no x"),
    ):
        with pytest.raises(DatasetError, match=re.escape(said)):
            graph_from_data(value, config)


def test_a_saved_graph_trains_the_same(ring_npz: Write, tmp_path: Path) -> None:
    graph = opened(ring_npz(), undirected=True, self_loops=True)
    graph.save(tmp_path / "graph")
    ours, theirs = graph.arrays(), Graph.open(tmp_path / "graph").arrays()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_c078_tensors_on_a_device_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = read_source(TrainConfig())
    digits.x = digits.x.cuda()
    digits.splits = {key: ids.cuda() for key, ids in digits.splits.items()}
    monkeypatch.setattr("pygsage.data.open.read_source", lambda _: digits)
    graph = open_graph(TrainConfig())
    assert {array.device.type for array in graph.arrays().values()} == {"cpu"}


# Real files


def test_cora_in_one_file_equals_cora_of_pyg(raw_folder: RawFolder, tmp_path: Path) -> None:
    graph = opened("pyg:Planetoid/Cora", root=str(raw_folder("planetoid/Cora", "Cora")))
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (2708, 10556, 1433, 7)
    assert {name: len(ids) for name, ids in graph.splits.items()} == {"train": 140, "val": 500, "test": 1000}
    file = Path(__file__).parents[2].parent / "shared" / "data" / "npz" / "cora.npz"
    data = read_gnn_benchmark(str(file))  # this file is of another layout
    refused("layout of gnn-benchmark", file)
    with np.load(file) as arrays:
        masks = {key: arrays[key] for key in ("train_mask", "val_mask", "test_mask")}
    np.savez(tmp_path / "cora.npz", x=data.x, edge_index=data.edge_index, y=data.y, **masks)
    other = opened(tmp_path / "cora.npz")
    assert sorted(pairs(graph)) == sorted(pairs(other))
    for name, array in graph.arrays().items():
        if name not in ("indices", "edge_id"):  # the order within a node may differ
            assert torch.equal(array, other.arrays()[name]), name


def test_citeseer_has_isolated_nodes(raw_folder: RawFolder) -> None:
    root = str(raw_folder("planetoid/CiteSeer", "CiteSeer"))
    graph = opened("pyg:Planetoid/CiteSeer", root=root, normalize_features=True)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (3327, 9104, 3703, 6)
    assert int((graph.indptr.diff() == 0).sum()) == 48
    assert set(graph.x.sum(1).round(decimals=4).unique().tolist()) == {0.0, 1.0}


def test_computers_needs_a_split(raw_folder: RawFolder) -> None:
    root = str(raw_folder("amazon/Computers", "Computers"))
    refused("pyg:Amazon/Computers has no training split", "pyg:Amazon/Computers", root=root)
    graph = opened("pyg:Amazon/Computers", root=root, split="per-class:20/30")
    assert (graph.num_nodes, graph.num_edges) == (13752, 491722)
    assert {name: len(ids) for name, ids in graph.splits.items()} == {"train": 200, "val": 300, "test": 13252}


def test_c076_minesweeper_has_ten_splits(raw_folder: RawFolder) -> None:
    name, root = (
        "pyg:HeterophilousGraphDataset/Minesweeper",
        str(raw_folder("heterophilous/minesweeper", "minesweeper")),
    )
    refused("has 10 splits; expected a number from 0 to 9", name, root=root)
    graphs = [opened(name, root=root, split_id=split_id) for split_id in (0, 9)]
    assert [{key: len(ids) for key, ids in graph.splits.items()} for graph in graphs] == [
        {"train": 5000, "val": 2500, "test": 2500}
    ] * 2
    assert not torch.equal(graphs[0].splits["train"], graphs[1].splits["train"])


def test_c086_texas_is_directed(raw_folder: RawFolder) -> None:
    root = str(raw_folder("webkb/texas", "texas"))
    graph = opened("pyg:WebKB/Texas", root=root, split_id=0)
    assert (graph.num_nodes, graph.num_edges) == (183, 325)
    assert {name: len(ids) for name, ids in graph.splits.items()} == {"train": 87, "val": 59, "test": 37}
    edges = {frozenset(pair) for pair in pairs(graph)}
    both = opened("pyg:WebKB/Texas", root=root, split_id=0, undirected=True)
    assert {frozenset(pair) for pair in pairs(both)} == edges
    assert both.num_edges == sum(len(edge) for edge in edges)
