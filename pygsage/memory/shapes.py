"""Counts and dtypes of a dataset, from what is known before a byte of its data is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from statistics import pstdev

from pygsage.errors import DatasetError
from pygsage.memory.degrees import Degrees, degrees_as_told
from pygsage.memory.headers import ITEM_BYTES
from pygsage.memory.known import KNOWN, Known, find_known

TYPE_NUMBERS = (
    "Type its numbers instead: pygsage estimate-memory --num-graphs 1 --avg-nodes 1000000 --avg-edges 10000000 "
    "--num-features 128"
)
IN_PYTHON = "a dataset given in Python"  # the name of a shape of one
_TRAIN_SHARE = 0.6  # of the nodes, where a dataset has no split of its own


@dataclass(frozen=True)
class GraphSizes:
    """How the sizes of many graphs differ: standard deviations, and the largest, of nodes and of edges."""

    node_spread: float
    edge_spread: float
    most_nodes: int
    most_edges: int

    @staticmethod
    def of(nodes: Sequence[int], edges: Sequence[int]) -> GraphSizes:
        """Of graphs, or of a sample of them, at least one."""
        return GraphSizes(pstdev(nodes), pstdev(edges), max(nodes), max(edges))


@dataclass(frozen=True)
class DatasetShape:
    """What a dataset holds, over all its graphs.

    Attributes:
        name: As the user named it.
        source: Where the counts come from, in words.
        num_nodes: Nodes.
        num_edges: Directed edges, as stored.
        num_features: Columns of x.
        num_classes: Classes, or width of a model's output.
        num_graphs: 1 for one large graph.
        x_dtype: Dtype of x as stored; it is used as float32.
        index_dtype: Dtype of edge_index as stored.
        y_dtype: Dtype of y as stored.
        y_columns: Labels a node (one graph) or a graph (many).
        num_edge_features: Columns of edge_attr, float32.
        num_train: Training nodes, or graphs; None: taken as 60 %.
        num_scored: Nodes of the larger of the two splits that are scored; None: taken as all that do not train.
        mapped: Those of `x` and `edge_index` that are read from a mapped file: they are not held in RAM as stored.
        other_bytes: Masks and other arrays that are read besides.
        file_bytes: The files as they are; None when they are not there. Never what the estimate is made of.
        degrees: Degree histograms, when there are any.
        made: `files`; `digits`: computed, with a table of distances; `folder`: a graph of ours, mapped as it is;
            `pyg` and `read`: read into RAM by a class of PyG's, or by a recipe. Of many graphs: `store`: they lie in a
            columnar store; `rows`: in a database with a row a graph; `graphs`: made one by one, and written to a store;
            `joined`: likewise, and then joined into one graph, as their labels are of nodes.
        sizes: Of many graphs, how their sizes differ, where that is known.
        stored_bytes: Of many graphs, their files in a store, where they are known.
        num_parts: Of one graph, in how many parts its features lie; 0 where they are whole.
        is_checked: Whether the store says what its writer found in it.
        train_as: What `pygsage train` takes for it; empty: `name`, where that is a dataset's.
        notes: What the counts leave out.
    """

    name: str
    source: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int = 2
    num_graphs: int = 1
    x_dtype: str = "float32"
    index_dtype: str = "int64"
    y_dtype: str = "int64"
    y_columns: int = 1
    num_edge_features: int = 0
    num_train: int | None = None
    num_scored: int | None = None
    mapped: frozenset[str] = field(default_factory=frozenset)
    other_bytes: int = 0
    file_bytes: int | None = None
    degrees: Degrees | None = None
    made: str = "files"
    sizes: GraphSizes | None = None
    stored_bytes: int | None = None
    is_checked: bool = False
    train_as: str = ""
    num_parts: int = 0
    notes: tuple[str, ...] = ()

    @property
    def x_bytes(self) -> int:
        """x as stored."""
        return self.num_nodes * self.num_features * ITEM_BYTES[self.x_dtype]

    @property
    def edge_index_bytes(self) -> int:
        """edge_index as stored."""
        return 2 * self.num_edges * ITEM_BYTES[self.index_dtype]

    @property
    def y_bytes(self) -> int:
        """y as stored."""
        rows = self.num_nodes if self.num_graphs == 1 else self.num_graphs
        return rows * self.y_columns * ITEM_BYTES[self.y_dtype]

    @property
    def edge_attr_bytes(self) -> int:
        """edge_attr, as float32."""
        return 4 * self.num_edges * self.num_edge_features

    @property
    def payload_bytes(self) -> int:
        """All tensors as stored, each once."""
        return self.x_bytes + self.edge_index_bytes + self.y_bytes + self.edge_attr_bytes

    @property
    def scored_size(self) -> int:
        """Nodes that are scored at once, of one graph."""
        rest = max(0, self.num_nodes - self.train_size)
        return rest if self.num_scored is None else self.num_scored

    @property
    def labels_are_read(self) -> bool:
        """Whether labels are held in RAM as stored while the graph is built on disk: not those of files of arrays."""
        return self.made in ("pyg", "read") or self.name.startswith("ogb")

    def with_outputs(self, num_classes: int) -> DatasetShape:
        """The same with another width of a model's output."""
        return replace(self, num_classes=num_classes)

    @property
    def largest_bytes(self) -> int:
        """The largest of many graphs; the mean one where sizes are not known."""
        n, e = self.num_nodes / max(1, self.num_graphs), self.num_edges / max(1, self.num_graphs)
        if self.sizes is not None:
            n, e = self.sizes.most_nodes, self.sizes.most_edges
        by_node = self.num_features * ITEM_BYTES[self.x_dtype]
        return round(n * by_node + e * (2 * ITEM_BYTES[self.index_dtype] + 4 * self.num_edge_features))

    @property
    def train_size(self) -> int:
        """Training nodes, or graphs."""
        if self.num_train:
            return self.num_train
        return max(1, round(_TRAIN_SHARE * (self.num_nodes if self.num_graphs == 1 else self.num_graphs)))


