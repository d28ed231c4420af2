from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from pygsage.data.one_graph.graph import Graph
from pygsage.errors import DatasetError
from pygsage.memory.known import KNOWN, find_known
from pygsage.memory.shapes import shape_from_numbers, shape_from_sample, shape_of


def test_numbers() -> None:
    shape = shape_from_numbers(100, 10, 20, 16, dtype="float16", edge_features=2)
    assert (shape.num_nodes, shape.num_edges, shape.x_bytes) == (1_000, 2_000, 32_000)
    assert shape.payload_bytes == 32_000 + 32_000 + 8 * 100 + 4 * 2_000 * 2


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("Cora", "pyg:Planetoid/Cora"),
        ("reddit", "pyg:Reddit"),
        ("ogbn-products", "ogbn-products"),
        ("CS", "pyg:Coauthor/CS"),
    ],
)
def test_names_are_known_whatever_their_case(name: str, full: str) -> None:
    found = find_known(name)
    assert found is not None
    assert found[0] == full
    assert shape_of(name).num_nodes == KNOWN[full].num_nodes


def test_every_entry_of_the_table_can_be_used() -> None:
    for name in KNOWN:
        shape = shape_of(name)
        assert shape.num_nodes > 0
        assert shape.source.startswith("a table: ")
        assert shape.train_size <= max(shape.num_nodes, shape.num_graphs)


def test_an_unknown_name_says_what_is_near_and_what_to_type() -> None:
    with pytest.raises(DatasetError, match=r"(?s)pyg:Reddit meant.*--num-graphs"):
        shape_of("Redit")
    with pytest.raises(DatasetError, match="recipe"):
        shape_of("datasets/shapes.py")


