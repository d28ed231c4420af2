"""Scores over any number of ranks in which every node counts once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    multiclass_stat_scores,
    multilabel_stat_scores,
)

from pygsage.config import TrainConfig
from pygsage.distributed import World
from pygsage.errors import ConfigError
from pygsage.training.problem import Labelled

_SCORED_VALUES = 1 << 20  # at once: bounds the memory of a metric over millions of nodes


class Scores(Protocol):
    """Takes a rank's nodes batch by batch and gives the scores over the nodes of all ranks."""

    def update(self, scores: Tensor, y: Tensor) -> None:
        """Adds nodes with outputs [n, C] (any float) and labels as the graph has them; n may be zero."""

    def compute(self, world: World | None = None) -> dict[str, float]:
        """The scores over all ranks, the same on each; every rank has to call it, also one without nodes."""


def scored_rows(width: int) -> int:
    """How many rows of so many outputs are scored at once."""
    return max(1, _SCORED_VALUES // max(1, width))


def build_scores(data: Labelled) -> Scores:
    """The scores of the task of a dataset, with nothing counted yet."""
    if data.task == "classes":
        return ClassificationScores(data.num_classes)
    return MultilabelScores(data.num_outputs) if data.task == "multilabel" else RegressionScores()


def choose_metric(config: TrainConfig, data: Labelled, ogb_metric: str | None = None) -> str:
    """The score that chooses the best epoch: `--metric`, or for `auto` the task's own.

    Args:
        ogb_metric: `ogb_acc` or `ogb_rocauc` for a dataset of OGB's, whose own score then is the one for `auto`.

    Raises:
        ConfigError: when the task has no such score.
    """
    ranking = ["rocauc", "ap"] if data.num_classes == 2 else []
    known = {
        "classes": ["accuracy", "f1_micro", "f1_macro", *ranking, "loss"],
        "multilabel": ["rocauc", "ap", "f1_micro", "f1_macro", "loss"],
        "regression": ["rmse", "mae", "loss"],
    }[data.task]
    if ogb_metric:
        known = [ogb_metric, *known]
    if config.metric == "auto":
        return known[0]
    if config.metric not in known:
        labels = f"{data.num_classes} classes" if data.task == "classes" else f"the task {data.task}"
        raise ConfigError(
            f"--metric is {config.metric}, and {data.name} has {labels}; expected one of {', '.join(known)}."
        )
    return config.metric


class ClassificationScores:
    """Accuracy, F1 and mean cross-entropy from per-class counts that add up over batches and ranks.

    Args:
        num_classes: Number of classes, C. With two there are also `rocauc` and `ap` of the second against the first.

    Cost: 40 bytes a class, whatever the number of nodes. With two classes 12 bytes a node besides, over all ranks.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self._counts = torch.zeros(num_classes, 5, dtype=torch.int64)  # tp, fp, tn, fn, support
        self._loss_sum = torch.zeros(1, dtype=torch.float64)
        self._ranking = _Ranking(1) if num_classes == 2 else None

    def update(self, scores: Tensor, y: Tensor) -> None:
        """Adds nodes with class scores [n, C] (any float) and labels int64 [n]; n may be zero."""
        for part, labels in _pieces(scores, y):
            self._counts += self._count(part.argmax(dim=-1), labels)
            self._loss_sum += F.cross_entropy(part.double(), labels, reduction="sum")
            if self._ranking is not None:
                self._ranking.update((part[:, 1] - part[:, 0]).unsqueeze(1), labels.unsqueeze(1).float())

    def _count(self, predicted: Tensor, y: Tensor) -> Tensor:
        if self.num_classes < 2:  # torchmetrics wants two classes at least
            counts: Tensor = multiclass_stat_scores(predicted, y, num_classes=2, average=None)
            return counts[:1]
        return multiclass_stat_scores(predicted, y, num_classes=self.num_classes, average=None)

    def compute(self, world: World | None = None) -> dict[str, float]:
        """`accuracy`, `f1_micro`, `f1_macro`, `loss` and `num_nodes`, and for two classes `rocauc` and `ap`.

        Classes that occur neither among the labels nor among the predictions are left out of the macro average, as
        scikit-learn does. Scores that are not defined are NaN: all without any node, a ranking without both classes.
        """
        world = world or World()
        counts = world.sum_(self._counts.clone())
        loss_sum = world.sum_(self._loss_sum.clone())
        num_nodes = int(counts[:, 4].sum())
        micro, macro = _f1(counts)
        return {
            "accuracy": float(counts[:, 0].sum().double() / num_nodes) if num_nodes else math.nan,
            "f1_micro": micro,
            "f1_macro": macro,
            **(self._ranking.compute(world) if self._ranking is not None else {}),
            "loss": float(loss_sum / num_nodes),
            "num_nodes": num_nodes,
        }


class MultilabelScores:
    """ROC-AUC and average precision averaged over the labels, F1, mean binary cross-entropy; NaN labels are left out.

    Args:
        num_labels: Number of labels a node, C.

    Cost: 8 bytes a node and label over all ranks, on each rank: a ranking does not add up.
    """

    def __init__(self, num_labels: int) -> None:
        self.num_labels = num_labels
        self._counts = torch.zeros(num_labels, 5, dtype=torch.int64)
        self._sums = torch.zeros(3, dtype=torch.float64)  # loss, known labels, nodes
        self._ranking = _Ranking(num_labels)

    def update(self, scores: Tensor, y: Tensor) -> None:
        """Adds nodes with scores before the sigmoid and labels 0, 1 or NaN, both [n, C]; n may be zero."""
        for part, labels in _pieces(scores, y):
            known = ~torch.isnan(labels)
            target = torch.where(known, labels, -1.0).to(torch.int64)
            predicted = (part > 0).to(torch.int64)
            counts = multilabel_stat_scores(
                predicted,
                target,
                num_labels=self.num_labels,
                average=None,
                ignore_index=-1,
                validate_args=False,  # it counts a single label rightly, but would refuse it
            )
            self._counts += counts.reshape(-1, 5)
            loss = F.binary_cross_entropy_with_logits(part[known].double(), labels[known].double(), reduction="sum")
            self._sums += torch.tensor([float(loss), float(known.sum()), float(len(labels))], dtype=torch.float64)
            self._ranking.update(part, labels)

    def compute(self, world: World | None = None) -> dict[str, float]:
        """`rocauc`, `ap`, `f1_micro`, `f1_macro`, `loss` and `num_nodes`.

        `rocauc` and `ap` are means over the labels of which both values are known, as OGB takes them; NaN without.
        """
        world = world or World()
        counts, sums = world.sum_(self._counts.clone()), world.sum_(self._sums.clone())
        micro, macro = _f1(counts)
        loss = float(sums[0] / sums[1])
        ranking = self._ranking.compute(world)
        return {**ranking, "f1_micro": micro, "f1_macro": macro, "loss": loss, "num_nodes": int(sums[2])}


class RegressionScores:
    """Mean absolute error, root of the mean squared error, and its square as `loss`, over all known labels.

    Cost: 32 bytes, whatever the number of nodes.
    """

    def __init__(self) -> None:
        nothing = torch.empty(0, dtype=torch.float64)
        self._absolute = MeanAbsoluteError().set_dtype(torch.float64)
        self._squared = MeanSquaredError().set_dtype(torch.float64)
        for metric in (self._absolute, self._squared):
            metric.update(nothing, nothing)  # it warns when a rank without nodes asks for the result
        self._num_nodes = torch.zeros(1, dtype=torch.int64)

    def update(self, scores: Tensor, y: Tensor) -> None:
        """Adds nodes with predicted and true values, both [n, C], NaN where a true one is missing; n may be zero."""
        for part, labels in _pieces(scores, y):
            known = ~torch.isnan(labels)
            predicted, target = part[known].double(), labels[known].double()
            self._absolute.update(predicted, target)
            self._squared.update(predicted, target)
            self._num_nodes += len(labels)

    def compute(self, world: World | None = None) -> dict[str, float]:
        """`mae`, `rmse`, `loss` and `num_nodes`; NaN without any known label."""
        world = world or World()
        mae, mse = (_over_ranks(metric, world) for metric in (self._absolute, self._squared))
        num_nodes = int(world.sum_(self._num_nodes.clone()))
        return {"mae": mae, "rmse": math.sqrt(mse) if mse == mse else mse, "loss": mse, "num_nodes": num_nodes}


def _pieces(scores: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    rows = scored_rows(scores.shape[1])
    for start in range(0, len(y), rows):
        yield scores[start : start + rows], y[start : start + rows]


class _Ranking:
    """ROC-AUC and average precision of each column: not sums of parts, so that the rows of all ranks are gathered."""

    def __init__(self, num_columns: int) -> None:
        self._scores = [torch.empty(0, num_columns)]
        self._labels = [torch.empty(0, num_columns)]

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Adds float [n, columns] scores and labels 0, 1 or NaN."""
        self._scores.append(scores.detach().float().cpu())
        self._labels.append(labels.float().cpu())

    def compute(self, world: World) -> dict[str, float]:
        # In the place of the parts: they are not held twice.
        self._scores, self._labels = [torch.cat(self._scores)], [torch.cat(self._labels)]
        scores, labels = world.gather_rows(self._scores[0]), world.gather_rows(self._labels[0])
        found: list[tuple[float, float]] = []
        for column in range(scores.size(1)):
            known = ~torch.isnan(labels[:, column])
            target = labels[known, column].to(torch.int64)
            if 0 < int(target.sum()) < len(target):
                # Places in the order, because torchmetrics would squeeze scores outside 0..1 by a sigmoid: ties.
                order = torch.unique(scores[known, column], return_inverse=True)[1].double()
                order /= order.max().clamp(min=1)
                found.append((float(binary_auroc(order, target)), float(binary_average_precision(order, target))))
        if not found:
            return {"rocauc": math.nan, "ap": math.nan}
        rocauc, ap = (sum(values) / len(found) for values in zip(*found, strict=True))
        return {"rocauc": rocauc, "ap": ap}


def _f1(counts: Tensor) -> tuple[float, float]:
    """Micro and macro F1 of [C, 5] counts: tp, fp, tn, fn, support."""
    true_positive, false_positive, _, false_negative, _ = counts.double().unbind(dim=1)
    wrong = false_positive + false_negative
    seen = true_positive + wrong > 0
    macro = (2 * true_positive / (2 * true_positive + wrong))[seen].mean()
    micro = 2 * true_positive.sum() / (2 * true_positive.sum() + wrong.sum())
    return float(micro), float(macro)


def _over_ranks(metric: Metric, world: World) -> float:
    metric = metric.clone()  # so that it may go on counting
    for name, state in metric.metric_state.items():
        setattr(metric, name, world.sum_(torch.as_tensor(state).clone()))
    return float(metric.compute())
