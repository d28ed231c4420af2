"""What a dataset takes, phase by phase and place by place, in our way and in PyG's: pure arithmetic, formulas beside.

All of it in bytes. RAM is what cannot be dropped, RssAnon + RssShmem: mapped files come and go with the page cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pygsage.memory.building import SCRATCH_VALUES, columns_rows, on_disk_rows
from pygsage.memory.evaluation import evaluate_nodes
from pygsage.memory.graphs import evaluate_graphs, many_ours, train_graphs
from pygsage.memory.headers import ITEM_BYTES
from pygsage.memory.rows import PHASES, Row
from pygsage.memory.shapes import DatasetShape
from pygsage.memory.training import Training, batch_of, train_rows

Way = Literal["memory", "disk", "pyg"]

# Measured by tools/bench/estimate_accuracy.py --baseline with torch 2.13 (CPU), PyG 2.8.1, Python 3.11 on x86-64.
RANK_BYTES = 312 << 20  # interpreter, torch, PyG, scikit-learn, metrics, threads
CUDA_BYTES = (
    420 << 20
)  # what a CUDA build of torch takes besides, once it is in use: for the most part RAM of the driver
DISTRIBUTED_BYTES = 8 << 20  # gloo and its threads
LAUNCHER_BYTES = 300 << 20  # the process that starts several ranks and waits; not a rank
GRAPH_OBJECT_BYTES = 2_200  # of Python and tensor objects a `Data` with three tensors, PyG 2.8.1
LIBRARY_BYTES = 16 << 20  # what is left after the first steps besides: MKL's packed matrices, threads
BUILD_BYTES = 256 << 20  # RAM for sorting the edges of one graph that is built on disk
LOADER_BYTES_PER_EDGE = 16  # a stock NeighborLoader's own CSC


@dataclass(frozen=True)
class Estimate:
    """Rows of one way to hold and train a dataset.

    Attributes:
        way: `memory` and `disk` are ours, `pyg` is InMemoryDataset, NeighborLoader and its layer-wise inference.
        rows: Phase by phase.
        num_ranks: Processes of this machine.
    """

    way: Way
    rows: tuple[Row, ...]
    num_ranks: int

    def phases(self) -> list[str]:
        """Those that occur, in order."""
        return [phase for phase in PHASES if any(row.phase == phase for row in self.rows)]

    def highest_phase(self) -> str:
        """The phase that takes the most RAM."""
        return max(self.phases(), key=self.ram_bytes)

    def place_bytes(self, phase: str, place: str) -> int:
        """What a phase takes of `shared`, `rank` (one of them), `worker`, `shm`, `disk` or `gpu`."""
        return sum(row.num_bytes for row in self.rows if row.phase == phase and row.place == place)

    def first_rank_bytes(self, phase: str) -> int:
        """RAM of the rank that opens the dataset, which holds what is shared."""
        return self.place_bytes(phase, "shared") + self.place_bytes(phase, "rank")

    def ram_bytes(self, phase: str) -> int:
        """RAM of all ranks and workers of the machine together, in a phase; /dev/shm is RAM too."""
        others = self.place_bytes(phase, "rank") if phase in ("train", "evaluate") else _base(self.rows)
        whole = self.first_rank_bytes(phase) + (self.num_ranks - 1) * others
        return whole + self.place_bytes(phase, "worker") + self.place_bytes(phase, "shm")

    @property
    def peak_bytes(self) -> int:
        """The ranks' own peaks, added up, as `TrainResult.peak_bytes` measures them."""
        first = max(self.first_rank_bytes(phase) for phase in self.phases())
        other = max((self.place_bytes(p, "rank") for p in ("train", "evaluate")), default=0)
        return first + (self.num_ranks - 1) * other

    @property
    def launcher_bytes(self) -> int:
        """RAM of the process that starts several ranks; it is none of them."""
        return LAUNCHER_BYTES if self.num_ranks > 1 else 0

    @property
    def need_bytes(self) -> int:
        """The RAM that the machine must have: the highest phase, mapped pages that are to stay, and the launcher."""
        return max(self.ram_bytes(p) + self.place_bytes(p, "mapped") for p in self.phases()) + self.launcher_bytes

    @property
    def disk_bytes(self) -> int:
        """The most that is on the disk at once."""
        held = sum(row.num_bytes for row in self.rows if row.place == "disk" and row.kind == "held")
        work = max((sum(r.num_bytes for r in self._work(p)) for p in self.phases()), default=0)
        return held + work

    @property
    def built_disk_bytes(self) -> int:
        """The most that is on the disk while a dataset is built there."""
        held = sum(row.num_bytes for row in self.rows if row.place == "disk" and row.kind == "held")
        return held + sum(row.num_bytes for row in self._work("process"))

    def _work(self, phase: str) -> list[Row]:
        return [r for r in self.rows if r.phase == phase and r.place == "disk" and r.kind == "work"]

    @property
    def gpu_bytes(self) -> int:
        """The highest phase of one GPU."""
        return max((self.place_bytes(phase, "gpu") for phase in self.phases()), default=0)


