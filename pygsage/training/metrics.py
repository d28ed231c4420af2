"""Scores over any number of ranks in which every node counts once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics.functional.classification import multiclass_stat_scores

from pygsage.distributed import World

_ROWS_AT_ONCE = 65_536  # bounds the memory of a metric over millions of nodes


class ClassificationScores:
    """Accuracy, macro F1 and mean cross-entropy from per-class counts that add up over batches and ranks.

    Args:
        num_classes: Number of classes, C.

    Cost: 40 bytes a class, whatever the number of nodes.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self._counts = torch.zeros(num_classes, 5, dtype=torch.int64)  # tp, fp, tn, fn, support
        self._loss_sum = torch.zeros(1, dtype=torch.float64)

    def update(self, scores: Tensor, y: Tensor) -> None:
        """Adds nodes with class scores [n, C] (any float) and labels int64 [n]; n may be zero."""
        for start in range(0, len(y), _ROWS_AT_ONCE):
            part, labels = scores[start : start + _ROWS_AT_ONCE], y[start : start + _ROWS_AT_ONCE]
            self._counts += self._count(part.argmax(dim=-1), labels)
            self._loss_sum += F.cross_entropy(part.double(), labels, reduction="sum")

    def _count(self, predicted: Tensor, y: Tensor) -> Tensor:
        if self.num_classes < 2:  # torchmetrics wants two classes at least
            counts: Tensor = multiclass_stat_scores(predicted, y, num_classes=2, average=None)
            return counts[:1]
        return multiclass_stat_scores(predicted, y, num_classes=self.num_classes, average=None)

    def compute(self, world: World | None = None) -> dict[str, float]:
        """The scores over all ranks, the same on each: `accuracy`, `f1_macro`, `loss` and `num_nodes`.

        Must be called on every rank, also on one that was given no nodes. Classes that occur neither among the
        labels nor among the predictions are left out of the macro average, as scikit-learn does. Without any
        node the scores are NaN.
        """
        counts, loss_sum = self._counts.clone(), self._loss_sum.clone()
        if world is not None:
            world.sum_(counts)
            world.sum_(loss_sum)
        true_positive, false_positive, _, false_negative, support = counts.double().unbind(dim=1)
        seen = true_positive + false_positive + false_negative > 0
        f1 = 2 * true_positive / (2 * true_positive + false_positive + false_negative)
        num_nodes = support.sum()
        return {
            "accuracy": float(true_positive.sum() / num_nodes),
            "f1_macro": float(f1[seen].mean()),
            "loss": float(loss_sum / num_nodes),
            "num_nodes": int(num_nodes),
        }
