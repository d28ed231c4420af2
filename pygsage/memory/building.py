"""RAM and disk of one graph that is built on disk, step by step as data/one_graph/build.py does it."""

from __future__ import annotations

from pygsage.memory.graphs import WRITER_BYTES
from pygsage.memory.headers import ITEM_BYTES
from pygsage.memory.rows import Row
from pygsage.memory.shapes import DatasetShape
from pygsage.memory.training import Training

SCRATCH_VALUES = 1 << 22  # data/one_graph/checks.py and build.py: values that are looked at, or written, at once
BLOCK_BYTES = 40 << 20  # data/one_graph/external.py: a block of edges while it is dealt out
EDGE_BYTES_TO_SORT = (36, 53)  # data/one_graph/external.py: RAM an edge of a range; where edges are added or left out


def on_disk_rows(shape: DatasetShape, num_edges: int, training: Training, build_bytes: int) -> list[Row]:
    """The rows of a graph that is built file by file and then mapped.

    Args:
        num_edges: After edges were added.
        build_bytes: RAM for sorting edges.
    """
    n, f = shape.num_nodes, shape.num_features
    index = 4 if n < 2**31 else 8
    y_ours = (8 if shape.y_columns == 1 else 4) * n * shape.y_columns
    x_item = 2 if shape.x_dtype == "float16" else 4
    dealt = (2 if training.undirected else 1) * shape.num_edges
    told = "read into RAM by other code"
    held = shape.payload_bytes if shape.made in ("pyg", "read") else 0
    held_x, held_edges = (shape.x_bytes, shape.edge_index_bytes) if held else (0, 0)
    labels = (held - held_x - held_edges or shape.y_bytes) + shape.other_bytes if shape.labels_are_read else 0
    parts = {"x": shape.x_bytes, "edge_index": shape.edge_index_bytes}
    packed = 0 if held else sum(size for key, size in parts.items() if key not in shape.mapped)
    each = 1 if shape.x_dtype in ("float32", "float16") else 5  # is it finite, and the float32 that it becomes
    step, size, formula = highest_step(shape, training, build_bytes)
    mapped = told if held else "mapped, or unpacked to a file"
    rows = [
        Row("read", "shared", "features as stored", held_x, mapped),
        Row("read", "shared", "edges as stored", held_edges, mapped),
        Row("read", "shared", "labels and masks", labels, "as stored" if labels else mapped),
        Row("read", "rank", "checks", each * min(SCRATCH_VALUES, n * f), f"{each} x up to 4M values at once"),
        Row("process", "shared", "features and edges", held_x + held_edges, mapped),
        Row("process", "shared", "labels and masks", labels, "as stored" if labels else mapped),
        Row("process", "rank", step, size, formula),
        Row("process", "disk", "edges while they are sorted", 16 * dealt, f"16 x {dealt:,} edges"),
        Row("process", "disk", "arrays that are unpacked", packed, "as stored"),
        Row("save", "disk", "features", x_item * n * f, f"{x_item} x {n:,} nodes x {f:,}", kind="held"),
        Row(
            "save", "disk", "edges by destination (CSC)", 8 * (n + 1) + (index + 8) * num_edges,
            f"8 x nodes + {index + 8} x {num_edges:,} edges", kind="held",
        ),
        Row("save", "disk", "labels and splits", y_ours + 8 * n, "y and 8 x nodes", kind="held"),
        *columns_rows(shape),
    ]  # fmt: skip
    told = "mapped from its folder"
    return rows + [Row(phase, "shared", "the graph", 0, told, kind="held") for phase in ("train", "evaluate")]


def highest_step(shape: DatasetShape, training: Training, build_bytes: int) -> tuple[str, int, str]:
    """Which step after the features were checked takes the most RAM: its name, its bytes, and the formula.

    One step's memory is free before the next: what they take is not added up.
    """
    n, e = shape.num_nodes, shape.num_edges
    dealt = (2 if training.undirected else 1) * e
    each = EDGE_BYTES_TO_SORT[training.undirected or training.self_loops]
    # external.write_csc: a range has up to `most` edges and nodes; nodes are counted before, not while one is sorted.
    most = max(build_bytes - 16 * n, build_bytes // 4) // each
    block = min(BLOCK_BYTES, 96 * e)
    edges = min(dealt, most)
    nodes = min(n, most, -(-n * edges // max(1, dealt)))
    in_ram = 16 * edges - block // 2 if nodes == n else 0  # one range: its blocks need no sorting to be dealt out
    edges += nodes if training.self_loops else 0
    copied = 0 if shape.x_dtype in ("float32", "float16") else 8 * min(SCRATCH_VALUES, n * shape.num_features)
    by_label = 25 if shape.y_columns == 1 else 17 + ITEM_BYTES[shape.y_dtype]
    steps = [
        ("labels while they are checked", by_label * n * shape.y_columns, f"{by_label} x labels"),
        ("splits, and features while they are written", 8 * n + copied, "8 x nodes + 8 x up to 4M values at once"),
        ("splits, and edges while they are counted", 24 * n + block // 8, "24 x nodes + positions of a block"),
        ("splits, and edges while they are dealt out", 8 * n + in_ram + block, "8 x nodes + a block, 40 MiB"),
        (
            "splits, and edges while they are sorted", 8 * n + each * edges + 16 * nodes,
            f"8 x nodes + {each} x {edges:,} edges at once + 16 x {nodes:,} of their nodes",
        ),
    ]  # fmt: skip
    return max(steps, key=lambda step: step[1])


def columns_rows(shape: DatasetShape) -> list[Row]:
    """Of graphs that are joined: they are written to a store first, one by one."""
    if shape.made != "joined":
        return []
    told = "12 MiB + 4 x the largest graph"
    return [
        Row("read", "rank", "graphs that wait to be written", WRITER_BYTES + 4 * shape.largest_bytes, told),
        Row("save", "disk", "the graphs' columns", shape.payload_bytes, "each array once, as stored", kind="held"),
    ]
