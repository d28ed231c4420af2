"""From a dataset, named, given or in a folder, to what is learnt from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pygsage.config import TrainConfig
from pygsage.data.graph import Graph
from pygsage.data.open import graph_from_data, open_graph
from pygsage.data.prepare import with_splits
from pygsage.data.storage import Storage
from pygsage.training.nodes import NodeProblem
from pygsage.training.problem import Problem

Opened = Callable[[ExitStack], Problem]  # the stack closes what has to live as long as the problem


def open_problem(config: TrainConfig, stack: ExitStack, given: Any = None, storage: Storage | None = None) -> Problem:
    """Opens the dataset that the options name.

    Args:
        stack: Closed by the caller when the problem is no longer used.
        given: A dataset in Python that takes its place.
        storage: Where a graph is held; None for RAM.

    Raises:
        DatasetError: when it cannot be read, or is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    if given is not None:
        return problem_of(graph_from_data(given, config))
    return problem_of(open_graph(config, storage=storage))


def problem_in(folder: Path, config: TrainConfig | None = None) -> Problem:
    """Opens what `TrainingData.save` wrote.

    Args:
        config: Options whose `--split` takes the place of the folder's own.

    Raises:
        DatasetError: when it is damaged.
    """
    graph = Graph.open(folder)
    return problem_of(with_splits(graph, config, need_split=True) if config is not None else graph)


def problem_of(data: Graph) -> Problem:
    """What is learnt from some data."""
    return NodeProblem(data)
