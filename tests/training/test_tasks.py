"""Whole runs of every kind of label and training option."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Data, HeteroData

from pygsage import ConfigError, DatasetError, TrainConfig, predict, train
from pygsage.cli.info import dataset_text, describe_dataset, describe_run
from pygsage.config import InfoConfig
from pygsage.data.open import open_graph
from pygsage.training import events, loop, optimizers
from pygsage.training.checkpoint import load_checkpoint
from pygsage.training.launch import dry_run

SMALL: dict[str, Any] = {
    "hidden": 16, "fanouts": (4, 3), "batch_size": 64, "epochs": 4, "lr": 0.02, "gpus": "0", "quiet": True
}  # fmt: skip
Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes 200 nodes with the given labels: 129 to train, 31 for validation, 40 for the test."""

    def write(y: Any, x: Any = None) -> str:
        rng = np.random.default_rng(0)
        order = rng.permutation(200)
        np.savez(
            tmp_path / "g.npz",
            x=_features() if x is None else x,
            y=y,
            edge_index=rng.integers(0, 200, (2, 800)),
            train_idx=order[:129],
            val_idx=order[129:160],
            test_idx=order[160:],
        )
        return str(tmp_path / "g.npz")

    return write


def _features() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)


def _several_labels() -> np.ndarray:
    y = (_features() > 0).astype(np.float32)
    y[np.random.default_rng(2).random((200, 3)) < 0.3] = np.nan
    y[:, 0] = _features()[:, 0] > 0
    return y


def _events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


def test_several_labels_with_missing_ones(make: Make, tmp_path: Path) -> None:
    dataset = make(_several_labels())
    result = train(dataset, run_dir=str(tmp_path / "run"), **{**SMALL, "epochs": 20})
    assert result.metric == "rocauc"
    assert result.test["rocauc"] > 0.8
    assert {"rocauc", "ap", "f1_micro", "f1_macro", "loss", "num_nodes"} == set(result.test)
    said = f"test rocauc {result.test['rocauc']:.4f} at epoch {result.best_epoch} (best on validation: "
    assert result.sentence().startswith(said)
    graph, scores = open_graph(TrainConfig(dataset=dataset)), predict(tmp_path / "run", "test")
    y = graph.y[graph.splits["test"]].numpy()
    known = ~np.isnan(y)
    each = [roc_auc_score(y[known[:, c], c], scores[known[:, c], c]) for c in range(3)]
    assert result.test["rocauc"] == pytest.approx(np.mean(each), abs=1e-6)
    about = describe_dataset(InfoConfig(dataset))
    assert (about["task"], about["num_outputs"], about["num_labelled"], about["classes"]) == ("multilabel", 3, 200, [])
    assert "200 nodes, 3 labels, multilabel" in dataset_text(about)
    text = "\n".join(dry_run(TrainConfig(dataset=dataset, gpus="0")))
    assert "3 labels; 129 train" in text
    assert "task: multilabel (as the labels are); loss: binary cross-entropy of the known labels" in text
    assert "the highest validation rocauc" in text


def test_measurements(make: Make, tmp_path: Path) -> None:
    y = _features().sum(1) + 0.5
    result = train(make(y), run_dir=str(tmp_path / "run"), **{**SMALL, "epochs": 20, "dropout": 0.0})
    assert result.metric == "rmse"
    assert result.test["rmse"] < 0.6 * y.std()
    best = min(_events(tmp_path / "run", "val"), key=lambda event: event["rmse"])
    assert (result.best_epoch, result.val["rmse"]) == (best["epoch"], best["rmse"])
    assert predict(tmp_path / "run", "val").shape == (31, 1)
    about = describe_run(tmp_path / "run")
    assert (about["best_epoch"], about["val"]["rmse"]) == (best["epoch"], best["rmse"])
    told = "\n".join(dry_run(TrainConfig(dataset=make(y), gpus="0", metric="mae", task="regression")))
    assert "task: regression (as told)" in told
    assert "the lowest validation mae" in told


def test_c103_labels_of_float_with_nan_outside_the_splits(make: Make, tmp_path: Path) -> None:
    y = (_features()[:, :1] > 0).astype(np.float32)
    order = np.random.default_rng(0).permutation(200)
    result = train(make(y), run_dir=str(tmp_path / "run"), metric="rocauc", **SMALL)
    assert result.metric == "rocauc"
    assert {"accuracy", "rocauc", "ap"} <= set(result.test)
    for labels in (y, y + 0.25):  # classes, measurements
        labels[order[5]] = np.nan
        with pytest.raises(DatasetError, match="the train split has nodes without a label"):
            train(make(labels), run_dir=str(tmp_path / "refused"), **SMALL)
    assert not (tmp_path / "refused").exists()


