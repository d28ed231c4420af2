"""What every dataset of many graphs promises, on all real ones at hand, in memory and by every backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader
from torch_geometric.data import Batch, HeteroData, InMemoryDataset

from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.in_memory import InMemoryGraphs
from pygsage.data.store.on_disk import OnDiskGraphs
from tests.data.dataset_contract import ReadingContract, assert_same, assert_same_batch
from tests.data.real_datasets import REAL, nations_by_split, twitch_country


class RealContract(ReadingContract):
    sources = REAL

    @pytest.fixture(params=REAL)
    def source(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestInMemory(RealContract):
    kind = InMemoryGraphs

    def test_all_graphs_joined_are_those_that_pyg_joins(self, dataset: Any, graphs: list[Any]) -> None:
        data, slices = InMemoryDataset.collate(graphs)
        assert_same(dataset._data, data)
        flat = [(key, value) for key, value in dataset.slices.items() if not isinstance(value, dict)]
        assert all(torch.equal(torch.as_tensor(slices[key]), value) for key, value in flat)


class TestColumnar(RealContract):
    kind = OnDiskGraphs


class TestSqlite(RealContract):
    kind = OnDiskGraphs
    backend = "sqlite"


class TestRocks(RealContract):
    kind = OnDiskGraphs
    backend = "rocksdb"

    @pytest.fixture(autouse=True)
    def _needs(self) -> None:
        pytest.importorskip("rocksdict")


def test_c066_spawned_and_forkserver_workers(tmp_path: Path) -> None:
    datasets: list[Any] = []
    for name in ("MUTAG", "acm", "nations"):
        graphs = REAL[name](tmp_path)[:6]
        datasets += [to_on_disk_dataset(graphs, tmp_path / f"{name}-{kind}", kind) for kind in ("columnar", "sqlite")]
        datasets.append(InMemoryGraphs(tmp_path / f"{name}-columnar"))
    joined: Any = ConcatDataset(datasets)
    torch.multiprocessing.get_context("forkserver").set_forkserver_preload(["torch_geometric.loader"])
    for method in ("spawn", "forkserver"):
        loader = DataLoader(joined, batch_size=27, num_workers=2, multiprocessing_context=method, collate_fn=list)
        found = [graph for batch in loader for graph in batch]
        assert len(found) == len(joined) == 54
        for ours, expected in zip(found, joined, strict=True):
            assert_same(ours, expected)


def test_c049_relations_that_some_graphs_lack(tmp_path: Path) -> None:
    graphs = nations_by_split()
    assert len({len(graph.edge_types) for graph in graphs}) > 1
    for backend in ("columnar", "sqlite"):
        dataset = to_on_disk_dataset(graphs, tmp_path / backend, backend)
        for found, expected in zip(dataset, graphs, strict=True):
            assert found.edge_types == expected.edge_types
            assert_same(found, expected)
    batch = OnDiskGraphs(tmp_path / "columnar").batch([0, 1, 2])
    assert isinstance(batch, HeteroData)
    total = sum(store.edge_index.size(1) for graph in graphs for store in graph.edge_stores)
    assert sum(store.edge_index.size(1) for store in batch.edge_stores) == total == 1592 + 199 + 201


def test_c087_two_large_graphs_of_one_feature_space(tmp_path: Path) -> None:
    graphs = [twitch_country(name) for name in ("PTBR", "RU")]
    to_on_disk_dataset(graphs, tmp_path / "store")
    for dataset in (OnDiskGraphs(tmp_path / "store"), InMemoryGraphs(tmp_path / "store")):
        for found, expected in zip(dataset, graphs, strict=True):
            assert_same(found, expected)
        batch = dataset.batch([1, 0])
        assert_same_batch(batch, Batch.from_data_list([graphs[1], graphs[0]]))
        assert batch.ptr.tolist() == [0, 4385, 4385 + 1912]
