"""Every placement takes the same steps: on a device that is pretended (`pretended.py`), and on a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pygsage
from pygsage.cli.main import main
from pygsage.config import TrainConfig
from pygsage.distributed import World
from pygsage.errors import ConfigError, EnvironmentLimitError
from pygsage.sampling.transfer import Copy, ImmediateStream
from pygsage.training.launch import dry_run, train
from pygsage.training.rank import train_rank
from tests.training import pretended

OPTIONS: dict[str, Any] = {"fanouts": (4, 3), "hidden": 16, "batch_size": 24, "epochs": 2, "quiet": True}
PLACEMENTS = [
    {"placement": "cpu-cuda"},
    {"placement": "pinned-cuda"},
    {"placement": "cuda-cuda"},
    {"placement": "cpu-cuda", "gpu_cache_size": "1KiB"},
    {"placement": "pinned-cuda", "gpu_cache_size": "1KiB"},
]
MODELS: list[dict[str, Any]] = [
    {},
    {"norm": "batch", "class_weights": True, "scheduler": "cosine"},
    {"norm": "layer", "aggr": "max", "scheduler": "plateau", "fanouts": (3, 3, 3)},
    {"precision": "bf16", "aggr": "sum"},
]
# Loading weights to the device is said to be impossible for what it is not.
pytestmark = pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")


class ToPretended(ImmediateStream):
    """Threads of the sampler know nothing of the pretence."""

    def copy(self, source: Tensor) -> tuple[Tensor, Copy]:
        arrived, copy = ImmediateStream(torch.device("cpu")).copy(source)
        return pretended.There(arrived), copy


@pytest.fixture
def graph(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 150)
    x = np.eye(3, dtype=np.float32)[y] + rng.normal(0, 1, (150, 3)).astype(np.float32)
    order = rng.permutation(150)
    splits = {"train_idx": order[:80], "val_idx": order[80:115], "test_idx": order[115:]}
    np.savez(tmp_path / "graph.npz", x=x, edge_index=rng.integers(0, 150, (2, 700)), y=y, **splits)
    return str(tmp_path / "graph.npz")


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Trains on the pretended device and returns the run directory."""

    monkeypatch.setattr("pygsage.sampling.placement.copy_stream", ToPretended)
    monkeypatch.setattr("pygsage.memory.answer.gpus_of_driver", lambda: 1)
    monkeypatch.setattr("pygsage.training.rank.free_on_gpus", lambda world: 8 << 30)

    def run(dataset: str, name: str, **options: Any) -> Path:
        config = TrainConfig(dataset, run_dir=str(tmp_path / name), **{**OPTIONS, **options})
        with pretended.pretended():
            train_rank(config, World(device=pretended.DEVICE))
        return tmp_path / name

    return run


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same(one: Path, other: Path, bound: float) -> None:
    """The same losses and scores, and weights that a build without CUDA reads."""
    for a, b in zip(lines(one), lines(other), strict=True):
        assert a["event"] == b["event"]
        assert a["loss"] == pytest.approx(b["loss"], rel=bound)
        if bound < 1e-3 and a["event"] != "epoch":
            assert a["accuracy"] == b["accuracy"]
    weights = [torch.load(run / "best.pt", weights_only=True)["model"] for run in (one, other)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], rtol=100 * bound, atol=100 * bound)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: "-".join(map(str, model.values())) or "plain")
def test_all_placements_take_the_same_steps(
    model: dict[str, Any], graph: str, there: Callable[..., Path], tmp_path: Path
) -> None:
    train(graph, gpus="0", run_dir=str(tmp_path / "cpu"), **{**OPTIONS, **model})
    for number, placement in enumerate(PLACEMENTS):
        run = there(graph, f"there-{number}", **model, **placement)
        assert_same(tmp_path / "cpu", run, 1e-2 if "precision" in model else 2e-6)
        epochs = [line for line in lines(run) if line["event"] == "epoch"]
        for line in epochs:
            assert ("cache_hit_rate" in line) == ("gpu_cache_size" in placement)
            assert line["copy"] > 0
        if "gpu_cache_size" in placement:
            assert all(line["cache_hits"] and line["cache_misses"] for line in epochs)


@pytest.mark.parametrize("placement", ["cpu-cuda", "pinned-cuda"])
def test_many_graphs_are_sent_whole(
    placement: str, there: Callable[..., Path], tmp_path: Path, recipe_of_graphs: str
) -> None:
    options: dict[str, Any] = {"split": "random:.6/.2/.2", "batch_size": 8, "epochs": 1, "norm": "batch"}
    train(recipe_of_graphs, gpus="0", run_dir=str(tmp_path / "cpu"), **{**OPTIONS, **options})
    assert_same(tmp_path / "cpu", there(recipe_of_graphs, "there", placement=placement, **options), 2e-6)


