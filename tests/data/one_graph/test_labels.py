from __future__ import annotations

from typing import Any

import pytest
import torch

from pygsage.data.one_graph.labels import Labels, check_targets
from pygsage.data.one_graph.raw import RawGraph
from pygsage.errors import DatasetError

NAN = float("nan")


def targets(y: Any, task: str = "auto", ignore_label: int | None = None) -> Labels:
    y = torch.as_tensor(y)
    return check_targets(RawGraph("g", "g.npz", None, None, y), len(y), task, ignore_label)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float64])
def test_whole_numbers_a_node_are_classes(dtype: torch.dtype) -> None:
    for shape in ((4,), (4, 1)):
        labels = targets(torch.tensor([0, 1, 1, 0], dtype=dtype).reshape(shape))
        assert (labels.task, labels.num_classes, labels.y.tolist()) == ("classes", 2, [0, 1, 1, 0])
        assert labels.y.dtype == torch.int64
        assert labels.by_node is labels.y


def test_a_table_of_zeros_and_ones_is_multilabel_with_nan_for_missing() -> None:
    labels = targets([[0.0, 1.0], [1.0, NAN], [NAN, NAN], [1.0, 1.0]])
    assert labels.task == "multilabel"
    assert labels.num_classes == 0
    assert labels.y.dtype == torch.float32
    assert labels.y.isnan().sum() == 3
    assert labels.by_node.tolist() == [0, 0, -1, 0]
    assert targets([[False, True], [True, True]]).y.tolist() == [[0.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("y", [[0.5, 1.0, NAN], [[0.5], [1.0], [NAN]]])
def test_other_floats_are_regression(y: Any) -> None:
    labels = targets(y)
    assert (labels.task, tuple(labels.y.shape)) == ("regression", (3, 1))
    assert labels.by_node.tolist() == [0, 0, -1]
    assert targets([[0.5, 2.0], [1.0, NAN]]).task == "regression"


def test_a_task_that_was_told_wins() -> None:
    assert targets([0, 1, 2], "regression").y.tolist() == [[0.0], [1.0], [2.0]]
    assert targets([0, 1, 1], "multilabel").y.tolist() == [[0.0], [1.0], [1.0]]
    assert targets(torch.eye(3), "multilabel").task == "multilabel"


@pytest.mark.parametrize(
    ("y", "task", "said"),
    [
        (torch.eye(3), "auto", r"store y\.argmax\(1\)"),
        ([[0, 1], [2, 0]], "auto", "another --task"),
        ([[0, 1], [-1, 0]], "multilabel", "name it with --ignore-label"),
        ([0.5, 1.0], "classes", "type --task regression"),
        ([0.5, float("inf")], "regression", "y is inf at node 1"),
        (torch.tensor([0.5, 1e300], dtype=torch.float64), "auto", "float32"),
        ([NAN, NAN], "regression", "no label at all"),
        ([NAN, NAN], "auto", "NaN everywhere"),
        (torch.zeros(2, 2, 2), "auto", "expected one label a node"),
        (torch.zeros(2, 0), "auto", "expected one label a node"),
        (torch.zeros(2, dtype=torch.complex64), "auto", "complex64"),
    ],
)
def test_what_cannot_be_trained_is_refused(y: Any, task: str, said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        targets(y, task)


def test_c105_a_label_to_ignore_is_none_and_its_nodes_are_named() -> None:
    labels = targets(torch.tensor([0, 255, 1, 255], dtype=torch.uint8), ignore_label=255)
    assert labels.y.tolist() == [0, -1, 1, -1]
    assert labels.ignored is not None
    assert labels.ignored.tolist() == [False, True, False, True]
    table = targets([[0, 1], [-1, 1], [-1, -1]], ignore_label=-1)
    assert table.task == "multilabel"
    assert table.y[1].isnan().tolist() == [True, False]
    assert table.ignored is not None
    assert table.ignored.tolist() == [False, False, True]
