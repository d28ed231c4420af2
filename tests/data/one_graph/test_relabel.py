"""Nodes with ids of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pygsage.config import TrainConfig
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open import open_graph
from pygsage.errors import DatasetError

Write = Callable[..., Path]
NO_MASKS: dict[str, Any] = {"train_mask": None, "val_mask": None, "test_mask": None}
FIVE: dict[str, Any] = {
    "x": np.arange(10.0).reshape(5, 2),
    "y": np.array([0, 1, 0, 1, 0]),
    "edge_index": np.array([[3, 4, 7, 9], [9, 12, 3, 4]]),
    **NO_MASKS,
}


def edges(graph: Graph) -> set[tuple[int, int]]:
    destinations = torch.arange(graph.num_nodes).repeat_interleave(graph.indptr.diff())
    return set(zip(graph.indices.tolist(), destinations.tolist(), strict=True))


def opened(path: Path, **options: Any) -> Graph:
    return open_graph(TrainConfig(dataset=str(path), **options))


def refused(path: Path, said: str, **options: Any) -> None:
    with pytest.raises(DatasetError, match=re.escape(said)):
        opened(path, **options)


def test_c033_ids_with_gaps_become_rows(ring_npz: Write, tmp_path: Path) -> None:
    path = ring_npz(**FIVE, train_idx=np.array([4, 12]))
    refused(path, "If nodes have ids of their own, with gaps, add --relabel.")
    graph = opened(path, relabel=True)
    assert edges(graph) == {(0, 3), (1, 4), (2, 0), (3, 1)}
    assert graph.splits["train"].tolist() == [1, 4]
    assert graph.node_id is not None
    assert graph.node_id.tolist() == [3, 4, 7, 9, 12]
    assert "Nodes have ids of their own, 3 to 12; they are numbered by the rows of x." in graph.notes
    graph.save(tmp_path / "saved")
    assert torch.equal(Graph.open(tmp_path / "saved").node_id, graph.node_id)


def test_c033_a_table_of_ids_says_which_row_is_whose(ring_npz: Write) -> None:
    path = ring_npz(**FIVE, node_id=np.array([[12], [9], [7], [4], [3]]), train_idx=np.array([12, 3]))
    graph = opened(path, relabel=True)
    assert edges(graph) == {(4, 1), (3, 0), (2, 4), (1, 3)}
    assert graph.splits["train"].tolist() == [0, 4]
    assert graph.node_id is not None
    assert graph.node_id.tolist() == [12, 9, 7, 4, 3]


def test_an_isolated_node_needs_the_table(ring_npz: Write) -> None:
    six = {**FIVE, "x": np.ones((6, 2)), "y": np.zeros(6, int)}
    refused(ring_npz(**six), "holds 5 different ids and x has 6 rows; expected one id a row", relabel=True)
    path = ring_npz(**six, node_id=np.array([3, 4, 7, 9, 12, -8]), train_idx=np.array([-8]))
    assert opened(path, relabel=True).splits["train"].tolist() == [5]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"node_id": np.arange(4)}, "node_id is [4] of int64; expected one whole number for each of 5 rows"),
        ({"node_id": np.arange(5.0)}, "node_id is [5] of float64"),
        ({"node_id": np.array([3, 4, 7, 9, 9])}, "node_id holds 9 more than once"),
        ({"node_id": np.array([3, 4, 7, 9, 13])}, "edge_index holds 12, which is no node's id (1 in all)"),
        ({"train_idx": np.array([5])}, "train_idx holds 5, which is no node's id"),
        ({"edge_index": np.ones((2, 3))}, "edge_index is of dtype float64"),
        ({"edge_index": np.empty((2, 0))}, "holds 0 different ids"),
    ],
)
def test_ids_that_do_not_fit_are_refused(ring_npz: Write, arrays: dict[str, Any], said: str) -> None:
    refused(ring_npz(**{**FIVE, **arrays}), said, relabel=True)


def test_a_table_that_is_not_asked_for_is_noted(ring_npz: Write) -> None:
    assert opened(ring_npz(node_id=np.arange(6))).notes == (
        "Not used: node_id; if edge_index holds such ids, add --relabel.",
    )