def test_a_run_goes_on_elsewhere(graph: str, there: Callable[..., Path], tmp_path: Path) -> None:
    whole = there(graph, "whole", placement="cuda-cuda", epochs=3)
    there(graph, "half", placement="pinned-cuda", max_steps=6)
    there(graph, "half", placement="cuda-cuda", epochs=3, resume=True)
    assert_same(whole, tmp_path / "half", 2e-6)
    train(graph, run_dir=str(tmp_path / "half"), gpus="0", resume=True, **{**OPTIONS, "epochs": 4})
    assert lines(tmp_path / "half")[-1]["event"] == "test"
    assert pygsage.predict(tmp_path / "half").shape == (35, 3)


def test_regression_and_several_labels_there(there: Callable[..., Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(60, 2)).astype(np.float32)
    table[rng.random((60, 2)) < 0.2] = np.nan
    edges, x = rng.integers(0, 60, (2, 300)), rng.normal(size=(60, 4)).astype(np.float32)
    for name, y in (("values", table), ("labels", np.where(np.isnan(table), np.nan, table > 0).astype(np.float32))):
        np.savez(tmp_path / f"{name}.npz", x=x, edge_index=edges, y=y)
        options = {"split": "random:.6/.2/.2", "task": "regression" if name == "values" else "multilabel"}
        train(str(tmp_path / f"{name}.npz"), gpus="0", run_dir=str(tmp_path / f"{name}-cpu"), **OPTIONS, **options)
        run = there(str(tmp_path / f"{name}.npz"), f"{name}-there", placement="pinned-cuda", **options)
        for a, b in zip(lines(tmp_path / f"{name}-cpu"), lines(run), strict=True):
            assert a["loss"] == pytest.approx(b["loss"], rel=2e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: no GPU has run this")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: "-".join(map(str, model.values())) or "plain")
def test_all_placements_take_the_same_steps_on_a_gpu(model: dict[str, Any], graph: str, tmp_path: Path) -> None:
    train(graph, gpus="0", run_dir=str(tmp_path / "cpu"), **{**OPTIONS, **model})
    for number, placement in enumerate(PLACEMENTS):
        run = tmp_path / f"gpu-{number}"
        train(graph, gpus="1", run_dir=str(run), sampler_threads=2, **{**OPTIONS, **model}, **placement)
        # Sums of another order, over two epochs of steps.
        assert_same(tmp_path / "cpu", run, 3e-2 if "precision" in model else 1e-4)


def test_what_does_not_fit_is_refused_before_anything_is_made(
    graph: str, there: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pygsage.training.rank.free_on_gpus", lambda world: 400 << 20)
    for options, advice in (
        ({"placement": "cuda-cuda"}, "Leave --placement out"),
        ({"gpu_cache_size": "1GiB"}, "smaller --gpu-cache-size than 1GiB"),
        ({}, "--gpus 0"),
    ):
        with pytest.raises(
            EnvironmentLimitError, match=rf"does not fit\..* over 90% of the 400.0 MiB.*{advice}"
        ) as found:
            there(graph, "none", **options)
        assert found.value.exit_status == 4
    assert [path.name for path in tmp_path.iterdir()] == ["graph.npz"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--placement", "cuda-cuda"], "--placement cuda-cuda needs a GPU, and torch finds none"),
        (["--gpu-cache-size", "1GiB"], "--gpu-cache-size needs a GPU, and torch finds none"),
        (["--gpus", "0", "--placement", "pinned-cuda"], "needs a GPU, and --gpus is 0"),
        (["--gpus", "2", "--placement", "cpu-cpu"], "computes on the CPU, and --gpus 2 asks for GPUs"),
        (["--placement", "cuda-cuda", "--gpu-cache-size", "1GiB"], "holds all features on the GPU"),
        (["--gpu-cache-size", "much"], "expected a size"),
    ],
)
def test_placements_without_a_gpu_are_refused(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_many_graphs_hold_no_features_on_a_gpu(there: Callable[..., Path], recipe_of_graphs: str) -> None:
    options: dict[str, Any] = {"split": "random:.6/.2/.2", "batch_size": 8}
    with pytest.raises(ConfigError, match=r"cuda-cuda is for one graph.*Type --placement pinned-cuda"):
        there(recipe_of_graphs, "none", placement="cuda-cuda", **options)
    with pytest.raises(ConfigError, match="--gpu-cache-size is for one graph"):
        there(recipe_of_graphs, "none", gpu_cache_size="1MiB", **options)


def test_cpu_cpu_takes_no_gpu_and_a_dry_run_says_the_placement(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("pygsage.memory.answer.gpus_of_driver", lambda: 2)
    monkeypatch.setattr("pygsage.memory.answer.read_gpus", list)
    said = dry_run(TrainConfig(graph, **OPTIONS))
    assert said[0].startswith("placement: pinned-cuda: needs ")
    assert said[0].endswith("of a GPU; what is free there is not known.")
    assert said[-2].endswith("devices: cuda:0, cuda:1")
    said = dry_run(TrainConfig(graph, placement="cpu-cpu", **OPTIONS))
    assert "placement" not in said[0]
    assert said[-2].endswith("devices: cpu")
