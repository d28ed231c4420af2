"""Promise 2 for whole graphs: one process and many take the same step."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from pygsage import to_on_disk_dataset
from pygsage.distributed import World
from pygsage.training.processes import run_ranks

SCRIPT = Path(__file__).parent / "ranks" / "first_graph_step.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("first_graph_step", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def store(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    for x, backend in (("numbers", "columnar"), ("categories", "sqlite")):
        to_on_disk_dataset(script.graphs(x), folder / x, backend)
    return folder


@pytest.fixture(scope="module")
def alone(script: ModuleType, store: Path) -> list[dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return script.first_steps(World(), store)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("num_procs", [2, 3])
def test_c094_same_loss_and_gradients_as_one_process(
    num_procs: int, script: ModuleType, store: Path, alone: list[dict[str, Any]], tmp_path: Path
) -> None:
    """One graph on three ranks, graphs without nodes or edges, and missing labels among the cases."""
    run_ranks([sys.executable, str(SCRIPT), str(store), str(tmp_path / "steps.pt")], num_procs)
    together = torch.load(tmp_path / "steps.pt", weights_only=True)
    wrong = []
    for case, ours, expected in zip(script.CASES, together, alone, strict=True):
        bound = 1e-6 if case.dtype == torch.float32 else 1e-12
        assert ours["weight"] == expected["weight"]
        if not abs(ours["loss"] - expected["loss"]) <= bound * abs(expected["loss"]):
            wrong.append((case, "loss", ours["loss"], expected["loss"]))
        assert ours["scores"] == pytest.approx(
            expected["scores"], rel=1e-5, nan_ok=True
        )  # c116, c117: each counts once
        assert ours["scores"]["num_graphs"] == case.num_graphs
        for name, gradient in expected["gradients"].items():
            difference = float((ours["gradients"][name] - gradient).norm())
            if not difference <= bound * float(gradient.norm()):
                wrong.append((case, name, difference / float(gradient.norm())))
    assert not wrong


def test_the_comparison_is_of_gradients_that_are_there(alone: list[dict[str, Any]], script: ModuleType) -> None:
    """Guards the test above: all parameters learn, and missing labels are not counted."""
    for case, step in zip(script.CASES, alone, strict=True):
        if case.num_graphs == script.NUM_GRAPHS:
            assert all(float(gradient.norm()) > 0 for gradient in step["gradients"].values())
            if case.labels in ("multilabel", "regression"):
                assert case.num_graphs < step["weight"] < case.num_graphs * script.NUM_TARGETS
