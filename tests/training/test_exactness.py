"""Promise 2: one process and many take the same step."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from pygsage.distributed import World
from pygsage.training.processes import run_ranks

SCRIPT = Path(__file__).parent / "ranks" / "first_step.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("first_step", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def alone(script: ModuleType) -> list[dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return script.first_steps(World())
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("num_procs", [2, 3, 4])
def test_c094_same_loss_and_gradients_as_one_process(
    num_procs: int, script: ModuleType, alone: list[dict[str, Any]], tmp_path: Path
) -> None:
    run_ranks([sys.executable, str(SCRIPT), str(tmp_path / "steps.pt")], num_procs)
    together = torch.load(tmp_path / "steps.pt", weights_only=True)
    assert_same(script.CASES, together, alone)


@pytest.mark.parametrize("num_procs", [2, 4])
def test_same_loss_and_gradients_where_the_features_are_on_two_machines(
    num_procs: int, script: ModuleType, alone: list[dict[str, Any]], tmp_path: Path
) -> None:
    run_ranks([sys.executable, str(SCRIPT), str(tmp_path / "steps.pt"), str(tmp_path / "parts")], num_procs)
    together = torch.load(tmp_path / "steps.pt", weights_only=True)
    assert_same(script.IN_PARTS, together, [alone[script.CASES.index(case)] for case in script.IN_PARTS])
    for case, step in zip(script.IN_PARTS, together, strict=True):
        hits, misses = step["cache"]
        assert misses > 0
        assert (hits > 0) == (case.num_seeds > 5)


def assert_same(cases: list[Any], together: list[dict[str, Any]], alone: list[dict[str, Any]]) -> None:
    wrong = []
    for case, ours, expected in zip(cases, together, alone, strict=True):
        bound = 1e-6 if case.dtype == torch.float32 else 1e-12
        assert ours["weight"] == expected["weight"]  # known labels, or the sum of class weights, of all ranks
        if abs(ours["loss"] - expected["loss"]) > 1e-6 * abs(expected["loss"]):
            wrong.append((case, "loss", ours["loss"], expected["loss"]))
        for name, gradient in expected["gradients"].items():
            difference = float((ours["gradients"][name] - gradient).norm() / gradient.norm())
            if not difference <= bound:
                wrong.append((case, name, difference))
    assert not wrong


def test_dropout_and_the_draw_matter_to_the_comparison(script: ModuleType, alone: list[dict[str, Any]]) -> None:
    """Guards the test above: other masks or neighbours would be seen."""
    losses = {case: step["loss"] for case, step in zip(script.CASES, alone, strict=True)}
    deep, shallow = (10, 10, 10), (3, 7)
    assert losses["classes", 4097, deep, 0.5, torch.float64] != pytest.approx(
        losses["classes", 4097, deep, 0.0, torch.float64], rel=1e-4
    )
    assert losses["classes", 4097, deep, 0.0, torch.float64] != pytest.approx(
        losses["classes", 4097, shallow, 0.0, torch.float64], rel=1e-4
    )
    assert losses["weighted", 4097, shallow, 0.5, torch.float64] != pytest.approx(
        losses["classes", 4097, shallow, 0.5, torch.float64], rel=1e-4
    )


def test_missing_labels_are_spread_unevenly(script: ModuleType, alone: list[dict[str, Any]]) -> None:
    """Guards the test above: a mean over the nodes, or a mean of the ranks' means, would be seen."""
    for case, step in zip(script.CASES, alone, strict=True):
        if case.labels == "multilabel":
            assert case.num_seeds <= step["weight"] < case.num_seeds * script.NUM_TARGETS
