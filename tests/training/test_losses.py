from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pygsage.config import TrainConfig
from pygsage.data.one_graph.graph import Graph
from pygsage.training.losses import Loss, build_loss

NAN = float("nan")


def _graph(y: torch.Tensor, num_classes: int) -> Graph:
    none = torch.zeros(0, dtype=torch.int64)
    indptr, splits = torch.zeros(len(y) + 1, dtype=torch.int64), {"train": torch.arange(6)}
    return Graph("g", indptr, none, none, torch.zeros(len(y), 1), y, splits, num_classes)


def test_class_weights_are_those_of_scikit_learn_and_their_mean_is_one() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    y = torch.tensor([0, 0, 0, 0, 2, 2, 1, 1])  # class 1 is not among the six training nodes
    loss = build_loss(TrainConfig(class_weights=True), _graph(y, 3))
    assert loss.class_weights is not None
    balanced = compute_class_weight("balanced", classes=np.array([0, 2]), y=y[:6].numpy())
    assert loss.class_weights.tolist() == pytest.approx([balanced[0], 0.0, balanced[1]])
    weights = loss.row_weights(y[:6])
    assert weights is not None
    assert float(weights.mean()) == pytest.approx(1.0)
    scores = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    expected = F.cross_entropy(scores, y[:6], loss.class_weights)
    assert float(loss(scores, y[:6]) / weights.sum()) == pytest.approx(float(expected))


def test_without_weights_each_row_counts_as_one() -> None:
    assert build_loss(TrainConfig(), _graph(torch.zeros(6, dtype=torch.int64), 1)).row_weights(torch.zeros(6)) is None


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_c103_missing_labels_have_no_loss_and_no_gradient(task: str) -> None:
    scores = torch.tensor([[0.5, -1.0], [2.0, 3.0], [1.0, 1.0]], requires_grad=True)
    y = torch.tensor([[1.0, NAN], [NAN, NAN], [0.0, 1.0]])
    loss = Loss(task)
    total = loss(scores, y)
    pairs = torch.tensor([[0.5, 1.0], [1.0, 0.0], [1.0, 1.0]])  # score and label
    if task == "multilabel":
        expected = F.binary_cross_entropy_with_logits(*pairs.t(), reduction="sum")
    else:
        expected = (pairs[:, 0] - pairs[:, 1]).square().sum()
    assert total.item() == pytest.approx(expected.item())
    total.backward()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert not scores.grad[1].any()
    assert scores.grad[0, 1] == 0.0
    weights = loss.row_weights(y)
    assert weights is not None
    assert weights.tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize("task", ["classes", "multilabel", "regression"])
def test_no_rows_give_zero_that_depends_on_the_scores(task: str) -> None:
    scores = torch.zeros(0, 2, requires_grad=True)
    total = Loss(task)(scores, torch.zeros(0, dtype=torch.int64) if task == "classes" else torch.zeros(0, 2))
    total.backward()
    assert total.item() == 0.0
    assert scores.grad is not None
