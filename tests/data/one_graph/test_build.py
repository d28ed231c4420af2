"""One graph built on disk: the arrays that the way in RAM would have saved, and nothing half-written."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from pygsage.config import TrainConfig
from pygsage.data.one_graph import build as graph_build
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open import open_graph, read_source
from pygsage.data.storage import choose_storage
from pygsage.errors import DatasetError
from pygsage.memory.peak import undroppable_bytes

Write = Callable[..., Path]


def build(path: Path, target: Path, budget: int = 1 << 20, **options: Any) -> Graph:
    config = TrainConfig(dataset=str(path), **options)
    return graph_build.build_graph(
        lambda scratch: read_source(config, scratch), config, target, {"made": "here"}, need_split=True,
        budget_bytes=budget, overwrite=True,
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.npy"))}


def arrays(num_nodes: int = 40, num_edges: int = 150) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(0, 3, (num_nodes, 5)).astype(np.float32),
        "edge_index": rng.integers(0, num_nodes, (2, num_edges)),
        "y": rng.integers(0, 3, num_nodes),
        "train_mask": np.arange(num_nodes) < num_nodes // 2,
        "test_idx": np.arange(num_nodes // 2, num_nodes),
    }


def same_as_in_ram(path: Path, tmp_path: Path, **options: Any) -> Graph:
    """Builds it both ways, compares every file, and returns the graph on disk."""
    in_ram = open_graph(TrainConfig(dataset=str(path), **options))
    in_ram.save(tmp_path / "in_ram")
    on_disk = build(path, tmp_path / "on_disk", budget=800, **options)
    assert contents(tmp_path / "on_disk") == contents(tmp_path / "in_ram")
    told = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("in_ram", "on_disk")]
    assert told[0]["arrays"] == told[1]["arrays"]
    assert on_disk.notes == in_ram.notes
    assert (on_disk.task, on_disk.num_classes, on_disk.name) == (in_ram.task, in_ram.num_classes, in_ram.name)
    assert not list(tmp_path.glob(".*"))
    return on_disk


OPTIONS: list[dict[str, Any]] = [
    {},
    {"undirected": True},
    {"self_loops": True},
    {"undirected": True, "self_loops": True, "normalize_features": True},
    {"split": "random:.5/.2/.3", "seed": 4},
    {"ignore_label": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_every_option_gives_the_same_bytes(save: Any, options: dict[str, Any], tmp_path: Path) -> None:
    save(tmp_path / "graph.npz", **arrays())
    same_as_in_ram(tmp_path / "graph.npz", tmp_path, **options)


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint16", "int64", "bool", ">f4"])
def test_c019_features_of_other_dtypes_become_float32_piece_by_piece(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_build, "CHUNK_VALUES", 12)
    monkeypatch.setattr("pygsage.data.one_graph.checks._CHUNK_VALUES", 12)
    np.savez(tmp_path / "graph.npz", **arrays() | {"x": np.abs(arrays()["x"]).astype(dtype)})
    same_as_in_ram(tmp_path / "graph.npz", tmp_path, normalize_features=dtype == "float64")


def test_float16_features_stay_what_they_are(tmp_path: Path) -> None:
    given = arrays()
    np.savez(tmp_path / "graph.npz", **given | {"x": given["x"].astype(np.float16)})
    in_ram = open_graph(TrainConfig(dataset=str(tmp_path / "graph.npz")))
    on_disk = build(tmp_path / "graph.npz", tmp_path / "on_disk")
    assert on_disk.x.dtype == torch.float16
    assert torch.equal(on_disk.x.float(), in_ram.x)


@pytest.mark.parametrize("dtype", ["int32", "uint32", ">i8", "uint8"])
def test_c055_edges_of_other_dtypes_and_orders(dtype: str, tmp_path: Path) -> None:
    edges = arrays()["edge_index"].astype(dtype)
    np.savez(tmp_path / "graph.npz", **arrays() | {"edge_index": np.asfortranarray(edges)})
    same_as_in_ram(tmp_path / "graph.npz", tmp_path, undirected=True)


@pytest.mark.parametrize("own", [False, True])
def test_relabelled_ids(own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pygsage.data.one_graph.relabel._CHUNK_EDGES", 16)
    ids = np.random.default_rng(3).permutation(1000)[:40]
    given = arrays() | {"edge_index": ids[arrays()["edge_index"]]}
    given["edge_index"][0, :40] = ids
    given |= {"test_idx": ids[given["test_idx"]]} | ({"node_id": ids} if own else {"test_idx": np.sort(ids)[20:]})
    np.savez(tmp_path / "graph.npz", **given)
    assert same_as_in_ram(tmp_path / "graph.npz", tmp_path, relabel=True).node_id is not None


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 60), st.integers(1, 12), st.booleans(), st.booleans(), st.integers(0, 99))
def test_any_graph_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, num_edges: int, num_nodes: int, undirected: bool, loops: bool, seed: int
) -> None:
    tmp_path, rng = tmp_path_factory.mktemp("any"), np.random.default_rng(seed)
    given = {"x": rng.normal(size=(num_nodes, 2)), "edge_index": rng.integers(0, num_nodes, (2, num_edges))}
    np.savez(tmp_path / "graph.npz", **given, y=np.arange(num_nodes) % 2, train_idx=np.arange(num_nodes))
    same_as_in_ram(tmp_path / "graph.npz", tmp_path, undirected=undirected, self_loops=loops)


def test_tasks_of_other_kinds(tmp_path: Path) -> None:
    y = np.random.default_rng(0).normal(size=(40, 2))
    y[3] = np.nan
    given = {key: value for key, value in arrays().items() if key not in ("train_mask", "test_idx")}
    np.savez(tmp_path / "graph.npz", **given | {"y": y})
    assert same_as_in_ram(tmp_path / "graph.npz", tmp_path, split="random:.6/.2/.2").task == "regression"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"x": np.full((40, 5), np.nan)}, "expected finite numbers"),
        ({"edge_index": np.full((2, 9), 40)}, "edge 0 of edge_index has the source 40"),
        ({"y": np.arange(39)}, "expected one label a node"),
        ({"test_idx": np.arange(30)}, "shares nodes"),
    ],
)
def test_c034_c035_the_door_is_the_same_and_leaves_nothing(wrong: dict[str, Any], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", **arrays() | wrong)
    messages = []
    for way in (lambda path: open_graph(TrainConfig(dataset=str(path))), lambda path: build(path, tmp_path / "out")):
        with pytest.raises(DatasetError, match=said) as refused:
            way(tmp_path / "graph.npz")
        messages.append(str(refused.value))
    assert messages[0] == messages[1]
    assert [path.name for path in tmp_path.iterdir()] == ["graph.npz"]


def _killed(path: str, target: str, at: str) -> None:
    if at == "publish":
        graph_build.UnfinishedFolder.publish = lambda *_: os._exit(9)  # type: ignore[method-assign]
    else:
        setattr(graph_build, at, lambda *_, **__: os._exit(9))
    build(Path(path), Path(target))


@pytest.mark.parametrize("at", ["write_features", "write_csc", "publish"])
def test_c052_a_killed_build_leaves_the_old_state_and_is_begun_again(at: str, tmp_path: Path) -> None:
    path, target = tmp_path / "graph.npz", tmp_path / "out"
    np.savez(path, **arrays())
    before = contents(build(path, target).folder or target)
    np.savez(path, **arrays() | {"y": np.zeros(40, np.int64)})
    process = multiprocessing.get_context("fork").Process(target=_killed, args=(str(path), str(target), at))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert contents(target) == before  # the old one, whole
    Graph.verify(target)
    partial = tmp_path / ".out.partial"
    assert partial.is_dir()
    with pytest.raises(DatasetError, match=r"has no manifest\.json"):
        Graph.open(partial)
    after = build(path, target)
    assert int(after.y.max()) == 0
    Graph.verify(target)
    assert not partial.exists()


@pytest.mark.parametrize("name", ["x.npy", "indices.npy", "y.npy", "edge_id.npy", "split/train.npy"])
@pytest.mark.parametrize("place", [70, -3])
def test_a_flipped_bit_is_found(name: str, place: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", **arrays())
    build(tmp_path / "graph.npz", tmp_path / "out")
    content = bytearray((tmp_path / "out" / name).read_bytes())
    content[place] ^= 16
    (tmp_path / "out" / name).write_bytes(content)
    with pytest.raises(DatasetError, match="is damaged"):
        Graph.verify(tmp_path / "out")


def test_a_recipe_with_mapped_arrays_is_built_from_its_files(tmp_path: Path) -> None:
    given = arrays()
    for key in ("x", "edge_index", "y"):
        np.save(tmp_path / f"{key}.npy", given[key])
    (tmp_path / "mine.py").write_text(
        "import numpy as np, torch\nfrom torch_geometric.data import Data\nfrom pygsage import Recipe\n"
        "class Mine(Recipe):\n    def graphs(self):\n"
        "        parts = {k: torch.from_numpy(np.load(self.root / f'{k}.npy', mmap_mode='c'))\n"
        "                 for k in ('x', 'edge_index', 'y')}\n"
        "        yield Data(**parts, train_mask=torch.arange(40) < 20)\n"
    )
    same_as_in_ram(tmp_path / "mine.py", tmp_path, undirected=True)
    config = TrainConfig(dataset=str(tmp_path / "mine.py"), gpus="0", fanouts=(2,), hidden=4)
    chosen = choose_storage(config, 1)
    assert chosen.kind == "memory"
    assert chosen.told is not None
    assert chosen.told.shape.mapped == {"x", "edge_index"}
    assert open_graph(config, storage=chosen).num_nodes == 40  # of what the recipe gave already
    limit = str(int(1.5 * undroppable_bytes()) + (64 << 20))
    chosen = choose_storage(replace(config, memory_limit=limit), 1)
    assert chosen.kind == "disk"
    assert open_graph(config, storage=chosen).folder == chosen.folder
    assert chosen.folder == tmp_path / "mine.py.pygsage" / "plain"


def test_a_hub_with_most_of_the_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pygsage.data.one_graph.external.BLOCK_EDGES", 16)
    edges = arrays()["edge_index"]
    edges[1, :120] = 5
    np.savez(tmp_path / "graph.npz", **arrays() | {"edge_index": edges})
    same_as_in_ram(tmp_path / "graph.npz", tmp_path, undirected=True)
