"""Shapes of stores of many graphs, from their manifests, and the sizes of graphs from slices or a database's rows."""

from __future__ import annotations

import json
import math
import sqlite3
import struct
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pygsage.errors import DatasetError, in_words
from pygsage.memory.degrees import MOST_EDGES_COUNTED, degrees_of_edges
from pygsage.memory.headers import INTEGER_CODES, read_ints, read_npy
from pygsage.memory.shapes import DatasetShape, GraphSizes

_MOST_READ = 4_000_000  # graphs whose sizes are read; of more, of so many of the first
_SAMPLED_ROWS = 2_000
_MOST_LABELS = 100_000
_MOST_MASKED = 50_000_000  # nodes whose mask is read
_CHECKED_VERSION = 1


def shape_of_store(name: str, folder: Path) -> DatasetShape:
    """The shape of a folder that `pygsage convert` wrote of many graphs.

    Those with a label a node are joined into one graph when they are trained on, and the shape is that one's.

    Raises:
        DatasetError: when it is damaged, or a database that the standard library cannot read.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        return _shape(name, folder, manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error, sqlite3.Error) as error:
        raise DatasetError(f"The store in {folder} is damaged ({in_words(error)}).") from None


def _shape(name: str, folder: Path, manifest: dict[str, Any]) -> DatasetShape:
    schema, num_graphs = manifest["schema"], int(manifest["num_graphs"])
    columns = schema["columns"]
    is_rows = manifest["backend"] != "columnar"
    x, edges, y = ([c for c in columns if c["key"] == key] for key in ("x", "edge_index", "y"))
    source = "the manifest of the store"
    if "sizes" in manifest:
        sums, sizes = _noted_sizes(manifest["sizes"], num_graphs)
    else:
        if is_rows:
            nodes, num_edges = _sampled_rows(folder, manifest, x, edges)
            source += f", and {len(nodes):,} of its rows"
        else:
            nodes = _sizes(folder, [count["rows"] for count in schema["counts"]], num_graphs)
            num_edges = _sizes(folder, [column["rows"] for column in edges], num_graphs)
        scale = num_graphs / max(1, len(nodes))
        sums, sizes = (round(sum(nodes) * scale), round(sum(num_edges) * scale)), GraphSizes.of(nodes, num_edges)
    first_x, first_y = (each[0] if each else None for each in (x, y))
    y_columns = first_y["shape"][0] if first_y and first_y["shape"] else 1
    stored = sum(int(entry["bytes"]) for entry in manifest["arrays"].values())
    checked = manifest.get("checked") or {}
    shape = DatasetShape(
        name=name,
        source=source,
        num_nodes=sums[0],
        num_edges=sums[1],
        num_features=first_x["shape"][0] if first_x and first_x["shape"] else int(first_x is not None),
        num_classes=y_columns if y_columns > 1 else _num_classes(folder, first_y, is_rows),
        num_graphs=num_graphs,
        x_dtype=first_x["dtype"] if first_x else "float32",
        index_dtype=edges[0]["dtype"] if edges else "int64",
        y_dtype=first_y["dtype"] if first_y else "int64",
        y_columns=y_columns,
        made="rows" if is_rows else "store",
        sizes=sizes,
        stored_bytes=stored,
        file_bytes=stored,
        is_checked=checked.get("version") == _CHECKED_VERSION,
        notes=("The graphs are heterogeneous: features are those of one node type.",) if schema["hetero"] else (),
    )
    if first_y and first_y["role"] == "node":
        # Joined: features are mapped from the store as they are, ids are shifted; a database is unpacked to one first.
        shape = replace(shape, num_graphs=1, made="files", index_dtype="int64", sizes=None, stored_bytes=None)
        return shape if is_rows else _joined(folder, shape, columns, nodes, num_edges)
    return shape


def _joined(
    folder: Path, shape: DatasetShape, columns: list[Any], nodes: list[int], num_edges: list[int]
) -> DatasetShape:
    """With the training nodes and the degrees of many graphs that are joined into one."""
    names = {column["key"]: column["name"] for column in columns}
    masks = [names[key] for key in ("train_mask", "val_mask", "test_mask") if key in names]
    if "train_mask" in names and shape.num_nodes <= _MOST_MASKED:
        path = folder / f"{names['train_mask']}.npy"
        num_train = read_ints(path, read_npy(path), shape.num_nodes).tobytes().count(1) or None
        shape = replace(shape, num_train=num_train)
    if "edge_index" in names and shape.num_edges <= MOST_EDGES_COUNTED and len(nodes) * shape.num_edges:
        path = folder / f"{names['edge_index']}.npy"
        ids = list(read_ints(path, read_npy(path), 2 * shape.num_edges))
        first = first_edge = 0
        for n, e in zip(nodes, num_edges, strict=True):
            if first:
                ids[2 * first_edge : 2 * (first_edge + e)] = [
                    i + first for i in ids[2 * first_edge : 2 * (first_edge + e)]
                ]
            first, first_edge = first + n, first_edge + e
        told = f"all {shape.num_edges:,} edges"
        shape = replace(shape, degrees=degrees_of_edges(ids[::2], ids[1::2], shape.num_nodes, told))
    return replace(shape, mapped=frozenset(("x",)), other_bytes=len(masks) * shape.num_nodes)


def _noted_sizes(told: dict[str, list[int]], num_graphs: int) -> tuple[tuple[int, int], GraphSizes]:
    """Nodes and edges of all graphs, and how they differ, from what the writer of a database has noted."""
    (nodes, node_squares, most_nodes), (edges, edge_squares, most_edges) = told["nodes"], told["edges"]

    def spread(total: int, squares: int) -> float:
        return math.sqrt(max(0.0, squares / num_graphs - (total / num_graphs) ** 2))

    sizes = GraphSizes(spread(nodes, node_squares), spread(edges, edge_squares), most_nodes, most_edges)
    return (nodes, edges), sizes


def _sizes(folder: Path, rows: list[Any], num_graphs: int) -> list[int]:
    """How many nodes, or edges, each graph has, of all types together."""
    found = [0] * min(num_graphs, _MOST_READ)
    for each in rows:
        if isinstance(each, int):
            found = [n + each for n in found]
            continue
        if "/" in each or each.startswith("."):
            raise ValueError(f"the manifest names the file {each!r}")
        path = folder / f"{each}.npy"
        begins = read_ints(path, read_npy(path), len(found) + 1)
        found = [n + b - a for n, a, b in zip(found, begins, begins[1:], strict=False)]
    return found


def _sampled_rows(
    folder: Path, manifest: dict[str, Any], x: list[Any], edges: list[Any]
) -> tuple[list[int], list[int]]:
    """The same of some rows of a database whose writer noted no sizes."""
    if manifest["backend"] != "sqlite":
        raise DatasetError(
            f"{folder} is a database of {manifest['backend']} that an older version wrote without the sizes of its "
            "graphs; expected them in its manifest.",
            f"Write it again: pygsage convert {folder} NEW_FOLDER --backend {manifest['backend']}",
        )
    columns, num_graphs = manifest["schema"]["columns"], int(manifest["num_graphs"])
    counted = {number for number, c in enumerate(columns) if c in x} or {
        number for number, c in enumerate(columns) if c["role"] == "node" and c["key"] != "num_nodes"
    }
    linked = {number for number, c in enumerate(columns) if c in edges}
    fixed = sum(count["rows"] for count in manifest["schema"]["counts"] if isinstance(count["rows"], int))
    nodes, num_edges = [], []
    head = 8 * (1 + 2 * len(columns))
    quoted = str((folder / "graphs.sqlite").absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    with closing(sqlite3.connect(f"file:{quoted}?mode=ro&immutable=1", uri=True)) as database:
        for number in range(0, num_graphs, max(1, num_graphs // _SAMPLED_ROWS)):
            query = "SELECT substr(row, 1, ?) FROM graphs WHERE id = ?"
            (row,) = database.execute(query, (head, number)).fetchone()
            (num_values,) = struct.unpack_from("<q", row)
            words = struct.unpack_from(f"<{2 * num_values}q", row, 8)
            rows = dict(zip(words[::2], words[1::2], strict=True))
            nodes.append(sum(rows.get(each, 0) for each in counted) if counted else fixed)
            num_edges.append(sum(rows.get(each, 0) for each in linked))
    return nodes, num_edges


def _num_classes(folder: Path, y: dict[str, Any] | None, is_rows: bool) -> int:
    """The highest label plus one of up to 100,000 graphs; 1 for measurements; 16 where labels cannot be read."""
    if y is None or is_rows:
        return 16
    if y["dtype"] not in INTEGER_CODES:
        return 1
    path = folder / f"{y['name']}.npy"
    header = read_npy(path)
    highest = max(read_ints(path, header, min(header.shape[0] if header.shape else 0, _MOST_LABELS)), default=15)
    return min(max(2, highest + 1), 10_000)
