"""From a dataset, named, given or in a folder, to what is learnt from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pygsage.config import TrainConfig
from pygsage.data.files.arrays import read_manifest
from pygsage.data.many_graphs.graph_set import FORMAT, VERSION, GraphSet
from pygsage.data.one_graph.graph import FORMAT as GRAPH_FORMAT
from pygsage.data.one_graph.graph import VERSION as GRAPH_VERSION
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.prepare import with_splits
from pygsage.data.open_many import open_data
from pygsage.data.storage import Storage
from pygsage.memory.peak import PeakMemory
from pygsage.training.graphs import GraphProblem
from pygsage.training.nodes import NodeProblem
from pygsage.training.parts import PartProblem
from pygsage.training.problem import Problem

Opened = Callable[[ExitStack], Problem]  # the stack closes what has to live as long as the problem


def open_problem(
    config: TrainConfig,
    stack: ExitStack,
    given: Any = None,
    storage: Storage | None = None,
    memory: PeakMemory | None = None,
) -> Problem:
    """Opens the dataset that the options name; `storage` of the problem says how it is held.

    Args:
        stack: Closed by the caller when the problem is no longer used.
        given: A dataset in Python that takes its place.
        storage: Where the dataset is held; None for RAM.
        memory: Measures peaks, of reading and of processing apart.

    Raises:
        DatasetError: when it cannot be read, or is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    data, held = open_data(config, stack, given, storage=storage, memory=memory)
    problem = problem_of(data)
    problem.storage = held
    return problem


def problem_in(folder: Path, config: TrainConfig | None = None) -> Problem:
    """Opens what `TrainingData.save` wrote.

    Args:
        config: Options whose `--split` takes the place of a graph's own.

    Raises:
        DatasetError: when it is damaged.
    """
    kind = read_manifest(folder, {GRAPH_FORMAT: GRAPH_VERSION, FORMAT: VERSION})["format"]
    if kind == FORMAT:
        return problem_of(GraphSet.open(folder))
    graph = Graph.open(folder)
    return problem_of(with_splits(graph, config, need_split=True) if config is not None else graph)


def problem_of(data: Graph | GraphSet) -> Problem:
    """What is learnt from some data: labels of nodes, or of graphs."""
    if isinstance(data, GraphSet):
        return GraphProblem(data)
    return PartProblem(data) if data.parts is not None else NodeProblem(data)
