"""From a dataset, named, given or in a folder, to what is learnt from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pygsage.config import TrainConfig
from pygsage.data.graph import Graph
from pygsage.data.open import graph_from_data, open_graph
from pygsage.training.nodes import NodeProblem
from pygsage.training.problem import Problem

Opened = Callable[[ExitStack], Problem]  # the stack closes what has to live as long as the problem


def open_problem(config: TrainConfig, stack: ExitStack, given: Any = None) -> Problem:
    """Opens the dataset that the options name.

    Args:
        stack: Closed by the caller when the problem is no longer used.
        given: A dataset in Python that takes its place.

    Raises:
        DatasetError: when it cannot be read, or is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    return problem_of(open_graph(config) if given is None else graph_from_data(given, config))


def problem_in(folder: Path) -> Problem:
    """Opens what `TrainingData.save` wrote.

    Raises:
        DatasetError: when it is damaged.
    """
    return problem_of(Graph.open(folder))


def problem_of(data: Graph) -> Problem:
    """What is learnt from some data."""
    return NodeProblem(data)
