"""Many graphs, checked and ready: a store of them, the label of each, splits; and its folder for other processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.data.files.arrays import damaged, map_array, read_manifest, write_array, write_folder, write_manifest
from pygsage.data.many_graphs.reader import GraphReader, GraphsRead
from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import TASKS
from pygsage.data.one_graph.options import add_self_loops, to_undirected
from pygsage.data.one_graph.raw import SPLITS
from pygsage.errors import DatasetError, in_words

FORMAT = "pygsage-graph-set"
VERSION = 1
MOST_DEGREES = 64  # where there are no features: in-degrees from this one on count as one category


@dataclass(frozen=True)
class Features:
    """How the features of the nodes are used.

    Args:
        kind: `numbers`: as they are; `categories`: each column holds numbers of categories; `degrees`: there are
            none, and each node has its in-degree as a category.
        num_columns: Columns of x; 1 for degrees.
        table_sizes: For each column of categories one more than the highest of all graphs.
    """

    kind: str
    num_columns: int
    table_sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Changes:
    """What the options change about each graph, as `--undirected`, `--self-loops` and `--normalize-features`."""

    undirected: bool = False
    self_loops: bool = False
    normalize_features: bool = False


@dataclass(frozen=True, eq=False)
class GraphInputs:
    """Some graphs joined, ready for a model.

    Attributes:
        x: float32 [n, F], or int64 [n, columns] of categories.
        indptr, indices: int32 or int64: in-neighbours of each node, as rows of x.
        ptr: [k + 1], of the dtype of `indptr`: where each graph's nodes begin.
        n_id: int64 [n]: the number of each node through all graphs of the dataset.
    """

    x: Tensor
    indptr: Tensor
    indices: Tensor
    ptr: Tensor
    n_id: Tensor


@dataclass(frozen=True, eq=False)
class GraphSet:
    """Many graphs with a label each.

    Args:
        name: The dataset as the user named it.
        store: The folder of the store, of any backend.
        features: How the features of the nodes are used.
        changes: What options change about each graph.
        nodes, edges: int64 [G + 1]: where each graph's nodes and edges begin, counted through all graphs.
        y: int64 [G], classes from 0, -1 where there is no label; for other tasks float32 [G, C] with NaN for missing.
        splits: int64 numbers of graphs under those of `train`, `val`, `test` that exist.
        num_classes: The highest label plus one; 0 when the labels are no classes.
        task: `classes`, `multilabel` or `regression`.
        notes: Lines worth telling the user.

    It is handed to other processes as a folder with all of this but the graphs, which stay in their store.
    """

    name: str
    store: Path
    features: Features
    changes: Changes
    nodes: np.ndarray
    edges: np.ndarray
    y: Tensor
    splits: dict[str, Tensor]
    num_classes: int
    task: str
    notes: tuple[str, ...] = ()
    folder: Path | None = field(default=None, init=False, repr=False)

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return len(self.nodes) - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return int(self.nodes[-1])

    @property
    def num_edges(self) -> int:
        """Number of directed edges of all graphs, as they are stored."""
        return int(self.edges[-1])

    @property
    def num_features(self) -> int:
        """Number of features a node, or of columns of categories."""
        return self.features.num_columns

    @property
    def num_outputs(self) -> int:
        """Width of a model's output: the classes, or the columns of `y`."""
        return self.num_classes if self.task == "classes" else self.y.size(1)

    @cached_property
    def reader(self) -> GraphReader:
        """The store, opened when it is first used."""
        return GraphReader(self.store)

    def inputs(self, ids: Tensor) -> GraphInputs:
        """The graphs of these numbers, int64 [k], in this order. What it gives of each is the same in any company."""
        return inputs_from(
            self.reader.read(ids.numpy()), self.features, self.changes, self.nodes[ids.numpy()].astype(np.int64)
        )

    def save(self, folder: str | Path) -> None:
        """Writes all but the graphs to a folder that is new or empty: all of it, or nothing.

        Raises:
            DatasetError: when the folder holds something already, or cannot be written.
        """
        write_folder(folder, self._write)

    def _write(self, folder: Path) -> None:
        (folder / "split").mkdir()
        arrays = {"nodes": self.nodes, "edges": self.edges, "y": self.y.numpy()}
        arrays |= {f"split/{name}": ids.numpy() for name, ids in self.splits.items()}
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "store": str(self.store.absolute()),
            "features": vars(self.features),
            "changes": vars(self.changes),
            "num_classes": self.num_classes,
            "task": self.task,
            "notes": list(self.notes),
            "arrays": {name: write_array(folder, name, array) for name, array in arrays.items()},
        }
        write_manifest(folder, manifest)

    @staticmethod
    def open(folder: str | Path) -> GraphSet:
        """Opens what `save` wrote, with the graphs in their store.

        Raises:
            DatasetError: when the folder is missing, incomplete, truncated, or not one of ours.
        """
        folder = Path(folder).absolute()
        manifest = read_manifest(folder, {FORMAT: VERSION})
        try:
            arrays = {name: map_array(folder, name, told) for name, told in manifest["arrays"].items()}
            told = manifest["features"]
            graphs = GraphSet(
                name=str(manifest["name"]),
                store=Path(manifest["store"]),
                features=Features(told["kind"], int(told["num_columns"]), tuple(map(int, told["table_sizes"]))),
                changes=Changes(**manifest["changes"]),
                nodes=arrays["nodes"].numpy(),
                edges=arrays["edges"].numpy(),
                y=arrays["y"],
                splits={name: arrays[f"split/{name}"] for name in SPLITS if f"split/{name}" in arrays},
                num_classes=int(manifest["num_classes"]),
                task=str(manifest["task"]),
                notes=tuple(map(str, manifest["notes"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise damaged(folder, in_words(error)) from None
        if len(graphs.y) != graphs.num_graphs or graphs.task not in TASKS or "train" not in graphs.splits:
            raise damaged(folder, "the lengths of its arrays do not agree")
        object.__setattr__(graphs, "folder", folder)
        return graphs

    def __reduce__(self) -> tuple[Callable[..., GraphSet], tuple[Any, ...]]:
        if self.folder is None:
            raise DatasetError("A GraphSet in RAM is not sent to other processes; expected save(folder) before.")
        return GraphSet.open, (self.folder,)


def inputs_from(found: GraphsRead, features: Features, changes: Changes, first_nodes: np.ndarray) -> GraphInputs:
    """What a model takes of graphs that were read.

    Args:
        first_nodes: int64 [k]: the number of each graph's first node through all graphs of the dataset.
    """
    num_nodes = int(found.nodes[-1])
    edge_index = found.edge_index
    if changes.undirected:
        edge_index = to_undirected(edge_index, None, num_nodes)[0]
    if changes.self_loops:
        edge_index = add_self_loops(edge_index, None, num_nodes)[0]
    indptr, indices, _ = build_csc(edge_index, num_nodes)
    if len(indices) < 2**31:
        indptr = indptr.to(torch.int32)
    lengths = np.diff(found.nodes)
    n_id = np.arange(num_nodes) + np.repeat(first_nodes - found.nodes[:-1], lengths)
    if features.kind == "degrees":
        x = indptr.diff().clamp(max=MOST_DEGREES - 1).to(torch.int64).unsqueeze(1)
    else:
        assert found.x is not None
        x = found.x.reshape(num_nodes, features.num_columns)
        x = x.to(torch.int64) if features.kind == "categories" else x.to(torch.float32)
        if changes.normalize_features:
            x = _normalized(x, found.nodes)
    return GraphInputs(
        x, indptr, indices.to(indptr.dtype), torch.from_numpy(found.nodes).to(indptr.dtype), torch.from_numpy(n_id)
    )


def _normalized(x: Tensor, nodes: np.ndarray) -> Tensor:
    """PyG's `NormalizeFeatures` of each graph: less its lowest value, rows then divided by their sum."""
    lengths = np.diff(nodes)
    full = lengths > 0
    if not full.any() or x.size(1) == 0:
        return x
    lowest = np.minimum.reduceat(x.numpy().min(axis=1), nodes[:-1][full])
    x = x - torch.from_numpy(np.repeat(lowest, lengths[full])).unsqueeze(1)
    return x.div_(x.sum(dim=1, keepdim=True).clamp_(min=1.0))
