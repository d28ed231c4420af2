"""Where a run holds its graph: what the estimate decides, where the store lies, when it is used again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pygsage.config import TrainConfig
from pygsage.data import storage as storage_module
from pygsage.data.names import parse_reference
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open import open_graph
from pygsage.data.storage import Storage, check_build, choose_storage, fingerprint_of, is_current, store_folder
from pygsage.errors import ConfigError, DatasetError, EnvironmentLimitError
from pygsage.memory.peak import undroppable_bytes
from pygsage.memory.shapes import shape_from_numbers

Write = Callable[..., Path]
SMALL = {"fanouts": (2, 2), "hidden": 4, "batch_size": 8, "gpus": "0"}


def of(path: Path, **options: Any) -> TrainConfig:
    return TrainConfig(dataset=str(path), **{**SMALL, **options})


def on_disk(config: TrainConfig) -> Graph:
    storage = choose_storage(replace(config, storage="disk"), 1)
    return open_graph(config, storage=storage)


def test_auto_is_memory_where_that_fits(ring_npz: Write) -> None:
    chosen = choose_storage(of(ring_npz()), 1)
    assert (chosen.kind, chosen.folder) == ("memory", None)
    assert chosen.sentence().startswith("memory: In memory: needs ")


def test_c011_auto_is_disk_where_memory_does_not_fit_and_says_why_and_where(ring_npz: Write) -> None:
    path = ring_npz()
    limit = int(1.5 * undroppable_bytes()) + (64 << 20)  # the process fits, under half of it does not
    chosen = choose_storage(of(path, memory_limit=str(limit)), 1)
    assert chosen.kind == "disk"
    assert chosen.folder == Path(f"{path}.pygsage") / "plain"
    sentence = chosen.sentence()
    assert "On disk: needs " in sentence
    assert "over 50% of" in sentence
    assert sentence.endswith(f"The graph is in {chosen.folder}.")
    with pytest.raises(EnvironmentLimitError, match="does not fit in memory. On disk: needs") as refused:
        choose_storage(of(path, memory_limit=str(limit), storage="memory"), 1)
    assert refused.value.exit_status == 3
    assert not chosen.folder.parent.exists()


@pytest.mark.parametrize("storage", ["auto", "memory", "disk"])
def test_c011_what_fits_nowhere_is_refused_with_the_numbers(ring_npz: Write, storage: Any) -> None:
    with pytest.raises(EnvironmentLimitError, match=r"of RAM|does not fit") as refused:
        choose_storage(of(ring_npz(), memory_limit="1MiB", storage=storage), 1)
    assert refused.value.exit_status == 4
    assert choose_storage(of(ring_npz(), memory_limit="1MiB"), 1, refuse=False).kind == "disk"


def test_c004_the_limit_of_the_control_group_decides_on_a_host_with_plenty(
    ring_npz: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 of 512 MiB are in use in the group of a job, on a host with 60 GiB available."""
    for path, text in {
        "proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {60 << 20} kB\n",
        "proc/self/cgroup": "0::/pod/job\n",
        "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/pod/memory.max": f"{512 << 20}\n",
        "sys/fs/cgroup/pod/memory.current": f"{400 << 20}\n",
        "sys/fs/cgroup/pod/job/memory.max": "max\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    real = storage_module.read_machine
    monkeypatch.setattr(storage_module, "read_machine", lambda *args, **options: real(tmp_path))
    monkeypatch.setattr(storage_module, "undroppable_bytes", lambda: 250 << 20)  # whatever ran before this test
    large = shape_from_numbers(1, 100_000, 200_000, 512, num_classes=10)  # 195 MiB of features
    for storage in ("auto", "memory"):
        with pytest.raises(EnvironmentLimitError, match=r"over 50% of .*cgroup v2.*pod/memory\.max") as refused:
            choose_storage(of(ring_npz(), storage=storage), 1, large)
        assert refused.value.exit_status in (3, 4)  # whether the process itself leaves room for the disk's way
    monkeypatch.undo()
    assert choose_storage(of(ring_npz()), 1, large).kind == "memory"


def test_converting_asks_for_ram_and_disk_first(ring_npz: Write, tmp_path: Path) -> None:
    assert check_build(of(ring_npz()), tmp_path / "new" / "out") > 0
    with pytest.raises(EnvironmentLimitError, match="Converting .* needs") as refused:
        check_build(of(ring_npz(), memory_limit="1MiB"), tmp_path / "out")
    assert refused.value.exit_status == 4


def test_c041_a_store_is_used_again_only_for_the_same_files_and_options(ring_npz: Write) -> None:
    path = ring_npz()
    config = of(path)
    first = on_disk(config)
    assert first.folder is not None
    written = os.stat(first.folder / "manifest.json").st_mtime_ns
    assert choose_storage(replace(config, storage="disk"), 1).is_built
    again = on_disk(config)
    assert os.stat(first.folder / "manifest.json").st_mtime_ns == written
    assert torch.equal(first.x, again.x)
    undirected = on_disk(replace(config, undirected=True))
    assert undirected.folder == first.folder.with_name("undirected")
    assert undirected.num_edges == 2 * first.num_edges
    ring_npz(x=np.ones((6, 3), np.float32))
    assert not is_current(first.folder, config, parse_reference(config.dataset))
    assert on_disk(config).num_features == 3
    assert first.x.shape == (6, 2)  # who had it open has it still
    assert sorted(p.name for p in first.folder.parent.iterdir() if not p.name.startswith(".")) == [
        "plain", "undirected",
    ]  # fmt: skip


def test_splits_are_made_anew_without_building_anew(ring_npz: Write) -> None:
    path = ring_npz()
    config = of(path, split="random:.5/.25/.25")
    graphs = [on_disk(replace(config, seed=seed)) for seed in (0, 1)]
    assert graphs[0].folder == graphs[1].folder
    for seed, graph in enumerate(graphs):
        assert graph.is_split_anew
        expected = open_graph(replace(config, seed=seed))
        assert {k: v.tolist() for k, v in graph.splits.items()} == {k: v.tolist() for k, v in expected.splits.items()}


def test_the_store_lies_beside_the_file_or_in_the_cache(
    ring_npz: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ring_npz()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def place(**options: Any) -> Path:
        config = TrainConfig(**options)
        return store_folder(config, parse_reference(config.dataset))

    assert place(dataset=str(path)) == Path(f"{path}.pygsage") / "plain"
    told = place(dataset=str(path), undirected=True, self_loops=True, task="classes", split="random:.6/.2/.2")
    assert told.name == "undirected+self_loops+task-classes+no-split"
    assert place(dataset="ogbn-arxiv", root=str(tmp_path)) == tmp_path / "ogbn-arxiv.pygsage" / "plain"
    assert place(dataset="digits", seed=3).parent.parent == tmp_path / "cache" / "pygsage" / "graphs"
    assert place(dataset="digits", seed=3).name == "seed-3"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert place(dataset=str(path)).parent.parent == tmp_path / "cache" / "pygsage" / "graphs"


def test_c041_the_files_of_a_recipe_are_those_around_it(tmp_path: Path) -> None:
    for name in ("mine.py", "data.csv", "mine.py.pygsage/plain/x.npy", "processed/data.pt", "raw/more.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    config = TrainConfig(dataset=str(tmp_path / "mine.py"))
    told = fingerprint_of(config, parse_reference(config.dataset))["files"]
    assert sorted(Path(name).name for name in told) == ["data.csv", "mine.py", "more.csv"]


# A folder of ours as a dataset


def stored(path: Path, folder: Path, **options: Any) -> str:
    open_graph(of(path, **options)).save(folder)
    return str(folder)


def test_a_folder_is_mapped_as_it_is(ring_npz: Write, tmp_path: Path) -> None:
    folder = stored(ring_npz(), tmp_path / "out")
    graph = open_graph(TrainConfig(dataset=folder))
    assert (graph.folder, graph.is_split_anew) == (tmp_path / "out", False)
    chosen = choose_storage(TrainConfig(dataset=folder), 1)
    assert chosen.kind == "memory"
    assert chosen.told is not None
    assert chosen.told.memory.place_bytes("train", "shared") == 0


@pytest.mark.parametrize("way", ["memory", "disk"])
def test_options_on_a_folder_are_those_on_the_file(ring_npz: Write, tmp_path: Path, way: Any) -> None:
    rng = np.random.default_rng(0)
    path = ring_npz(edge_index=rng.integers(0, 6, (2, 20)))
    folder = stored(path, tmp_path / "out")
    for options in ({"undirected": True}, {"self_loops": True}, {"normalize_features": True}, {"ignore_label": 1}):
        expected = open_graph(of(path, **options))
        config = TrainConfig(dataset=folder, storage=way, **SMALL, **options)  # type: ignore[arg-type]
        found = open_graph(config, storage=choose_storage(config, 1))
        assert (found.folder is None) == (way == "memory")
        for name, array in expected.arrays().items():
            assert torch.equal(found.arrays()[name], array), (options, name)


def test_edges_that_were_added_cannot_be_told_from_others(ring_npz: Write, tmp_path: Path) -> None:
    folder = stored(ring_npz(), tmp_path / "out", undirected=True)
    with pytest.raises(DatasetError, match="out was made with options that added edges, and --self-loops would begin"):
        open_graph(TrainConfig(dataset=folder, self_loops=True))
    folder = str(on_disk(of(ring_npz(), undirected=True)).folder)
    with pytest.raises(DatasetError, match="was made with --undirected, and --self-loops would begin") as refused:
        open_graph(TrainConfig(dataset=folder, self_loops=True))
    assert refused.value.advice == "Leave --self-loops out, or convert the dataset itself with all of these options."
    with pytest.raises(DatasetError, match="was made with --undirected and has those edges; .*Leave --undirected out"):
        open_graph(TrainConfig(dataset=folder, undirected=True))
    assert open_graph(TrainConfig(dataset=folder)).num_edges == 12


def test_a_folder_without_a_split_says_what_to_type(ring_npz: Write, tmp_path: Path) -> None:
    path = ring_npz(train_mask=None, val_mask=None, test_mask=None)
    open_graph(of(path), need_split=False).save(tmp_path / "out")
    with pytest.raises(DatasetError, match="has no training split"):
        open_graph(TrainConfig(dataset=str(tmp_path / "out")))
    assert open_graph(TrainConfig(dataset=str(tmp_path / "out")), need_split=False).splits == {}
    split = open_graph(TrainConfig(dataset=str(tmp_path / "out"), split="random:.5/.25/.25"))
    assert len(split.splits) == 3
    assert not [note for note in split.notes if "no training split" in note]  # there is one now
    with pytest.raises(ConfigError, match="has a single split"):
        open_graph(TrainConfig(dataset=stored(ring_npz(), tmp_path / "split"), split_id=2))


def test_storage_without_an_estimate_says_where(tmp_path: Path) -> None:
    assert Storage("memory").sentence() == ""
    assert str(tmp_path) in Storage("disk", folder=tmp_path).sentence()


def test_a_build_that_was_refused_leaves_nothing(ring_npz: Write) -> None:
    path = ring_npz(y=np.arange(3))
    before = sorted(path.parent.iterdir())
    with pytest.raises(DatasetError):
        on_disk(of(path))
    assert sorted(path.parent.iterdir()) == before