def estimate(
    shape: DatasetShape,
    training: Training,
    way: Way = "memory",
    *,
    base_bytes: int | None = None,
    compiled: bool = True,
    build_bytes: int = BUILD_BYTES,
    cold: bool = False,
) -> Estimate:
    """The rows of a dataset, the options of a training, and a way.

    Args:
        build_bytes: RAM for sorting edges while a graph is built on disk.
        base_bytes: What a rank's process takes without any data, where the caller has measured it.
        compiled: Whether the native core serves; NumPy's sort takes 8 bytes an edge more.
        cold: Whether features that are mapped do not fit in the page cache.
    """
    num_edges = edges_in_use(shape, training)
    if shape.num_graphs > 1:
        factor = num_edges / max(1, shape.num_edges)
        rows = _many_pyg(shape) if way == "pyg" else many_ours(shape, way)
        rows += train_graphs(shape, training, factor, compiled=compiled)
        rows += evaluate_graphs(shape, training, factor, compiled=compiled) if way != "pyg" else []
    elif way == "pyg":
        rows = [*_one_pyg(shape), *train_rows(shape, training, num_edges), *_unfused(shape, training, num_edges)]
        rows += _evaluate_pyg(shape, training)
    else:
        rows = _one_ours(shape, training, way, compiled, build_bytes)
        rows += train_rows(shape, training, num_edges, compiled=compiled, cold=cold)
        rows += evaluate_nodes(shape, training, num_edges, on_disk=way == "disk", cold=cold)
    rows += _library_rows(rows)
    if not training.evaluates:
        rows = [row for row in rows if row.phase != "evaluate"]
    base = RANK_BYTES if base_bytes is None else base_bytes
    rows = [*_process_rows(rows, base, training), *rows]
    return Estimate(way, tuple(rows), training.num_ranks)


def edges_in_use(shape: DatasetShape, training: Training) -> int:
    """Edges after `--undirected` (at most twice as many) and `--self-loops`."""
    doubled = shape.num_edges * (2 if training.undirected else 1)
    return doubled + (shape.num_nodes if training.self_loops else 0)


def rule_of_thumb_bytes(shape: DatasetShape) -> int:
    """Graphs x nodes x features x 4, as it circulates: no edges, labels, slices, objects, nor the copy while saving."""
    return shape.num_nodes * shape.num_features * 4


def csc_factor(num_nodes: int, num_edges: int, *, compiled: bool = True) -> float:
    """Peak of building the CSC over 8 bytes an edge: the list, the sources and places in it, the nodes' counters."""
    return _csc_bytes(num_nodes, num_edges, compiled) / (8 * num_edges) if num_edges else 0.0


def _csc_bytes(num_nodes: int, num_edges: int, compiled: bool) -> int:
    index = 4 if num_nodes < 2**31 else 8
    return (16 + index + 8 + (0 if compiled else 8)) * num_edges + 16 * num_nodes


