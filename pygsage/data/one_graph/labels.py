"""What the labels are, classes, several labels a node or measurements, and whether they can be trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pygsage.data.one_graph.checks import check_labels
from pygsage.data.one_graph.raw import RawGraph
from pygsage.errors import DatasetError


@dataclass(frozen=True)
class Labels:
    """Checked labels.

    Attributes:
        task: `classes`, `multilabel` or `regression`.
        y: int64 [N] with -1 for none (classes), or float32 [N, C] with NaN for missing.
        num_classes: The highest class plus one; 0 for other tasks.
        by_node: int64 [N]: the class, or 0 for a node with any known label; -1 for a node without.
        ignored: bool [N]: nodes whose label the user told to ignore; None when there was no such wish.
    """

    task: str
    y: Tensor
    num_classes: int
    by_node: Tensor
    ignored: Tensor | None = None


def check_targets(raw: RawGraph, num_nodes: int, task: str = "auto", ignore_label: int | None = None) -> Labels:
    """Finds out what the labels are, or takes `task` for it, and checks that they can be trained on.

    Args:
        raw: The dataset; its `y` is [N], [N, 1] or [N, C].
        task: `auto`: whole numbers (NaN for none) [N] are classes, 0 and 1 [N, C] multilabel, floats regression.
        ignore_label: A value that means: no label.

    Raises:
        DatasetError: when they are missing, of the wrong shape, or not what the task takes.
    """
    y = raw.y
    if not isinstance(y, Tensor) or not _numbers(y) or y.dim() not in (1, 2) or len(y) != num_nodes or y.numel() == 0:
        check_labels(raw, num_nodes)  # says what is wrong with it
        raise DatasetError(
            f"{raw.origin}: y is {list(y.shape)} of {y.dtype}; expected [{raw.unit}s] or [{raw.unit}s, labels]."
        )
    y = y.detach().cpu()
    table = y.reshape(num_nodes, -1)
    ignored = None
    if ignore_label is not None:
        ignored = table == ignore_label
        if not ignored.any():
            raw.notes.append(f"No {raw.unit} has the label {ignore_label} that is to be ignored.")
    known = ~ignored if ignored is not None else torch.ones_like(table, dtype=torch.bool)
    if table.is_floating_point():
        known &= ~torch.isnan(table)
    told = task
    if task == "auto":
        task = _kind(table, known)
    if task == "classes":
        if ignored is not None and table.size(1) == 1:
            ignored = ignored[:, 0]
            column = table[:, 0] if table.is_floating_point() else table[:, 0].to(torch.int64)  # -1 must fit
            raw.y = torch.where(ignored, -1, column)
        classes, num_classes = check_labels(raw, num_nodes)
        return Labels(task, classes, num_classes, classes, ignored)
    if task == "multilabel":
        _check_binary(raw, table, known, told)
    values = table.to(torch.float32)
    values = torch.where(known, values, torch.nan) if not known.all() else values.contiguous()
    if (known & ~torch.isfinite(values)).any():
        node, column = (known & ~torch.isfinite(values)).nonzero()[0].tolist()
        raise DatasetError(
            f"{raw.origin}: y is {table[node, column].item():g} at {raw.unit} {node}; expected finite numbers that "
            "float32 can hold.",
            "NaN marks a label that is missing.",
        )
    labelled = known.any(1)
    if not labelled.any():
        raise DatasetError(f"{raw.origin}: y holds no label at all; expected some numbers that are not NaN.")
    if not known.all():
        raw.notes.append(f"{int((~known).sum())} of {known.numel()} labels are missing.")
    left_out = ignored.any(1) & ~labelled if ignored is not None else None
    return Labels(task, values, 0, labelled.to(torch.int64) - 1, left_out)


def _numbers(y: Tensor) -> bool:
    return y.layout == torch.strided and not (y.is_complex() or y.is_quantized or y.is_nested or y.is_meta)


def _kind(table: Tensor, known: Tensor) -> str:
    values = table[known]
    if table.size(1) == 1:
        whole = not table.is_floating_point() or bool((values == values.round()).all() or torch.isinf(values).any())
        return "classes" if whole else "regression"
    if bool(((values == 0) | (values == 1)).all()):
        return "multilabel"
    return "regression" if table.is_floating_point() else "classes"  # a table of integers is refused as classes


def _check_binary(raw: RawGraph, table: Tensor, known: Tensor, told: str) -> None:
    odd = known & (table != 0) & (table != 1)
    if odd.any():
        node, column = odd.nonzero()[0].tolist()
        raise DatasetError(
            f"{raw.origin}: y is {table[node, column].item():g} at {raw.unit} {node}, column {column}; expected 0, 1, "
            "or NaN for missing: --task multilabel.",
            "If a number marks missing labels, name it with --ignore-label; for measurements type --task regression.",
        )
    if told == "auto" and known.all() and bool(((table != 0).sum(1) == 1).all()):
        raise DatasetError(
            f"{raw.origin}: y is {list(table.shape)} and each row holds a single 1, which may be one class a "
            f"{raw.unit} or several labels; expected to know which.",
            "For classes store y.argmax(1); for several labels type --task multilabel.",
        )
