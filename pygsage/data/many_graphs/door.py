"""The door for many graphs: from a store to graphs that can be trained on, or a sentence that says why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.config import TrainConfig
from pygsage.data.many_graphs.graph_set import MOST_DEGREES, Changes, Features, GraphSet
from pygsage.data.many_graphs.reader import GraphReader, rows_error
from pygsage.data.one_graph.checks import INTEGERS
from pygsage.data.one_graph.labels import check_targets
from pygsage.data.one_graph.prepare import choose_splits
from pygsage.data.one_graph.raw import SPLITS, RawGraph
from pygsage.data.one_graph.take import SPLIT_KEYS
from pygsage.data.store.checks import Checked, can_check
from pygsage.data.store.schema import Column
from pygsage.errors import ConfigError, DatasetError

_MOST_CATEGORIES = 10_000  # of all columns together; numbers beyond that are numbers
_USED = {"x", "edge_index", "y", "num_nodes", "split", *SPLIT_KEYS}
_SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}


def label_is_by_node(reader: GraphReader) -> bool:
    """Whether the graphs have a label a node, and not one a graph."""
    column = reader.schema.column("y")
    return column is not None and column.role == "node"


def check_graphs(
    reader: GraphReader, config: TrainConfig, raw: RawGraph, *, task: str | None = None, need_split: bool = True
) -> GraphSet:
    """Checks everything that is trained on, and returns it ready.

    Args:
        reader: The store.
        raw: The dataset's name, origin, splits of the source's own and notes; labels and other splits are found here.
        task: What the labels are, where the source knows it; `--task` wins.

    Raises:
        DatasetError: naming the graph and the attribute, when it cannot be trained on.
        ConfigError: when an option does not go with many graphs.

    Reads all features and edges once, some MiB at a time, unless a columnar store says what its writer has found in
    them; labels and sizes (16 bytes a graph) stay in RAM.
    """
    if config.relabel:
        raise ConfigError(
            f"--relabel gives the nodes of one graph numbers, and {raw.origin} holds many graphs.", "Leave it out."
        )
    _check_count(reader, raw)
    _check_columns(reader, raw)
    own = [] if raw.splits else _columns_of_splits(reader)
    scanned = reader.scan([_label_column(reader, raw), *own], raw.origin)
    raw.unit, raw.y = "graph", _labels(scanned.values["y"])
    if own:
        raw.splits = _own_splits(own, scanned.values)
    told = config.task if config.task != "auto" else task or "auto"
    labels = check_targets(raw, reader.num_graphs, told, config.ignore_label)
    splits = choose_splits(raw, labels, config, need_split)
    features = _features(reader, raw, scanned.checked)
    if config.normalize_features and features.kind != "numbers":
        raise ConfigError(
            f"--normalize-features scales numbers, and the features of {raw.origin} are categories.", "Leave it out."
        )
    if (num_empty := int((np.diff(scanned.nodes) == 0).sum())) > 0:
        raw.notes.append(f"{num_empty} graphs have no nodes: their readout is zero.")
    unused = [column.key for column in reader.schema.columns if column.key not in _USED]
    if unused:
        raw.notes.append(f"Not used: {', '.join(unused)} (GraphSAGE takes x and edge_index).")
    return GraphSet(
        name=raw.name,
        store=reader.folder,
        features=features,
        changes=Changes(config.undirected, config.self_loops, config.normalize_features),
        nodes=scanned.nodes,
        edges=scanned.edges,
        y=labels.y,
        splits=splits,
        num_classes=labels.num_classes,
        task=labels.task,
        notes=tuple(raw.notes),
    )


def _check_count(reader: GraphReader, raw: RawGraph) -> None:
    """Refuses graphs whose number of nodes would be a guess from their edges."""
    keys = {column.key for column in reader.schema.columns if column.role == "node"}
    if not reader.schema.counts or not keys - {"y"}:
        raise DatasetError(
            f"{raw.origin}: the graphs have neither x nor num_nodes, so that their number of nodes is not known; "
            "expected x, or num_nodes where there are no features.",
        )


def _label_column(reader: GraphReader, raw: RawGraph) -> Column:
    column = reader.schema.column("y")
    if column is None:
        raise DatasetError(f"{raw.origin}: the graphs have no y; expected a label in each.")
    if column.kind == "str":
        raise DatasetError(f"{raw.origin}: y is a text; expected a number, or a tensor of them, in each graph.")
    return column


def _labels(y: Any) -> Tensor:
    assert isinstance(y, Tensor)
    if y.dim() > 2:
        raise rows_error("y", 0, [1, *y.shape[1:]])
    return y


def _columns_of_splits(reader: GraphReader) -> list[Column]:
    """The text `split` of each graph, or masks of one row a graph."""
    word = reader.schema.column("split")
    if word is not None and word.kind == "str":
        return [word]
    found = [reader.schema.column(key) for key in SPLIT_KEYS if key.endswith("_mask")]
    return [column for column in found if column is not None and _is_own(column)]


def _own_splits(columns: list[Column], values: dict[str, Any]) -> dict[str, Any]:
    if columns[0].kind == "str":
        return split_of_words(list(map(str, values["split"])))
    return {column.key: values[column.key] for column in columns}


def _is_own(column: Column) -> bool:
    return column.role == "graph" or column.rows == 1


def split_of_words(words: list[str]) -> dict[str, Tensor]:
    """Graph numbers by `train_idx`, `val_idx`, `test_idx` from a word a graph.

    Raises:
        DatasetError: for a word that is no split, naming the graph.
    """
    ids: dict[str, list[int]] = {name: [] for name in SPLITS}
    for number, word in enumerate(words):
        if word and word.lower() not in _SPLIT_WORDS:
            raise DatasetError(
                f"Graph {number}: split is {word!r}; expected train, val or test, or '' for a graph in none of them."
            )
        if word:
            ids[_SPLIT_WORDS[word.lower()]].append(number)
    return {f"{name}_idx": torch.tensor(found, dtype=torch.int64) for name, found in ids.items() if found}


def _features(reader: GraphReader, raw: RawGraph, checked: Checked) -> Features:
    """How the features are used, from what was found in them."""
    column = reader.x_column
    most = checked.most_neighbours
    if column is None:
        raw.notes.append(
            "There is no x: each node has its number of in-neighbours as a category"
            + (f", {MOST_DEGREES - 1} standing for all from there on." if most >= MOST_DEGREES else ".")
        )
        return Features("degrees", 1, (MOST_DEGREES,))
    width = column.shape[0] if column.shape else 1
    if column.torch_dtype not in INTEGERS:
        return Features("numbers", width)
    sizes = tuple(max(1, each + 1) for each in checked.highest)
    if min(checked.lowest) < 0 or sum(sizes) > _MOST_CATEGORIES or max(sizes) <= 2:
        return Features("numbers", width)
    shown = ", ".join(map(str, sizes[:12])) + (", …" if width > 12 else "")
    raw.notes.append(
        f"x is {column.dtype}: {width} column{'s' if width > 1 else ''} of categories ({shown}), which are embedded; "
        "for numbers store x as float."
    )
    return Features("categories", width, sizes)


def _check_columns(reader: GraphReader, raw: RawGraph) -> None:
    edges, column = reader.schema.column("edge_index"), reader.x_column
    if edges is not None and edges.optional:
        raise DatasetError(
            f"{raw.origin}: some graphs have no edge_index, which others have; expected it in each, or in none.",
            "For a graph without edges: torch.empty(2, 0, dtype=torch.int64).",
        )
    if column is None:
        return
    if column.optional:
        raise DatasetError(f"{raw.origin}: some graphs have no x, which others have; expected x in each, or in none.")
    if "complex" in column.dtype:
        raise DatasetError(f"{raw.origin}: x is of dtype {column.dtype}; expected real numbers.", "Cast it to float32.")
    if not can_check(column):
        shape = ["nodes", *column.shape] if column.cat_dim == 0 else list(column.shape)
        raise DatasetError(
            f"{raw.origin}: x is {shape} in each graph; expected [nodes, features], one of each at least."
        )
    if column.dtype in ("float16", "bfloat16", "float64"):
        raw.notes.append(f"x is {column.dtype}; it is used as float32.")
