"""A run of many graphs: what it was to take in memory beside what it took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pygsage.config import TrainConfig
from pygsage.training.launch import train


def test_a_run_of_many_graphs_is_estimated_says_so_and_notes_what_it_took(
    recipe_of_graphs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"gpus": "0", "epochs": 1, "hidden": 8, "batch_size": 16, "fanouts": (5, 5), "split": "random:.6/.2/.2"}
    found = train(TrainConfig(recipe_of_graphs, run_dir=str(tmp_path / "run"), **options))
    assert found.estimated_peak_bytes
    assert "memory: In memory: needs" in capsys.readouterr().out
    told = json.loads((tmp_path / "run" / "memory.json").read_text())
    assert told["storage"] == "memory"
    for kind in ("estimated", "measured"):
        assert {"read", "process", "train", "evaluate"} <= set(told["of_first_rank"][f"{kind}_bytes"])
    # The store is there now: nothing is made again, from disk, with the same result.
    again = train(TrainConfig(recipe_of_graphs, run_dir=str(tmp_path / "disk"), storage="disk", **options))
    assert "memory: On disk, as --storage says" in capsys.readouterr().out
    told = json.loads((tmp_path / "disk" / "memory.json").read_text())
    assert told["storage"] == "disk"
    assert "process" not in told["of_first_rank"]["measured_bytes"]
    assert again.val == found.val
