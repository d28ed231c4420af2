from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, TensorAttr
from torch_geometric.data.graph_store import EdgeAttr
from torch_geometric.loader import LinkNeighborLoader
from torch_geometric.loader import NeighborLoader as PyGNeighborLoader
from torch_geometric.sampler import NodeSamplerInput

from pygsage import DatasetError, NeighborLoader, NeighborSampler
from pygsage.config import TrainConfig
from pygsage.data.files import arrays as arrays_module
from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.mapped import MappedFeatureStore, MappedGraphStore, open_stores, save_hetero
from pygsage.data.open import open_graph

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes/of", "paper")
Pair = tuple[MappedFeatureStore, MappedGraphStore]


def _hetero() -> HeteroData:
    """Twelve papers and as many citations: nothing may be told by its length."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["paper"].x = torch.randn(12, 3, generator=generator)
    data["paper"].y = torch.arange(12)
    data["paper"].edge_count = torch.arange(12, dtype=torch.int32)
    data["paper"].train_mask = torch.arange(12) < 8
    data["author"].x = torch.randn(5, 2, generator=generator).to(torch.float64)
    data["venue"].num_nodes = 3
    data[CITES].edge_index = torch.randint(12, (2, 12), generator=generator)
    data[CITES].weight = torch.rand(12, generator=generator)
    data[WRITES].edge_index = torch.stack(
        [torch.randint(5, (20,), generator=generator), torch.randint(12, (20,), generator=generator)]
    )
    data["paper", "in", "venue"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    return data


@pytest.fixture(scope="module")
def data() -> HeteroData:
    return _hetero()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: HeteroData) -> Path:
    path = tmp_path_factory.mktemp("stores") / "hetero"
    save_hetero(data, path)
    return path


@pytest.fixture
def pair(folder: Path) -> Pair:
    return open_stores(folder)


@pytest.fixture(scope="module")
def one_graph() -> Data:
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(40, (2, 200), generator=generator)
    return Data(x=torch.randn(40, 4, generator=generator), edge_index=edge_index, y=torch.arange(40) % 3)


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory: pytest.TempPathFactory, one_graph: Data) -> Path:
    csc = build_csc(one_graph.edge_index, 40)
    path = tmp_path_factory.mktemp("stores") / "one"
    Graph("g", *csc, one_graph.x, one_graph.y, {"train": torch.arange(9)}, 3).save(path)
    return path


def test_features_come_back_by_every_kind_of_index(pair: Pair, data: HeteroData) -> None:
    features, _ = pair
    x = data["paper"].x
    rows = torch.tensor([3, 3, 0])
    for index, expected in [
        (None, x),
        (rows, x[rows]),
        (rows.to(torch.int32), x[rows]),
        (rows.numpy(), x[rows]),
        (x[:, 0] > 0, x[x[:, 0] > 0]),
        (slice(2, 5), x[2:5]),
        (slice(None), x),
        (4, x[4]),
        (torch.empty(0, dtype=torch.int64), x[:0]),
    ]:
        assert torch.equal(features.get_tensor(group_name="paper", attr_name="x", index=index), expected)
    assert torch.equal(features["paper", "y", rows], rows)
    assert torch.equal(features["paper"].y[rows], rows)
    assert torch.equal(features["paper", "x"](), x)
    assert isinstance(features.get_tensor("paper", "x", np.array([1]), convert_type=True), np.ndarray)
    many = features.multi_get_tensor([TensorAttr("paper", "y", rows), TensorAttr("author", "x", rows)])
    assert torch.equal(many[1], data["author"].x[rows])
    assert many[1].dtype == torch.float64
    assert torch.equal(features[CITES, "weight", None], data[CITES].weight)
    assert features.get_tensor("paper", "z", None) is None
    with pytest.raises(ValueError, match="not fully specified"):
        features.get_tensor("paper", "x")


def test_sizes_and_attributes(pair: Pair) -> None:
    features, graph = pair
    assert features.get_tensor_size(group_name="paper", attr_name="x") == (12, 3)
    assert features.get_tensor_size(group_name="paper", attr_name="z") is None
    named = [(attr.group_name, attr.attr_name) for attr in features.get_all_tensor_attrs()]
    paper = [("paper", name) for name in ("x", "y", "edge_count", "train_mask")]
    assert named == [*paper, ("author", "x"), (CITES, "weight")]
    for attr in features.get_all_tensor_attrs():
        attr.index = torch.tensor([0])  # as PyG's loaders do
    assert not any(attr.is_set("index") for attr in features.get_all_tensor_attrs())
    sizes = {attr.edge_type: attr.size for attr in graph.get_all_edge_attrs()}
    assert sizes == {CITES: (12, 12), WRITES: (5, 12), ("paper", "in", "venue"): (12, 3)}


def test_edges_in_every_layout_have_the_ids_of_the_data(pair: Pair, data: HeteroData) -> None:
    _, graph = pair
    rows, columns, perms = graph.coo()
    for edge_type in data.edge_types:
        edge_index = data[edge_type].edge_index
        assert torch.equal(torch.stack([rows[edge_type], columns[edge_type]]), edge_index)
        assert perms[edge_type] is None
        source, pointers, edge_id = (part[edge_type] for part in graph.csc([edge_type]))
        assert torch.equal(edge_index[0][edge_id], source.to(torch.int64))
        assert torch.equal(edge_index[1][edge_id], torch.repeat_interleave(pointers.diff()))
        pointers, target, edge_id = (part[edge_type] for part in graph.csr([edge_type]))
        assert torch.equal(edge_index[1][edge_id], target)
        assert torch.equal(edge_index[0][edge_id], torch.repeat_interleave(pointers.diff()))
    source, pointers = graph.get_edge_index(edge_type=CITES, layout="csc")
    assert source.dtype == torch.int32
    with pytest.raises(KeyError):
        graph.get_edge_index(edge_type=CITES, layout="coo")
    with pytest.raises(KeyError):
        graph[EdgeAttr(("x", "y", "z"), "csc")]


def test_what_is_removed_is_forgotten_here_and_in_pickles_only(folder: Path) -> None:
    features, graph = open_stores(folder)
    assert features.remove_tensor("paper", "x", None)
    assert not features.remove_tensor("paper", "x", None)
    del features["paper", "y"]
    assert graph.remove_edge_index(edge_type=CITES, layout="csc")
    assert not graph.remove_edge_index(edge_type=CITES, layout="csc")
    for store in (features, pickle.loads(pickle.dumps(features))):
        assert store.get_tensor("paper", "x", None) is None
        assert len(store.get_all_tensor_attrs()) == 4
    assert len(pickle.loads(pickle.dumps(graph)).get_all_edge_attrs()) == 2
    assert len(open_stores(folder)[0].get_all_tensor_attrs()) == 6


def test_nothing_can_be_put_in(pair: Pair) -> None:
    features, graph = pair
    with pytest.raises(DatasetError, match="read only"):
        features.put_tensor(torch.zeros(12), group_name="paper", attr_name="z", index=None)
    with pytest.raises(DatasetError, match="read only"):
        features.update_tensor(torch.zeros(12), group_name="paper", attr_name="y", index=None)
    assert features.get_tensor("paper", "y", None) is not None
    with pytest.raises(DatasetError, match="read only"):
        graph.put_edge_index((torch.zeros(1), torch.zeros(1)), edge_type=CITES, layout="coo")


def test_pickles_are_paths_and_rows_are_copies(pair: Pair, folder: Path) -> None:
    for store in pair:
        assert len(pickle.dumps(store)) < 1000
        assert str(folder) in repr(store)
    rows = pair[0].get_tensor("paper", "x", slice(0, 2))
    assert rows.untyped_storage().nbytes() == 2 * 3 * 4
    sampler = NeighborSampler(pair, [2])
    assert sampler.held() == []
    assert len(pickle.dumps(sampler)) < 2000
    assert pickle.loads(pickle.dumps(sampler)).num_nodes == {"author": 5, "paper": 12, "venue": 3}


def _content(loader: Any, names: tuple[str, ...]) -> list[Any]:
    return [
        [(batch[name].n_id.tolist(), batch[name].x.tolist()) for name in names]
        + [batch[edge_type].e_id.tolist() for edge_type in (CITES, WRITES)]
        for batch in loader
    ]


@pytest.mark.parametrize("filter_per_worker", [False, True])
def test_a_stored_graph_gives_the_batches_of_the_data(pair: Pair, data: HeteroData, filter_per_worker: bool) -> None:
    names = ("paper", "author")
    in_memory = PyGNeighborLoader(
        data, [2, 2], "paper", neighbor_sampler=NeighborSampler(data, [2, 2], 3), batch_size=5
    )
    sampler = NeighborSampler(pair, [2, 2], 3)
    for num_workers in (0, 2):
        stored = PyGNeighborLoader(
            pair,
            [2, 2],
            "paper",
            neighbor_sampler=sampler,
            batch_size=5,
            num_workers=num_workers,
            filter_per_worker=filter_per_worker,
            multiprocessing_context="fork" if num_workers else None,
        )
        assert _content(stored, names) == _content(in_memory, names)
    batch = next(iter(stored))
    assert torch.equal(batch["paper"].edge_count, batch["paper"].n_id.to(torch.int32))
    assert torch.equal(pair[0][CITES, "weight", batch[CITES].e_id], data[CITES].weight[batch[CITES].e_id])


def test_spawned_workers_map_the_files_for_themselves(pair: Pair, data: HeteroData) -> None:
    alone = NeighborLoader(data, [2, 2], ("paper", data["paper"].train_mask), batch_size=4, shuffle=True)
    helped = NeighborLoader(
        pair, [2, 2], ("paper", data["paper"].train_mask), batch_size=4, shuffle=True, num_workers=1
    )
    assert len(pickle.dumps(helped.node_sampler)) < 2000
    assert _content(helped, ("paper", "author")) == _content(alone, ("paper", "author"))


def test_links_of_a_stored_graph(pair: Pair, data: HeteroData) -> None:
    loader = LinkNeighborLoader(
        pair,
        [2],
        edge_label_index=WRITES,
        neg_sampling="binary",
        neighbor_sampler=NeighborSampler(pair, [2]),
        batch_size=8,
    )
    for batch in loader:
        ends = batch[WRITES].edge_label_index[:, batch[WRITES].edge_label == 1]
        authors, papers = batch["author"].n_id[ends[0]], batch["paper"].n_id[ends[1]]
        assert torch.equal(torch.stack([authors, papers]), data[WRITES].edge_index[:, batch[WRITES].input_id])


def test_a_graph_s_folder_is_a_pair_of_stores_too(one_folder: Path, one_graph: Data) -> None:
    pair = open_stores(one_folder)
    assert [(a.group_name, a.attr_name) for a in pair[0].get_all_tensor_attrs()] == [(None, "x"), (None, "y")]
    row, column, _ = pair[1].coo()
    assert torch.equal(torch.stack([row, column]), one_graph.edge_index)
    sampler = NeighborSampler(pair, [3, 2], seed=1)
    assert torch.equal(sampler.edge_permutation, NeighborSampler(one_graph, [3, 2]).edge_permutation)

    def content(loader: Any) -> list[Any]:
        return [(b.n_id.tolist(), b.e_id.tolist(), b.x.tolist(), b.y.tolist()) for b in loader]

    with pytest.raises(DatasetError, match=r"given a Graph.*open_stores"):
        NeighborLoader(Graph.open(one_folder), [2])
    expected = content(NeighborLoader(one_graph, [3, 2], batch_size=16, shuffle=True, seed=1))
    assert content(NeighborLoader(pair, [3, 2], batch_size=16, shuffle=True, seed=1)) == expected
    seeds, ours = torch.arange(40), NeighborSampler(one_graph, [3, 2], seed=1)
    stock = content(PyGNeighborLoader(one_graph, [3, 2], seeds, neighbor_sampler=ours, batch_size=16))
    assert content(PyGNeighborLoader(pair, [3, 2], seeds, neighbor_sampler=sampler, batch_size=16)) == stock
    links = LinkNeighborLoader(
        pair, [2], (None, one_graph.edge_index), neighbor_sampler=sampler, batch_size=16, neg_sampling="binary"
    )
    batch = next(iter(links))
    assert torch.equal(batch.n_id[batch.edge_label_index[:, :16]], one_graph.edge_index[:, :16])


def test_edges_that_an_option_added_have_no_place_in_the_users_order(tmp_path: Path) -> None:
    csc = build_csc(torch.tensor([[0, 1], [1, 0]]), 2)
    graph = Graph("g", csc.indptr, csc.indices, torch.tensor([-1, 0]), torch.zeros(2, 1), torch.zeros(2).long(), {}, 1)
    graph = Graph(*graph.__reduce__()[1][:6], {"train": torch.tensor([0])}, 1)
    graph.save(tmp_path / "g")
    row, column, _ = open_stores(tmp_path / "g")[1].coo()
    assert (row.tolist(), column.tolist()) == ([1, 0], [0, 1])
    assert open_stores(tmp_path / "g")[1].csc()[2].tolist() == [-1, 0]


# Writing


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda d: setattr(d["paper"], "short", torch.zeros(3)),
            r"short of 'paper' is of shape \[3\]; expected numbers",
        ),
        (lambda d: setattr(d["paper"], "title", ["a"] * 12), "title of 'paper' is a list"),
        (lambda d: setattr(d["paper"], "scalar", torch.tensor(1)), "scalar of 'paper'"),
        (lambda d: setattr(d["paper"], "half", torch.zeros(12, dtype=torch.bfloat16)), "half of 'paper'"),
        (lambda d: setattr(d[CITES], "edge_label", torch.zeros(3)), "edge_label of .*12 rows, one for each edge"),
        (lambda d: setattr(d, "label", torch.zeros(1)), "'label', which belongs to no node or edge type"),
        (lambda d: setattr(d[CITES], "edge_index", torch.tensor([[0] * 12, [12] * 12])), "edge 0 is 0 -> 12"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_nothing_is_left(
    tmp_path: Path, change: Callable[[HeteroData], None], said: str
) -> None:
    data = _hetero()
    change(data)
    with pytest.raises(DatasetError, match=said):
        save_hetero(data, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_only_heterodata_and_only_into_a_new_folder(folder: Path, data: HeteroData, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="given a Data"):
        save_hetero(Data(), tmp_path / "new")
    with pytest.raises(DatasetError, match="exists already"):
        save_hetero(data, folder)


def test_numpy_attributes_and_strided_ones_are_stored(tmp_path: Path) -> None:
    data = _hetero()
    data["paper"].array = np.arange(24).reshape(12, 2)
    data["paper"].turned = torch.arange(24).reshape(2, 12).T
    save_hetero(data, tmp_path / "new")
    features = MappedFeatureStore(tmp_path / "new")
    assert features["paper", "array", None].tolist() == data["paper"].array.tolist()
    assert torch.equal(features["paper", "turned", None], data["paper"].turned)


def test_the_manifest_is_the_last_file(tmp_path: Path, data: HeteroData, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    real = arrays_module.write_synced
    monkeypatch.setattr(
        arrays_module, "write_synced", lambda path, write: (written.append(path.name), real(path, write))
    )
    save_hetero(data, tmp_path / "new")
    assert written[-1] == "manifest.json"
    assert sorted(written) == sorted(path.name for path in (tmp_path / "new").iterdir())


def _killed(folder: str) -> None:
    real = arrays_module.write_synced
    arrays_module.write_synced = lambda path, write: os._exit(9) if "indptr" in path.name else real(path, write)
    save_hetero(_hetero(), folder)


def test_a_killed_save_is_never_taken_for_whole(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_killed, args=(str(tmp_path / "new"),))
    process.start()
    process.join()
    assert process.exitcode == 9
    with pytest.raises(DatasetError, match="is not a folder"):
        open_stores(tmp_path / "new")
    (left,) = tmp_path.iterdir()
    with pytest.raises(DatasetError, match=r"has no manifest\.json"):
        open_stores(left)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(format="other"), "was not written by pygsage"),
        (lambda m: m.update(version=9), "is of version 9"),
        (lambda m: m["features"][0].update(file="../x.npy"), "names the file"),
        (lambda m: m["features"][0].update(dtype="int64"), "expected int64"),
        (lambda m: m["features"][0].update(group="author"), "names an array twice"),
        (lambda m: m["features"][1].update(group="author"), "expected 5 rows"),
        (lambda m: m["features"][0].update(group="nobody"), "is damaged: .*'nobody'.* is missing"),
        (lambda m: m["num_nodes"].update(paper=13), "do not agree|expected 13 rows"),
        (lambda m: m["edges"][0].update(type=["paper", "paper"]), "is damaged: an entry is not of the kind"),
        (lambda m: m["edges"].append(m["edges"][0]), "names the file"),
        (lambda m: m.pop("edges"), "is damaged: 'edges' is missing"),
    ],
)
def test_a_manifest_that_was_tampered_with_is_refused(
    tmp_path: Path, data: HeteroData, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    save_hetero(data, tmp_path / "new")
    path = tmp_path / "new" / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match=said):
        open_stores(tmp_path / "new")


def test_a_graph_whose_edges_are_as_given_needs_no_ids(tmp_path: Path) -> None:
    edge_index = torch.tensor([[2, 0, 1, 1], [0, 0, 2, 3]])  # by destination already
    csc = build_csc(edge_index, 4)
    x, y, split = torch.rand(4, 2), torch.tensor([0, 1, 0, 1]), {"train": torch.tensor([0])}
    graph = Graph("g", *csc, x, y, split, 2)
    graph.save(tmp_path / "g")
    _, store = open_stores(tmp_path / "g")
    assert not (tmp_path / "g" / "edge_id.npy").exists()
    source, pointers, perm = store.csc()
    assert (source.tolist(), pointers.tolist(), perm) == ([2, 0, 1, 1], [0, 2, 2, 3, 4], None)
    row, column, perm = store.coo()
    assert torch.equal(torch.stack([row, column]), edge_index)
    assert perm is None
    pointers, target, ids = store.csr()
    assert torch.equal(edge_index[1][ids], target)
    assert torch.equal(edge_index[0][ids], torch.repeat_interleave(pointers.diff()))
    seeds = torch.arange(4)
    drawn = [
        NeighborSampler(of, [-1], 0).sample_from_nodes(NodeSamplerInput(None, seeds))
        for of in (graph, Graph.open(tmp_path / "g"))
    ]
    assert drawn[0].edge is not None
    ids = drawn[0].edge
    assert torch.equal(edge_index[0][ids], drawn[0].node[drawn[0].row])
    assert torch.equal(ids, drawn[1].edge)
    again = {}
    for words in ((), ("--undirected",)):
        for name, origin in (("memory", graph), ("disk", Graph.open(tmp_path / "g"))):
            folder = tmp_path / f"{name}{len(words)}"
            origin.save(folder)
            again[name] = open_graph(TrainConfig(dataset=str(folder), undirected=bool(words)))
        assert again["memory"].edge_id is not None or not words
        assert torch.equal(again["memory"].indices, again["disk"].indices)
