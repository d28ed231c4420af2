"""A hard memory cap, set by a control group: a graph that does not fit under it is built on disk and trained on."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "bench" / "memory_cap.py"
MIB = 1 << 20


@pytest.fixture
def memory_cap() -> Any:
    spec = spec_from_file_location("memory_cap", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        with module.memory_group(64 * MIB):
            pass
    except SystemExit as error:
        pytest.skip(str(error))
    return module


def test_c006_a_graph_larger_than_the_cap_trains_from_disk_and_is_not_killed(memory_cap: Any, tmp_path: Path) -> None:
    memory_cap.write_graph(tmp_path / "large.npz", 320 * MIB, 1_000_000, "float16")
    words = ["train", "large.npz", "--run-dir", "run", "--json", "--gpus", "0", "--fanouts", "4,4", "--hidden", "8"]
    words += ["--batch-size", "128", "--max-steps", "5"]
    ended = memory_cap.under_cap([sys.executable, "-m", "pygsage", *words], 512 * MIB, tmp_path)
    assert ended["status"] == 0, ended
    assert "On disk: needs" in ended["chosen"]
    assert "over 50%" in ended["chosen"]
    told = json.loads((tmp_path / "run" / "memory.json").read_text())
    assert told["storage"] == "disk"
    assert told["of_first_rank"]["measured_bytes"]["peak"] < 512 * MIB
    assert (tmp_path / "large.npz.pygsage" / "plain" / "manifest.json").is_file()
