"""Graphs that torch.save wrote: read without running code."""

from __future__ import annotations

import os
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from pygsage.config import TrainConfig
from pygsage.data.names import parse_reference
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.open import open_graph
from pygsage.data.sources.pt import read_pt
from pygsage.errors import DatasetError

MakeRaw = Callable[..., RawGraph]


@pytest.fixture
def data(raw: MakeRaw) -> Data:
    ring = raw()
    return Data(x=ring.x, edge_index=ring.edge_index, y=ring.y, **ring.splits)


def saved(tmp_path: Path, held: Any, **options: Any) -> Path:
    torch.save(held, tmp_path / "graph.pt", **options)
    return tmp_path / "graph.pt"


def read(path: Path, *, trust_pickle: bool = False) -> RawGraph:
    return read_pt(parse_reference(str(path)), trust_pickle=trust_pickle)


def refused(path: Path, said: str, *, trust_pickle: bool = False) -> DatasetError:
    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        read(path, trust_pickle=trust_pickle)
    assert str(path) in caught.value.found
    return caught.value


def same(graph: RawGraph, ring: RawGraph) -> None:
    assert torch.equal(graph.x, ring.x)
    assert torch.equal(graph.edge_index, ring.edge_index)
    assert torch.equal(graph.y, ring.y)
    assert {key: value.tolist() for key, value in graph.splits.items()} == {
        key: value.tolist() for key, value in ring.splits.items()
    }


@pytest.mark.parametrize("kind", ["data", "dict", "old format", "list", "processed", "processed, old"])
def test_what_needs_no_trust(tmp_path: Path, data: Data, raw: MakeRaw, kind: str) -> None:
    path = tmp_path / "graph.pt"
    if kind == "processed":
        InMemoryDataset.save([data], str(path))
    elif kind == "processed, old":
        torch.save((data, {key: torch.tensor([0, 6]) for key in data.keys()}), path)  # noqa: SIM118
    else:
        held = {"dict": data.to_dict(), "list": [data]}.get(kind, data)
        torch.save(held, path, _use_new_zipfile_serialization=kind != "old format")
    before = path.read_bytes()
    graph = read(path)
    same(graph, raw())
    graph.x.zero_()  # the file is mapped, and must not change
    assert path.read_bytes() == before
    opened = open_graph(TrainConfig(dataset=str(path)))
    assert (opened.num_nodes, opened.num_edges, opened.num_classes) == (6, 6, 2)


class Harm:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("new", [True, False])
def test_a_pickle_runs_nothing_without_trust(tmp_path: Path, new: bool) -> None:
    path = saved(tmp_path, {"x": Harm(tmp_path / "harm")}, _use_new_zipfile_serialization=new)
    error = refused(path, "is a pickled file that makes objects of posix.mkdir, which can run code when it is read")
    assert "If you trust the file, add --trust-pickle" in error.advice
    assert not (tmp_path / "harm").exists()
    refused(path, "holds a dict without x, edge_index, y", trust_pickle=True)
    assert (tmp_path / "harm").exists()


def test_c073_a_class_of_the_users_needs_trust(
    tmp_path: Path, data: Data, raw: MakeRaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("users_module")
    monkeypatch.setitem(sys.modules, "users_module", module)
    made = type("MyData", (Data,), {"__module__": "users_module"})
    module.MyData = made  # type: ignore[attr-defined]
    path = tmp_path / "graph.pt"
    for save in (torch.save, lambda held, to: InMemoryDataset.save([held], to)):
        save(made(**data.to_dict()), path)
        refused(path, "makes objects of users_module.MyData")
        same(read(path, trust_pickle=True), raw())
    torch.save(made(**data.to_dict()), path)
    monkeypatch.delitem(sys.modules, "users_module")
    error = refused(path, "cannot be read (ModuleNotFoundError: No module named 'users_module')", trust_pickle=True)
    assert "needs the code that its objects were made with" in error.advice


def test_other_contents_are_refused(tmp_path: Path, data: Data) -> None:
    hetero = HeteroData({"paper": {"x": torch.ones(2, 2)}, "author": {"x": torch.ones(2, 2)}})
    path = saved(tmp_path, hetero)
    refused(path, "is heterogeneous (node types paper, author)")
    InMemoryDataset.save([hetero], str(path))
    refused(path, "is heterogeneous (node types paper, author)")
    InMemoryDataset.save([data, data, data], str(path))
    refused(path, "holds 3 graphs; expected one graph with node labels")
    refused(saved(tmp_path, [data, data]), "holds 2 graphs")
    refused(saved(tmp_path, []), "holds 0 graphs")
    refused(saved(tmp_path, torch.ones(3)), "holds a Tensor; expected")
    refused(saved(tmp_path, {"x": torch.ones(2, 2), "labels": 1}), "without edge_index, y (found x, labels)")
    refused(saved(tmp_path, Data(x=data.x, adj_t=data.edge_index, y=data.y)), "has adj_t and no edge_index")


def test_a_tensor_of_another_kind_meets_the_door(tmp_path: Path, data: Data) -> None:
    path = saved(tmp_path, {**data.to_dict(), "x": "text"})
    with pytest.raises(DatasetError, match="x is of type str; expected a tensor"):
        open_graph(TrainConfig(dataset=str(path)))


@pytest.mark.parametrize("trust_pickle", [False, True])
def test_damaged_files_are_named(tmp_path: Path, data: Data, trust_pickle: bool) -> None:
    path = saved(tmp_path, data)
    whole = path.read_bytes()
    for content in (b"", b"no pickle", whole[: len(whole) // 2], whole[len(whole) // 2 :]):
        path.write_bytes(content)
        refused(path, "expected a PyG Data", trust_pickle=trust_pickle)


def test_what_torch_may_unpickle_elsewhere_stays_the_same(tmp_path: Path, data: Data) -> None:
    before = set(torch.serialization.get_safe_globals())
    read(saved(tmp_path, data))
    assert set(torch.serialization.get_safe_globals()) == before
