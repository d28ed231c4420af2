"""A run notices that its dataset has changed, and only then."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import pygsage
from pygsage.config import TrainConfig
from pygsage.data.open_many import open_data
from pygsage.data.storage import choose_storage
from pygsage.errors import RunError
from pygsage.training.content import check_content, content_of
from pygsage.training.launch import train
from pygsage.training.run_folder import saved_config

OPTIONS: dict[str, Any] = {"gpus": "0", "fanouts": (2,), "hidden": 4, "batch_size": 16, "quiet": True}


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(0, 1, (60, 3)).astype(np.float16),
        "edge_index": rng.integers(0, 60, (2, 200)),
        "y": rng.integers(0, 3, 60),
        "train_idx": np.arange(30),
        "val_idx": np.arange(30, 45),
        "test_idx": np.arange(45, 60),
    }


def write(path: Path, **changes: np.ndarray) -> str:
    np.savez(path, **{**arrays(), **changes})
    return str(path)


def content(dataset: Any, storage: Any = "memory", **options: Any) -> int:
    config = TrainConfig(dataset=str(dataset), storage=storage, gpus="0", fanouts=(2,), hidden=4, **options)
    with ExitStack() as stack:
        return content_of(open_data(config, stack, storage=choose_storage(config, 1))[0])


def test_the_same_wherever_it_is_held_and_another_for_every_change(tmp_path: Path) -> None:
    first = content(write(tmp_path / "a.npz"))
    assert first == content(tmp_path / "a.npz", "disk") == content(write(tmp_path / "b.npz"))
    found = {first}
    for key, values in arrays().items():
        changed = values.copy()
        if key == "edge_index":
            changed[0, 7] = (changed[0, 7] + 1) % 60
        elif key.endswith("_idx"):
            changed = changed[:-1]
        else:
            changed[7] = (changed[7] + 1) % 3
        found.add(content(write(tmp_path / "c.npz", **{key: changed})))
    assert len(found) == 1 + len(arrays())


def test_of_many_graphs_whatever_the_backend(tmp_path: Path) -> None:
    made = [
        Data(x=torch.randn(4 + n % 3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([n % 2]))
        for n in range(20)
    ]
    found = []
    for backend in ("columnar", "sqlite"):
        pygsage.to_on_disk_dataset(made, tmp_path / backend, backend)
        found.append(content(tmp_path / backend, "disk", split="random:.6/.2/.2"))
    assert found[0] == found[1]
    made[7].x[0, 0] += 1
    pygsage.to_on_disk_dataset(made, tmp_path / "other")
    assert content(tmp_path / "other", "disk", split="random:.6/.2/.2") != found[0]


def test_going_on_and_predict_refuse_what_has_changed(tmp_path: Path) -> None:
    path, run = write(tmp_path / "graph.npz"), tmp_path / "run"
    train(path, epochs=1, storage="disk", run_dir=str(run), **OPTIONS)
    assert (saved_config(run) or {})["storage"] == "disk"
    os.utime(path, (1, 1))  # another time of change, and the same content
    train(path, epochs=2, run_dir=str(run), resume=True, **OPTIONS)
    expected = pygsage.predict(run, "test")
    write(tmp_path / "graph.npz", y=(arrays()["y"] + 1) % 3)
    said = "is not what the run .* was trained on: its labels, splits, edges or features have changed"
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match=said):
        train(path, epochs=3, run_dir=str(run), resume=True, **OPTIONS)
    assert (run / "metrics.jsonl").read_bytes() == before
    with pytest.raises(RunError, match=said):
        pygsage.predict(run, "test")
    write(tmp_path / "graph.npz")
    assert (pygsage.predict(run, "test") == expected).all()


def test_a_run_that_does_not_say_is_taken_as_it_is(tmp_path: Path) -> None:
    config = TrainConfig(dataset=write(tmp_path / "graph.npz"))
    with ExitStack() as stack:
        data, _ = open_data(config, stack)
    check_content(tmp_path, data)
    (tmp_path / "dataset.json").write_text("{")
    with pytest.raises(RunError, match=r"dataset.json' cannot be read"):
        check_content(tmp_path, data)
