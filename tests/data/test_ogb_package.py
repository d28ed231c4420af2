"""OGB's table and evaluators, without the habits of its package."""

from __future__ import annotations

import math
import socket
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch

from pygsage.data.names import _OGB_DEFAULTS
from pygsage.data.ogb_package import ogb_entry, ogb_scores
from pygsage.errors import DatasetError, EnvironmentLimitError


def test_the_table() -> None:
    entries = {name: ogb_entry(name) for name in _OGB_DEFAULTS}
    arxiv = entries["ogbn-arxiv"]
    assert (arxiv.folder, arxiv.zip_folder, arxiv.release_file) == ("ogbn_arxiv", "arxiv", "RELEASE_v1.txt")
    assert [name for name, entry in entries.items() if entry.add_inverse_edge] == ["ogbn-products", "ogbn-proteins"]
    assert [name for name, entry in entries.items() if entry.is_binary] == ["ogbn-papers100M"]
    assert [name for name, entry in entries.items() if entry.is_hetero] == ["ogbn-mag"]
    assert entries["ogbn-proteins"].num_tasks == 112
    with pytest.raises(DatasetError, match="knows no dataset ogbn-nothing"):
        ogb_entry("ogbn-nothing")


def test_without_ogb_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pygsage.data.ogb_package.find_spec", lambda _: None)
    with pytest.raises(EnvironmentLimitError, match="Type pip install ogb"):
        ogb_entry("ogbn-arxiv")


def test_c133_scores_are_ogbs_own_and_start_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self), start(self)))
    monkeypatch.setattr(socket, "socket", None)
    y, scores = torch.arange(47) % 5, torch.rand(47, 5)
    right = int((scores.argmax(1) == y).sum())
    for labels in (y, y[:, None], y.float()):
        assert ogb_scores("ogbn-products", labels, scores) == {"acc": right / 47}
    assert ogb_scores("ogbn-products", y, scores.bfloat16()).keys() == {"acc"}
    assert "outdated" not in sys.modules
    from ogb.nodeproppred import Evaluator

    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(0, 2, (60, 112)).astype(np.float32), rng.random((60, 112))
    y_true[rng.random(y_true.shape) < 0.1] = np.nan
    wanted = Evaluator("ogbn-proteins").eval({"y_true": y_true, "y_pred": y_pred})
    assert ogb_scores("ogbn-proteins", torch.from_numpy(y_true), torch.from_numpy(y_pred)) == wanted
    assert not [thread for thread in started if "ogb" in str(getattr(thread, "_target", ""))]


def test_a_score_that_is_not_defined_is_nan() -> None:
    ones = torch.ones(5, 112)
    assert math.isnan(ogb_scores("ogbn-proteins", ones, ones)["rocauc"])


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DatasetError, match="has 112 labels a node for its rocauc; found labels .5, 3. and scores"):
        ogb_scores("ogbn-proteins", torch.ones(5, 3), torch.ones(5, 3))
    with pytest.raises(DatasetError, match="has 1 labels a node for its acc"):
        ogb_scores("ogbn-arxiv", torch.ones(4), torch.ones(5, 3))
