"""Many graphs with labels of nodes, joined into one graph: trained on some of them, tested on others."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.config import TrainConfig
from pygsage.data.many_graphs.door import split_of_words
from pygsage.data.many_graphs.reader import GraphReader
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.prepare import prepare_graph
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.take import SPLIT_KEYS
from pygsage.data.store.checks import check_edges
from pygsage.errors import DatasetError


def join_graphs(reader: GraphReader, raw: RawGraph, config: TrainConfig, need_split: bool) -> Graph:
    """One graph of all graphs of a store, whose ids count through them; no edge leads from one to another.

    A graph that says `split = "train"`, `"val"` or `"test"` has all its nodes in that split; else masks of nodes are
    taken, or `--split` makes new ones over the nodes of all graphs.

    Raises:
        DatasetError: when it cannot be trained on.

    The graph is held in memory.
    """
    found = reader.read(np.arange(reader.num_graphs))
    shifts = torch.from_numpy(np.repeat(found.nodes[:-1], np.diff(found.edges)))
    check_edges((found.edge_index - shifts).T, found.nodes, found.edges, 0, raw.origin)
    raw.x, raw.edge_index = found.x, found.edge_index
    raw.notes.append(f"{reader.num_graphs} graphs with labels of nodes are joined into one.")
    raw.y = _by_node(reader, "y")
    raw.splits = _splits(reader, found.nodes)
    unused = [
        c.key for c in reader.schema.columns if c.key not in {"x", "edge_index", "y", "num_nodes", "split", *raw.splits}
    ]
    if unused:
        raw.notes.append(f"Not used: {', '.join(unused)}.")
    return prepare_graph(raw, config, need_split)


def _splits(reader: GraphReader, nodes: np.ndarray) -> dict[str, Any]:
    word = reader.schema.column("split")
    if word is not None and word.kind == "str":
        by_graph = split_of_words(list(map(str, reader.graph_values(word))))
        return {
            key: torch.cat([torch.arange(nodes[graph], nodes[graph + 1]) for graph in ids.tolist()])
            for key, ids in by_graph.items()
        }
    keys = [key for key in SPLIT_KEYS if key.endswith("_mask")]
    return {key: _by_node(reader, key) for key in keys if reader.schema.column(key) is not None}


def _by_node(reader: GraphReader, key: str) -> Tensor:
    """An attribute of the nodes of all graphs."""
    column = reader.schema.column(key)
    assert column is not None
    if column.optional:
        raise DatasetError(f"{reader.folder}: some graphs have no {key}, which others have; expected it in each.")
    if reader.store is not None:
        value = reader.store.joined(column)
        assert isinstance(value, Tensor)
        return value
    return torch.cat([reader.database.get(number)[key] for number in range(reader.num_graphs)])
