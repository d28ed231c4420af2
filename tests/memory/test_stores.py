"""The estimate of stores of many graphs, from their manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from pygsage import to_on_disk_dataset
from pygsage.errors import DatasetError
from pygsage.memory.answer import answer
from pygsage.memory.folders import shape_of_folder
from pygsage.memory.options import EstimateConfig
from pygsage.memory.shapes import shape_of


def graphs(num_graphs: int = 30, **more: Any) -> list[Data]:
    found = []
    for number in range(num_graphs):
        n = 4 + number % 5
        edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
        found.append(Data(x=torch.ones(n, 6), edge_index=edges, y=torch.tensor([number % 3]), **more))
    return found


@pytest.mark.parametrize("backend", ["columnar", "sqlite", "rocksdb"])
def test_counts_are_exact_and_come_from_the_manifest(tmp_path: Path, backend: str) -> None:
    if backend == "rocksdb":
        pytest.importorskip("rocksdict")
    to_on_disk_dataset(graphs(), tmp_path / "store", backend)
    shape = shape_of_folder("store", tmp_path / "store")
    total = sum(4 + number % 5 for number in range(30))
    assert (shape.num_graphs, shape.num_nodes, shape.num_edges, shape.num_features) == (30, total, total, 6)
    assert shape.sizes is not None
    assert (shape.sizes.most_nodes, shape.sizes.most_edges) == (8, 8)
    assert shape.made == ("store" if backend == "columnar" else "rows")
    assert shape.is_checked == (backend == "columnar")
    assert shape.num_classes == (3 if backend == "columnar" else 16)
    found = answer(EstimateConfig(str(tmp_path / "store"), gpus="0", batch_size=8))
    assert found.decision.exit_status == 0
    assert {"read", "train", "evaluate"} == set(found.memory.phases())
    mapped = found.memory.place_bytes("train", "mapped")
    assert mapped == (shape.stored_bytes if backend == "columnar" else 0)
    assert found.disk.place_bytes("train", "mapped") == 0
    assert found.memory.peak_bytes == found.disk.peak_bytes  # such pages are not counted: the kernel takes them back


def test_graphs_with_labels_of_nodes_are_joined_into_one(tmp_path: Path) -> None:
    made = graphs()
    for graph in made:
        graph.y = torch.zeros(graph.num_nodes, dtype=torch.int64)
    to_on_disk_dataset(made, tmp_path / "store")
    shape = shape_of_folder("store", tmp_path / "store")
    assert (shape.num_graphs, shape.made) == (1, "files")


@pytest.mark.parametrize("backend", ["sqlite", "rocksdb"])
def test_a_database_without_sizes_in_its_manifest(tmp_path: Path, backend: str) -> None:
    to_on_disk_dataset(graphs(), tmp_path / "store", "sqlite")
    told = json.loads((tmp_path / "store" / "manifest.json").read_bytes())
    del told["sizes"]
    (tmp_path / "store" / "manifest.json").write_text(json.dumps({**told, "backend": backend}))
    if backend == "sqlite":
        shape = shape_of_folder("store", tmp_path / "store")
        assert (shape.num_nodes, shape.source) == (180, "the manifest of the store, and 30 of its rows")
        return
    with pytest.raises(DatasetError, match="an older version wrote without the sizes") as refused:
        shape_of_folder("store", tmp_path / "store")
    assert "pygsage convert" in refused.value.advice


@pytest.mark.parametrize("damage", [{"schema": None}, {"num_graphs": "many"}, {"arrays": {}}])
def test_a_damaged_manifest_is_said(tmp_path: Path, damage: dict[str, Any]) -> None:
    folder = tmp_path / "store"
    to_on_disk_dataset(graphs(), folder)
    told = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_text(json.dumps({**told, **damage}))
    if "arrays" in damage:
        (folder / "nodes.slices.npy").unlink()
    with pytest.raises(DatasetError, match="damaged|is no .npy file"):
        shape_of_folder("store", folder)


def test_a_mapped_store_that_is_too_large_to_stay_is_read_from_disk(tmp_path: Path) -> None:
    to_on_disk_dataset(graphs(), tmp_path / "store")
    shape = shape_of_folder("store", tmp_path / "store")
    base = 300 << 20
    large = EstimateConfig("DATASET", gpus="0", batch_size=8, memory_limit="1GiB")
    from dataclasses import replace

    found = answer(large, shape=replace(shape, stored_bytes=3 << 30), base_bytes=base)
    assert found.decision.storage == "disk"
    assert answer(large, shape=shape, base_bytes=base).decision.storage == "memory"


def test_raw_folders_and_names_of_many_graphs(tmp_path: Path) -> None:
    raw = tmp_path / "TINY" / "raw"
    raw.mkdir(parents=True)
    (raw / "TINY_graph_indicator.txt").write_text("1\n1\n1\n2\n2\n")
    (raw / "TINY_A.txt").write_text("1, 2\n2, 1\n4, 5\n5, 4\n")
    (raw / "TINY_graph_labels.txt").write_text("1\n2\n")
    shape = shape_of(str(tmp_path / "TINY"))
    assert (shape.num_graphs, shape.num_nodes, shape.num_edges, shape.made) == (2, 5, 4, "pyg")
    assert shape.sizes is not None
    assert shape.sizes.most_nodes == 3
    assert answer(EstimateConfig(str(tmp_path / "TINY"))).training.batch_size == 64
    for num_graphs, batch_size in ((1_000, 64), (1, 1_024)):
        numbers = EstimateConfig("", num_graphs=num_graphs, avg_nodes=10, avg_edges=20, num_features=3)
        assert answer(numbers).training.batch_size == batch_size
    grid = shape_of("digits-grid")
    assert (grid.num_graphs, grid.num_nodes, grid.num_edges) == (1_797, 1_797 * 64, 1_797 * 224)
