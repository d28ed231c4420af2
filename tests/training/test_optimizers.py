from __future__ import annotations

import math

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from pygsage.config import TrainConfig
from pygsage.training.optimizers import PLATEAU_PATIENCE, build_optimizer, build_scheduler


@pytest.mark.parametrize(("max_steps", "total"), [(None, 20), (8, 8), (100, 20)])
def test_cosine_falls_from_the_rate_to_zero_over_all_planned_steps(max_steps: int | None, total: int) -> None:
    config = TrainConfig(scheduler="cosine", epochs=4, lr=0.1, max_steps=max_steps)
    optimizer = build_optimizer(config, torch.nn.Linear(1, 1))
    scheduler = build_scheduler(config, optimizer, 5, lower_is_better=False)
    assert isinstance(scheduler, LambdaLR)
    for step in range(total + 1):
        expected = 0.05 * (1 + math.cos(math.pi * step / total))
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, abs=1e-12)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("lower_is_better", [False, True])
def test_plateau_halves_the_rate_when_the_score_gets_no_better(lower_is_better: bool) -> None:
    config = TrainConfig(scheduler="plateau", lr=0.1)
    optimizer = build_optimizer(config, torch.nn.Linear(1, 1))
    scheduler = build_scheduler(config, optimizer, 5, lower_is_better)
    assert isinstance(scheduler, ReduceLROnPlateau)
    better = -1.0 if lower_is_better else 1.0
    for score in (5.0, 5.0 + better, *[5.0] * PLATEAU_PATIENCE):
        scheduler.step(score)
        assert optimizer.param_groups[0]["lr"] == 0.1
    scheduler.step(float("nan"))  # a score that is not defined is no better
    assert optimizer.param_groups[0]["lr"] == 0.05