def shape_from_numbers(
    num_graphs: int,
    avg_nodes: float,
    avg_edges: float,
    num_features: int,
    *,
    dtype: str = "float32",
    num_classes: int = 2,
    edge_features: int = 0,
    degree: str | None = None,
) -> DatasetShape:
    """The shape that a user types.

    Args:
        degree: `constant`, `poisson` or `power`; None: unknown.
    """
    num_nodes, num_edges = round(num_graphs * avg_nodes), round(num_graphs * avg_edges)
    return DatasetShape(
        name=f"{num_graphs:,} graph{'s' if num_graphs > 1 else ''}",
        source="the numbers that were typed",
        train_as="DATASET",
        num_nodes=num_nodes,
        num_edges=num_edges,
        num_features=num_features,
        num_classes=num_classes,
        num_graphs=num_graphs,
        x_dtype=dtype,
        num_edge_features=edge_features,
        degrees=degrees_as_told(degree, num_nodes, num_edges) if degree else None,
    )


def shape_from_sample(
    name: str, graphs: Iterable[Mapping[str, tuple[tuple[int, ...], str]]], num_graphs: int, source: str = ""
) -> DatasetShape:
    """The shape of many graphs, from the first of them: each a mapping from `x`, `edge_index`, `y`, … to shape, dtype.

    For recipes: the sample is taken by whoever may load torch; this only scales its means.
    """
    sample = list(graphs)
    if not sample:
        raise DatasetError(f"{name} yielded no graph; expected one at least.", TYPE_NUMBERS)
    none: tuple[tuple[int, ...], str] = ((0, 0), "float32")
    nodes = [g.get("x", ((int(g["num_nodes"][0][0]),) if "num_nodes" in g else (0,), ""))[0][0] for g in sample]
    edges = [prod(g.get("edge_index", none)[0][-1:]) for g in sample]
    scale = num_graphs / len(sample)
    first = sample[0]
    x, edge_attr, y = (first.get(key, none) for key in ("x", "edge_attr", "y"))
    by_node = [g["y"][0][:1] == (n,) if "y" in g else False for g, n in zip(sample, nodes, strict=True)]
    per_node = all(by_node) and max(nodes) > 1
    shape = DatasetShape(
        name=name,
        source=source or f"{len(sample):,} of its {num_graphs:,} graphs",
        num_nodes=round(sum(nodes) * scale),
        num_edges=round(sum(edges) * scale),
        num_features=prod(x[0][1:]),
        num_graphs=num_graphs,
        x_dtype=x[1] if "x" in first else "float32",
        index_dtype=first.get("edge_index", ((), "int64"))[1],
        y_dtype=y[1] if "y" in first else "int64",
        y_columns=max(1, prod(y[0][1:] if per_node or y[0][:1] == (1,) else y[0])),
        num_edge_features=prod(edge_attr[0][1:]) if "edge_attr" in first else 0,
        made="graphs",
        sizes=GraphSizes.of(nodes, edges),
    )
    if not per_node:
        return shape
    masks = sum(prod(g[key][0]) for g in sample for key in ("train_mask", "val_mask", "test_mask") if key in g)
    return replace(
        shape,
        num_graphs=1,
        made="joined",
        mapped=frozenset(("x",)),
        index_dtype="int64",
        other_bytes=round(masks * scale),
    )


