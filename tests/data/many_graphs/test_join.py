"""Graphs with labels of nodes, joined into one graph: in memory and on disk the same, from every backend."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data

import pygsage
from pygsage.config import TrainConfig
from pygsage.data.many_graphs import join
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open_many import open_data
from pygsage.data.storage import choose_storage
from pygsage.data.store.database import RowDatabase
from pygsage.errors import DatasetError
from pygsage.memory.folders import shape_of_folder

RECIPE = """
import torch
from torch_geometric.data import Data
from pygsage import Recipe

class Mine(Recipe):
    num_graphs = {num_graphs}

    def graphs(self):
        for number in range(6):
            n = 5 + number
            yield Data(
                x=torch.full((n, 3), number).half(),
                edge_index=torch.stack([torch.arange(n), (torch.arange(n) + 1) % n]),
                y=torch.arange(n) % 2,
                split=("train", "val", "test")[number % 3],
            )
"""


def graphs(num_graphs: int = 6) -> list[Data]:
    found = []
    for number in range(num_graphs):
        n, random = 5 + number, torch.Generator().manual_seed(number)
        found.append(
            Data(
                x=torch.randn(n, 3, generator=random),
                edge_index=torch.randint(n, (2, 4 * (number % 4)), generator=random),
                y=torch.arange(n) % 2,
                train_mask=torch.arange(n) % 3 == 0,
                val_mask=torch.arange(n) % 3 == 1,
                test_mask=torch.arange(n) % 3 == 2,
            )
        )
    return found


def opened(stack: ExitStack, storage: Any, dataset: Any, **options: Any) -> Graph:
    config = TrainConfig(dataset=str(dataset), storage=storage, gpus="0", fanouts=(2, 2), hidden=4, **options)
    graph, held = open_data(config, stack, storage=choose_storage(config, 1))
    assert held is not None
    assert held.kind == storage
    assert held.told is not None
    assert isinstance(graph, Graph)
    return graph


@pytest.mark.parametrize("backend", ["columnar", "sqlite", "rocksdb"])
def test_c087_joined_on_disk_is_joined_in_memory_bit_for_bit(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "rocksdb":
        pytest.importorskip("rocksdict")
    monkeypatch.setattr(join, "_EDGES_AT_ONCE", 7)
    made = graphs()
    pygsage.to_on_disk_dataset(made, tmp_path / "store", backend)
    together = Batch.from_data_list(made)
    reads: list[int] = []
    read = RowDatabase.get
    monkeypatch.setattr(RowDatabase, "get", lambda self, index: reads.append(index) or read(self, index))  # type: ignore[func-returns-value]
    for options in ({}, {"undirected": True, "self_loops": True}):
        with ExitStack() as stack:
            ram = opened(stack, "memory", tmp_path / "store", **options)
            assert reads == ([] if backend == "columnar" else list(range(len(made))))  # once
            disk = opened(stack, "disk", tmp_path / "store", **options)
            assert disk.folder is not None
            assert disk.folder.parent.name == "store.pygsage"
            assert list(ram.arrays()) == list(disk.arrays())
            for name, array in ram.arrays().items():
                assert torch.equal(array, disk.arrays()[name]), name
            assert ram.notes == disk.notes
            assert ram.x.tolist() == together.x.tolist()
            assert ram.y.tolist() == together.y.tolist()
            assert ram.splits["train"].tolist() == together.train_mask.nonzero().flatten().tolist()
            if not options:
                destinations = torch.repeat_interleave(ram.indptr.diff())
                ours = torch.stack([ram.indices.long(), destinations])[:, ram.edge_id.argsort()]
                assert torch.equal(ours, together.edge_index)
        reads.clear()
    before = [path.stat().st_mtime_ns for path in sorted((tmp_path / "store.pygsage").rglob("*.npy"))]
    with ExitStack() as stack:
        opened(stack, "disk", tmp_path / "store")
    assert reads == []  # it lies there, made from the same store
    assert before == [path.stat().st_mtime_ns for path in sorted((tmp_path / "store.pygsage").rglob("*.npy"))]


@pytest.mark.parametrize("num_graphs", [6, None])
def test_c087_a_recipe_trains_from_disk_with_the_same_result(
    tmp_path: Path, num_graphs: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "code").mkdir()
    recipe = tmp_path / "code" / "mine.py"
    recipe.write_text(RECIPE.format(num_graphs=num_graphs))
    found = pygsage.estimate_memory(str(recipe), gpus="0")
    assert (found.shape.num_graphs, found.shape.made, found.shape.num_train) == (1, "joined", 13)
    assert found.shape.degrees is not None
    assert found.shape.degrees.nodes == {1: 45}
    runs = []
    for storage in ("memory", "disk"):
        run = tmp_path / storage
        told = {"fanouts": (2, 2), "hidden": 4, "batch_size": 4, "epochs": 1, "gpus": "0", "quiet": True}
        result = pygsage.train(str(recipe), storage=storage, run_dir=str(run), **told)
        assert result.estimated_peak_bytes
        runs.append((run / "model.safetensors").read_bytes())
    assert runs[0] == runs[1]
    assert (tmp_path / "code" / "mine.py.pygsage" / "plain" / "manifest.json").is_file()


def test_shapes_of_joined_graphs_are_known_from_the_store(tmp_path: Path) -> None:
    made = graphs()
    pygsage.to_on_disk_dataset(made, tmp_path / "store")
    shape = shape_of_folder("store", tmp_path / "store")
    together = Batch.from_data_list(made)
    assert (shape.num_graphs, shape.num_nodes, shape.num_edges) == (1, together.num_nodes, together.num_edges)
    assert (shape.num_train, shape.mapped) == (int(together.train_mask.sum()), {"x"})
    assert shape.degrees is not None
    degrees = together.edge_index[1].bincount(minlength=together.num_nodes)
    assert {degree: times for degree, times in shape.degrees.nodes.items() if times} == dict(
        zip(*(part.tolist() for part in degrees.unique(return_counts=True)), strict=True)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"edge_index": torch.tensor([[0], [9]])}, r"graph 2: edge 0 of edge_index is 0 -> 9, and the graph has 7"),
        ({"y": None}, "some graphs have no y, which others have"),
        ({"x": None, "num_nodes": 7}, "some graphs have no x, which others have"),
    ],
)
def test_what_cannot_be_joined_is_said(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    made = graphs()
    for key, value in change.items():
        made[2][key] = value
    pygsage.to_on_disk_dataset(made, tmp_path / "store", missing="keep")
    for storage in ("memory", "disk"):
        with ExitStack() as stack, pytest.raises(DatasetError, match=said):
            opened(stack, storage, tmp_path / "store")
        assert not (tmp_path / "store.pygsage" / "plain").exists()
