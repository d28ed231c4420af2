from __future__ import annotations

import pytest
import torch

from pygsage.distributed import World
from pygsage.training.ogb import OgbScores, ogb_metric


def test_ogbs_evaluator_scores_ogbs_datasets_and_no_others() -> None:
    assert [ogb_metric(name) for name in ("ogbn-arxiv", "ogbn-proteins", "digits")] == ["ogb_acc", "ogb_rocauc", None]
    y, scores = torch.tensor([0, 1, 2, -1]), torch.tensor([[3.0, 0, 0], [0, 2, 1], [1, 0, 0], [0, 0, 0]])
    nodes = torch.tensor([2, 0, 1])
    for pieces in (3, 1):
        official, none = OgbScores("ogbn-arxiv"), OgbScores("digits")
        for some in nodes.split(pieces):
            for counter in (official, none):
                counter.update(scores[some], y[some])
        assert official.compute(World()) == {"ogb_acc": pytest.approx(2 / 3)}
        assert none.compute(World()) == {}