def shape_of(dataset: str, root: str | None = None) -> DatasetShape:
    """The shape of a dataset that is named: a file, a folder, or a name of the table. Nothing is downloaded or run.

    Args:
        root: The folder of raw data that `--root` names; its files, if they are there, are asked before the table.

    Raises:
        DatasetError: when its size cannot be known so.
    """
    from pygsage.memory.folders import shape_of_file, shape_of_folder, shape_of_ogb

    path = Path(os.path.expanduser(dataset))
    if os.path.isdir(path):
        return shape_of_folder(dataset, path)
    if path.suffix in (".npz", ".npy", ".pt", ".pth"):
        if not os.path.isfile(path):
            raise DatasetError(f"The file {dataset} does not exist; expected an .npz, .npy or .pt file.")
        return shape_of_file(dataset, path)
    if dataset.partition(":")[0].endswith(".py"):
        raise DatasetError(
            f"{dataset} is a recipe, whose size is known when its first graphs are made; expected numbers or a file.",
            TYPE_NUMBERS,
        )
    if dataset.startswith("ogb") and root is not None:
        found = shape_of_ogb(dataset, Path(os.path.expanduser(root)))
        if found is not None:
            return found
    known = find_known(dataset)
    if known is None:
        raise DatasetError(f"The size of {dataset or 'nothing'} is not known; {_near(dataset)}.", TYPE_NUMBERS)
    found = _from_table(*known)
    return replace(found, train_as=f"{found.name} --root {root}") if root is not None else found


def _from_table(name: str, known: Known) -> DatasetShape:
    csv = known.on_disk == "csv"
    return DatasetShape(
        name=name,
        source=f"a table: {known.source}",
        num_nodes=known.num_nodes,
        num_edges=known.num_edges,
        num_features=known.num_features,
        num_classes=known.y_columns if known.y_columns > 1 else known.num_classes,
        num_graphs=known.num_graphs,
        x_dtype=known.x_dtype,
        y_dtype="float32" if known.y_columns > 1 or known.num_classes == 1 else "int64",
        y_columns=known.y_columns,
        # ogbn-proteins: features of edges become those of nodes while it is read.
        num_edge_features=known.edge_features if known.num_graphs > 1 or not csv else 0,
        num_train=known.num_train or None,
        made="digits" if name == "digits" else "pyg" if name.startswith("pyg:") else "files",
        sizes=GraphSizes(0.0, 0.0, 64, 224) if name == "digits-grid" else None,
    )


def _near(dataset: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(dataset.rpartition("/")[2].lower(), [n.rpartition("/")[2].lower() for n in KNOWN], n=1)
    found = find_known(near[0]) if near else None
    return f"is {found[0]} meant?" if found else "it is neither a file, nor a folder, nor a name of the table"


def with_degrees(shape: DatasetShape, degrees: Degrees) -> DatasetShape:
    """The same with degrees counted elsewhere, such as by a caller that has the graph open."""
    return replace(shape, degrees=degrees)
