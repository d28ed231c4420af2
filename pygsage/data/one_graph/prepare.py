"""Through the door: a graph as its source gave it becomes parts that can be trusted, and a graph in RAM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pygsage.config import TrainConfig
from pygsage.data.one_graph.checks import check_edges, check_features
from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.labels import Labels, check_targets
from pygsage.data.one_graph.options import add_self_loops, normalize_features, to_undirected
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.relabel import relabel
from pygsage.data.one_graph.splits import (
    check_splits,
    count_public_splits,
    fold_splits,
    per_class_splits,
    public_splits,
    random_splits,
)
from pygsage.errors import ConfigError
from pygsage.memory.peak import PeakMemory
from pygsage.spelling import parse_split

_NO_SPLIT = "There is no training split; to train, add --split random:.6/.2/.2 or --split per-class:20/30."


@dataclass
class Parts:
    """What has passed the door.

    Attributes:
        x: float32 `[N, F]` in RAM; or, unconverted, of any real dtype, perhaps mapped.
        edge_index: int64 `[2, E]` in RAM; or, unconverted, of any integer dtype, perhaps mapped.
        labels: Checked labels.
        splits: Checked splits.
        node_id: The user's id of each row with `--relabel`, else None.
    """

    x: Tensor
    edge_index: Tensor
    labels: Labels
    splits: dict[str, Tensor]
    node_id: Tensor | None


def check_parts(
    raw: RawGraph,
    config: TrainConfig,
    need_split: bool | None,
    scratch: Path | None = None,
    memory: PeakMemory | None = None,
) -> Parts:
    """Checks all of a graph; `raw.x` and `raw.edge_index` are None afterwards, so that nothing is held twice.

    Args:
        need_split: As for `open_graph`; None to leave splits to whoever opens it.
        scratch: A folder, for a graph that may not fit in RAM: features and edges stay as they are and where they
            are, and are looked at in pieces. None to have them in RAM, converted.
        memory: Measures peaks: what comes after the features counts for the phase `process`.

    Raises:
        DatasetError: when it is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    convert = scratch is None
    x, raw.x = check_features(raw, convert=convert), None
    num_nodes = len(x)
    if memory is not None:
        memory.turn_to("process")
    node_id = relabel(raw, num_nodes, scratch) if config.relabel else None
    if raw.node_id is not None and not config.relabel:
        raw.notes.append("Not used: node_id; if edge_index holds such ids, add --relabel.")
    if raw.grouped is None:
        edge_index, raw.edge_index = check_edges(raw, num_nodes, convert=convert), None
    else:
        edge_index = torch.empty(2, 0, dtype=torch.int64)  # they are in `grouped`, and were checked long ago
    labels = check_targets(raw, num_nodes, config.task, config.ignore_label)
    splits = {} if need_split is None else choose_splits(raw, labels, config, need_split)
    return Parts(x, edge_index, labels, splits, node_id)


def prepare_graph(raw: RawGraph, config: TrainConfig, need_split: bool, memory: PeakMemory | None = None) -> Graph:
    """The graph in RAM: checked, with the edges and the scaling that options ask for.

    Raises:
        DatasetError, ConfigError: as `check_parts`.
    """
    if raw.grouped is not None:
        raw.edge_index, raw.grouped = in_order_of_ids(*raw.grouped), None
    parts = check_parts(raw, config, need_split, memory=memory)
    edge_index, edge_id, num_nodes = parts.edge_index, None, len(parts.x)
    del parts.edge_index  # as large as all of the rest
    if config.undirected:
        edge_index, edge_id = to_undirected(edge_index, edge_id, num_nodes)
    if config.self_loops:
        edge_index, edge_id = add_self_loops(edge_index, edge_id, num_nodes)
    indptr, indices, perm = build_csc(edge_index, num_nodes)
    del edge_index
    raw.notes += direction_notes(indptr, parts.splits, config)
    if config.normalize_features:
        normalize_features(parts.x)
    return Graph(
        name=config.dataset,
        indptr=indptr,
        indices=indices,
        edge_id=perm if edge_id is None else edge_id[perm],
        x=parts.x,
        y=parts.labels.y,
        splits=parts.splits,
        num_classes=parts.labels.num_classes,
        notes=tuple(raw.notes),
        task=parts.labels.task,
        node_id=parts.node_id,
    )


