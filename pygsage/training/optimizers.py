"""The optimiser and how its learning rate changes."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from pygsage.config import TrainConfig

PLATEAU_PATIENCE = 5  # evaluations without a better score before the rate is halved


def build_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Adam with an L2 penalty (Kingma and Ba, "Adam", 2015)."""
    return torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)


def build_scheduler(
    config: TrainConfig, optimizer: torch.optim.Optimizer, steps_an_epoch: int, lower_is_better: bool
) -> LambdaLR | ReduceLROnPlateau | None:
    """The schedule of `--scheduler`; its `state_dict` is part of a checkpoint.

    `cosine` is stepped after each training step: lr (1 + cos(pi t / T)) / 2 at step t of T planned ones (Loshchilov
    and Hutter, "SGDR", 2017), as a function of t alone, so that a run with more epochs goes on with its longer curve.
    `plateau` is stepped with the validation score after each evaluation.
    """
    if config.scheduler == "cosine":
        planned = config.epochs * steps_an_epoch
        total = min(planned, config.max_steps or planned)
        return LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * min(step, total) / total)) / 2)
    if config.scheduler == "plateau":
        return ReduceLROnPlateau(
            optimizer, mode="min" if lower_is_better else "max", factor=0.5, patience=PLATEAU_PATIENCE
        )
    return None
