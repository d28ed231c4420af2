"""The door for many graphs: from a store to graphs that can be trained on, or a sentence that says why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.config import TrainConfig
from pygsage.data.checks import INTEGERS
from pygsage.data.graph_reader import GraphReader, GraphsRead, rows_error
from pygsage.data.graph_set import MOST_DEGREES, Changes, Features, GraphSet
from pygsage.data.labels import check_targets
from pygsage.data.prepare import choose_splits
from pygsage.data.raw import SPLITS, RawGraph
from pygsage.data.schema import Column
from pygsage.data.take import SPLIT_KEYS
from pygsage.errors import ConfigError, DatasetError

_ROWS_AT_ONCE = 1 << 19  # nodes and edges looked at in one go
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

    Reads all features and edges once, half a million rows at a time; labels and sizes (16 bytes a graph) stay in RAM.
    """
    if config.relabel:
        raise ConfigError(
            f"--relabel gives the nodes of one graph numbers, and {raw.origin} holds many graphs.", "Leave it out."
        )
    nodes, edges = reader.sizes()
    _check_count(reader, raw)
    raw.unit, raw.y = "graph", _labels(reader, raw)
    if not raw.splits:
        raw.splits = _own_splits(reader)
    told = config.task if config.task != "auto" else task or "auto"
    labels = check_targets(raw, reader.num_graphs, told, config.ignore_label)
    splits = choose_splits(raw, labels, config, need_split)
    features = _features(reader, raw, nodes, edges)
    if config.normalize_features and features.kind != "numbers":
        raise ConfigError(
            f"--normalize-features scales numbers, and the features of {raw.origin} are categories.", "Leave it out."
        )
    if (num_empty := int((np.diff(nodes) == 0).sum())) > 0:
        raw.notes.append(f"{num_empty} graphs have no nodes: their readout is zero.")
    unused = [column.key for column in reader.schema.columns if column.key not in _USED]
    if unused:
        raw.notes.append(f"Not used: {', '.join(unused)} (GraphSAGE takes x and edge_index).")
    return GraphSet(
        name=raw.name,
        store=reader.folder,
        features=features,
        changes=Changes(config.undirected, config.self_loops, config.normalize_features),
        nodes=nodes,
        edges=edges,
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


def _labels(reader: GraphReader, raw: RawGraph) -> Any:
    column = reader.schema.column("y")
    if column is None:
        raise DatasetError(f"{raw.origin}: the graphs have no y; expected a label in each.")
    if column.kind == "str":
        raise DatasetError(f"{raw.origin}: y is a text; expected a number, or a tensor of them, in each graph.")
    y = reader.graph_values(column)
    assert isinstance(y, Tensor)
    if y.dim() > 2:
        raise rows_error("y", 0, [1, *y.shape[1:]])
    return y


def _own_splits(reader: GraphReader) -> dict[str, Any]:
    """Splits from the text `split` of each graph, or from masks of one row a graph."""
    word = reader.schema.column("split")
    if word is not None and word.kind == "str":
        return split_of_words(list(map(str, reader.graph_values(word))))
    found = {key: reader.schema.column(key) for key in SPLIT_KEYS if key.endswith("_mask")}
    return {key: reader.graph_values(column) for key, column in found.items() if column is not None and _is_own(column)}


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


def _features(reader: GraphReader, raw: RawGraph, nodes: np.ndarray, edges: np.ndarray) -> Features:
    """Looks at every feature and edge, and says how the features are used."""
    column = reader.x_column
    if column is not None:
        _check_column(column, raw)
    width = 1 if column is None or not column.shape else column.shape[0]
    lowest, highest = torch.zeros(width, dtype=torch.int64), torch.full((width,), -1, dtype=torch.int64)
    most = 0
    for first, found in _pieces(reader, nodes, edges):
        check_edge_ids(found, first, raw)
        if found.x is None:
            if found.edge_index.size(1):
                most = max(most, int(torch.bincount(found.edge_index[1]).max()))
        elif len(found.x):
            x = found.x.reshape(len(found.x), width)
            if x.dtype in INTEGERS:
                lowest = torch.minimum(lowest, x.amin(0).to(torch.int64))
                highest = torch.maximum(highest, x.amax(0).to(torch.int64))
            else:
                _check_finite(x, found, first, raw)
    if column is None:
        raw.notes.append(
            "There is no x: each node has its number of in-neighbours as a category"
            + (f", {MOST_DEGREES - 1} standing for all from there on." if most >= MOST_DEGREES else ".")
        )
        return Features("degrees", 1, (MOST_DEGREES,))
    if column.torch_dtype not in INTEGERS:
        return Features("numbers", width)
    sizes = tuple((highest + 1).clamp(min=1).tolist())
    if int(lowest.min()) < 0 or sum(sizes) > _MOST_CATEGORIES or max(sizes) <= 2:
        return Features("numbers", width)
    shown = ", ".join(map(str, sizes[:12])) + (", …" if width > 12 else "")
    raw.notes.append(
        f"x is {column.dtype}: {width} column{'s' if width > 1 else ''} of categories ({shown}), which are embedded; "
        "for numbers store x as float."
    )
    return Features("categories", width, sizes)


def _check_column(column: Column, raw: RawGraph) -> None:
    good = column.kind == "tensor" and column.cat_dim == 0 and len(column.shape) <= 1 and 0 not in column.shape
    if not good:
        shape = ["nodes", *column.shape] if column.cat_dim == 0 else list(column.shape)
        raise DatasetError(
            f"{raw.origin}: x is {shape} in each graph; expected [nodes, features], one of each at least."
        )
    if "complex" in column.dtype:
        raise DatasetError(f"{raw.origin}: x is of dtype {column.dtype}; expected real numbers.", "Cast it to float32.")
    if column.optional:
        raise DatasetError(f"{raw.origin}: some graphs have no x, which others have; expected x in each, or in none.")
    if column.dtype in ("float16", "bfloat16", "float64"):
        raw.notes.append(f"x is {column.dtype}; it is used as float32.")


def _pieces(reader: GraphReader, nodes: np.ndarray, edges: np.ndarray) -> Iterator[tuple[int, GraphsRead]]:
    """All graphs by and by, with the number of the first of each piece."""
    first = 0
    while first < reader.num_graphs:
        limit = nodes[first] + edges[first] + _ROWS_AT_ONCE
        last = first + 1
        while last < reader.num_graphs and nodes[last + 1] + edges[last + 1] <= limit and last - first < 4096:
            last += 1
        yield first, reader.read(np.arange(first, last))
        first = last


def check_edge_ids(found: GraphsRead, first: int, raw: RawGraph) -> None:
    """Refuses edges that lead out of their graph.

    Args:
        first: The number of the first of the graphs.

    Raises:
        DatasetError: naming the graph and the edge.
    """
    if found.edge_index.numel() == 0:
        return
    lengths = np.diff(found.edges)
    num_nodes = torch.from_numpy(np.repeat(np.diff(found.nodes), lengths))
    ids = found.edge_index - torch.from_numpy(np.repeat(found.nodes[:-1], lengths))
    outside = ((ids < 0) | (ids >= num_nodes)).any(0)
    if outside.any():
        edge = int(outside.nonzero()[0])
        graph = int(np.searchsorted(found.edges, edge, side="right")) - 1
        source, destination = ids[:, edge].tolist()
        most = int(num_nodes[edge])
        raise DatasetError(
            f"{raw.origin}: graph {first + graph}: edge {edge - int(found.edges[graph])} of edge_index is {source} -> "
            f"{destination}, and the graph has {most} nodes; expected node ids from 0 to {most - 1} in each graph.",
            "Ids count from 0 in each graph, not through all of them.",
        )


def _check_finite(x: Tensor, found: GraphsRead, first: int, raw: RawGraph) -> None:
    wrong = ~torch.isfinite(x.to(torch.float32)) if x.dtype != torch.bool else torch.zeros_like(x)
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        graph = int(np.searchsorted(found.nodes, row, side="right")) - 1
        raise DatasetError(
            f"{raw.origin}: graph {first + graph}: x is {x[row, column].item():g} at node "
            f"{row - int(found.nodes[graph])}, column {column}; expected finite numbers that float32 can hold.",
            "Fill them first, for example with numpy.nan_to_num.",
        )