def in_order_of_ids(indptr: Tensor, indices: Tensor, edge_id: Tensor | None) -> Tensor:
    """The user's list of edges, int64 `[2, E]`, from edges by destination, none of which was added."""
    edge_index = torch.empty(2, len(indices), dtype=torch.int64)
    order: Tensor | slice = slice(None) if edge_id is None else edge_id
    edge_index[0, order] = indices.to(torch.int64)
    edge_index[1, order] = torch.repeat_interleave(indptr.diff())
    return edge_index


def choose_splits(raw: RawGraph, labels: Labels, config: TrainConfig, need_split: bool) -> dict[str, Tensor]:
    """The splits that `--split` and `--split-id` ask for, checked.

    Raises:
        DatasetError, ConfigError: when there are none such.
    """
    kind, numbers = parse_split(config.split)
    y = labels.by_node
    if kind == "folds":
        return check_splits(raw, _fold(raw, labels, config, int(numbers[0]), need_split), y)
    if kind != "public":
        if config.split_id is not None:
            raise ConfigError(
                f"--split-id picks one of the own splits of {raw.origin}, and --split {config.split} makes a new one; "
                "expected one of the two options.",
                "Leave one of them out.",
            )
        if kind == "random":
            splits = random_splits(y, numbers, config.seed)
        else:
            if labels.task != "classes":
                raise ConfigError(
                    f"--split {config.split} needs classes, and the labels are of the task {labels.task}.",
                    "Type for example --split random:.6/.2/.2.",
                )
            splits = per_class_splits(raw, y, int(numbers[0]), int(numbers[1]), config.seed)
        return check_splits(raw, splits, y)
    split_id, num_splits = config.split_id, count_public_splits(raw, len(y))
    if not need_split and num_splits == 0:
        raw.notes.append(_NO_SPLIT)
        return {}
    if not need_split and num_splits > 1 and split_id is None:
        raw.notes.append(f"The dataset has {num_splits} splits; shown is --split-id 0.")
        split_id = 0
    return public_splits(raw, y, split_id, labels.ignored)


def _fold(raw: RawGraph, labels: Labels, config: TrainConfig, num_folds: int, need_split: bool) -> dict[str, Tensor]:
    fold = config.split_id or 0
    if config.split_id is None and need_split:
        raw.notes.append(f"Of {num_folds} folds the first is the test; --split-id 0 to {num_folds - 1} picks another.")
    return fold_splits(raw, labels.by_node, num_folds, fold, config.seed)


def with_splits(graph: Graph, config: TrainConfig, need_split: bool) -> Graph:
    """A graph that is stored, with the splits that `--split` asks for, where those are not its own.

    Raises:
        DatasetError, ConfigError: as `choose_splits`.
    """
    if config.split == "public" and config.split_id in (None, 0) and ("train" in graph.splits or not need_split):
        return graph
    labelled = graph.y if graph.task == "classes" else (~graph.y.isnan()).any(1).to(torch.int64) - 1
    own = {f"{name}_idx": ids for name, ids in graph.splits.items()}
    raw = RawGraph(graph.name, str(graph.folder or graph.name), None, None, None, own)
    splits = choose_splits(raw, Labels(graph.task, graph.y, graph.num_classes, labelled), config, need_split)
    known = [note for note in graph.notes if note != _NO_SPLIT or not splits]
    notes = dict.fromkeys([*known, *raw.notes, *direction_notes(graph.indptr, splits, config)])
    return graph.split_anew(splits, notes)


def direction_notes(indptr: Tensor, splits: dict[str, Tensor], config: TrainConfig) -> list[str]:
    """A line when most training nodes have nobody to hear from, as in a graph whose edges were meant both ways."""
    train = splits.get("train", torch.empty(0, dtype=torch.int64))
    num_without = int((indptr[train + 1] == indptr[train]).sum())
    if 2 * num_without <= len(train) or int(indptr[-1]) == 0:
        return []
    cure = "" if config.undirected else "; if edges mean both directions, add --undirected"
    return [
        f"{num_without} of {len(train)} training nodes have no in-neighbours (messages run from source to "
        f"destination){cure}."
    ]
