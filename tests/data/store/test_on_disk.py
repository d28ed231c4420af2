"""Datasets on disk."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.database import warn_of_network
from pygsage.data.store.in_memory import InMemoryGraphs
from pygsage.data.store.on_disk import OnDiskGraphs
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.memory.peak import release_free_memory, undroppable_bytes
from tests.data.dataset_contract import DatasetContract, assert_same, molecules, plain


class OnDiskContract(DatasetContract):
    kind = OnDiskGraphs

    def options(self) -> dict[str, Any]:
        return {"backend": self.backend}

    def test_it_is_verified(self, dataset: Any) -> None:
        dataset.verify()
        assert dataset.backend == self.backend

    def test_c070_multi_get_returns_what_was_asked_for(self, dataset: Any, graphs: list[Any]) -> None:
        found = dataset.multi_get([5, 0, 5])
        assert len(found) == 3
        assert_same(found[2], graphs[5])
        assert len(dataset.multi_get(slice(0, 2))) == len(dataset.db.multi_get(slice(0, 2))) == 2
        assert_same(dataset.db[torch.tensor([4])][0], graphs[4])
        assert_same(dataset[3:].multi_get(range(1))[0], graphs[3])
        for database in (dataset, dataset.db):
            with pytest.raises(IndexError):
                database.multi_get([0, 1, len(graphs)])
            with pytest.raises(IndexError):
                database.multi_get([0, -len(graphs) - 1])
        assert_same(dataset.multi_get([-1])[0], graphs[-1])
        with pytest.raises(IndexError):
            dataset.db.multi_get([-1])  # graphs by their number: there is none before the first

    def test_a_store_is_written_once(self, dataset: Any) -> None:
        with pytest.raises(DatasetError, match="complete, and read only"):
            dataset.append(Data(x=torch.ones(1, 1)))
        with pytest.raises(DatasetError, match="is read only"):
            dataset.db.insert(0, Data())

    def test_it_is_read_after_it_was_closed(self, dataset: Any, graphs: list[Any]) -> None:
        dataset.close()
        assert_same(dataset[1], graphs[1])


class TestColumnar(OnDiskContract):
    backend = "columnar"


class TestSqlite(OnDiskContract):
    backend = "sqlite"


class TestRocks(OnDiskContract):
    backend = "rocksdb"

    @pytest.fixture(autouse=True)
    def _needs(self) -> None:
        pytest.importorskip("rocksdict")


def test_pygs_own_way_of_writing_a_dataset(tmp_path: Path) -> None:
    class Own(OnDiskGraphs):
        fail_at: int | None = 9

        def process(self) -> None:
            self.append(molecules()[0])
            for start in range(1, 40, 3):
                if start > (self.fail_at or 99):
                    raise RuntimeError("pulled the plug")
                self.extend(molecules()[start : start + 3])

    with pytest.raises(RuntimeError):
        Own(tmp_path)
    Own.fail_at = None
    dataset = Own(tmp_path)
    assert len(dataset) == 40
    for found, expected in zip(dataset, molecules(), strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
def test_c017_missing_attributes_can_be_kept(backend: str, tmp_path: Path) -> None:
    graphs = [Data(x=torch.ones(2, 1)), Data(x=torch.ones(1, 1), z=torch.ones(1, 2), s="a"), Data(x=torch.ones(3, 1))]
    dataset = to_on_disk_dataset(graphs, tmp_path / "store", backend, missing="keep")
    for found, expected in zip(dataset, graphs, strict=True):
        assert_same(found, expected)
    assert_same(dataset.batch([1]), Batch.from_data_list([graphs[1]]))
    assert_same(dataset.batch([2, 0]), Batch.from_data_list([graphs[2], graphs[0]]))
    for transform in (None, lambda data: data):
        dataset.transform = transform
        for order in ([0, 1], [1, 0]):
            with pytest.raises(DatasetError, match="Graph 0 has no z, which others of its batch have"):
                dataset.batch(order)


def test_c066_spawned_and_forkserver_workers_read_every_backend(tmp_path: Path) -> None:
    graphs = plain()[:6]
    datasets: list[Any] = [to_on_disk_dataset(graphs, tmp_path / kind, kind) for kind in ("columnar", "sqlite")]
    datasets.append(InMemoryGraphs(tmp_path / "columnar"))
    for dataset in datasets:
        dataset[0]  # opened before
    torch.multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["torch_geometric.loader"]
    )  # once, not twice
    for method in ("spawn", "forkserver"):
        loader = DataLoader(ConcatDataset(datasets), batch_size=9, num_workers=2, multiprocessing_context=method)
        for found, expected in zip(loader, (graphs + graphs[:3], graphs[3:] + graphs), strict=True):
            assert_same(found, Batch.from_data_list(expected))


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
def test_c046_reading_for_epochs_takes_no_more_memory(backend: str, tmp_path: Path) -> None:
    graphs = (Data(x=torch.full((500, 64), float(i)), y=torch.tensor([i])) for i in range(150))  # 18 MiB
    dataset = to_on_disk_dataset(graphs, tmp_path / "store", backend)
    after = []
    for _ in range(10):
        for data in dataset:
            assert float(data.x[-1, -1]) == int(data.y)
        for batch in dataset.loader(50, shuffle=True):
            assert batch.num_graphs == 50
        release_free_memory()
        after.append(undroppable_bytes())
    assert after[-1] - after[1] < 4 << 20


def test_c067_sqlite_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    to_on_disk_dataset(molecules(), tmp_path / "store", "sqlite")
    file = tmp_path / "store" / "graphs.sqlite"
    writer = sqlite3.connect(file)  # another process that holds the file's lock
    writer.execute("BEGIN EXCLUSIVE")
    os.chmod(file, 0o444)
    os.chmod(tmp_path / "store", 0o555)
    try:
        dataset = OnDiskGraphs(tmp_path / "store")
        assert len(dataset.multi_get(range(40))) == 40
        assert sorted(path.name for path in (tmp_path / "store").glob("*[!l]")) == ["graphs.sqlite", "manifest.json"]
    finally:
        os.chmod(tmp_path / "store", 0o755)
        writer.close()


def test_c069_a_database_on_a_network_file_system_is_told(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nhost:/x {tmp_path.resolve()} nfs4 rw 0 0\n")
    with pytest.warns(UserWarning, match=r"network file system \(nfs4\).*copy the folder to a local disk"):
        warn_of_network(tmp_path, mounts)
    mounts.write_text("/dev/a / ext4 rw 0 0\n")
    warn_of_network(tmp_path, mounts)
    warn_of_network(tmp_path, tmp_path / "missing")


def test_c041_another_raw_file_is_refused(tmp_path: Path) -> None:
    class Raw(OnDiskGraphs):
        raw_file_names = ("a.txt",)

        def graphs(self) -> Iterator[Data]:
            yield Data(x=torch.tensor([[float(Path(self.raw_paths[0]).read_text())]]))

    raw = tmp_path / "raw" / "a.txt"
    raw.parent.mkdir()
    raw.write_text("1")
    assert Raw(tmp_path)[0].x.item() == 1
    raw.write_text("2")
    with pytest.raises(DatasetError, match=r"another raw file a\.txt"):
        Raw(tmp_path)
    raw.write_text("1")  # touched, and the same
    assert Raw(tmp_path)[0].x.item() == 1
    raw.write_text("2")
    assert Raw(tmp_path, force_reload=True)[0].x.item() == 2
    raw.unlink()
    assert Raw(tmp_path)[0].x.item() == 2


def test_c057_c058_a_damaged_database_is_refused(tmp_path: Path) -> None:
    dataset = to_on_disk_dataset(molecules(), tmp_path / "store", "sqlite")
    connection = sqlite3.connect(tmp_path / "store" / "graphs.sqlite")
    connection.execute("UPDATE graphs SET row = zeroblob(length(row) - 8) WHERE id = 3")
    connection.execute("DELETE FROM graphs WHERE id = 4")
    connection.commit()
    connection.close()
    with pytest.raises(DatasetError, match="its checksum differs"):
        dataset.verify()
    with pytest.raises(DatasetError, match="graph 4: its row is missing"):
        dataset[4]
    with pytest.raises(DatasetError, match="graph 3: a row does not go with the schema"):
        dataset[3]
    (tmp_path / "store" / "manifest.json").unlink()
    with pytest.raises(DatasetError, match="holds no store"):
        OnDiskGraphs(tmp_path / "store")


def test_a_backend_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DatasetError, match="no backend 'lmdb'; expected one of columnar, sqlite, rocksdb"):
        OnDiskGraphs(tmp_path, backend="lmdb")
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    with pytest.raises(EnvironmentLimitError, match="pip install rocksdict"):
        to_on_disk_dataset(molecules(), tmp_path / "store", "rocksdb")
    assert list(tmp_path.iterdir()) == []
