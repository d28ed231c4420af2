"""What training and evaluation hold in RAM and on a GPU: pure arithmetic over counts, layer by layer.

The sizes follow `sampling/pipeline.py` (batches), `nn/sage.py` and `nn/linear.py` (activations, gradients) and
`nn/inference.py` (evaluation). D is the rows that a layer puts out, w its width before, o after.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from pygsage.config import TrainConfig
from pygsage.memory.degrees import SampledBatch, describe, sample_sizes
from pygsage.memory.options import EstimateConfig
from pygsage.memory.rows import Row
from pygsage.memory.shapes import DatasetShape
from pygsage.spelling import parse_gpus

DENSE_TABLE_NODES = 1 << 24  # native/relabel.h: up to here 8 bytes a node, else a hash table
LINEAR_ROWS = 2048  # nn/linear.py: rows summed in float64 at once
INFERENCE_ROWS = 1 << 13  # nn/inference.py: rows of a chunk, and its edges
INFERENCE_EDGES = 1 << 18
GATHERED_VALUES = 1 << 23  # the same: values of rows that are read from disk at once
HEAP_BLOCK_BYTES = 32 << 20
SCORED_ROWS = 1 << 16  # training/metrics.py


@dataclass(frozen=True)
class Training:
    """The options of `train` that change memory, resolved for a machine.

    Attributes:
        num_ranks: Processes of this machine.
        num_gpus: How many of them have a GPU: all or none.
        sampler_threads: Threads that prepare batches in each rank; two more batches than these can be held.
        evaluates: Whether any split is ever scored.
    """

    batch_size: int
    fanouts: tuple[int, ...]
    hidden: int
    norm: str
    precision: str
    undirected: bool
    self_loops: bool
    num_ranks: int
    num_gpus: int
    sampler_threads: int
    evaluates: bool = True


def resolve(
    config: TrainConfig | EstimateConfig, num_cores: int, num_gpus_here: int = 0, num_ranks: int | None = None
) -> Training:
    """What the options come to on a machine of so many cores and GPUs; `num_ranks` where a launcher has decided."""
    told = parse_gpus(config.gpus)
    gpus = num_gpus_here if told is None else len(told) if isinstance(told, list) else told
    ranks = num_ranks or gpus or config.procs or 1
    threads_each = max(1, num_cores // ranks)
    return Training(
        batch_size=config.batch_size,
        fanouts=tuple(config.fanouts),
        hidden=config.hidden,
        norm=config.norm,
        precision=config.precision,
        undirected=config.undirected,
        self_loops=config.self_loops,
        num_ranks=ranks,
        num_gpus=gpus,
        sampler_threads=config.sampler_threads or (2 if threads_each > 2 else 1),
        evaluates=config.eval_every > 0,
    )


def widths(shape: DatasetShape, training: Training) -> list[tuple[int, int]]:
    """In and out of each layer."""
    ends = [shape.num_features, *[training.hidden] * (len(training.fanouts) - 1), shape.num_classes]
    return list(pairwise(ends))


def num_weights(shape: DatasetShape, training: Training) -> int:
    """Of a SAGE layer: two matrices and a bias; of a normalisation two numbers a column."""
    layers = widths(shape, training)
    norms = 0 if training.norm == "none" else 2 * training.hidden * (len(layers) - 1)
    return sum(2 * w * o + o for w, o in layers) + norms


def batch_of(shape: DatasetShape, training: Training, num_edges: int) -> SampledBatch:
    """The largest batch of a rank, expected or bounded; `num_edges` after edges were added."""
    seeds = min(training.batch_size, -(-shape.train_size // training.num_ranks))
    if shape.num_graphs > 1:  # whole graphs are taken, and every layer sees all of their nodes
        nodes = seeds * shape.num_nodes / shape.num_graphs
        edges = seeds * num_edges / shape.num_graphs
        depth = len(training.fanouts)
        return SampledBatch((nodes,) * (depth + 1), (edges,) * depth, edges, "mean graphs, whole")
    return sample_sizes(shape.num_nodes, num_edges, seeds, training.fanouts, shape.degrees)


def train_rows(shape: DatasetShape, training: Training, num_edges: int) -> list[Row]:
    """What each rank holds besides its process and its graph while it trains."""
    batch = batch_of(shape, training, num_edges)
    reached, drawn, basis = batch.num_nodes[-1], batch.num_drawn, batch.basis
    # Those that wait, one that is being prepared, and the trainer's until it takes the next.
    held = training.sampler_threads + 2
    weights = num_weights(shape, training)
    rows = [
        Row("train", "rank", "weights, gradients, Adam", 16 * weights, "16 x weights", kind="held"),
        Row(
            "train", "rank", "features of prepared batches", round(held * reached * shape.num_features * 4),
            f"(sampler threads + 2) x nodes x features x 4; {describe(batch)} ({basis})",
        ),
        Row(
            "train", "rank", "edges of prepared batches", round(held * 8 * (reached + drawn + batch.num_nodes[-2])),
            "(sampler threads + 2) x 8 x (nodes + edges drawn + targets)",
        ),
        Row(
            "train", "rank", "sampling, one batch a thread",
            round(training.sampler_threads * (16 * drawn + 24 * reached)),
            "sampler threads x (16 x edges drawn + 24 x nodes)",
        ),
        _relabel_row(shape, training, reached),
    ]  # fmt: skip
    num_bytes, formula = activation_bytes(shape, training, batch)
    place = "gpu" if training.num_gpus else "rank"
    rows.append(Row("train", place, "activations and their gradients", num_bytes, formula))
    block = round(4 * batch.num_nodes[-2] * max(widths(shape, training)[0]))
    if block < HEAP_BLOCK_BYTES:
        told = "the largest of their arrays once more: holes that the next batch's do not fit"
        rows.append(Row("train", place, "between batches of unequal size", block, told))
    largest = 8 * max(w * o for w, o in widths(shape, training))
    rows.append(Row("train", place, "a step of Adam", largest, "8 x the largest matrix"))
    if training.num_ranks > 1:
        rows.append(Row("train", "rank", "gradients on their way", 12 * num_weights(shape, training), "12 x weights"))
    order = 24 * shape.train_size
    rows.append(Row("train", "rank", "order of the seeds", order, "24 x training nodes"))
    if training.num_gpus:
        rows += _gpu_rows(shape, training, batch)
    return rows


def _relabel_row(shape: DatasetShape, training: Training, reached: float) -> Row:
    if shape.num_nodes <= DENSE_TABLE_NODES:
        each, formula = 8 * shape.num_nodes, "sampler threads x 8 x nodes of the graph"
    else:
        each, formula = round(64 * reached), "sampler threads x 64 x nodes of a batch"
    return Row("train", "rank", "relabelling tables", training.sampler_threads * each, formula, kind="held")


def activation_bytes(shape: DatasetShape, training: Training, batch: SampledBatch) -> tuple[int, str]:
    """The most that forward and backward hold at once beside the batch, float32."""
    layers = widths(shape, training)
    rows = list(batch.num_nodes[-2::-1])  # D of each layer, the outermost first
    edges = list(batch.num_edges[::-1])
    if training.norm != "none":
        extra = 2  # what a normalisation keeps: its input, and the normalised values
    else:
        extra = 0
    bf16 = training.precision == "bf16"
    saved = 0.0
    most = 0.0
    for layer, ((w, o), d, e) in enumerate(zip(layers, rows, edges, strict=True)):
        last = layer == len(layers) - 1
        bag = 4 * d * w
        inside = 3 * 4 * d * o + (d * o if not last else 0)  # the two products and their sum; or the dropout's mask
        most = max(most, saved + bag + inside + 16 * e)
        saved += (3 * 2 * d * w if bf16 else bag) + 4 * d * o * (1 if last else 1 + extra) + 8 * e * (layer > 0)
    for layer in range(len(layers) - 1, -1, -1):
        (w, o), d, e = layers[layer], rows[layer], edges[layer]
        gradient = (2 * 4 + 1) * d * o
        sums = 8 * min(LINEAR_ROWS, d) * (w + o) + 8 * w * o
        into = 0.0
        if layer > 0:  # gradients of both inputs, then spread to the rows of the layer before
            into = 2 * 4 * d * w + 3 * 4 * rows[layer - 1] * w + 40 * e
        most = max(most, saved + gradient + max(sums, into))
        saved -= (3 * 2 * d * w if bf16 else 4 * d * w) + 4 * d * o + 8 * e * (layer > 0)
    shown = ", ".join(f"{d:,.0f} x ({w:,} + {o:,})" for (w, o), d in zip(layers, rows, strict=True))
    return round(most), f"4 x (sum over layers of D x (w + o), and 3 gradients of D x w): {shown}"


def evaluate_rows(shape: DatasetShape, training: Training, num_edges: int, *, on_disk: bool) -> list[Row]:
    """What an evaluation of all nodes layer by layer takes: never edges x width."""
    if shape.num_graphs > 1:
        return _evaluate_graphs(shape, training, num_edges)
    inference = _inference_rows(shape, training, num_edges, on_disk=on_disk)
    scores = _score_rows(shape, training, on_disk=on_disk)
    return max(inference, scores, key=lambda rows: sum(row.num_bytes for row in rows if row.place == "rank"))


def _score_rows(shape: DatasetShape, training: Training, *, on_disk: bool) -> list[Row]:
    """What scoring the whole outputs takes: training/metrics.py takes 65,536 rows at once, as float64."""
    n, c = shape.num_nodes, shape.num_classes
    nodes = -(-(n - min(n, shape.train_size)) // training.num_ranks)
    at_once = min(nodes, SCORED_ROWS)
    place = "disk" if on_disk or training.num_ranks > 1 else "rank"
    return [
        Row("evaluate", place, "outputs", 4 * n * c, f"4 x {n:,} nodes x {c:,}"),
        Row("evaluate", "rank", "outputs of scored nodes", 4 * nodes * c, f"4 x {nodes:,} nodes x {c:,}"),
        Row("evaluate", "rank", "scores, float64", 16 * at_once * c, f"16 x {at_once:,} rows x {c:,}"),
    ]


def _inference_rows(shape: DatasetShape, training: Training, num_edges: int, *, on_disk: bool) -> list[Row]:
    n, own = shape.num_nodes, -(-shape.num_nodes // training.num_ranks)
    mean_degree = num_edges / max(1, n)
    chunk = max(1, min(own, INFERENCE_ROWS, int(INFERENCE_EDGES / mean_degree) if mean_degree else own))
    several = own > chunk
    gathered = min(GATHERED_VALUES, INFERENCE_EDGES * shape.num_features) if on_disk else 0
    # Memory that was never written to is none: in the last whole chunk its output and what follows are not there yet.
    written = n - own + max(0, own // chunk - 1) * chunk
    place = "gpu" if training.num_gpus else "rank"
    found: list[list[Row]] = []
    for layer, (w, o) in enumerate(widths(shape, training)):
        live = 4 * (written * o + (n * w if layer else 0))
        # The products and their sum, and the chunk before; or, while neighbours are aggregated, both chunks' of them.
        products = (4 if several else 3) + _norm_copies(training, o)
        bags, copies = (2, 1) if several and 2 * w + o > w + products * o else (1, products)
        work, told = 4 * chunk * (bags * w + copies * o), f"4 x {chunk:,} rows x ({bags} x {w:,} + {copies} x {o:,})"
        rows = [
            Row(
                "evaluate", "disk" if on_disk or training.num_ranks > 1 else "rank", "outputs of two layers", live,
                f"4 x ({written:,} nodes x {o:,}" + (f" + {n:,} x {w:,})" if layer else ")"),
            ),
            Row("evaluate", place, "one chunk of rows", work, told),
            Row("evaluate", "rank", "rows read from disk", 8 * gathered, "8 x up to 8M values"),
            Row("evaluate", place, "edges of one chunk", 8 * min(num_edges, INFERENCE_EDGES), "8 x up to 256 Ki edges"),
        ]  # fmt: skip
        if several:
            rows.append(_uneven(chunk, own % chunk, bags * w + copies * o, max(w, o), place))
        if training.num_gpus:
            told = "8 x rows x (in + out), on their way to the GPU"
            rows.append(Row("evaluate", "rank", "one chunk of rows", 8 * chunk * (w + o), told))
        found.append(rows)
    return max(found, key=lambda rows: sum(row.num_bytes for row in rows if row.place != "disk"))


def _uneven(chunk: int, last: int, width: int, widest: int, place: str) -> Row:
    """What chunks of unequal length leave unused in the heap while the evaluation lasts.

    Blocks under 32 MiB are kept by glibc for later (mallopt(3), M_MMAP_THRESHOLD), larger ones go back at once.
    """
    what = "between chunks of unequal length"
    if 4 * chunk * widest < HEAP_BLOCK_BYTES:
        return Row("evaluate", place, what, chunk * width, "a quarter of the chunk")
    left = 4 * last * width if 4 * last * widest < HEAP_BLOCK_BYTES else 0
    return Row("evaluate", place, what, left, f"4 x {last:,} rows of the last chunk x {width:,}")


def _norm_copies(training: Training, width: int) -> int:
    return 2 if training.norm != "none" and width == training.hidden else 0


def _evaluate_graphs(shape: DatasetShape, training: Training, num_edges: int) -> list[Row]:
    batch = batch_of(shape, training, num_edges)
    num_bytes = round(4 * batch.num_nodes[0] * (shape.num_features + 4 * training.hidden))
    place = "gpu" if training.num_gpus else "rank"
    return [Row("evaluate", place, "one batch of graphs", num_bytes, "4 x nodes x (features + 4 x hidden)")]


def _gpu_rows(shape: DatasetShape, training: Training, batch: SampledBatch) -> list[Row]:
    reached, drawn = batch.num_nodes[-1], batch.num_drawn
    on_device = reached * (shape.num_features * 4 + 8) + 8 * (drawn + batch.num_nodes[-2])
    return [
        Row("train", "gpu", "CUDA itself", 500 << 20, "context, kernels, cuBLAS workspace", kind="held"),
        Row("train", "gpu", "weights, gradients, Adam", 16 * num_weights(shape, training), "16 x weights", kind="held"),
        Row("train", "gpu", "one batch", round(on_device), "nodes x (4 x features + 8) + 8 x edges"),
        Row("evaluate", "gpu", "CUDA itself", 500 << 20, "context, kernels, cuBLAS workspace", kind="held"),
    ]
