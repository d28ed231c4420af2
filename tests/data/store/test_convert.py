"""Any dataset of many graphs to a store."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from pygsage.data.files import streams
from pygsage.data.files.streams import Stream
from pygsage.data.recipe import Recipe
from pygsage.data.store import attributes, convert
from pygsage.data.store import writer as store_writer
from pygsage.data.store.column_store import open_manifest
from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.on_disk import OnDiskGraphs
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.memory.machine import read_machine
from tests.data.dataset_contract import assert_same, molecules, plain, typed
from tests.data.real_datasets import SHARED


class Collated(InMemoryDataset):  # type: ignore[misc]
    """A stock PyG dataset in memory."""

    def __init__(self, graphs: list[Any]) -> None:
        super().__init__(None)
        self._data, self.slices = self.collate(graphs)


def check(folder: Path, expected: list[Any]) -> None:
    opened = OnDiskGraphs(folder)  # by its path alone
    assert len(opened) == len(expected)
    for found, graph in zip(opened, expected, strict=True):
        assert_same(found, graph)


@pytest.mark.parametrize("graphs", [plain, molecules, typed])
def test_every_form_of_a_dataset_gives_the_same(graphs: Any, tmp_path: Path) -> None:
    to_on_disk_dataset(graphs(), tmp_path / "list")
    check(tmp_path / "list", graphs())
    to_on_disk_dataset(iter(graphs()), tmp_path / "iterator")
    check(tmp_path / "iterator", graphs())
    to_on_disk_dataset(OnDiskGraphs(tmp_path / "list"), tmp_path / "again", "sqlite")
    check(tmp_path / "again", graphs())
    to_on_disk_dataset(torch.utils.data.Subset(graphs(), [3, 1]), tmp_path / "subset")
    check(tmp_path / "subset", [graphs()[3], graphs()[1]])
    files = [sorted((tmp_path / name).glob("*.npy")) for name in ("list", "iterator")]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_a_stock_dataset_in_memory(tmp_path: Path) -> None:
    stock = Collated(molecules())
    result = to_on_disk_dataset(stock[5:20], tmp_path / "store")
    assert stock._data_list is None  # PyG's get() keeps every item
    assert type(result) is OnDiskGraphs
    for number, graph in enumerate(molecules()[5:20]):
        assert_same(result[number], stock.get(number + 5))
        assert set(result[number].keys()) == set(graph.keys())
    single = Collated(molecules()[:1])
    to_on_disk_dataset(single, tmp_path / "single")
    check(tmp_path / "single", molecules()[:1])
    odd = Collated([Data(x=torch.ones(2, 1), s="a", y=1), Data(x=torch.ones(1, 1), s="b", y=0)])
    assert [data.s for data in to_on_disk_dataset(odd, tmp_path / "odd")] == ["a", "b"]


def test_a_recipe_is_streamed(tmp_path: Path) -> None:
    class Mine(Recipe):
        def graphs(self) -> Iterator[Data]:
            yield from molecules()

    to_on_disk_dataset(Mine(tmp_path), tmp_path / "store")
    check(tmp_path / "store", molecules())


def test_c049_types_that_some_graphs_lack(tmp_path: Path) -> None:
    graphs = [data.clone() for data in typed()[:3]]
    del graphs[1]["paper", "cites", "paper"]
    for backend in ("columnar", "sqlite"):
        dataset = to_on_disk_dataset(graphs, tmp_path / backend, backend)
        check(tmp_path / backend, graphs)
        assert dataset[1].edge_types == [("author", "writes", "paper")]
    batch = OnDiskGraphs(tmp_path / "columnar").batch([1, 0, 2])
    first = graphs[1]["paper"].num_nodes
    assert torch.equal(
        batch["paper", "cites", "paper"].edge_index[:, :3], graphs[0]["paper", "cites", "paper"].edge_index + first
    )


def test_the_heterogeneous_acm(tmp_path: Path) -> None:
    folder = SHARED / "heco" / "acm"
    if not folder.is_dir():
        pytest.skip("no heco/acm among the shared data files")
    graph = HeteroData()
    graph["paper"].y = torch.from_numpy(np.load(folder / "labels.npy")).long()
    graph["paper"].num_nodes, graph["author"].num_nodes, graph["subject"].num_nodes = 4019, 7167, 60
    for name, types in (("pa", ("paper", "by", "author")), ("ps", ("paper", "on", "subject"))):
        graph[types].edge_index = torch.from_numpy(np.loadtxt(folder / f"{name}.txt", dtype=np.int64).T.copy())
    dataset = to_on_disk_dataset([graph, graph], tmp_path / "store")
    assert_same(dataset[1], graph)
    assert dataset.batch([0, 1])["paper", "by", "author"].edge_index.max(1).values.tolist() == [
        2 * 4019 - 1,
        2 * 7167 - 1,
    ]


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
def test_c050_c051_a_target_is_asked_for_and_kept(backend: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="root"):
        to_on_disk_dataset(molecules())  # type: ignore[call-arg]
    to_on_disk_dataset(molecules()[:2], tmp_path / "store", backend)
    for other in (backend, "columnar", "sqlite"):
        with pytest.raises(DatasetError, match="exists already"):
            to_on_disk_dataset(molecules()[:4], tmp_path / "store", other)
        with pytest.raises(DatasetError, match="exists already"):
            to_on_disk_dataset(molecules()[:4], tmp_path / "store", other, resume=True)
    check(tmp_path / "store", molecules()[:2])
    to_on_disk_dataset(molecules()[:4], tmp_path / "store", backend, overwrite=True)
    check(tmp_path / "store", molecules()[:4])


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
def test_c063_one_malformed_graph_of_a_hundred(backend: str, tmp_path: Path) -> None:
    graphs = [Data(x=torch.full((2, 1), float(i))) for i in range(100)]
    good = graphs[90]
    graphs[90] = Data(x=[1, 2])
    with pytest.raises(DatasetError, match="Graph 90: x is a list; expected tensor.* mend it and resume, or skip"):
        to_on_disk_dataset(graphs, tmp_path / "store", backend)
    assert not (tmp_path / "store").exists()
    with pytest.raises(DatasetError, match="unfinished"):
        to_on_disk_dataset(graphs, tmp_path / "store", backend)
    with pytest.raises(DatasetError, match="begun from another dataset"):
        to_on_disk_dataset(graphs[:95], tmp_path / "store", backend, resume=True)
    seen: list[int] = []
    graphs[90] = good
    to_on_disk_dataset(
        graphs, tmp_path / "store", backend, resume=True, progress=lambda num, num_bytes: seen.append(num)
    )
    assert seen == list(range(91, 101))
    check(tmp_path / "store", graphs)
    graphs[90] = Data(x=[1, 2])
    to_on_disk_dataset(graphs, tmp_path / "skipped", backend, on_error="skip")
    check(tmp_path / "skipped", graphs[:90] + graphs[91:])
    assert open_manifest(tmp_path / "skipped")["skipped"] == [90]


def test_a_source_that_fails_is_named(tmp_path: Path) -> None:
    class Failing(list[Data]):
        def __getitem__(self, idx: Any) -> Any:
            if idx == 3:
                raise OSError("disk on fire")
            return super().__getitem__(idx)

    with pytest.raises(DatasetError, match="Graph 3 could not be read: OSError: disk on fire"):
        to_on_disk_dataset(Failing(molecules()[:5]), tmp_path / "store")
    assert len(to_on_disk_dataset(Failing(molecules()[:5]), tmp_path / "ok", on_error="skip")) == 4


def test_resumed_it_is_the_same_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "BUFFER_BYTES", 2000)
    monkeypatch.setattr(store_writer, "CHECKPOINT_BYTES", 4000)
    to_on_disk_dataset(molecules(), tmp_path / "whole")

    def stop(num: int, num_bytes: int) -> None:
        if num == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_on_disk_dataset(molecules(), tmp_path / "store", progress=stop)
    to_on_disk_dataset(molecules(), tmp_path / "store", resume=True)
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "store").iterdir())
    assert all((tmp_path / "whole" / n).read_bytes() == (tmp_path / "store" / n).read_bytes() for n in names)
    shutil.rmtree(tmp_path / "store")
    assert len(to_on_disk_dataset(molecules(), tmp_path / "store", resume=True)) == 40  # nothing to resume


def test_c062_a_conversion_keeps_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "BUFFER_BYTES", 100_000)
    stock = Collated([Data(x=torch.zeros(2000, 16)) for _ in range(3)])
    stock._data.x = torch.zeros(1, 16).expand(4_000_000, 16)  # 244 MiB of features that take no memory
    stock.slices = {"x": torch.arange(0, 4_000_001, 2000)}
    process = psutil.Process()
    before, most = process.memory_info().rss, 0

    def watch(num: int, num_bytes: int) -> None:
        nonlocal most
        most = max(most, process.memory_info().rss)

    to_on_disk_dataset(stock, tmp_path / "store", progress=watch)
    assert (tmp_path / "store" / "x.npy").stat().st_size > 240 << 20
    assert most - before < 64 << 20


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
def test_one_large_graph_is_written_in_pieces(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LARGE_BYTES", 1000)
    monkeypatch.setattr(attributes, "LARGE_BYTES", 1000)
    monkeypatch.setattr(store_writer, "BUFFER_BYTES", 1000)
    random = torch.Generator().manual_seed(0)
    large = Data(
        x=torch.randn(700, 3, generator=random),
        edge_index=torch.randint(700, (2, 900), generator=random),
        half=torch.randn(700, 2, generator=random).bfloat16(),
        cube=torch.randn(700, 2, 2, generator=random),
        wide=torch.randn(1, 5000, generator=random),
        y=torch.tensor([1]),
    )
    small = Data(**{key: value[:1] if key != "edge_index" else value[:, :1] for key, value in large.to_dict().items()})
    dataset = to_on_disk_dataset([small, large, small, large], tmp_path / "store", backend)
    for found, expected in zip(dataset, [small, large, small, large], strict=True):
        assert_same(found, expected)
    dataset.verify()
    if backend == "columnar":
        monkeypatch.undo()
        to_on_disk_dataset([small, large, small, large], tmp_path / "whole")
        assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == sorted(os.listdir(tmp_path / "store"))
        for path in (tmp_path / "whole").iterdir():
            assert path.read_bytes() == (tmp_path / "store" / path.name).read_bytes()


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    for thing in (molecules()[0], 3, "a/path"):
        with pytest.raises(DatasetError, match="expected a dataset, list or iterator of many graphs"):
            to_on_disk_dataset(thing, tmp_path / "store")
    with pytest.raises(DatasetError, match="There are no graphs left"):
        to_on_disk_dataset([], tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_c027_what_is_worth_a_note_is_warned_of(tmp_path: Path) -> None:
    graphs = [Data(x=torch.ones(2, 1), user_index=torch.zeros(3, 2)) for _ in range(2)]
    with pytest.warns(UserWarning, match="user_index has a name with 'index'"):
        to_on_disk_dataset(graphs, tmp_path / "store")
    assert "user_index" in open_manifest(tmp_path / "store")["notes"][0]


def test_what_it_takes_is_told_and_checked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Mine(Recipe):
        num_graphs = 1000

        def graphs(self) -> Iterator[Data]:
            for _ in range(1000):
                yield Data(x=torch.zeros(256, 1))

    to_on_disk_dataset(Mine(tmp_path), tmp_path / "store", log=True)
    said = capsys.readouterr().err
    assert "about 1007.8 KiB on disk" in said  # 1,000 x (256 x 4 + 8) bytes
    assert "16.0 MiB of RAM" in said
    little = dataclasses.replace(read_machine(), memory_available_bytes=1 << 20, memory_available_source="a test")
    monkeypatch.setattr(convert, "read_machine", lambda: little)
    with pytest.raises(EnvironmentLimitError, match=r"takes 16\.0 MiB of RAM; 1\.0 MiB is available \(a test\)"):
        to_on_disk_dataset(molecules(), tmp_path / "other")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    for source in (Mine(tmp_path), molecules(), Collated(molecules())):
        with pytest.raises(EnvironmentLimitError, match="graphs take about"):
            to_on_disk_dataset(source, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_disk_that_is_or_gets_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
        with pytest.raises(EnvironmentLimitError, match=r"40 graphs take about [\d.]+ KiB on disk; .* has 1 B free"):
            to_on_disk_dataset(molecules(), tmp_path / "store")

    def full(self: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "flush", full)
        with pytest.raises(EnvironmentLimitError, match="is full: No space left on device.*and resume: what"):
            to_on_disk_dataset(molecules(), tmp_path / "store")
    assert not (tmp_path / "store").exists()
    to_on_disk_dataset(molecules(), tmp_path / "store", resume=True)
    check(tmp_path / "store", molecules())
