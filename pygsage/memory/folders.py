"""Shapes of what lies on the disk: graph files, graphs of ours, raw folders of OGB, PyG and the TU collection."""

from __future__ import annotations

import gzip
import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from random import Random
from typing import Any

from pygsage.errors import DatasetError, in_words
from pygsage.memory.degrees import MOST_EDGES_COUNTED, Degrees, degrees_of_edges
from pygsage.memory.headers import INTEGER_CODES, Header, read_ints, read_npy, read_npz, read_pt
from pygsage.memory.known import KNOWN, find_known
from pygsage.memory.shapes import TYPE_NUMBERS, DatasetShape, GraphSizes
from pygsage.memory.tu import shape_of_tu

_DEFLATE_RATIO = 1032  # the most that gzip can pack into one byte (zlib's technical details)
_SAMPLED = 20_000  # nodes, and edges, looked at in a larger graph of ours
_MASKS = ("train_mask", "val_mask", "test_mask", "train_idx", "val_idx", "test_idx", "node_id")


def shape_of_file(name: str, path: Path) -> DatasetShape:
    """The shape of an `.npz`, `.npy` or `.pt` file, from its headers; small lists of edges are read for their degrees.

    Raises:
        DatasetError: when it cannot be read, or holds no graph.
    """
    size = path.stat().st_size
    if path.suffix == ".npy":
        header = read_npy(path)
        rows = header.shape[0] if header.shape else 1
        features = header.num_bytes // max(1, rows) // max(1, header.num_bytes // max(1, _values(header)))
        return DatasetShape(
            name, "the header of the file, taken as x", rows, 0, features, x_dtype=header.dtype, file_bytes=size,
            notes=("An .npy file holds one array: edges and labels come on top.",),
        )  # fmt: skip
    if path.suffix == ".npz":
        arrays = read_npz(path)
        if {"adj_indptr", "attr_indptr"} <= set(arrays):
            return _shape_of_benchmark(name, path, arrays, size)
        if {"node_features", "edges", "node_labels"} <= set(arrays):
            return _shape_of_heterophilous(name, path, arrays, size)
        return _from_arrays(name, path, arrays, size, "the headers in the file")
    return _shape_of_pt(name, path, size)


def _from_arrays(name: str, path: Path, arrays: dict[str, Header], size: int, source: str) -> DatasetShape:
    missing = [key for key in ("x", "edge_index") if key not in arrays or len(arrays[key].shape) != 2]
    if missing:
        shown = ", ".join(sorted(arrays)[:12]) or "nothing"
        raise DatasetError(f"{path} has no {missing[0]} of two dimensions; found {shown}.", TYPE_NUMBERS)
    x, edges, y = arrays["x"], arrays["edge_index"], arrays.get("y")
    columns = y.shape[1] if y is not None and len(y.shape) == 2 else 1
    num_edges = edges.shape[1]
    classes, degrees = 0, None
    if columns == 1 and y is not None and y.dtype in INTEGER_CODES:
        classes = _num_classes(path, y)
    if num_edges <= MOST_EDGES_COUNTED and edges.offset is not None and edges.dtype in INTEGER_CODES:
        ids = read_ints(path, edges, 2 * num_edges)
        degrees = degrees_of_edges(ids[:num_edges], ids[num_edges:], x.shape[0], f"all {num_edges:,} edges")
    scored = [_num_in_split(path, arrays, name) for name in ("val", "test")]
    return DatasetShape(
        name=name,
        source=source,
        num_nodes=x.shape[0],
        num_edges=num_edges,
        num_features=x.shape[1],
        num_classes=columns if columns > 1 else classes or 16,
        x_dtype=x.dtype,
        index_dtype=edges.dtype,
        y_dtype=y.dtype if y is not None else "int64",
        y_columns=columns,
        num_train=_num_in_split(path, arrays, "train") or None,
        num_scored=None if None in scored else max(n for n in scored if n is not None),
        other_bytes=sum(arrays[key].num_bytes for key in _MASKS if key in arrays),
        file_bytes=size,
        degrees=degrees,
    )


def _num_in_split(path: Path, arrays: dict[str, Header], name: str) -> int | None:
    """How many nodes a split of the file has; None where it has none such, or that is not known without all of it."""
    listed = arrays.get(f"{name}_mask") or arrays.get(f"{name}_idx")
    if listed is None or len(listed.shape) != 1 or listed.shape[0] > 50_000_000:
        return None
    if listed.dtype != "bool":
        return listed.shape[0]
    found = read_ints(path, listed, listed.shape[0])
    return found.tobytes().count(1) if len(found) == listed.shape[0] else None


