"""What a step minimises: a sum over the seeds' known labels, divided by their number or weight over all ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pygsage.config import TrainConfig
from pygsage.training.problem import Labelled


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss of a task; calling it gives the sum over the rows, which adds up over batches and ranks.

    Args:
        task: `classes`: cross-entropy; `multilabel`: binary cross-entropy of each known label; `regression`: squared
            error of each known label.
        class_weights: float32 [C]: what a row of each class counts for; None counts each as one.
    """

    task: str
    class_weights: Tensor | None = None

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """The sum for scores [n, C] (any float) and labels as the graph has them, int64 [n] or float32 [n, C].

        With no rows it is zero and still depends on the scores.
        """
        if self.task == "classes":
            weights = self.class_weights
            return F.cross_entropy(
                scores, y, None if weights is None else weights.to(scores.device, scores.dtype), reduction="sum"
            )
        known = ~torch.isnan(y)
        y = torch.where(known, y, 0.0).to(scores.dtype)
        if self.task == "multilabel":
            return F.binary_cross_entropy_with_logits(scores, y, known.to(scores.dtype), reduction="sum")
        return torch.where(known, scores - y, 0.0).square().sum()

    def row_weights(self, y: Tensor) -> Tensor | None:
        """What each row counts for in a mean: float64 [n], or None when each counts as one."""
        if self.task != "classes":
            return (~torch.isnan(y)).sum(1).double()
        return None if self.class_weights is None else self.class_weights.double()[y]


def build_loss(config: TrainConfig, data: Labelled) -> Loss:
    """The loss of the task of a dataset.

    Class weights are n / (K * n_c) for a class with n_c of the n that are trained on and K classes among them, so that
    their mean over these is one (King and Zeng, "Logistic regression in rare events data", 2001).
    """
    if not config.class_weights:
        return Loss(data.task)
    counts = torch.bincount(data.y[data.splits["train"]], minlength=data.num_classes).double()
    found = counts > 0
    weights = torch.where(found, counts.sum() / (found.sum() * counts.clamp(min=1)), 0.0)
    return Loss(data.task, weights.float())
