"""A recipe of many graphs as a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from pygsage import InMemoryGraphs, OnDiskGraphs, Recipe, open_dataset
from pygsage.errors import ConfigError, DatasetError


class Chains(Recipe):
    """Twenty random graphs."""

    calls: int
    num_graphs: int | None = 20

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls = 0

    def graphs(self) -> Iterator[Data]:
        self.calls += 1
        for n in range(1, 21):
            yield Data(x=torch.rand(n, 8), y=torch.tensor([n]))


@pytest.mark.parametrize("num_graphs", [20, None])
def test_it_is_decided_by_size_and_the_graphs_are_the_same(
    num_graphs: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[Any] = []
    for name, limit, kind, said in (
        ("small", 8000, OnDiskGraphs, "On disk: the graphs take"),
        ("large", "1MiB", InMemoryGraphs, "In memory: the graphs take"),
    ):
        recipe = Chains(tmp_path / name)
        recipe.num_graphs = num_graphs
        dataset = open_dataset(recipe, memory_limit=limit)
        assert type(dataset) is kind
        assert said in capsys.readouterr().err
        assert recipe.calls == (1 if num_graphs is None else 2)
        found.append([data.x for data in dataset])
        again = open_dataset(recipe, memory_limit=limit)
        assert (type(again), recipe.calls) == (kind, 1 if num_graphs is None else 2)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_it_is_as_told(tmp_path: Path) -> None:
    recipe = Chains(tmp_path)
    with pytest.raises(DatasetError, match=r"In memory they do not fit: the graphs take .*over half of 7\.8 KiB"):
        open_dataset(recipe, "memory", 8000)
    assert not (tmp_path / "processed").exists()
    assert type(open_dataset(recipe, "disk")) is OnDiskGraphs
    opened = open_dataset(tmp_path / "processed" / "graphs-columnar", "memory", transform=lambda data: data.y)
    assert type(opened) is InMemoryGraphs
    assert opened[3].tolist() == [4]


def test_other_options_or_another_recipe_are_refused(tmp_path: Path) -> None:
    class Other(Chains):
        num_graphs = 20

    open_dataset(Chains(tmp_path), log=False)
    with pytest.raises(DatasetError, match="was processed with recipe Chains .* now it is .*Other"):
        open_dataset(Other(tmp_path), log=False)
    assert len(open_dataset(Other(tmp_path), log=False, force_reload=True)) == 20
    with pytest.raises(ConfigError, match="storage is 'ram'; expected auto, memory or disk"):
        open_dataset(Chains(tmp_path), "ram")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="memory_limit is 'much'"):
        open_dataset(Chains(tmp_path), memory_limit="much")
    with pytest.raises(DatasetError, match="is no folder of a store"):
        open_dataset(tmp_path)


def test_c051_two_splits_of_one_recipe_are_not_taken_for_each_other(tmp_path: Path) -> None:
    class Split(Chains):
        num_graphs = None

        def __init__(self, root: Path, split: str = "train") -> None:
            super().__init__(root)
            self.split = split

        def graphs(self) -> Iterator[Data]:
            for data in super().graphs():
                if self.split == "train" or int(data.y) == 20:
                    yield data

    assert len(open_dataset(Split(tmp_path), log=False)) == 20
    with pytest.raises(DatasetError, match=r"was processed with self.split not set; now it is 'test'.*another root"):
        open_dataset(Split(tmp_path, "test"), log=False)
    assert len(open_dataset(Split(tmp_path, split="test"), root=tmp_path / "test", log=False)) == 1
    assert len(open_dataset(Split(tmp_path), log=False)) == 20
