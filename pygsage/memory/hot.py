"""How much of the features is held in RAM when they are read from a file that is too large for the page cache."""

from __future__ import annotations

from pygsage.memory.estimate import Estimate
from pygsage.memory.rows import Row
from pygsage.memory.shapes import DatasetShape
from pygsage.memory.training import on_several_machines
from pygsage.spelling import parse_share

COLD_SHARE = 0.5  # of what is available: features over it are taken as not held by the page cache
PLANNED_SHARE = 0.9  # of what is available: the rest is for pages of the rows that are not held
ALWAYS_FITS_BYTES = 64 << 20


def is_cold(x_bytes: int, available: int | None) -> bool:
    """Whether features of this size, mapped from a file, have to be read again and again."""
    return x_bytes >= ALWAYS_FITS_BYTES and available is not None and x_bytes > COLD_SHARE * available


def topology_bytes(shape: DatasetShape, num_edges: int) -> int:
    """Of the arrays that sampling touches, which the page cache has to hold."""
    return 8 * (shape.num_nodes + 1) + (4 if shape.num_nodes < 2**31 else 8) * num_edges


def hot_rows(shape: DatasetShape, disk: Estimate, num_edges: int, available: int | None) -> int:
    """Rows that each rank holds in RAM: what is left of nine tenths beside the process, the step and the edges.

    Edges that take more than a quarter of what is left beside process and step get a quarter: what a step needs of
    them is read many pages at a time, and sooner than a pass over the features (tools/bench/papers_train.py).

    Each rank has a cache of its own, in memory that nobody can take away: one that is shared would have to lie in
    /dev/shm, which is 64 MB in a container, or in a file, which is the page cache once more. Their sum is bounded.

    Args:
        disk: The estimate of training from disk, without a cache.
        available: RAM for the job; None when it is not known.
    """
    item = 2 if shape.x_dtype == "float16" else 4
    row_bytes = item * shape.num_features
    if shape.num_graphs > 1 or available is None or not is_cold(row_bytes * shape.num_nodes, available):
        return 0
    index = disk.num_ranks * shape.num_nodes * 3 // 16
    need = max(disk.ram_bytes(phase) for phase in disk.phases() if phase in ("train", "evaluate")) + disk.launcher_bytes
    room = int(PLANNED_SHARE * available) - need - index
    room -= min(topology_bytes(shape, num_edges), room // 4)
    return max(0, min(shape.num_nodes, room // (disk.num_ranks * row_bytes)))


def remote_rows(shape: DatasetShape, way: Estimate, told: str, available: int | None) -> int:
    """Rows of other machines that each rank holds in RAM when the features lie in parts; 0 on one machine.

    Args:
        way: The estimate of training, without them.
        told: The option: a share of all rows, or a size.
        available: RAM for the job; None when it is not known.
    """
    if shape.num_parts < 2 or not on_several_machines():
        return 0
    share, size = parse_share(told, "--remote-cache")
    row_bytes = max(1, (2 if shape.x_dtype == "float16" else 4) * shape.num_features)
    rows = min(int(share * shape.num_nodes) if not size else size // row_bytes, shape.num_nodes)
    if available is None:
        return rows
    index = way.num_ranks * shape.num_nodes * 3 // 16
    need = max(way.ram_bytes(phase) for phase in way.phases() if phase in ("train", "evaluate")) + way.launcher_bytes
    return max(0, min(rows, (int(PLANNED_SHARE * available) - need - index) // (way.num_ranks * row_bytes)))


def with_hot_rows(way: Estimate, shape: DatasetShape, num_rows: int) -> Estimate:
    """The same way with the rows that are held."""
    if not num_rows:
        return way
    item = 2 if shape.x_dtype == "float16" else 4
    size = num_rows * item * shape.num_features + shape.num_nodes * 3 // 16
    told = f"{item} x {num_rows:,} rows x {shape.num_features:,} + 1.5 bits x {shape.num_nodes:,} nodes"
    rows = [Row(phase, "rank", "hot rows of the features", size, told, kind="held") for phase in ("train", "evaluate")]
    return Estimate(way.way, (*way.rows, *(row for row in rows if row.phase in way.phases())), way.num_ranks)