def _num_classes(path: Path, y: Header) -> int:
    """The highest of up to 100,000 labels, plus one; 0 when they cannot be read."""
    highest = max(0, max(read_ints(path, y, min(y.shape[0] if y.shape else 0, 100_000)), default=-1))
    if highest >= max(y.shape[0] if y.shape else 0, 10_000):  # as the door has it
        raise DatasetError(f"{path}: {y.name} has the label {highest}, hardly one of as many classes.")
    return highest + 1


def _values(header: Header) -> int:
    total = 1
    for n in header.shape:
        total *= n
    return total


def _shape_of_benchmark(name: str, path: Path, arrays: dict[str, Header], size: int) -> DatasetShape:
    """The gnn-benchmark layout, sparse in the file and dense in memory."""
    rows, columns = arrays["adj_indptr"].shape[0] - 1, 0
    header = arrays.get("attr_shape")
    if header is not None:
        columns = read_ints(path, header, 2)[1]
    labels = arrays.get("labels")
    return DatasetShape(
        name, "the headers in the file (sparse there, dense in memory)", rows, arrays["adj_indices"].shape[0], columns,
        _num_classes(path, labels) if labels is not None else 16, file_bytes=size,
    )  # fmt: skip


def _shape_of_heterophilous(name: str, path: Path, arrays: dict[str, Header], size: int) -> DatasetShape:
    """The layout of Platonov et al., "A critical look at the evaluation of GNNs under heterophily", 2023."""
    x, edges, y = arrays["node_features"], arrays["edges"], arrays["node_labels"]
    return DatasetShape(
        name, "the headers in the file (each edge once there, both ways in PyG)", x.shape[0], 2 * edges.shape[0],
        x.shape[1], _num_classes(path, y), x_dtype=x.dtype, y_dtype=y.dtype, file_bytes=size,
    )  # fmt: skip


def _shape_of_pt(name: str, path: Path, size: int) -> DatasetShape:
    arrays = read_pt(path)
    if not arrays:
        raise DatasetError(f"{path} holds no tensor.", TYPE_NUMBERS)
    graphs = {key.partition(".")[0] for key in arrays if key.endswith(".edge_index")}
    prefixed = {key.removeprefix("0."): header for key, header in arrays.items() if key.startswith("0.")}
    if "0.edge_index" in arrays and graphs == {"0", "1"} and len(arrays["1.edge_index"].shape) == 1:
        # InMemoryDataset: all graphs joined, and where each begins.
        num_graphs = arrays["1.edge_index"].shape[0] - 1
        return _many(name, [prefixed], num_graphs, size, "the headers of the joined tensors")
    if len(graphs) > 1 and all(key.isdigit() for key in graphs):
        each = [
            {key.partition(".")[2]: h for key, h in arrays.items() if key.partition(".")[0] == graph}
            for graph in graphs
        ]
        return _many(name, each, len(graphs), size, f"the headers of {len(graphs):,} graphs")
    if any("_store_dict" in key for key in arrays):
        return _hetero(name, arrays, size)
    flat = prefixed if "0.edge_index" in arrays else {key.rpartition("data.")[2]: h for key, h in arrays.items()}
    shape = _from_arrays(name, path, flat, size, "the headers in the file")
    return DatasetShape(**{**vars(shape), "mapped": frozenset(("x", "edge_index"))})


def _many(name: str, each: list[dict[str, Header]], num_graphs: int, size: int, source: str) -> DatasetShape:
    def total(key: str, axis: int) -> int:
        return sum(graph[key].shape[axis] for graph in each if key in graph and graph[key].shape)

    first = each[0]
    x, y, edge_attr = first.get("x"), first.get("y"), first.get("edge_attr")
    y_total = sum(_values(graph["y"]) for graph in each if "y" in graph)
    return DatasetShape(
        name=name,
        source=source,
        num_nodes=total("x", 0),
        num_edges=total("edge_index", -1),
        num_features=x.shape[1] if x is not None and len(x.shape) == 2 else 0,
        num_graphs=num_graphs,
        x_dtype=x.dtype if x is not None else "float32",
        y_dtype=y.dtype if y is not None else "int64",
        y_columns=max(1, round(y_total / num_graphs)),
        num_edge_features=edge_attr.shape[-1] if edge_attr is not None and len(edge_attr.shape) == 2 else 0,
        file_bytes=size,
    )


