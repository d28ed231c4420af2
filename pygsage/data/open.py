"""From the options of a run to a graph that is ready to train on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pygsage.config import TrainConfig
from pygsage.data.checks import check_edges, check_features
from pygsage.data.csc import build_csc
from pygsage.data.graph import Graph
from pygsage.data.labels import Labels, check_targets
from pygsage.data.names import parse_reference
from pygsage.data.options import add_self_loops, normalize_features, to_undirected
from pygsage.data.raw import RawGraph
from pygsage.data.relabel import relabel
from pygsage.data.splits import (
    check_splits,
    count_public_splits,
    fold_splits,
    per_class_splits,
    public_splits,
    random_splits,
)
from pygsage.data.take import raw_from_data
from pygsage.errors import ConfigError, DatasetError
from pygsage.spelling import parse_split

GIVEN = "a graph given in Python"  # the name of a dataset that `pygsage.train` got as an object


def open_graph(config: TrainConfig, *, need_split: bool = True) -> Graph:
    """Reads, checks and prepares the dataset of a run; nothing is written but a PyG class's own files.

    Args:
        need_split: False to look at a dataset that has no split of its own, or several: `splits` is then empty, or
            the first of them, and a note says so.

    Raises:
        DatasetError: when it cannot be read, or is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    return prepare_graph(read_source(config), config, need_split)


def graph_from_data(data: Any, config: TrainConfig, *, need_split: bool = True) -> Graph:
    """The same for a PyG `Data`, or a PyG dataset that holds one, which is left as it is; `config.dataset` names it.

    The graph shares the memory of `data.x` where its dtype allows that.

    Raises:
        DatasetError: when it is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    from torch_geometric.data import Dataset

    num_graphs = 1
    if isinstance(data, Dataset):
        num_graphs = len(data)
        data = data[0] if num_graphs == 1 else None
    raw = raw_from_data(config.dataset, config.dataset, data, num_graphs)
    if config.normalize_features and isinstance(raw.x, Tensor):
        raw.x = raw.x.detach().clone()  # it is done in place
    return prepare_graph(raw, config, need_split)


def prepare_graph(raw: RawGraph, config: TrainConfig, need_split: bool) -> Graph:
    """Checks what a source found and changes it as the options ask; empties `raw` as it goes, to save memory.

    Raises:
        DatasetError: when it is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    x, raw.x = check_features(raw), None
    num_nodes = len(x)
    node_id = relabel(raw, num_nodes) if config.relabel else None
    if raw.node_id is not None and not config.relabel:
        raw.notes.append("Not used: node_id; if edge_index holds such ids, add --relabel.")
    edge_index, raw.edge_index = check_edges(raw, num_nodes), None
    labels = check_targets(raw, num_nodes, config.task, config.ignore_label)
    splits = choose_splits(raw, labels, config, need_split)
    edge_id = None
    if config.undirected:
        edge_index, edge_id = to_undirected(edge_index, edge_id, num_nodes)
    if config.self_loops:
        edge_index, edge_id = add_self_loops(edge_index, edge_id, num_nodes)
    indptr, indices, perm = build_csc(edge_index, num_nodes)
    del edge_index  # as large as all of the rest
    _note_direction(raw, indptr, splits, config)
    if config.normalize_features:
        normalize_features(x)
    return Graph(
        name=config.dataset,
        indptr=indptr,
        indices=indices,
        edge_id=perm if edge_id is None else edge_id[perm],
        x=x,
        y=labels.y,
        splits=splits,
        num_classes=labels.num_classes,
        notes=tuple(raw.notes),
        task=labels.task,
        node_id=node_id,
    )


def read_source(config: TrainConfig) -> RawGraph:
    """The dataset as its source has it, unchecked.

    Raises:
        DatasetError: when there is no such dataset, or it cannot be read.
    """
    if config.dataset == GIVEN:
        raise DatasetError(
            "The run was trained on a graph that was given in Python; expected that graph again.",
            "Call pygsage.predict(RUN, data=DATA), or pygsage.train(DATA, run_dir=RUN, resume=True).",
        )
    reference = parse_reference(config.dataset)
    if config.root is not None and reference.kind not in ("ogb", "pyg", "recipe"):
        raise ConfigError(
            f"--root goes with pyg: datasets, ogbn- datasets and recipes; {config.dataset} needs none.",
            "Leave --root out.",
        )
    # Each source is loaded when it is used: scikit-learn and torch_geometric.datasets take a second each.
    if reference.kind == "digits":
        from pygsage.data.sources.digits import read_digits

        return read_digits(config.seed)
    if reference.kind == "npz":
        from pygsage.data.sources.npz import read_npz

        return read_npz(reference)
    if reference.kind == "pt":
        from pygsage.data.sources.pt import read_pt

        return read_pt(reference, trust_pickle=config.trust_pickle)
    if reference.kind == "recipe":
        from pygsage.data.sources.recipe import read_recipe

        return read_recipe(reference, config.root)
    if reference.kind == "ogb":
        from pygsage.data.sources.ogb import read_ogb

        return read_ogb(reference, config.root, offline=config.offline, quiet=config.quiet)
    from pygsage.data.sources.pyg import read_pyg

    return read_pyg(reference, config.root, offline=config.offline)


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
        raw.notes.append(
            "There is no training split; to train, add --split random:.6/.2/.2 or --split per-class:20/30."
        )
        return {}
    if not need_split and num_splits > 1 and split_id is None:
        raw.notes.append(f"The dataset has {num_splits} splits; shown is --split-id 0.")
        split_id = 0
    return public_splits(raw, y, split_id, labels.ignored)


def _fold(raw: RawGraph, labels: Labels, config: TrainConfig, num_folds: int, need_split: bool) -> dict[str, Tensor]:
    fold = 0 if config.split_id is None and not need_split else config.split_id
    if fold is None or fold >= num_folds:
        found = f"--split-id is {fold}" if fold is not None else "--split-id is missing"
        raise ConfigError(
            f"{found}, and --split {config.split} makes {num_folds} folds; expected a number from 0 to "
            f"{num_folds - 1}.",
            "Type for example --split-id 0.",
        )
    return fold_splits(raw, labels.by_node, num_folds, fold, config.seed)


def _note_direction(raw: RawGraph, indptr: Tensor, splits: dict[str, Tensor], config: TrainConfig) -> None:
    train = splits.get("train", torch.empty(0, dtype=torch.int64))
    num_without = int((indptr[train + 1] == indptr[train]).sum())
    if 2 * num_without <= len(train) or int(indptr[-1]) == 0:
        return
    cure = "" if config.undirected else "; if edges mean both directions, add --undirected"
    raw.notes.append(
        f"{num_without} of {len(train)} training nodes have no in-neighbours (messages run from source to "
        f"destination){cure}."
    )
