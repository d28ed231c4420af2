"""`pygsage info` on datasets and on runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch_geometric.data import Data

from pygsage.cli.info import run
from pygsage.cli.main import main
from pygsage.config import TrainConfig
from pygsage.data.open import open_graph
from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.errors import ConfigError, DatasetError, RunError
from pygsage.training.launch import train


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
    for event in events:
        if event["event"] != "epoch":
            event["metric"] = "accuracy"
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
    assert "best epoch   3 (on validation, by accuracy)" in text
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


@pytest.mark.parametrize(("metric", "best"), [("rmse", 2), ("rocauc", 1), ("ogb_acc", 1), ("loss", 2)])
def test_the_metric_in_use_chooses_the_best_epoch(
    run_folder: Path, capsys: pytest.CaptureFixture[str], metric: str, best: int
) -> None:
    events = [
        {"event": "val", "epoch": epoch, metric: value, "metric": metric} for epoch, value in ((1, 0.9), (2, 0.2))
    ]
    (run_folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    told = answer(capsys, str(run_folder))
    assert (told["metric"], told["best_epoch"]) == (metric, best)
    run([str(run_folder)])
    assert f"best epoch   {best} (on validation, by {metric})" in capsys.readouterr().out


def test_the_metric_that_was_told_is_shown(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, str(run_folder))["metric"] == "accuracy"
    config = TrainConfig(metric="loss").to_dict()
    (run_folder / "config.yaml").write_text(yaml.safe_dump(config))
    (run_folder / "metrics.jsonl").write_text(
        '{"event": "val", "epoch": 1, "accuracy": 0.9, "loss": 1.0}\n'
        '{"event": "val", "epoch": 2, "accuracy": 0.8, "loss": 0.5}\n'
    )
    told = answer(capsys, str(run_folder))
    assert (told["metric"], told["best_epoch"]) == ("loss", 2)


def test_the_best_epoch_and_metric_are_those_of_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    nodes = np.arange(60)
    masks = {"train_mask": nodes < 30, "val_mask": (nodes >= 30) & (nodes < 45), "test_mask": nodes >= 45}
    for kind, y in (("regression", x[:, :2] * 0.3 + 0.05), ("multilabel", x > 0), ("classes", (x[:, 0] > 0) * 1)):
        np.savez(tmp_path / "g.npz", x=x, edge_index=rng.integers(0, 60, (2, 90)), y=y, **masks)
        options: dict[str, Any] = {"epochs": 4, "hidden": 4, "fanouts": (2,), "lr": 0.1, "gpus": "0", "quiet": True}
        result = train(str(tmp_path / "g.npz"), run_dir=str(tmp_path / kind), **options)
        told = answer(capsys, result.run_dir)
        assert (told["metric"], told["best_epoch"]) == (result.metric, result.best_epoch)
        assert told["val"] == pytest.approx(result.val, nan_ok=True)


def save(path: Path, y: np.ndarray) -> str:
    masks = {"train_mask": np.arange(len(y)) < 3, "test_mask": np.arange(len(y)) > 3}
    np.savez(path, x=np.ones((len(y), 2)), edge_index=np.array([[0], [1]]), y=y, **masks)
    return str(path)


def test_several_labels_are_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    y = np.array([[1, 0], [1, np.nan], [0, 0], [1, 1], [0, 1], [np.nan, np.nan]])
    path = save(tmp_path / "g.npz", y[[0, 1, 2, 3, 4]])
    told = answer(capsys, path)
    assert (told["task"], told["num_outputs"], told["num_labelled"], told["num_classes"]) == ("multilabel", 2, 5, 0)
    assert told["classes"] == []
    assert told["labels"] == [
        {
            "all": {"known": 5, "positive": 3},
            "train": {"known": 3, "positive": 2},
            "test": {"known": 1, "positive": 0},
        },
        {
            "all": {"known": 4, "positive": 2},
            "train": {"known": 2, "positive": 0},
            "test": {"known": 1, "positive": 1},
        },
    ]
    run([path])
    text = capsys.readouterr().out
    assert "labels       5 nodes, 2 labels, multilabel" in text
    assert re.search(r"\nlabel +all +train +test\n", text)
    assert re.search(r"\n  0 +3 of 5 +2 of 3 +0 of 1\n  1 +2 of 4 +0 of 2 +1 of 1\n?", text)


@pytest.mark.parametrize("columns", [1, 3])
def test_measurements_are_described(tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: int) -> None:
    y = np.arange(5 * columns).reshape(5, columns) + 0.5
    y[3] = np.nan  # of no split
    told = answer(capsys, save(tmp_path / "g.npz", y.squeeze()))
    assert (told["task"], told["num_outputs"], told["num_labelled"]) == ("regression", columns, 4)
    assert len(told["targets"]) == columns
    first = told["targets"][0]["train"]
    values = y[:3, 0]
    assert first == pytest.approx(
        {"known": 3, "min": values.min(), "mean": values.mean(), "max": values.max(), "std": values.std()}
    )
    run([str(tmp_path / "g.npz")])
    text = capsys.readouterr().out
    assert f"labels       4 nodes, {columns} target{'s' if columns > 1 else ''}, regression" in text
    assert f"{values.mean():.4g} ± {values.std():.4g} of 3" in text


def test_labels_of_which_a_split_knows_none_stay_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    y = np.array([[0.5, 1.5], [0.5, 1.5], [0.5, 1.5], [np.nan, np.nan], [0.25, np.nan]])
    told = answer(capsys, save(tmp_path / "g.npz", y))
    assert told["targets"][1]["test"] == {"known": 0, "min": None, "mean": None, "max": None, "std": None}
    run([str(tmp_path / "g.npz")])
    assert re.search(r"1 +1.5 ± 0 of 3 +1.5 ± 0 of 3 +none", capsys.readouterr().out)


def test_the_folder_of_a_graph_is_described_as_its_source(
    graph_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "graph"
    for path in (str(graph_file), save(tmp_path / "g.npz", np.eye(5)[:, :2])):
        open_graph(TrainConfig(dataset=path), need_split=False).save(folder)
        wanted, found = answer(capsys, path), answer(capsys, str(folder))
        if "edge_id" not in found["arrays"]:  # ids that only count up are not kept
            wanted["bytes"] -= wanted["arrays"].pop("edge_id")["bytes"]
        assert found == {**wanted, "folder": str(folder)}
        shutil.rmtree(folder)


def test_the_folder_of_a_damaged_graph_is_refused(graph_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    open_graph(TrainConfig(dataset=str(graph_file)), need_split=False)
    folder.mkdir()
    for text, said in (
        ("{", "is damaged"),
        ("{}", "was not written by pygsage"),
        ("[1]", "was not written by pygsage"),
    ):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(DatasetError, match=said):
            run([str(folder)])


def test_every_source_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = torch.arange(6)
    data = Data(x=torch.ones(6, 2), edge_index=torch.stack([nodes, nodes.flip(0)]), y=nodes % 2)
    torch.save(data, tmp_path / "graph.pt")
    (tmp_path / "recipe.py").write_text(
        "import torch\nfrom pygsage import Recipe\n\nclass Mine(Recipe):\n    def graphs(self):\n"
        "        yield torch.load(self.root / 'graph.pt', weights_only=False)\n"
    )
    wanted = answer(capsys, str(tmp_path / "graph.pt"))
    assert (wanted["num_nodes"], wanted["num_edges"], wanted["classes"]) == (6, 6, [{"all": 3}, {"all": 3}])
    assert answer(capsys, str(tmp_path / "recipe.py")) == {**wanted, "dataset": str(tmp_path / "recipe.py")}
    (tmp_path / "other").mkdir()
    (tmp_path / "graph.pt").rename(tmp_path / "other" / "graph.pt")
    moved = answer(capsys, str(tmp_path / "recipe.py"), "--root", str(tmp_path / "other"))
    assert moved["num_edges"] == 6
    with pytest.raises(DatasetError, match="ogbn_arxiv does not exist, and --offline is on"):
        run(["ogbn-arxiv", "--root", str(tmp_path), "--offline"])


def test_a_reference_to_ogb_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2].parent / "shared" / "data" / "ogb" / "cora-as-ogbn-arxiv"
    if not root.is_dir():
        pytest.skip("no Cora in OGB's layout among the shared data files")
    told = answer(capsys, "ogbn-arxiv", "--root", str(root), "--offline")
    assert (told["num_nodes"], told["num_features"], told["num_classes"]) == (2708, 1433, 7)
    assert told["splits"] == {"train": 140, "val": 500, "test": 1000}


def test_a_store_is_described_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphs = [Data(x=torch.ones(n, 2), edge_index=torch.zeros(2, n).long(), y=torch.tensor([n])) for n in (1, 2, 3)]
    to_on_disk_dataset(graphs, tmp_path / "store")
    assert main(["info", str(tmp_path / "store"), "--verify", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["num_graphs"], told["backend"]) == ("store", 3, "columnar")
    assert [a["name"] for a in told["attributes"]] == ["x", "edge_index", "y"]
    assert main(["info", str(tmp_path / "store"), "--verify"]) == 0
    assert "every byte is as it was written" in capsys.readouterr().out
    path = tmp_path / "store" / "x.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert main(["info", str(tmp_path / "store")]) == 0  # opening costs the same for any number of graphs
    assert main(["info", str(tmp_path / "store"), "--verify"]) == 2
    assert "x.npy" in capsys.readouterr().err


def test_many_graphs_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "digits-grid"]) == 0
    text = capsys.readouterr().out
    for line in (
        "graphs       1,797",
        "nodes        115,008; 64 to 64 a graph, mean 64.0",
        "features     3 (numbers)",
        "labels       1,797 graphs, 10 classes",
        "splits       train 1,078, val 360, test 359",
    ):
        assert line in text
    assert main(["info", "digits-grid", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["num_graphs"], answer["sizes"]["edges"]["max"]) == (1797, 224)
