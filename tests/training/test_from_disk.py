"""Training on a graph that is read from disk: the same command, the same result, nothing left behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pygsage
from pygsage.cli.main import main
from pygsage.config import TrainConfig
from pygsage.data.storage import choose_storage
from pygsage.errors import EnvironmentLimitError
from pygsage.memory.machine import Machine, read_machine
from pygsage.memory.peak import undroppable_bytes
from pygsage.nn import inference
from pygsage.training.checkpoint import load_checkpoint
from pygsage.training.launch import dry_run, train
from pygsage.training.run import BEST_KEYS

OPTIONS: dict[str, Any] = {
    "gpus": "0", "fanouts": (3, 2), "hidden": 8, "batch_size": 16, "epochs": 2, "quiet": True, "undirected": True,
}  # fmt: skip


@pytest.fixture
def graph(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    x = np.eye(3, dtype=np.float16)[y] + rng.normal(0, 1, (120, 3)).astype(np.float16)
    order = rng.permutation(120)
    splits = {"train_idx": order[:60], "val_idx": order[60:90], "test_idx": order[90:]}
    np.savez(tmp_path / "graph.npz", x=x, edge_index=rng.integers(0, 120, (2, 500)), y=y, **splits)
    return str(tmp_path / "graph.npz")


def weights(run: Path) -> dict[str, torch.Tensor]:
    model: dict[str, torch.Tensor] = load_checkpoint(run / "best.pt", BEST_KEYS)["model"]
    return model


def assert_same(one: Path, other: Path) -> None:
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, weights(other)[name]), name


@pytest.mark.parametrize("split", ["public", "random:.6/.2/.2"])
def test_from_disk_is_the_same_to_the_last_bit(graph: str, tmp_path: Path, split: str) -> None:
    results = {}
    for storage in ("memory", "disk"):
        run = tmp_path / storage
        results[storage] = train(graph, storage=storage, run_dir=str(run), split=split, **OPTIONS)
        told = json.loads((run / "memory.json").read_text())
        assert told["storage"] == storage
        assert set(told["of_first_rank"]["measured_bytes"]) == {"read", "process", "train", "evaluate", "peak"}
        assert set(told["of_first_rank"]["estimated_bytes"]) > {"read", "train", "evaluate", "peak"}
        assert not list(run.glob(".scratch*"))
    assert_same(tmp_path / "memory", tmp_path / "disk")
    assert results["memory"].val == results["disk"].val
    assert results["memory"].test == results["disk"].test
    found = pygsage.predict(tmp_path / "disk", "test")
    np.testing.assert_array_equal(found, pygsage.predict(tmp_path / "memory", "test"))


def test_from_a_converted_folder_too(graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["convert", graph, out]) == 0
    assert main(["info", out, "--verify"]) == 0
    assert "every byte is as it was written" in capsys.readouterr().out
    train(graph, run_dir=str(tmp_path / "a"), **OPTIONS)
    train(out, run_dir=str(tmp_path / "b"), **OPTIONS)
    assert_same(tmp_path / "a", tmp_path / "b")
    assert main(["convert", graph, out]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["convert", graph, out, "--overwrite", "--undirected"]) == 0
    train(out, run_dir=str(tmp_path / "c"), **{**OPTIONS, "undirected": False})
    assert_same(tmp_path / "a", tmp_path / "c")
    with open(tmp_path / "out" / "x.npy", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    assert main(["info", out, "--verify"]) == 2
    assert "x.npy is not what was written" in capsys.readouterr().err


def test_two_ranks_share_the_folder_and_its_new_split(graph: str, tmp_path: Path) -> None:
    options = {**OPTIONS, "storage": "disk", "split": "random:.5/.3/.2"}
    two = train(graph, run_dir=str(tmp_path / "two"), **{**options, "procs": 2, "batch_size": 8})
    one = train(graph, run_dir=str(tmp_path / "one"), **options)
    assert two.num_procs == 2
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "two")[name], tensor, rtol=1e-4, atol=1e-5)
    assert two.test["accuracy"] == one.test["accuracy"]


def test_the_line_says_where_and_a_dry_run_leaves_nothing(
    graph: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = pygsage.TrainConfig(dataset=graph, storage="disk", **OPTIONS)
    lines = dry_run(config)
    assert lines[0].endswith(f"of disk. The graph is in {graph}.pygsage/undirected.")
    assert [path.name for path in tmp_path.iterdir()] == ["graph.npz"]
    train(config, run_dir=str(tmp_path / "run"), quiet=False)
    said = f"The graph is in {graph}.pygsage/undirected."
    assert capsys.readouterr().out.splitlines()[0].endswith(said)
    assert (tmp_path / "graph.npz.pygsage" / "undirected" / "manifest.json").is_file()


def test_c011_memory_is_refused_where_only_the_disk_would_do(graph: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLimitError, match="does not fit in memory"):
        train(graph, storage="memory", memory_limit="500MiB", run_dir=str(tmp_path / "run"), **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["graph.npz"]


def test_hot_rows_in_ram_change_no_result(graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = str(tmp_path / "out")
    assert main(["convert", graph, out]) == 0
    options = {**OPTIONS, "undirected": False}
    results = [train(out, run_dir=str(tmp_path / "plain"), **options)]
    monkeypatch.setattr("pygsage.memory.answer.hot_rows", lambda *_: 50)
    results.append(train(out, run_dir=str(tmp_path / "hot"), **options))
    assert_same(tmp_path / "plain", tmp_path / "hot")
    assert results[0].val == results[1].val
    assert results[0].test == results[1].test
    lines = [json.loads(line) for line in (tmp_path / "hot" / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert len(epochs) == 2
    for line in epochs:
        assert min(line["cache_hits"], line["cache_misses"]) > 0
        assert line["cache_hit_rate"] == line["cache_hits"] / (line["cache_hits"] + line["cache_misses"])
    plain = (tmp_path / "plain" / "metrics.jsonl").read_text()
    assert "cache" not in plain


@pytest.mark.parametrize("source", ["file", "store"])
def test_layers_of_an_inference_go_to_the_disk_when_the_estimate_says_that_they_do_not_fit(
    source: str, graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No --storage is given: a --memory-limit that the layers exceed decides, and for `predict` what is free."""
    wide: dict[str, Any] = {**OPTIONS, "hidden": 4096, "epochs": 1}
    made: list[tuple[str, int, bool]] = []
    real = inference._Arrays._mapped

    def spied(arrays: Any, path: Path, width: int) -> torch.Tensor:
        rows = real(arrays, path, width)
        made.append((path.name, width, path.stat().st_size >= 4 * 120 * width))
        return rows

    monkeypatch.setattr(inference._Arrays, "_mapped", spied)
    if source == "store":
        assert main(["convert", graph, str(tmp_path / "store"), "--quiet"]) == 0
        graph, wide["undirected"] = str(tmp_path / "store"), False
    plenty = train(graph, run_dir=str(tmp_path / "plenty"), **wide)
    assert made == []
    told = choose_storage(TrainConfig().with_values({**wide, "dataset": graph}, "test"), 1).told
    assert told is not None
    assert told.memory.highest_phase() == "evaluate"
    limit = 2 * told.memory.need_bytes - (4 << 20)  # half of which is less than it needs
    scarce = train(graph, run_dir=str(tmp_path / "scarce"), memory_limit=f"{limit // 1024}KiB", **wide)
    assert json.loads((tmp_path / "scarce" / "memory.json").read_text())["storage"] == "disk"
    assert made == 2 * [("layer-0.npy", 4096, True), ("layer-1.npy", 3, True)]  # of validation and of test nodes
    assert (scarce.val, scarce.test) == (plenty.val, plenty.test)
    assert_same(tmp_path / "plenty", tmp_path / "scarce")
    predicted = pygsage.predict(tmp_path / "plenty", "all")
    assert len(made) == 4

    def small_machine(**where: Any) -> Machine:  # what the process itself takes counts as available
        return replace(read_machine(**where), memory_available_bytes=limit - undroppable_bytes())

    monkeypatch.setattr("pygsage.data.storage.read_machine", small_machine)
    np.testing.assert_array_equal(pygsage.predict(tmp_path / "scarce", "all"), predicted)
    assert len(made) == 6
    assert not list((tmp_path / "scarce").glob(".scratch*"))
