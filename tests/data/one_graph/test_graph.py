"""A graph and its folder."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pygsage.data.files import arrays as arrays_module
from pygsage.data.one_graph.graph import Graph
from pygsage.errors import DatasetError, EnvironmentLimitError


@pytest.fixture
def graph() -> Graph:
    return Graph(
        name="ring",
        indptr=torch.tensor([0, 1, 2, 3]),
        indices=torch.tensor([2, 0, 1], dtype=torch.int32),
        edge_id=torch.tensor([2, 0, -1]),
        x=torch.arange(6.0).reshape(3, 2),
        y=torch.tensor([0, 1, -1]),
        splits={"train": torch.tensor([1]), "test": torch.tensor([0])},
        num_classes=2,
        notes=("a note",),
    )


@pytest.fixture
def folder(graph: Graph, tmp_path: Path) -> Path:
    graph.save(tmp_path / "graph")
    return tmp_path / "graph"


def same(a: Graph, b: Graph) -> bool:
    ours, theirs = a.arrays(), b.arrays()
    return (
        list(ours) == list(theirs)
        and all(torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours)
        and (a.name, a.num_classes, a.notes) == (b.name, b.num_classes, b.notes)
    )


def test_counts(graph: Graph) -> None:
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (3, 3, 2)


def test_a_saved_graph_opens_the_same(graph: Graph, folder: Path) -> None:
    opened = Graph.open(folder)
    assert same(graph, opened)
    assert opened.folder == folder
    assert sorted(p.name for p in folder.parent.iterdir()) == ["graph"]


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_labels_of_other_tasks_are_kept(graph: Graph, tmp_path: Path, task: str) -> None:
    y = torch.tensor([[0.0, 1.0], [torch.nan, 1.0], [0.0, 0.0]])
    table = dataclasses.replace(graph, y=y, num_classes=0, task=task)
    assert (graph.num_outputs, table.num_outputs) == (2, 2)
    table.save(tmp_path / "g")
    opened = Graph.open(tmp_path / "g")
    for copy in (opened, pickle.loads(pickle.dumps(table)), pickle.loads(pickle.dumps(opened))):
        assert (copy.task, copy.num_outputs, copy.y.dtype) == (task, 2, torch.float32)
        assert torch.equal(copy.y, y) is False  # NaN is no number's equal
        assert torch.equal(copy.y.nan_to_num(9), y.nan_to_num(9))
    dataclasses.replace(graph, y=y, num_classes=0).save(tmp_path / "wrong")
    with pytest.raises(DatasetError, match="damaged"):
        Graph.open(tmp_path / "wrong")


def test_an_empty_folder_is_filled(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    graph.save(tmp_path / "empty")
    assert same(graph, Graph.open(tmp_path / "empty"))


def test_a_graph_without_edges_is_saved_too(tmp_path: Path) -> None:
    none = torch.empty(0, dtype=torch.int64)
    split = {"train": torch.tensor([0])}
    edgeless = Graph("g", torch.zeros(2).long(), none.int(), None, torch.ones(1, 1), torch.tensor([0]), split, 1)
    edgeless.save(tmp_path / "g")
    assert same(edgeless, Graph.open(tmp_path / "g"))


def test_ids_of_edges_that_only_count_up_take_no_file(graph: Graph, tmp_path: Path) -> None:
    in_order = dataclasses.replace(graph, edge_id=torch.arange(graph.num_edges))
    in_order.save(tmp_path / "in-order")
    again = Graph.open(tmp_path / "in-order")
    assert again.edge_id is None
    assert not (tmp_path / "in-order" / "edge_id.npy").exists()
    assert same(again, dataclasses.replace(graph, edge_id=None))
    Graph.verify(tmp_path / "in-order")
    for how in ("without", "with"):  # which of both is so has to be said
        folder = tmp_path / how
        (graph if how == "with" else in_order).save(folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        if how == "with":
            manifest["edge_order"] = "as given"
        else:
            del manifest["edge_order"]
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(DatasetError, match="edge_id is"):
            Graph.open(folder)


def test_maps_can_be_written_to_without_touching_the_files(folder: Path) -> None:
    before = (folder / "x.npy").read_bytes()
    opened = Graph.open(folder)
    opened.x.add_(1)
    assert float(opened.x[0, 0]) == 1.0
    assert (folder / "x.npy").read_bytes() == before
    assert float(Graph.open(folder).x[0, 0]) == 0.0


def test_an_opened_graph_is_pickled_as_a_path(graph: Graph, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    opened = Graph.open("graph")
    content = pickle.dumps(opened)
    assert len(content) < 300
    monkeypatch.chdir("/")
    again = pickle.loads(content)
    assert same(graph, again)
    assert again.folder == folder
    assert same(graph, pickle.loads(pickle.dumps(graph)))  # in RAM: by value


def test_a_changed_copy_is_not_pickled_as_the_old_folder(folder: Path) -> None:
    from dataclasses import replace

    changed = replace(Graph.open(folder), x=torch.ones(3, 2))
    assert torch.equal(pickle.loads(pickle.dumps(changed)).x, torch.ones(3, 2))


def test_nothing_is_overwritten(graph: Graph, folder: Path) -> None:
    with pytest.raises(DatasetError, match="exists already and is not empty"):
        graph.save(folder)
    with pytest.raises(DatasetError, match="exists already"):
        graph.save(folder / "x.npy")
    assert same(graph, Graph.open(folder))


def test_a_save_that_fails_leaves_nothing(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.fsync, []

    def failing(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(arrays_module.os, "fsync", failing)
    with pytest.raises(EnvironmentLimitError, match=r"The disk of .* is full: No space left on device"):
        graph.save(tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_is_written_last(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    real = arrays_module.write_synced

    def watching(path: Path, write: Callable[[Any], Any]) -> None:
        written.append(path.name)
        real(path, write)

    monkeypatch.setattr(arrays_module, "write_synced", watching)
    graph.save(tmp_path / "graph")
    assert written[-1] == "manifest.json"
    assert len(written) == 8


@pytest.mark.parametrize("name", ["x.npy", "indptr.npy", "split/train.npy"])
def test_a_missing_or_truncated_array_is_refused(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(
        DatasetError,
        match=r"is damaged: [a-z/]+\.npy has .*; expected .* again: pygsage convert DATASET",
    ):
        Graph.open(folder)
    path.unlink()
    with pytest.raises(DatasetError, match=r"is damaged: .*\.npy: no such file or directory\."):
        Graph.open(folder)


def test_no_folder_and_a_foreign_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a folder"):
        Graph.open(tmp_path / "missing")
    with pytest.raises(DatasetError, match=r"no manifest\.json: it is no graph's folder, or was never finished"):
        Graph.open(tmp_path)
    for text, said in [
        ("{", "cannot be read"),
        ("[]", "not written by pygsage"),
        ('{"format": "x"}', "not written by"),
    ]:
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(DatasetError, match=said):
            Graph.open(tmp_path)


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "of version 9; this pygsage reads version 1": lambda m: m.update(version=9),
    "names no x": lambda m: m["arrays"].pop("x"),
    "names the file '../x.npy' for 'x'": lambda m: m["arrays"]["x"].update(file="../x.npy"),
    "names the file '/etc/passwd' for 'y'": lambda m: m["arrays"]["y"].update(file="/etc/passwd"),
    "names the file 'z.npy' for 'z'": lambda m: m["arrays"].update(z={"file": "z.npy"}),
    "expected float64": lambda m: m["arrays"]["x"].update(dtype="float64"),
    "'bytes' is missing": lambda m: m["arrays"]["x"].pop("bytes"),
    "is damaged: an entry is of another kind": lambda m: m["arrays"].update(x=3),
    "is damaged: an entry is of another kind than expected": lambda m: m.update(
        arrays=["indptr", "indices", "edge_id", "x", "y", "split/train"]
    ),
    "says of edge_order: 'sorted'; expected 'as given'": lambda m: m.update(edge_order="sorted"),
    "says of edge_order: 3; expected": lambda m: m.update(edge_order=3),
    "an entry is not of the kind or length": lambda m: m.update(num_classes="many"),
    "'num_classes' is missing": lambda m: m.pop("num_classes"),
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_manifest_that_was_tampered_with_is_refused(folder: Path, said: str) -> None:
    edit(folder, CHANGES[said])
    with pytest.raises(DatasetError, match=said):
        Graph.open(folder)


def test_an_array_that_leads_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "x.npy", tmp_path / "elsewhere.npy")
    (folder / "x.npy").symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(DatasetError, match=r"x\.npy leads out of the folder"):
        Graph.open(folder)


def test_arrays_of_other_lengths_are_refused(folder: Path) -> None:
    np.save(folder / "y.npy", np.zeros(2, dtype=np.int64))
    size = (folder / "y.npy").stat().st_size
    edit(folder, lambda m: m["arrays"]["y"].update(shape=[2], bytes=size))
    with pytest.raises(DatasetError, match="the lengths of its arrays do not agree"):
        Graph.open(folder)


def test_a_pickled_array_is_never_loaded(folder: Path) -> None:
    np.save(folder / "y.npy", np.array([print, None], dtype=object), allow_pickle=True)
    edit(folder, lambda m: m["arrays"]["y"].update(bytes=(folder / "y.npy").stat().st_size))
    with pytest.raises(DatasetError, match="is damaged"):
        Graph.open(folder)


def test_a_store_larger_than_ram_and_swap_is_opened(graph: Graph, tmp_path: Path) -> None:
    """A file that is all holes takes no disk; a map of it that counts as memory is refused."""
    graph.save(tmp_path / "huge")
    rows = 2 * int(Path("/proc/meminfo").read_text().split()[1]) * 1024 // 1024
    edit(tmp_path / "huge", lambda m: m["arrays"]["x"].update(shape=[rows, 256], bytes=128 + rows * 1024))
    edit(tmp_path / "huge", lambda m: m["arrays"]["y"].update(shape=[rows], bytes=128 + rows * 8))
    edit(tmp_path / "huge", lambda m: m["arrays"]["indptr"].update(shape=[rows + 1], bytes=128 + (rows + 1) * 8))
    for name, dtype, shape in (
        ("x", np.float32, (rows, 256)),
        ("y", np.int64, (rows,)),
        ("indptr", np.int64, (rows + 1,)),
    ):
        path = tmp_path / "huge" / f"{name}.npy"
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
            )
            file.truncate(128 + int(np.prod(shape)) * np.dtype(dtype).itemsize)
        if name == "indptr":
            with open(path, "r+b") as file:
                file.seek(-8, 2)
                file.write(np.int64(3).tobytes())
    opened = Graph.open(tmp_path / "huge")
    assert opened.x.shape == (rows, 256)
    assert opened.x[rows - 1].tolist() == [0.0] * 256
    opened.x[rows - 1] = 1  # the file stays as it is
    assert Graph.open(tmp_path / "huge").x[rows - 1].tolist() == [0.0] * 256
