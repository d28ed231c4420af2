from __future__ import annotations

import pytest
import torch

from pygsage.distributed import World
from pygsage.training.ogb import ogb_metric, score_with_ogb


def test_ogbs_evaluator_scores_ogbs_datasets_and_no_others() -> None:
    assert [ogb_metric(name) for name in ("ogbn-arxiv", "ogbn-proteins", "digits")] == ["ogb_acc", "ogb_rocauc", None]
    y, scores = torch.tensor([0, 1, 2, -1]), torch.tensor([[3.0, 0, 0], [0, 2, 1], [1, 0, 0], [0, 0, 0]])
    nodes = torch.tensor([2, 0, 1])
    assert score_with_ogb("ogbn-arxiv", y[nodes], scores[nodes], World()) == {"ogb_acc": pytest.approx(2 / 3)}
    assert score_with_ogb("digits", y, scores, World()) == {}
