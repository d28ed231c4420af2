"""`pygsage info` on datasets and on runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pygsage.cli.info import run
from pygsage.config import TrainConfig
from pygsage.errors import ConfigError, DatasetError, RunError


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run([*words, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    read: dict[str, Any] = json.loads(out)
    return read


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "graph.npz"
    edges = np.array([[0, 1, 2, 0], [1, 2, 0, 2]])
    table = np.zeros((5, 3), dtype=bool)
    table[:2, 0] = table[2:4, 1] = table[3:, 2] = True
    np.savez(path, x=np.ones((5, 2)), edge_index=edges, y=np.array([0, 1, 1, 0, -1])[:, None], train_mask=table)
    return path


def test_digits_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys)
    assert (told["kind"], told["dataset"]) == ("dataset", "digits")
    assert (told["num_nodes"], told["num_edges"], told["num_features"], told["num_classes"]) == (1797, 17970, 64, 10)
    assert told["in_degree"] == {"min": 10, "mean": 10.0, "max": 10, "none": 0}
    assert told["splits"] == {"train": 1078, "val": 360, "test": 359}
    assert sum(row["test"] for row in told["classes"]) == 359
    assert told["arrays"]["x"] == {"dtype": "float32", "shape": [1797, 64], "bytes": 4 * 1797 * 64}
    assert told["bytes"] == sum(array["bytes"] for array in told["arrays"].values())
    assert run([]) == 0
    text = capsys.readouterr().out
    assert "nodes        1,797 (0 isolated)" in text
    assert "splits       train 1,078, val 360, test 359" in text
    assert "note:" not in text


def test_degrees_classes_and_notes(graph_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, str(graph_file))
    assert told["in_degree"] == {"min": 0, "mean": 0.8, "max": 2, "none": 2}
    assert told["num_isolated"] == 2
    assert told["num_labelled"] == 4
    assert told["classes"] == [{"all": 2, "train": 1}, {"all": 2, "train": 1}]
    assert "The dataset has 3 splits; shown is --split-id 0." in told["notes"]
    run([str(graph_file)])
    assert "note: 1 of 5 nodes have no label (y negative or NaN)." in capsys.readouterr().out


def test_a_dataset_without_a_split_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "g.npz", x=np.ones((60, 2)), edge_index=np.zeros((2, 0)), y=np.arange(60))
    assert answer(capsys, str(tmp_path / "g.npz"))["splits"] == {}
    run([str(tmp_path / "g.npz")])
    text = capsys.readouterr().out
    assert "splits       none" in text
    assert "… 20 more: see --json" in text
    assert "--split random:.6/.2/.2" in text


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="does not exist"):
        run([str(tmp_path / "missing.npz")])
    with pytest.raises(DatasetError, match="is a folder"):
        run([str(tmp_path)])
    with pytest.raises(DatasetError, match="--offline is on"):
        run(["pyg:Planetoid/Cora", "--offline", "--root", str(tmp_path)])
    with pytest.raises(ConfigError, match="--root goes with pyg"):
        run(["digits", "--root", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    config = TrainConfig(epochs=4, fanouts=(5, 3)).to_dict()
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    events: list[dict[str, Any]] = []
    for epoch, accuracy in enumerate([float("nan"), 0.5, 0.9, 0.9], start=1):
        events.append({"event": "epoch", "epoch": epoch, "loss": 1.0 / epoch, "seconds": 0.1})
        events.append(
            {"event": "val", "epoch": epoch, "seconds": 0.1, "accuracy": accuracy, "loss": 2.0, "num_nodes": 9}
        )
    events.append({"event": "test", "epoch": 3, "accuracy": 0.875, "loss": 0.5, "num_nodes": 8})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def test_a_run_is_described(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, str(run_folder))
    assert (told["kind"], told["dataset"], told["epochs"], told["best_epoch"]) == ("run", "digits", 4, 3)
    assert told["val"] == {"accuracy": 0.9, "loss": 2.0, "num_nodes": 9}
    assert told["test"] == {"accuracy": 0.875, "loss": 0.5, "num_nodes": 8}
    assert told["config"] == TrainConfig(epochs=4, fanouts=(5, 3)).to_dict()
    assert told["finished"] is True
    run([str(run_folder)])
    text = capsys.readouterr().out
    assert "best epoch   3 (on validation)" in text
    assert "test         accuracy 0.8750, loss 0.5000, num_nodes 8" in text
    assert "  fanouts: 5,3" in text


def test_a_run_that_was_killed_is_described(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = run_folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    metrics.write_text("\n".join(lines[:4]) + '\n{"event": "epo')
    told = answer(capsys, str(run_folder))
    assert (told["epochs"], told["best_epoch"], told["test"], told["finished"]) == (2, 2, {}, False)
    metrics.unlink()
    assert answer(capsys, str(run_folder))["epochs"] == 0
    run([str(run_folder)])
    assert "no score yet" in capsys.readouterr().out


def test_scores_that_are_no_numbers_stay_json(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_folder / "metrics.jsonl").write_text('{"event": "val", "epoch": 1, "accuracy": NaN, "loss": 1.0}\n')
    told = answer(capsys, str(run_folder))
    assert (told["best_epoch"], told["val"]) == (1, {"accuracy": None, "loss": 1.0})


def test_a_damaged_run_is_refused(run_folder: Path) -> None:
    metrics = run_folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    metrics.write_text("\n".join([lines[0], "]", lines[1]]))
    with pytest.raises(RunError, match=re.escape(f"{metrics} is damaged at line 2")):
        run([str(run_folder)])
    (run_folder / "config.yaml").unlink()
    with pytest.raises(RunError, match=r"has no config\.yaml"):
        run([str(run_folder)])