def test_c105_nodes_with_the_label_to_ignore_are_in_no_split(make: Make, tmp_path: Path) -> None:
    y = np.random.default_rng(3).integers(0, 3, 200)
    y[:60] = -100
    with pytest.raises(DatasetError, match="nodes without a label"):
        train(make(y), **SMALL)
    result = train(make(y), run_dir=str(tmp_path / "run"), ignore_label=-100, **SMALL)
    test = np.random.default_rng(0).permutation(200)[160:]
    assert result.test["num_nodes"] == int((test >= 60).sum())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"class_weights": True}, "--class-weights needs classes"),
        ({"metric": "accuracy"}, "--metric is accuracy, and .* has the task multilabel"),
        ({"split": "per-class:2/2"}, "--split per-class:2/2 needs classes"),
        ({"scheduler": "plateau", "split": "random:.9/.01/.01"}, ""),
    ],
)
def test_options_that_do_not_go_with_the_labels_make_nothing(
    make: Make, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    dataset = make(_several_labels())
    if not said:
        np.savez(dataset, **{k: v for k, v in np.load(dataset).items() if k != "val_idx"})
        options, said = {"scheduler": "plateau"}, "follows the validation score"
    with pytest.raises(ConfigError, match=said):
        train(dataset, run_dir=str(tmp_path / "run"), **{**SMALL, **options})
    assert not (tmp_path / "run").exists()


def test_class_weights_raise_the_share_of_the_rare_class(make: Make, tmp_path: Path) -> None:
    x = _features()
    y = (x[:, 0] + 0.7 * x[:, 1] + np.random.default_rng(4).normal(size=200) > 2).astype(np.int64)
    found = {}
    for weighted in (False, True):
        run = tmp_path / str(weighted)
        train(make(y), run_dir=str(run), class_weights=weighted, **{**SMALL, "epochs": 8})
        found[weighted] = int(predict(run, "all").argmax(1).sum())
    assert found[True] > 1.5 * found[False]


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize(
    "options",
    [
        {"scheduler": "cosine", "norm": "batch", "aggr": "max"},
        {"scheduler": "plateau", "class_weights": True, "aggr": "sum", "precision": "bf16"},
    ],
)
def test_c110_a_run_with_a_schedule_is_resumed_exactly(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(optimizers, "PLATEAU_PATIENCE", 0)
    dataset = make(np.random.default_rng(3).integers(0, 3, 200))
    options = {**SMALL, **options, "checkpoint_every_s": 0.0, "epochs": 5}
    train(dataset, run_dir=str(tmp_path / "whole"), **options)
    step, taken = loop.Trainer._sum_over_ranks, 0

    def kill(self: loop.Trainer, loss: torch.Tensor) -> tuple[float, int]:
        nonlocal taken
        taken += 1
        if taken == 12:  # in the middle of the fourth epoch
            raise Killed
        return step(self, loss)

    monkeypatch.setattr(loop.Trainer, "_sum_over_ranks", kill)
    with pytest.raises(Killed):
        train(dataset, run_dir=str(tmp_path / "broken"), **options)
    train(dataset, run_dir=str(tmp_path / "broken"), resume=True, **options)
    whole, broken = (load_checkpoint(tmp_path / name / "last.pt") for name in ("whole", "broken"))
    for name, weight in whole["model"].items():
        assert torch.equal(broken["model"][name], weight)
    assert broken["scheduler"] == whole["scheduler"]
    assert broken["optimizer"]["param_groups"] == whole["optimizer"]["param_groups"]
    assert whole["optimizer"]["param_groups"][0]["lr"] < 0.02
    assert whole["model"]["convs.0.lin_l.weight"].dtype == torch.float32
    assert [e["loss"] for e in _events(tmp_path / "broken", "epoch")] == [
        e["loss"] for e in _events(tmp_path / "whole", "epoch")
    ]


def test_bf16_learns_what_fp32_learns_and_is_evaluated_in_fp32(make: Make, tmp_path: Path) -> None:
    dataset = make((_features()[:, 0] > 0).astype(np.int64))
    losses = {}
    for precision in ("fp32", "bf16"):
        result = train(dataset, run_dir=str(tmp_path / precision), precision=precision, **{**SMALL, "epochs": 10})
        assert result.test["accuracy"] > 0.8
        losses[precision] = [event["loss"] for event in _events(tmp_path / precision, "epoch")]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)
    assert losses["bf16"] != losses["fp32"]
    text = "\n".join(dry_run(TrainConfig(dataset=dataset, gpus="0", precision="bf16")))
    assert "products are in bfloat16" in text


def test_c108_a_last_batch_of_one_row_in_all(make: Make, tmp_path: Path) -> None:
    """129 seeds in batches of 64, no edges: the last batch has a single row in every layer."""
    dataset = make(np.random.default_rng(3).integers(0, 3, 200))
    arrays = dict(np.load(dataset))
    np.savez(dataset, **{**arrays, "edge_index": np.zeros((2, 0), dtype=np.int64)})
    train(dataset, run_dir=str(tmp_path / "run"), norm="batch", **SMALL)
    model = load_checkpoint(tmp_path / "run" / "last.pt")["model"]
    assert int(model["norms.0.module.num_batches_tracked"]) == 8  # two of the three steps of four epochs
    assert all(torch.isfinite(tensor).all() for tensor in model.values())


def test_c108_c126_batch_norm_and_missing_labels_on_two_processes_of_which_one_has_no_seed(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dataset = make(_several_labels())
    options = {**SMALL, "norm": "batch", "quiet": False}  # 129 seeds, 64 a step: the last one is rank 1's
    result = train(dataset, run_dir=str(tmp_path / "run"), procs=2, **{**options, "batch_size": 32, "epochs": 6})
    assert result.num_procs == 2
    assert result.test["rocauc"] > 0.6
    assert result.test["num_nodes"] == 40
    assert [event["num_nodes"] for event in _events(tmp_path / "run", "val")] == [31] * 6
    assert "the running statistics are averaged" in capfd.readouterr().out
    model = load_checkpoint(tmp_path / "run" / "last.pt")["model"]
    assert all(torch.isfinite(tensor).all() for tensor in model.values())


def test_tensorboard_events_where_it_is_installed(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[Any, ...]] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            written.append(("open", folder, purge_step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("close",))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=SummaryWriter))
    monkeypatch.setattr(events, "find_spec", lambda name: name)
    options = {**SMALL, "run_dir": str(tmp_path / "run")}
    dataset = make(np.random.default_rng(3).integers(0, 3, 200))
    train(dataset, **{**options, "epochs": 2})
    assert written[0] == ("open", str(tmp_path / "run" / "tensorboard"), 1)
    assert written[-1] == ("close",)
    (first,) = (event for event in _events(tmp_path / "run", "val") if event["epoch"] == 1)
    assert ("val/accuracy", first["accuracy"], 1) in written
    assert {"epoch/loss", "val/f1_macro", "test/accuracy"} <= {name for name, *_ in written}
    written.clear()
    train(dataset, resume=True, **{**options, "epochs": 3})
    assert written[0] == ("open", str(tmp_path / "run" / "tensorboard"), 3)
    assert {step for name, *rest in written if name == "epoch/loss" for step in rest[1:]} == {3}


def _data(dataset: str) -> Data:
    arrays = {name: torch.from_numpy(array) for name, array in np.load(dataset).items()}
    data = Data(x=arrays["x"], y=arrays["y"], edge_index=arrays["edge_index"])
    for split in ("train", "val", "test"):
        mask = torch.zeros(200, dtype=torch.bool)
        mask[arrays[f"{split}_idx"]] = True
        data[f"{split}_mask"] = mask
    return data


def test_a_pyg_data_is_trained_as_it_is_with_one_process_and_with_two(make: Make, tmp_path: Path) -> None:
    data = _data(make(np.random.default_rng(3).integers(0, 3, 200)))
    before = data.clone()
    options = {**SMALL, "normalize_features": True, "epochs": 2}
    alone = train(data, run_dir=str(tmp_path / "alone"), **options)
    assert (alone.test["num_nodes"], alone.metric) == (40, "accuracy")
    assert torch.equal(data.x, before.x)
    two = train(data, run_dir=str(tmp_path / "two"), procs=2, **{**options, "batch_size": 32})
    assert two.num_procs == 2
    for ours, theirs in zip(_events(tmp_path / "two", "epoch"), _events(tmp_path / "alone", "epoch"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    with pytest.raises(DatasetError, match="given in Python"):
        predict(tmp_path / "two")
    assert predict(tmp_path / "two", data=data).shape == (40, 3)
    longer = train(data, run_dir=str(tmp_path / "alone"), resume=True, **{**options, "epochs": 3})
    assert longer.epochs == 3


def test_other_objects_given_to_train_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for wrong in (HeteroData(), {"x": 1}, Data(x=torch.ones(2, 1)), [Data()]):
        for procs in (None, 2):
            with pytest.raises(DatasetError):
                train(wrong, gpus="0", procs=procs)
    assert not any(tmp_path.iterdir())
