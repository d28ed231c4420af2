"""What PyG calls a graph, by every route: what is refused, what is taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.loader import NeighborLoader

import pygsage
from pygsage.config import TrainConfig
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.open import graph_from_data, open_graph
from pygsage.errors import DatasetError

HETERO_SAYS = "is heterogeneous (node types paper, author)"
WORKS = "neighbor_sampler=pygsage.NeighborSampler(data, fanouts)"


def hetero() -> HeteroData:
    data = HeteroData({"paper": {"x": torch.ones(4, 2), "y": torch.arange(4)}, "author": {"x": torch.ones(3, 2)}})
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    return data


class Papers(InMemoryDataset):
    """Stands for a heterogeneous class of PyG's."""

    def __init__(self, root: str | None = None) -> None:
        super().__init__(None)
        self.data, self.slices = self.collate([hetero()])


@pytest.mark.parametrize("route", ["pt", "pt of a dataset", "recipe", "pyg"])
def test_hetero_data_is_refused_with_what_works(
    route: str, tmp_path: Path, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"recipe": "mine.py", "pyg": "pyg:Papers"}.get(route, "graph.pt")
    if route == "pt":
        torch.save(hetero(), tmp_path / name)
    elif route == "pt of a dataset":
        InMemoryDataset.save([hetero()], str(tmp_path / name))
    elif route == "recipe":
        torch.save(hetero(), tmp_path / "hetero.pt")
        (tmp_path / name).write_text(
            "import torch\nfrom pygsage import Recipe\n\nclass Mine(Recipe):\n    def graphs(self):\n"
            "        yield torch.load(self.root / 'hetero.pt', weights_only=False)\n"
        )
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(torch_geometric.datasets, "Papers", Papers, raising=False)
        monkeypatch.setattr(torch_geometric.datasets, "__all__", [*torch_geometric.datasets.__all__, "Papers"])
    said = refusal(name)
    assert name in said
    assert HETERO_SAYS in said
    assert WORKS in said


@pytest.mark.parametrize("procs", [1, 2])
@pytest.mark.parametrize("make", [hetero, Papers])
def test_hetero_data_of_the_api_is_refused(
    make: Callable[[], Any], procs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=re.escape(HETERO_SAYS)) as caught:
        pygsage.train(make(), gpus="0", procs=procs)
    assert WORKS in caught.value.advice
    assert not any(tmp_path.iterdir())


def test_what_is_said_to_work_works() -> None:
    data = hetero()
    sampler = pygsage.NeighborSampler(data, [2, 2])
    batch = next(iter(NeighborLoader(data, [2, 2], neighbor_sampler=sampler, input_nodes="paper", batch_size=4)))
    assert batch["paper"].batch_size == 4
    assert batch["author"].num_nodes == 3


@pytest.mark.parametrize(
    ("given_value", "says"),
    [
        (3, "int"), ([1], "list"), ({"x": torch.ones(2, 2)}, "dict"), (torch.ones(2, 2), "Tensor"),
        (np.ones(3), "ndarray"), (Data(), "has no x"), (Data(num_nodes=3), "has no x"),
    ],
)  # fmt: skip
def test_c023_what_is_no_graph_is_refused_by_the_api(
    given_value: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=says) as caught:
        pygsage.train(given_value, gpus="0")
    assert "expected" in caught.value.found
    assert not any(tmp_path.iterdir())


def test_c017_an_attribute_that_is_none_is_missing(
    tmp_path: Path, refusal: Callable[..., str], raw: Callable[..., RawGraph]
) -> None:
    ring = raw()
    arrays = {"x": ring.x, "edge_index": ring.edge_index, "y": ring.y, **ring.splits}
    for key in ("x", "edge_index", "y"):
        torch.save(Data(**{**arrays, key: None}), tmp_path / "graph.pt")
        assert f"has no {key}; expected" in refusal("graph.pt")
    torch.save(Data(**{**arrays, "test_mask": None}), tmp_path / "graph.pt")
    assert set(open_graph(TrainConfig(dataset=str(tmp_path / "graph.pt"))).splits) == {"train", "val"}


def test_c047_a_folder_holds_the_rows_and_not_what_they_are_cut_from(tmp_path: Path) -> None:
    big, nodes = torch.rand(20_000, 8), torch.arange(100)
    data = Data(x=big[:100], edge_index=torch.stack([nodes, nodes.flip(0)]), y=nodes % 2, train_mask=nodes < 50)
    graph = graph_from_data(data, TrainConfig(dataset="slice"))
    graph.save(tmp_path / "graph")
    assert (tmp_path / "graph" / "x.npy").stat().st_size < 2 * data.x.nbytes