def _process_rows(rows: list[Row], base: int, training: Training) -> list[Row]:
    extra = (CUDA_BYTES if training.num_gpus else 0) + (DISTRIBUTED_BYTES if training.num_ranks > 1 else 0)
    what, formula = "Python, torch, PyG", "measured: interpreter, libraries, threads" + (", gloo" if extra else "")
    return [
        Row(phase, "rank", what, base + extra, formula, kind="base")
        for phase in PHASES
        if any(row.phase == phase for row in rows)
    ]


def _library_rows(rows: list[Row]) -> list[Row]:
    """Buffers that matrix products and threads keep once they have been used, larger for larger matrices."""
    found = []
    for phase in ("train", "evaluate"):
        work = sum(row.num_bytes for row in rows if row.phase == phase and row.place == "rank" and row.kind == "work")
        size = min(LIBRARY_BYTES, work // 2)
        found.append(Row(phase, "rank", "buffers of libraries", size, "half of the work, up to 16 MiB", kind="held"))
    return found


def _base(rows: tuple[Row, ...]) -> int:
    return next((row.num_bytes for row in rows if row.kind == "base"), 0)


def _one_ours(shape: DatasetShape, training: Training, way: Way, compiled: bool, build_bytes: int) -> list[Row]:
    if shape.made == "folder" and not (training.undirected or training.self_loops):
        return _one_mapped(shape)
    if way == "disk":
        return on_disk_rows(shape, edges_in_use(shape, training), training, build_bytes)
    n, f, e, e2 = shape.num_nodes, shape.num_features, shape.num_edges, edges_in_use(shape, training)
    x, x_ours = shape.x_bytes, 4 * n * f
    index = 4 if n < 2**31 else 8
    y_ours = (8 if shape.y_columns == 1 else 4) * n * shape.y_columns
    splits = 8 * n
    graph = [
        ("features, float32", x_ours, f"4 x {n:,} nodes x {f:,}", "x"),
        (
            "edges by destination (CSC)",
            8 * (n + 1) + (index + 8) * e2,
            f"8 x nodes + {index + 8} x {e2:,} edges",
            "edges",
        ),
        (
            "labels and splits",
            y_ours + splits,
            "16 x nodes" if shape.y_columns == 1 else "(8 + 4 x labels) x nodes",
            "",
        ),
    ]
    converted = shape.x_dtype != "float32"
    x_mapped = "x" in shape.mapped and not converted
    edges_mapped = "edge_index" in shape.mapped and shape.index_dtype == "int64"
    x_held = 0 if x_mapped else x_ours
    edges = 0 if edges_mapped and e2 == e else 16 * e2
    stored = 0 if "edge_index" in shape.mapped else shape.edge_index_bytes
    scratch = min(SCRATCH_VALUES, n * f)
    others = shape.y_bytes + shape.other_bytes
    x_stored, item = 0 if "x" in shape.mapped else x, ITEM_BYTES[shape.x_dtype]
    x_new, told = x_ours if converted else 0, f"4 x {n:,} nodes x {f:,}"
    kept = others + y_ours + splits + n
    rows = [
        Row("read", "shared", "features as stored", x_stored, f"{n:,} nodes x {f:,} x {item}"),
        Row("read", "shared", "features as float32", x_new, f"{told} ({shape.x_dtype} is converted)"),
        Row("read", "shared", "edges as stored", stored, f"2 x {e:,} x {ITEM_BYTES[shape.index_dtype]}"),
        Row("read", "shared", "labels and masks", others, "as stored"),
        Row("read", "rank", "checks", scratch, "up to 4M values at once"),
        Row("process", "shared", "features, float32", x_held, told),
        Row("process", "shared", "labels, masks, splits", kept, "as stored, and (8 + 8 + 1) x nodes"),
    ]
    if shape.made == "digits":
        table = 8 * n * n
        rows.append(Row("read", "rank", "table of distances", 3 * table, "3 x 8 x nodes x nodes"))
    rows += columns_rows(shape)
    factor = csc_factor(n, e2, compiled=compiled)
    csc = _csc_bytes(n, e2, compiled) - 16 * e2 + edges
    adding = (16 + 40 + (24 if training.undirected else 0)) * e if training.undirected or training.self_loops else 0
    if adding > csc:
        rows.append(Row("process", "shared", "adding edges", adding, "80 x edges"))
    else:
        formula = f"{factor:.2f} x 8 x {e2:,} edges, by counting sort"
        rows.append(Row("process", "shared", "building the CSC", csc, formula))
    if training.num_ranks > 1:
        rows.append(
            Row("save", "shared", "the graph", sum(size for _, size, _, _ in graph) - x_ours + x_held, "as below")
        )
        for what, size, formula, _ in graph:
            rows.append(Row("save", "disk", what, size, formula + "; mapped by all ranks", kind="held"))
        return rows
    for phase in ("train", "evaluate"):
        for what, size, formula, key in graph:
            in_ram = x_held if key == "x" else size
            rows.append(
                Row(phase, "shared", what, in_ram, formula + (" (mapped)" if in_ram < size else ""), kind="held")
            )
    return rows


def _one_mapped(shape: DatasetShape) -> list[Row]:
    """A graph of ours is mapped as it is: pages of the files come and go with the page cache."""
    told = "mapped from its folder"
    return [Row(phase, "shared", "the graph", 0, told, kind="held") for phase in ("read", "train", "evaluate")]


def _one_pyg(shape: DatasetShape) -> list[Row]:
    payload = shape.payload_bytes
    csc = (LOADER_BYTES_PER_EDGE + 16) * shape.num_edges + 16 * shape.num_nodes
    loaders = 2 * LOADER_BYTES_PER_EDGE * shape.num_edges + 16 * shape.num_nodes
    rows = [
        Row("process", "shared", "the graph", payload, "all tensors"),
        Row("save", "shared", "the graph and the buffer it is saved through", 2 * payload, "2.0 x payload"),
        Row("save", "disk", "processed/data.pt", payload, "payload", kind="held"),
        Row("load", "shared", "the graph", payload, "payload"),
        Row("load", "shared", "a loader's CSC while it is sorted", csc, "32 x edges + 16 x nodes"),
    ]
    for phase in ("train", "evaluate"):
        rows.append(Row(phase, "shared", "the graph", payload, "payload", kind="held"))
        rows.append(Row(phase, "shared", "CSC of two loaders", loaders, "2 x 16 x edges", kind="held"))
    return rows


def _unfused(shape: DatasetShape, training: Training, num_edges: int) -> list[Row]:
    """A stock loader gathers the rows of all nodes that are reached, and the first layer its messages."""
    batch = batch_of(shape, training, num_edges)
    size = round(4 * (3 * batch.num_nodes[-1] + batch.num_edges[-1]) * shape.num_features)
    return [Row("train", "rank", "outermost hop", size, "4 x (3 x nodes reached + edges) x features")]


def _many_pyg(shape: DatasetShape) -> list[Row]:
    payload, objects = shape.payload_bytes, GRAPH_OBJECT_BYTES * shape.num_graphs
    whole = payload + objects
    return [
        Row("process", "shared", "a list of all graphs", whole, f"payload + {GRAPH_OBJECT_BYTES:,} x graphs"),
        Row("collate", "shared", "the list, and its tensors joined", whole + payload, "list + payload"),
        Row("save", "shared", "list, joined, and the buffer", whole + 2 * payload, "3 x payload + 2,200 x graphs"),
        Row("save", "disk", "processed/data.pt", payload, "payload", kind="held"),
        Row("load", "shared", "joined tensors", payload, "payload", kind="held"),
        Row("train", "shared", "joined tensors", payload, "payload", kind="held"),
        Row("evaluate", "shared", "joined tensors", payload, "payload", kind="held"),
    ]


def _evaluate_pyg(shape: DatasetShape, training: Training) -> list[Row]:
    if shape.num_graphs > 1:
        return []
    width = max(shape.num_features, training.hidden)
    size = 3 * 4 * shape.num_nodes * width
    formula = f"3 x 4 x {shape.num_nodes:,} nodes x {width:,}"
    return [Row("evaluate", "rank", "layer-wise inference", size, formula)]