def test_an_npz_says_all_that_its_headers_say(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    mask = np.zeros(50, bool)
    mask[:7] = True
    edges = np.array([[0, 0, 1], [1, 2, 2]])
    y = np.arange(50) % 3
    np.savez(path, x=np.zeros((50, 4), np.float64), edge_index=edges, y=y, train_mask=mask)
    shape = shape_of(str(path))
    assert (shape.num_nodes, shape.num_edges, shape.num_features, shape.num_classes) == (50, 3, 4, 3)
    assert (shape.x_dtype, shape.num_train, shape.other_bytes) == ("float64", 7, 50)
    assert shape.degrees is not None
    assert dict(shape.degrees.nodes) == {0: 48, 1: 1, 2: 1}


def test_a_packed_npz_has_no_degrees_but_every_size(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    np.savez_compressed(path, x=np.zeros((50, 4)), edge_index=np.zeros((2, 9), np.int64), y=np.zeros((50, 5)))
    shape = shape_of(str(path))
    assert (shape.degrees, shape.num_train, shape.num_classes, shape.x_bytes) == (None, None, 5, 1_600)
    assert shape.train_as == ""


def test_a_file_without_a_graph(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", z=np.zeros(3))
    with pytest.raises(DatasetError, match="has no x"):
        shape_of(str(tmp_path / "a.npz"))
    with pytest.raises(DatasetError, match="does not exist"):
        shape_of(str(tmp_path / "b.npz"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="layout"):
        shape_of(str(tmp_path / "empty"))


def test_layouts_of_other_benchmarks(tmp_path: Path) -> None:
    labels = np.array([0, 4, 2])
    sparse = {"adj_indptr": np.array([0, 1, 2, 2]), "adj_indices": np.array([1, 0]), "attr_shape": np.array([3, 9])}
    np.savez_compressed(tmp_path / "a.npz", attr_indptr=np.zeros(4, int), labels=labels, **sparse)
    shape = shape_of(str(tmp_path / "a.npz"))
    assert (shape.num_nodes, shape.num_edges, shape.num_features, shape.num_classes) == (3, 2, 9, 5)
    edges = np.array([[0, 1], [1, 2]])
    np.savez_compressed(tmp_path / "b.npz", node_features=np.zeros((3, 6)), edges=edges, node_labels=labels)
    shape = shape_of(str(tmp_path / "b.npz"))
    assert (shape.num_nodes, shape.num_edges, shape.num_features, shape.num_classes) == (3, 4, 6, 5)


def test_a_single_array(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((6, 5), np.float16))
    shape = shape_of(str(tmp_path / "x.npy"))
    assert (shape.num_nodes, shape.num_features, shape.x_bytes) == (6, 5, 60)


def test_a_pt_of_one_graph_and_of_many(tmp_path: Path) -> None:
    x, edges = torch.zeros(8, 2), torch.zeros(2, 5, dtype=torch.long)
    torch.save({"x": x, "edge_index": edges, "y": torch.zeros(8, dtype=torch.long)}, tmp_path / "one.pt")
    shape = shape_of(str(tmp_path / "one.pt"))
    assert (shape.num_nodes, shape.num_edges, shape.num_graphs) == (8, 5, 1)
    assert shape.mapped == {"x", "edge_index"}
    joined = {"x": x, "edge_index": edges, "y": torch.zeros(4)}
    slices = {"x": torch.arange(5) * 2, "edge_index": torch.tensor([0, 1, 2, 3, 5])}
    torch.save((joined, slices, None), tmp_path / "many.pt")
    many = shape_of(str(tmp_path / "many.pt"))
    assert (many.num_graphs, many.num_nodes, many.num_edges, many.y_columns) == (4, 8, 5, 1)


def test_a_folder_of_ours(tmp_path: Path) -> None:
    graph = Graph(
        name="g", indptr=torch.tensor([0, 2, 2, 3]), indices=torch.tensor([1, 2, 0], dtype=torch.int32),
        edge_id=torch.arange(3), x=torch.zeros(3, 7), y=torch.tensor([0, 1, 1]), splits={"train": torch.tensor([0, 2])},
        num_classes=2,
    )  # fmt: skip
    graph.save(tmp_path / "g")
    shape = shape_of(str(tmp_path / "g"))
    assert (shape.num_nodes, shape.num_edges, shape.num_features, shape.num_train) == (3, 3, 7, 2)
    assert shape.degrees is not None
    assert dict(shape.degrees.nodes) == {0: 1, 1: 1, 2: 1}
    indices = tmp_path / "g" / "indices.npy"
    content = indices.read_bytes()
    indices.write_bytes(content[:-2] + bytes(b ^ 0x7F for b in content[-2:]))  # a node that is not there
    with pytest.raises(DatasetError, match="damaged"):
        shape_of(str(tmp_path / "g"))
    (tmp_path / "g" / "manifest.json").write_text("{}")
    with pytest.raises(DatasetError, match="damaged"):
        shape_of(str(tmp_path / "g"))


def _gz(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def test_a_raw_folder_of_ogb(tmp_path: Path) -> None:
    raw = tmp_path / "ogbn_arxiv" / "raw"
    for name, text in {
        "num-node-list": "5\n", "num-edge-list": "9\n", "node-feat": "0.5,1,2\n", "node-label": "1\n", "edge": "0,1\n"
    }.items():  # fmt: skip
        _gz(raw / f"{name}.csv.gz", text)
    for shape in (shape_of(str(tmp_path / "ogbn_arxiv")), shape_of("ogbn-arxiv", str(tmp_path))):
        assert (shape.num_nodes, shape.num_edges, shape.num_features, shape.num_classes) == (5, 9, 3, 40)
    assert shape_of("ogbn-arxiv", str(tmp_path / "none")).num_nodes == 169_343


def test_a_raw_folder_of_ogb_with_many_graphs(tmp_path: Path) -> None:
    raw = tmp_path / "ogbg_molx" / "raw"
    for name, text in {
        "num-node-list": "5\n3\n", "num-edge-list": "4\n2\n", "node-feat": "1,2\n", "edge-feat": "1,0,2\n",
        "graph-label": "1.5\n",
    }.items():  # fmt: skip
        _gz(raw / f"{name}.csv.gz", text)
    shape = shape_of(str(tmp_path / "ogbg_molx"))
    assert (shape.num_graphs, shape.num_nodes, shape.num_edges) == (2, 8, 12)
    assert (shape.num_features, shape.num_edge_features, shape.x_dtype) == (2, 3, "int64")
    (raw / "num-node-list.csv.gz").write_bytes(b"\x1f\x8b cut")
    with pytest.raises(DatasetError, match="cut short"):
        shape_of(str(tmp_path / "ogbg_molx"))


def test_a_raw_folder_of_the_tu_collection(tmp_path: Path) -> None:
    raw = tmp_path / "T" / "raw"
    raw.mkdir(parents=True)
    for name, lines in {"A": 6, "graph_indicator": 4, "graph_labels": 2}.items():
        (raw / f"T_{name}.txt").write_text("1\n" * lines)
    (raw / "T_node_labels.txt").write_text("0\n2\n1\n1\n")
    shape = shape_of(str(tmp_path / "T"))
    assert (shape.num_graphs, shape.num_nodes, shape.num_edges, shape.num_features) == (2, 4, 6, 3)


def test_a_sample_of_a_recipe_is_scaled() -> None:
    graphs = [
        {"x": ((n, 3), "float32"), "edge_index": ((2, 2 * n), "int64"), "y": ((1,), "int64")} for n in (10, 20, 30)
    ]
    shape = shape_from_sample("r.py", graphs, 300)
    assert (shape.num_nodes, shape.num_edges, shape.num_features, shape.y_columns) == (6_000, 12_000, 3, 1)
    with pytest.raises(DatasetError, match="no graph"):
        shape_from_sample("r.py", [], 3)


def test_what_is_scored_is_the_larger_split_where_the_file_says(tmp_path: Path) -> None:
    arrays = {"x": np.zeros((10, 2), np.float32), "edge_index": np.zeros((2, 3), np.int64), "y": np.arange(10) % 2}
    np.savez(tmp_path / "listed.npz", **arrays, train_idx=[0, 1], val_idx=[2], test_idx=[3, 4, 5])
    assert shape_of(str(tmp_path / "listed.npz")).scored_size == 3
    masks = {f"{name}_mask": np.arange(10) < n for name, n in (("train", 6), ("val", 4), ("test", 0))}
    np.savez(tmp_path / "masks.npz", **arrays, **masks)
    assert shape_of(str(tmp_path / "masks.npz")).scored_size == 4
    np.savez(tmp_path / "none.npz", **arrays, train_idx=[0, 1])
    assert shape_of(str(tmp_path / "none.npz")).scored_size == 8
