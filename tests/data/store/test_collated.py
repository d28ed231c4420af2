"""PyG's datasets in memory, taken a block of graphs at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from pygsage.data.store import graph_source
from pygsage.data.store import writer as store_writer
from pygsage.data.store.collated import blocks_of, reader
from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.on_disk import OnDiskGraphs
from pygsage.errors import DatasetError
from tests.data.dataset_contract import assert_same, edges, molecules, plain, typed


class Collated(InMemoryDataset):  # type: ignore[misc]
    def __init__(self, graphs: list[Any]) -> None:
        super().__init__(None)
        self._data, self.slices = self.collate(graphs)


def tensors() -> list[Data]:
    keys = ("x", "edge_index", "edge_attr", "y", "none", "mask", "table", "tail", "half", "pair_index")
    return [Data(**{key: graph[key] for key in keys}) for graph in plain()]


def bare() -> list[Data]:
    g = torch.Generator().manual_seed(3)
    return [Data(num_nodes=i % 4 + 1, edge_index=edges(i % 4 + 1, 3, g), y=torch.tensor([i])) for i in range(12)]


def of_types() -> list[HeteroData]:
    graphs = [graph.clone() for graph in typed()]
    for graph in graphs:
        del graph.title
    return graphs


def even() -> list[Data]:
    return [Data(x=torch.full((3, 2), float(i)), edge_index=torch.tensor([[0, 1], [1, 2]])) for i in range(9)]


def without_a_count() -> list[Data]:
    return [Data(edge_index=torch.tensor([[0], [i]]), y=torch.tensor([i])) for i in range(9)]


SOURCES: dict[str, Callable[[], list[Any]]] = {
    f.__name__: f for f in (tensors, molecules, bare, of_types, even, without_a_count)
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", SOURCES)
def test_a_store_made_of_blocks_is_the_same_byte_for_byte(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = Collated(SOURCES[name]())
    assert blocks_of(stock) is not None
    monkeypatch.setattr(store_writer, "BUFFER_BYTES", 2500)
    for how, subset in (
        ("all", stock),
        ("run", stock[3:8]),
        ("stride", stock[::-2]),
        ("shuffled", stock[torch.randperm(len(stock), generator=torch.Generator().manual_seed(0))]),
        ("twice", stock[[5, 1, 1, 5]]),
    ):
        steps: list[int] = []
        to_on_disk_dataset(subset, tmp_path / how, progress=lambda num, size: steps.append(num))  # noqa: B023
        with monkeypatch.context() as patch:
            patch.setattr(graph_source, "blocks_of", lambda dataset: None)
            to_on_disk_dataset(subset, tmp_path / f"{how}-singly")
        assert contents(tmp_path / how) == contents(tmp_path / f"{how}-singly")
        assert steps[-1] == len(subset)
        if how == "all":
            assert (len(steps) < len(subset)) == (name != "without_a_count")
        read = reader(subset)
        assert_same(OnDiskGraphs(tmp_path / how)[2], read(list(subset.indices())[2]))


def test_c052_interrupted_between_blocks_it_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "BUFFER_BYTES", 2000)
    monkeypatch.setattr(store_writer, "CHECKPOINT_BYTES", 4000)
    stock = Collated(molecules())

    def stop(num: int, num_bytes: int) -> None:
        if num > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_on_disk_dataset(stock, tmp_path / "store", progress=stop)
    to_on_disk_dataset(stock, tmp_path / "store", resume=True)
    to_on_disk_dataset(stock, tmp_path / "whole")
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")


def test_a_graph_that_is_refused_is_named(tmp_path: Path) -> None:
    graphs = [Data(x=torch.ones(3, 1), y=torch.ones(3 if i != 7 else 2)) for i in range(9)]
    stock = Collated(graphs)
    with pytest.raises(DatasetError, match=r"Graph 7: y has shape \[2\].* mend it and resume, or skip"):
        to_on_disk_dataset(stock, tmp_path / "store")
    assert len(to_on_disk_dataset(stock, tmp_path / "skipped", on_error="skip")) == 8


def test_what_pyg_has_to_take_apart_itself() -> None:
    assert blocks_of(Collated(plain())) is None  # texts and numbers
    assert blocks_of(Collated(molecules()[:1])) is None
    odd = Collated(molecules())
    odd._data._num_nodes = [None] * 40
    assert blocks_of(odd) is None
    assert blocks_of(Collated([Data(x=torch.ones(2, 2).to_sparse()) for _ in range(2)])) is None


def test_other_datasets_are_not_collated(tmp_path: Path) -> None:
    class Own(Collated):
        def get(self, idx: int) -> Any:
            return Data(x=torch.full((1, 1), float(idx)))

    to_on_disk_dataset(Own(molecules()), tmp_path / "store")
    assert OnDiskGraphs(tmp_path / "store")[3].x.item() == 3