def _hetero(name: str, arrays: dict[str, Header], size: int) -> DatasetShape:
    x = [h for key, h in arrays.items() if key.endswith(".x") and len(h.shape) == 2]
    edges = [h for key, h in arrays.items() if key.endswith(".edge_index") and len(h.shape) == 2]
    nodes = sum(h.shape[0] for h in x)
    return DatasetShape(
        name, "the headers in the file, all types together", nodes, sum(h.shape[1] for h in edges),
        round(sum(_values(h) for h in x) / max(1, nodes)), file_bytes=size,
        notes=("The graph is heterogeneous: features are the mean over its node types.",),
    )  # fmt: skip


def shape_of_folder(name: str, folder: Path) -> DatasetShape:
    """The shape of a folder: a graph of ours, or raw data of OGB, the TU collection or a PyG class.

    Raises:
        DatasetError: when it is none of these.
    """
    if (folder / "manifest.json").is_file():
        if _format(folder) == "pygsage-graphs":
            from pygsage.memory.stores import shape_of_store

            return shape_of_store(name, folder)
        return _shape_of_graph_folder(name, folder)
    found = _shape_of_ogb_folder(name, folder) or shape_of_tu(name, folder)
    if found is not None:
        return found
    processed = sorted((folder / "processed").glob("*.pt")) if (folder / "processed").is_dir() else []
    data = [path for path in processed if path.name not in ("pre_transform.pt", "pre_filter.pt")]
    known = find_known(folder.name)
    train_as = f"{known[0]} --root {folder.parent}" if known else ""
    if len(data) == 1:
        return replace(shape_of_file(name, data[0]), train_as=train_as)
    if known is not None:  # before its raw files, since many a class adds edges while it reads them
        from pygsage.memory.shapes import shape_of

        return replace(shape_of(known[0]), train_as=train_as)
    files = sorted([*folder.glob("raw/*.npz"), *folder.glob("*.npz")])
    if len(files) == 1:
        return shape_of_file(name, files[0])
    if (folder / "config.yaml").is_file():
        to_look = f"To look at the run: pygsage info {folder}"
        raise DatasetError(f"{folder} is the folder of a run; expected a dataset.", to_look)
    raise DatasetError(f"{folder} has a layout that is not known; expected OGB's, PyG's or ours.", TYPE_NUMBERS)


def _format(folder: Path) -> str:
    try:
        return str(json.loads((folder / "manifest.json").read_bytes())["format"])
    except (OSError, ValueError, KeyError, TypeError):  # what is wrong is said by who reads it
        return ""


