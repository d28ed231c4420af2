"""What the package `ogb` serves for: its tables of datasets and its evaluators. Its loaders are never used: they ask on
standard input, delete folders, and load what torch has refused since 2.6.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pygsage.errors import DatasetError, EnvironmentLimitError

_INSTALL = "Type pip install ogb."


@dataclass(frozen=True)
class OgbEntry:
    """A dataset in ogb's table: `folder` is its folder's name without `_pyg`, `zip_folder` the one inside its zip."""

    name: str
    folder: str
    zip_folder: str
    version: str
    url: str
    split: str
    num_tasks: int
    metric: str
    add_inverse_edge: bool
    has_node_features: bool
    is_hetero: bool
    is_binary: bool
    task_type: str
    has_edge_features: bool

    @property
    def is_of_graphs(self) -> bool:
        """Whether it is one of many graphs, with a label each."""
        return self.name.startswith("ogbg-")

    @property
    def release_file(self) -> str:
        """The file that says of which version the data are."""
        return f"RELEASE_v{self.version}.txt"


def ogb_entry(name: str) -> OgbEntry:
    """A dataset's row of ogb's own table, read without importing ogb, whose import looks for updates.

    Raises:
        EnvironmentLimitError: when ogb is not installed, or has no such table.
        DatasetError: when the table has no such dataset.
    """
    spec = find_spec("ogb")
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        raise EnvironmentLimitError(f"{name} needs the package ogb, which is not installed.", _INSTALL)
    path = Path(folders[0]) / _module(name) / "master.csv"
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        told = {row[0]: row[rows[0].index(name)] for row in rows[1:]}
        return OgbEntry(
            name=name,
            folder=name.replace("-", "_"),
            zip_folder=told["download_name"],
            version=told["version"],
            url=told["url"],
            split=told["split"],
            num_tasks=int(told["num tasks"]),
            metric=told["eval metric"],
            add_inverse_edge=told["add_inverse_edge"] == "True",
            has_node_features=told["has_node_attr"] == "True",
            is_hetero=told.get("is hetero") == "True",  # the table of graphs has no such row
            is_binary=told["binary"] == "True",
            task_type=told["task type"],
            has_edge_features=told["has_edge_attr"] == "True",
        )
    except (OSError, KeyError, IndexError) as error:
        raise EnvironmentLimitError(f"The installed ogb has no table that is understood: {path} ({error!r}).") from None
    except ValueError:
        raise DatasetError(f"The installed ogb knows no dataset {name}.", _INSTALL) from None


def ogb_scores(name: str, y_true: Tensor, scores: Tensor) -> dict[str, float]:
    """Scores predictions with OGB's own `Evaluator`, whose metric is the dataset's official one.

    Args:
        name: A dataset of OGB's with labels of nodes or graphs, such as `ogbn-arxiv` or `ogbg-molbace`.
        y_true: `[n]` or `[n, tasks]`; NaN where there is no label.
        scores: `[n, C]` for a choice among classes, of which the highest is taken, or int64 `[n]`, the classes chosen;
            `[n, tasks]` for binary labels and measurements.

    Returns:
        The metric under ogb's name for it (`acc`, `rocauc`, `ap`, `rmse`); NaN where it is not defined: no
        task has both labels.

    Raises:
        EnvironmentLimitError: when ogb is not installed.
        DatasetError: when it knows no such dataset, or the shapes are not what it expects.
    """
    entry = ogb_entry(name)
    y_true = y_true.detach().cpu()
    scores = scores.detach().cpu()
    if scores.dtype == torch.bfloat16:
        scores = scores.float()  # NumPy has none
    predicted = scores.argmax(dim=1) if entry.metric == "acc" and scores.is_floating_point() else scores
    if entry.metric in ("rocauc", "ap") and entry.num_tasks == 1 and scores.shape[1:] == (2,):
        predicted = scores[:, 1] - scores[:, 0]  # of two classes
    table = [t.reshape(len(t), -1) for t in (y_true, predicted)]
    if table[0].shape != table[1].shape or table[0].size(1) != entry.num_tasks:
        unit = "graph" if entry.is_of_graphs else "node"
        raise DatasetError(
            f"{name} has {entry.num_tasks} labels a {unit} for its {entry.metric}; found labels {list(y_true.shape)} "
            f"and scores {list(scores.shape)}."
        )
    evaluator = _evaluator_class(_module(name))(name)
    if entry.metric in ("rocauc", "ap") and not ((table[0] == 1).any(0) & (table[0] == 0).any(0)).any():
        return {entry.metric: math.nan}  # ogb raises here
    found = evaluator.eval({"y_true": table[0].numpy(), "y_pred": table[1].numpy()})
    return {metric: float(value) for metric, value in found.items()}


def _module(name: str) -> str:
    return "graphproppred" if name.startswith("ogbg-") else "nodeproppred"


def _evaluator_class(module: str) -> Any:
    full = f"ogb.{module}"
    if full not in sys.modules:
        try:
            with _no_look_for_updates():
                import_module(full)
        except ImportError as error:
            raise EnvironmentLimitError(f"The package ogb cannot be imported: {error}.", _INSTALL) from None
    return sys.modules[full].Evaluator


@contextmanager
def _no_look_for_updates() -> Iterator[None]:
    """`import ogb` starts a thread that asks the package index for a newer version, unless `outdated` cannot be
    imported; None in `sys.modules` makes it so. Also undone: the variable that ogb sets in the environment.
    """
    variable = "OUTDATED_IGNORE"
    module, value = sys.modules.get("outdated"), os.environ.get(variable)
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if module is None:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = module
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
