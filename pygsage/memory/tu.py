"""Shapes of raw folders of the TU collection (Morris et al., "TUDataset", 2020): text files whose lines are counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pygsage.errors import DatasetError
from pygsage.memory.shapes import DatasetShape, GraphSizes


def shape_of_tu(name: str, folder: Path) -> DatasetShape | None:
    """The shape of such a folder; None when it is none. Reads two files in pieces.

    Raises:
        DatasetError: when a file is missing.
    """
    raw = folder / "raw" if (folder / "raw").is_dir() else folder
    indicator = next(iter(sorted(raw.glob("*_graph_indicator.txt"))), None)
    if indicator is None:
        return None
    prefix = indicator.name.removesuffix("graph_indicator.txt")
    edges = indicator.with_name(f"{prefix}A.txt")
    by_graph = _graphs_of_nodes(indicator)
    nodes, graphs = sum(by_graph), _count_lines(indicator.with_name(f"{prefix}graph_labels.txt"))
    num_edges = _count_lines(edges)
    degree = num_edges / max(1, nodes)
    columns = 0
    labels = indicator.with_name(f"{prefix}node_labels.txt")
    if labels.is_file():
        columns = len({line for line in labels.read_text().split("\n") if line.strip()})  # as PyG: one-hot
    return DatasetShape(
        name, "the lines of its raw files", nodes, num_edges, columns, num_graphs=max(1, graphs), made="pyg",
        sizes=GraphSizes.of(by_graph, [round(n * degree) for n in by_graph]) if len(by_graph) > 1 else None,
        train_as=f"pyg:TUDataset/{folder.name} --root {folder.parent}",
        file_bytes=sum(path.stat().st_size for path in raw.glob(f"{prefix}*.txt")),
    )  # fmt: skip


def _graphs_of_nodes(indicator: Path) -> list[int]:
    """How many nodes each graph has, from the file with the graph of each node."""
    try:
        with open(indicator, "rb") as file:
            return list(Counter(line.strip() for line in file if line.strip()).values())
    except OSError as error:
        raise DatasetError(f"{indicator} cannot be read: {error.strerror}.") from None


def _count_lines(path: Path) -> int:
    try:
        with open(path, "rb") as file:
            return sum(1 for line in file if line.strip())
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}.") from None