def _shape_of_graph_folder(name: str, folder: Path) -> DatasetShape:
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        if manifest["format"] != "pygsage-graph":
            raise DatasetError(
                f"{folder} holds {manifest['format']}; expected one graph, or a store of many.",
                f"What it holds: pygsage info {folder}",
            )
        arrays: dict[str, Any] = manifest["arrays"]
        x = arrays["x"] if "x" in arrays else manifest["x"]  # the features of a partitioned one lie in its parts
        (num_nodes, num_features), num_edges = x["shape"], arrays["indices"]["shape"][0]
        y = arrays["y"]["shape"]
        splits = sum(told["bytes"] for key, told in arrays.items() if key.startswith("split/"))
        scored = [int(arrays[key]["shape"][0]) for key in ("split/val", "split/test") if key in arrays]
        return DatasetShape(
            name=name,
            source="the manifest of the folder",
            num_nodes=int(num_nodes),
            num_edges=int(num_edges),
            num_features=int(num_features),
            num_classes=int(manifest["num_classes"]) or int(y[-1]),
            x_dtype=x["dtype"],
            y_dtype=arrays["y"]["dtype"],
            made="folder",
            num_parts=len(manifest.get("parts", ())),
            y_columns=int(y[1]) if len(y) > 1 else 1,
            num_train=int(arrays["split/train"]["shape"][0]) if "split/train" in arrays else None,
            num_scored=max(scored, default=None),
            mapped=frozenset(("x", "edge_index")),
            other_bytes=int(splits),
            file_bytes=sum(int(told["bytes"]) for told in arrays.values()),
            degrees=_sampled_degrees(folder, int(num_nodes), int(num_edges)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"The graph in {folder} is damaged ({in_words(error)}).") from None


def _sampled_degrees(folder: Path, num_nodes: int, num_edges: int) -> Degrees | None:
    if not num_nodes or not num_edges:
        return None
    indptr, indices = read_npy(folder / "indptr.npy"), read_npy(folder / "indices.npy")
    random = Random(0)
    nodes: Counter[int] = Counter()
    reached: Counter[int] = Counter()
    width = 4 if indices.dtype == "int32" else 8
    with (
        open(folder / "indptr.npy", "rb") as a,
        open(folder / "indices.npy", "rb") as b,
        mmap(a.fileno(), 0, access=ACCESS_READ) as pointers,
        mmap(b.fileno(), 0, access=ACCESS_READ) as sources,
    ):

        def degree(node: int) -> int:
            if not 0 <= node < num_nodes:
                raise ValueError(f"node {node} of {num_nodes}")
            begin, end = struct.unpack_from("<qq", pointers, (indptr.offset or 0) + 8 * node)
            return int(end) - int(begin)

        for node in random.sample(range(num_nodes), min(num_nodes, _SAMPLED)):
            nodes[degree(node)] += 1
        for edge in random.sample(range(num_edges), min(num_edges, _SAMPLED)):
            place = (indices.offset or 0) + width * edge
            reached[degree(int.from_bytes(sources[place : place + width], "little"))] += 1
    return Degrees(nodes, reached, {}, f"{sum(nodes.values()):,} nodes and {sum(reached.values()):,} edges")


def shape_of_ogb(name: str, root: Path) -> DatasetShape | None:
    """The shape of an OGB dataset's raw files below `root`; None when they are not there."""
    folder = root / name.replace("-", "_")
    for each in (Path(f"{folder}_pyg"), folder):
        if each.is_dir():
            return _shape_of_ogb_folder(name, each)
    return None


def _shape_of_ogb_folder(name: str, folder: Path) -> DatasetShape | None:
    raw = folder / "raw"
    key = folder.name.removesuffix("_pyg").replace("_", "-", 1)
    told = KNOWN.get(key)
    if (raw / "data.npz").is_file():
        return _shape_of_ogb_binary(name, raw / "data.npz")
    if not (raw / "num-node-list.csv.gz").is_file():
        return None
    counts = [list(_lines(raw / f"num-{what}-list.csv.gz")) for what in ("node", "edge")]
    try:
        nodes, edges = ([int(row[0]) for row in rows] for rows in counts)
    except ValueError as error:
        raise DatasetError(f"{raw}: the lists of counts are damaged ({in_words(error)}).") from None
    file_bytes = sum(path.stat().st_size for path in raw.glob("*.gz"))
    if sum(nodes) + 2 * sum(edges) > _DEFLATE_RATIO * file_bytes:
        raise DatasetError(f"{raw}: its counts promise more than its files of {file_bytes:,} bytes can hold.")
    both_ways = key.startswith("ogbg") or key in ("ogbn-products", "ogbn-proteins")  # OGB's add_inverse_edge
    columns, integers = _first_row(raw / "node-feat.csv.gz")
    edge_columns, _ = _first_row(raw / "edge-feat.csv.gz")
    labels, _ = _first_row(next((p for p in sorted(raw.glob("*label.csv.gz"))), raw / "none"))
    return DatasetShape(
        name=name,
        source="the counts in its raw folder",
        num_nodes=sum(nodes),
        num_edges=sum(edges) * (2 if both_ways else 1),
        num_features=columns or (edge_columns if len(nodes) == 1 else 0),
        num_classes=labels if labels > 1 else (told.num_classes if told else 16),
        num_graphs=len(nodes),
        x_dtype="int64" if integers and len(nodes) > 1 else "float32",
        train_as=f"{key} --root {folder.parent}" if told else "",
        y_columns=max(1, labels),
        num_edge_features=edge_columns if len(nodes) > 1 else 0,
        num_train=told.num_train or None if told and len(nodes) == told.num_graphs else None,
        sizes=GraphSizes.of(nodes, [n * (2 if both_ways else 1) for n in edges]) if len(nodes) > 1 else None,
        file_bytes=file_bytes,
    )


def _shape_of_ogb_binary(name: str, path: Path) -> DatasetShape:
    arrays = read_npz(path)
    try:
        x, edges = arrays["node_feat"], arrays["edge_index"]
    except KeyError as error:
        raise DatasetError(f"{path} has no array {error.args[0]!r}.") from None
    stored = {n for n, header in (("x", x), ("edge_index", edges)) if header.offset is not None}
    known = find_known(name)
    return DatasetShape(
        name, "the headers in its raw folder", x.shape[0], edges.shape[1], x.shape[1],
        known[1].num_classes if known else 16, x_dtype="float32" if x.offset is None else x.dtype,
        index_dtype=edges.dtype, num_train=known[1].num_train if known else None, mapped=frozenset(stored),
        file_bytes=path.stat().st_size,
    )  # fmt: skip


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    yield line.strip().split(",")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DatasetError(f"{path} is cut short or damaged ({in_words(error)}).") from None


def _first_row(path: Path) -> tuple[int, bool]:
    """Columns of a table, and whether its first row is of whole numbers; 0 when there is none."""
    row = next(_lines(path), []) if os.path.isfile(path) else []
    return len(row), all(word.lstrip("-").isdigit() for word in row)
