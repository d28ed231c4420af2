"""What many graphs take, phase by phase: made into a store, checked, trained on and evaluated, whole graphs a batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pygsage.memory.headers import ITEM_BYTES
from pygsage.memory.placement import held_on_gpu
from pygsage.memory.rows import Row
from pygsage.memory.shapes import DatasetShape
from pygsage.memory.step import graph_forward_bytes, graph_step_bytes

if TYPE_CHECKING:
    from pygsage.memory.training import Training

WRITER_BYTES = 12 << 20  # data/store/column_sink.py: what waits to be written, twice
CHECKED_VALUES = 1 << 19  # data/store/checks.py
TEXT_VALUES = 1 << 22  # data/sources/csv_gz.py
ROWS_AT_ONCE = 1 << 16  # training/graphs.py: nodes and edges of the graphs that are evaluated at a time
ROW_OBJECT_BYTES = 700  # of a label read from a database, with its tensor
SPREAD = 3  # standard deviations that the largest of some thousand batches is above the mean


def layers_of(shape: DatasetShape, training: Training) -> list[tuple[int, int]]:
    """In and out of each layer of a `GraphClassifier` but its last linear map."""
    first = training.hidden if is_embedded(shape) else max(1, shape.num_features)
    return [(first if layer == 0 else training.hidden, training.hidden) for layer in range(len(training.fanouts))]


def is_embedded(shape: DatasetShape) -> bool:
    """Whether features are numbers of categories, or degrees where there are none."""
    return shape.num_features == 0 or shape.x_dtype.startswith(("int", "uint"))


def num_weights_of(shape: DatasetShape, training: Training) -> int:
    """Of the layers, the norms after each, the last map; tables of categories are small beside them."""
    layers = layers_of(shape, training)
    norms = 0 if training.norm == "none" else 2 * training.hidden * len(layers)
    return sum(2 * w * o + o for w, o in layers) + norms + (training.hidden + 1) * shape.num_classes


def batch_sizes(shape: DatasetShape, num_graphs: float, edge_factor: float = 1.0) -> tuple[float, float]:
    """Nodes and edges of the largest of many batches of so many graphs: of mean ones where the spread is not known."""
    share = num_graphs / max(1, shape.num_graphs)
    nodes, edges = shape.num_nodes * share, shape.num_edges * share * edge_factor
    if shape.sizes is None or num_graphs >= shape.num_graphs:
        return nodes, edges
    root = SPREAD * math.sqrt(num_graphs * (1 - share))
    sizes = shape.sizes
    most_nodes, most_edges = num_graphs * sizes.most_nodes, num_graphs * sizes.most_edges * edge_factor
    return min(most_nodes, nodes + root * sizes.node_spread), min(
        most_edges, edges + root * sizes.edge_spread * edge_factor
    )


def many_ours(shape: DatasetShape, way: str) -> list[Row]:
    """Reading and making the store; in memory its pages are to stay there, but the kernel may take them back."""
    stored = shape.stored_bytes or shape.payload_bytes + 24 * (shape.num_graphs + 1)
    largest = shape.largest_bytes
    rows = []
    if shape.made not in ("store", "rows"):
        held, told = 0, "one by one"
        if shape.made in ("pyg", "read"):
            held, told = shape.payload_bytes, "read into RAM by its class"
        elif shape.name.startswith("ogb"):
            pieces = min(TEXT_VALUES, 2 * shape.num_edges) + min(TEXT_VALUES, shape.num_nodes * shape.num_features)
            held, told = 16 * pieces, "16 x up to 4M values of each table at once"
        elif shape.name == "digits-grid":
            held, told = shape.payload_bytes + 2_200 * shape.num_graphs, "made in RAM: payload + 2,200 x graphs"
        buffers = WRITER_BYTES + 4 * largest
        rows += [
            Row("process", "rank", "the dataset", held, told),
            Row("process", "rank", "graphs that wait to be written", buffers, "12 MiB + 4 x the largest graph"),
            Row("process", "rank", "checks", _check_bytes(shape), "up to 512 Ki values at once"),
            Row("save", "disk", "columns and slices", stored, "each array once, as stored", kind="held"),
        ]
    if shape.made == "pyg":
        made = 3 * shape.payload_bytes + 2_200 * shape.num_graphs
        rows.append(Row("read", "rank", "its class makes it, the first time", made, "3 x payload + 2,200 x graphs"))
    by_graph = 64 * shape.num_graphs + 8 * shape.num_graphs * shape.y_columns
    rows.append(Row("read", "rank", "labels, splits, sizes", by_graph, "(64 + 8 x labels) x graphs"))
    if shape.made == "rows":
        each = ROW_OBJECT_BYTES * shape.num_graphs
        rows.append(Row("read", "rank", "labels row by row", each, "700 x graphs"))
        rows.append(
            Row("read", "rank", "checks", 8 * _check_bytes(shape), "up to 1M values at once, with their graphs")
        )
    elif not shape.is_checked and shape.made == "store":
        rows.append(Row("read", "rank", "checks", _check_bytes(shape), "up to 512 Ki values at once"))
    for phase in ("train", "evaluate"):
        rows.append(Row(phase, "rank", "labels, splits, sizes", by_graph // 2, "half of the above", kind="held"))
        if way == "memory" and shape.made != "rows":
            told = "each array once; pages of files"
            rows.append(Row(phase, "mapped", "columns and slices", stored, told, kind="held"))
    return rows


def _check_bytes(shape: DatasetShape) -> int:
    values = min(CHECKED_VALUES, shape.num_nodes * max(1, shape.num_features))
    edges = min(CHECKED_VALUES, shape.num_edges)
    return max((5 + (4 if shape.x_dtype != "float32" else 0)) * values, 12 * edges)


def train_graphs(shape: DatasetShape, training: Training, edge_factor: float, *, compiled: bool = True) -> list[Row]:
    """What each rank holds besides its process while it trains."""
    seeds = min(training.batch_size, -(-shape.train_size // training.num_ranks))
    nodes, edges = batch_sizes(shape, seeds, edge_factor)
    mean = seeds * shape.num_nodes / max(1, shape.num_graphs)
    held, threads = training.sampler_threads + 1, training.sampler_threads
    columns, embedded = max(1, shape.num_features), is_embedded(shape)
    each = nodes * (columns * (8 if embedded else 4) + 12) + 4 * edges
    item = ITEM_BYTES[shape.x_dtype]
    made = nodes * (16 + (0 if shape.x_dtype in ("float32", "int64") else columns * item)) + 36 * edges
    weights = num_weights_of(shape, training)
    step = graph_step_bytes(
        layers_of(shape, training),
        mean,
        (nodes - mean) / SPREAD,
        nodes,
        training.norm,
        training.precision == "bf16",
        embedded,
        keeps=compiled,
    )
    place = "gpu" if training.num_gpus else "rank"
    told = f"{seeds:,} graphs: {nodes:,.0f} nodes, {edges:,.0f} edges"
    rows = [
        Row("train", "rank", "weights, gradients, Adam", 16 * weights, "16 x weights", kind="held"),
        Row(
            "train", "rank", "prepared batches", round(held * each),
            f"(sampler threads + 1) x (nodes x (features x {8 if embedded else 4} + 12) + 4 x edges); {told}",
        ),
        Row(
            "train", "rank", "batches that are being made", round(threads * made),
            "sampler threads x (nodes x (as stored + 16) + 36 x edges)",
        ),
        Row("train", place, "activations and their gradients", step, f"a step played out: {nodes:,.0f} nodes"),
        Row("train", "rank", "order of the graphs", 24 * shape.train_size, "24 x training graphs"),
    ]  # fmt: skip
    if training.num_ranks > 1:
        rows.append(Row("train", "rank", "gradients on their way", 12 * weights, "12 x weights"))
    if training.num_gpus:
        staged = training.placement == "pinned-cuda"
        on_gpu = round(each) * (held + 1 if staged else 1)
        told = "nodes x (4 x features + 12) + 4 x edges" + (", (sampler threads + 2) times" if staged else "")
        rows += [*held_on_gpu(weights), Row("train", "gpu", "batches", on_gpu, told)]
        buffers = held * (1 << max(0, round(each) - 1).bit_length()) if staged else 0
        told = "(sampler threads + 1) x one batch, up to a power of two; pinned"
        rows += [Row(p, "rank", "staging buffers", buffers, told, kind="held") for p in ("train", "evaluate")]
    return rows


def evaluate_graphs(shape: DatasetShape, training: Training, edge_factor: float, *, compiled: bool = True) -> list[Row]:
    """What an evaluation takes: some 65,536 nodes and edges of whole graphs at a time, or the largest graph alone."""
    mean = max(1.0, (shape.num_nodes + shape.num_edges * edge_factor) / max(1, shape.num_graphs))
    nodes = min(shape.num_nodes, ROWS_AT_ONCE * shape.num_nodes / (mean * max(1, shape.num_graphs)))
    edges = min(shape.num_edges * edge_factor, ROWS_AT_ONCE - nodes)
    if shape.sizes is not None:
        nodes, edges = max(nodes, shape.sizes.most_nodes), max(edges, shape.sizes.most_edges * edge_factor)
    columns, embedded = max(1, shape.num_features), is_embedded(shape)
    each = nodes * (columns * (8 if embedded else 4) + ITEM_BYTES[shape.x_dtype] * columns + 28) + 40 * edges
    # Pieces are cut by their rows, so that they differ by about a graph.
    spread = shape.sizes.node_spread if shape.sizes is not None else 0.0
    most = nodes + SPREAD * spread
    work = graph_forward_bytes(layers_of(shape, training), nodes, spread, most, training.norm, keeps=compiled)
    scored = -(-max(0, shape.num_graphs - shape.train_size) // training.num_ranks)
    place = "gpu" if training.num_gpus else "rank"
    return [
        Row("evaluate", place, "activations", work, f"pieces of {nodes:,.0f} nodes played out"),
        Row("evaluate", "rank", "graphs of a piece", round(each), "as while training"),
        Row("evaluate", "rank", "weights, gradients, Adam", 16 * num_weights_of(shape, training), "16 x weights"),
        Row("evaluate", "rank", "scores", 40 * scored * shape.num_classes, "40 x scored graphs x outputs"),
    ]
