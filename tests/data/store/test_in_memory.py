"""Datasets in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.in_memory import InMemoryGraphs
from pygsage.errors import DatasetError
from pygsage.memory.peak import PeakMemory
from tests.data.dataset_contract import DatasetContract, assert_same, molecules, plain, typed


class TestInMemory(DatasetContract):
    kind = InMemoryGraphs


@pytest.fixture
def dataset(tmp_path: Path) -> InMemoryGraphs:
    to_on_disk_dataset(molecules(), tmp_path / "store")
    return InMemoryGraphs(tmp_path / "store")


def test_pygs_own_way_of_writing_a_dataset(tmp_path: Path) -> None:
    class Own(InMemoryGraphs):
        def __init__(self, root: Path, **options: Any) -> None:
            super().__init__(root, **options)
            self.load(self.processed_paths[0])

        @property
        def processed_file_names(self) -> str:
            return "data.pt"

        def process(self) -> None:
            graphs = [self.pre_transform(g) for g in molecules() if self.pre_filter is None or self.pre_filter(g)]
            self.save(graphs, self.processed_paths[0])

    dataset = Own(tmp_path, pre_transform=lambda data: data)
    assert len(dataset) == 40
    assert_same(dataset[3], molecules()[3])


@pytest.mark.parametrize("num_graphs", [1, 200])
def test_c003_saving_holds_no_second_copy(num_graphs: int, tmp_path: Path) -> None:
    """PyG's own way writes into a buffer in RAM first: 2 to 4.8 times the payload, of which this is 64 MiB."""
    x = torch.ones(1 << 18, 1 << 6)
    graphs = (Data(x=part) for part in x.chunk(num_graphs))
    with PeakMemory(interval_s=0.001) as memory:
        before = memory.sample()
        InMemoryGraphs.save(graphs, str(tmp_path / "store"))
    assert memory.peak_bytes - before < 24 << 20
    assert (tmp_path / "store" / "x.npy").stat().st_size > x.nbytes


def test_joined_attributes_and_slices_are_pygs(dataset: InMemoryGraphs) -> None:
    data, slices = InMemoryGraphs.collate(molecules())
    assert_same(dataset._data, data)
    assert dataset._data._num_nodes == data._num_nodes
    assert dataset.slices is not None
    assert slices.keys() == dataset.slices.keys()
    assert all(torch.equal(slices[key], dataset.slices[key]) for key in slices)
    assert torch.equal(dataset.x, data.x)
    assert dataset.edge_index.max() == sum(g.num_nodes for g in molecules()) - 1 or dataset.edge_index.max() > 40
    assert dataset[3:5].y.shape == (2, 12)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dataset.nonsense


def test_a_copy_has_memory_of_its_own(dataset: InMemoryGraphs) -> None:
    for idx, numbers in ((None, range(40)), ([5, 3], [5, 3]), (slice(8, 20), range(8, 20))):
        copied = dataset.copy(idx)
        assert len(copied) == len(numbers)
        for place, number in enumerate(numbers):
            assert_same(copied[place], molecules()[number])
    copied.store.arrays["x"][:] = 0
    assert_same(dataset[8], molecules()[8])
    assert len(dataset[10:20].copy()) == 10


@pytest.mark.parametrize("graphs", [plain, typed])
def test_a_copy_of_every_kind_of_value(graphs: Any, tmp_path: Path) -> None:
    to_on_disk_dataset(graphs(), tmp_path / "store")
    copied = InMemoryGraphs(tmp_path / "store").copy([4, 2])
    assert_same(copied[0], graphs()[4])
    assert_same(copied[1], graphs()[2])


def test_c030_a_dataset_is_read_only_and_has_changed_copies(dataset: InMemoryGraphs) -> None:
    before = dataset[0].y.clone()
    changed = dataset.with_attr("y", torch.zeros(40, 1))
    assert changed[0].y.tolist() == [[0.0]]
    assert_same(dataset[0], molecules()[0])
    with pytest.warns(UserWarning, match="copy: a change to it does not reach the dataset"):
        dataset.data.y.zero_()
    assert torch.equal(dataset[0].y.nan_to_num(7), before.nan_to_num(7))
    with pytest.raises(DatasetError, match=r"read only\. Use dataset\.with_attr"):
        dataset.data = Data()
    total = dataset.x.size(0)
    more = dataset.with_attr("pe", torch.arange(total).float())
    assert more[1].pe.tolist() == [2.0, 3.0, 4.0]
    assert more.batch([0, 1]).pe.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(DatasetError, match=r"y have 3 rows; expected 40 \(rows as now\)"):
        dataset.with_attr("y", torch.zeros(3, 1))


def test_it_stays_on_the_cpu(dataset: InMemoryGraphs) -> None:
    assert dataset.to("cpu") is dataset
    with pytest.raises(DatasetError, match="stay on the CPU"):
        dataset.cuda()


def test_c073_a_class_of_ones_own(tmp_path: Path) -> None:
    class Mine(Data):  # type: ignore[misc]
        def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
            return 10 if key == "code" else super().__inc__(key, value, *args, **kwargs)

    graphs = [Mine(x=torch.ones(2, 1), code=torch.tensor([1])) for _ in range(3)]
    converted = to_on_disk_dataset(graphs, tmp_path / "store")
    assert type(converted[0]) is Mine
    assert converted.batch([0, 1]).code.tolist() == [1, 11]
    assert type(InMemoryGraphs(tmp_path / "store")[0]) is Data
    opened = InMemoryGraphs(tmp_path / "store", data_class=Mine)
    assert type(opened[0]) is Mine
    assert opened.batch([0, 1]).code.tolist() == [1, 11]
    assert "The graphs are of class" in " ".join(opened.store.notes)
