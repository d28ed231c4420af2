"""What training holds in RAM and on a GPU: pure arithmetic over counts, layer by layer.

The sizes follow `sampling/pipeline.py` (batches) and `memory/step.py` (activations, gradients).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise

from pygsage.config import BATCH_OF, TrainConfig
from pygsage.memory.degrees import SampledBatch, describe, sample_sizes
from pygsage.memory.graphs import batch_sizes
from pygsage.memory.headers import ITEM_BYTES
from pygsage.memory.options import EstimateConfig
from pygsage.memory.placement import gpu_rows, sent_bytes, staging_bytes
from pygsage.memory.rows import Row
from pygsage.memory.shapes import DatasetShape
from pygsage.memory.step import node_step_bytes
from pygsage.spelling import gpus_of, parse_size

AHEAD = 4  # steps that batches are begun before they are needed, where rows of other machines are in them
DENSE_TABLE_NODES = 1 << 24  # native/relabel.h: up to here 8 bytes a node, else a hash table


@dataclass(frozen=True)
class Training:
    """The options of `train` that change memory, resolved for a machine.

    Attributes:
        num_ranks: Processes of this machine.
        num_gpus: How many of them have a GPU: all or none.
        sampler_threads: Threads that prepare batches in each rank; two more batches than these can be held.
        evaluates: Whether any split is ever scored.
        placement: One of `memory.placement.PLACEMENTS`.
        gpu_cache_bytes: For the hottest rows of the features, on each GPU.
        library: Whether the sampler is a library's, which takes int64 indices.
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
    placement: str = "cpu-cuda"
    gpu_cache_bytes: int = 0
    library: bool = False


def resolve(
    config: TrainConfig | EstimateConfig,
    unit: str,
    num_cores: int,
    num_gpus_here: int = 0,
    num_ranks: int | None = None,
) -> Training:
    """What the options come to on a machine of so many cores and GPUs.

    Args:
        unit: What has a label, `node` or `graph`.
        num_ranks: Where a launcher has decided.
    """
    told = gpus_of(config.placement, config.gpus)
    gpus = num_gpus_here if told is None else len(told) if isinstance(told, list) else told
    ranks = num_ranks or gpus or config.procs or 1
    threads_each = max(1, num_cores // ranks)
    return Training(
        batch_size=config.batch_size or BATCH_OF[unit],
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
        placement=("cpu-cuda" if config.placement == "auto" else config.placement) if gpus else "cpu-cpu",
        gpu_cache_bytes=parse_size(config.gpu_cache_size, "--gpu-cache-size") if config.gpu_cache_size and gpus else 0,
        library=getattr(config, "sampler", "") in ("pyg-lib", "torch-sparse"),
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
        nodes, edges = batch_sizes(shape, seeds, num_edges / max(1, shape.num_edges))
        depth = len(training.fanouts)
        return SampledBatch(
            (nodes,) * (depth + 1),
            (edges,) * depth,
            edges,
            "whole graphs: the largest of many batches" if shape.sizes else "whole graphs, of mean size",
        )
    return sample_sizes(shape.num_nodes, num_edges, seeds, training.fanouts, shape.degrees)


def train_rows(
    shape: DatasetShape, training: Training, num_edges: int, *, compiled: bool = True, cold: bool = False
) -> list[Row]:
    """What each rank holds besides its process and its graph while it trains.

    Args:
        cold: Features are read from a disk ahead of their use, because they do not fit in the page cache.
    """
    batch = batch_of(shape, training, num_edges)
    reached, drawn, basis = batch.num_nodes[-1], batch.num_drawn, batch.basis
    targets, outer = batch.num_nodes[-2], batch.num_edges[-1]
    threads = training.sampler_threads
    # Those that wait, and the trainer's or one that is being prepared.
    ahead = AHEAD if shape.num_parts and on_several_machines() else threads
    held = ahead + 1
    weights = num_weights(shape, training)
    index = 4 if shape.num_nodes < 2**31 else 8
    layers = widths(shape, training)
    step = node_step_bytes(
        layers, batch.num_nodes[-2::-1], training.norm, training.precision == "bf16", held, keeps=compiled
    )
    staging = staging_bytes(shape, training, batch)
    inputs = 0 if staging else round(held * (4 if training.precision == "bf16" else 8) * targets * shape.num_features)
    if training.gpu_cache_bytes and not staging:
        inputs = held * sent_bytes(shape, training, batch)
    sampling = round(threads * (index * outer + 16 * targets + 4 * drawn))
    inner = 8 * targets + sum(8 * n + 4 * e for n, e in zip(batch.num_nodes[:-2], batch.num_edges[:-1], strict=True))
    spread = 12 * sum(batch.num_edges[:-1])
    rows = [
        Row("train", "rank", "weights, gradients, Adam", 16 * weights, "16 x weights", kind="held"),
        Row(
            "train", "rank", "first layer's input of prepared batches", inputs,
            f"(sampler threads + 1) x {targets:,.0f} nodes x 2 x features x 4; {describe(batch)} ({basis})",
        ),
        Row("train", "rank", "edges of prepared batches", round(held * inner), "8 x nodes + 4 x edges of inner hops"),
        Row(
            "train", "rank", "sampling, one batch a thread", sampling,
            f"sampler threads x ({index} x {outer:,.0f} edges of the outermost hop + 4 x drawn + 16 x nodes)",
        ),
        _relabel_row(shape, training, targets),
    ]  # fmt: skip
    if cold:
        item = ITEM_BYTES["float16" if shape.x_dtype == "float16" else "float32"]
        size = round(ahead * (item * reached * shape.num_features + 40 * (targets + outer)))
        times = "sampler threads" if ahead == threads else "batches ahead"
        told = f"{times} x ({reached:,.0f} nodes x features x {item} + 40 x edges of the outermost hop)"
        rows.append(Row("train", "rank", "rows read from disk", size, told))
    largest = 8 * max(2 * w * o for w, o in layers)
    rows.append(
        Row("train", "gpu" if training.num_gpus else "rank", "a step of Adam", largest, "16 x the largest matrix")
    )
    if training.num_ranks > 1:
        rows.append(Row("train", "rank", "gradients on their way", 12 * weights, "12 x weights"))
    order = 24 * shape.train_size
    rows.append(Row("train", "rank", "order of the seeds", order, "24 x training nodes"))
    if training.num_gpus:
        rows += gpu_rows(shape, training, batch, layers, weights)
        told = "(sampler threads + 1) x one batch, up to a power of two; pinned"
        rows += [Row(p, "rank", "staging buffers", staging, told, kind="held") for p in ("train", "evaluate")]
    else:
        told = "a step played out, arrays kept for the next: " + ", ".join(f"{w:,} -> {o:,}" for w, o in layers)
        rows.append(Row("train", "rank", "activations and their gradients", max(0, step - inputs), told))
        rows.append(Row("train", "rank", "edges by source", round(spread), "12 x edges of inner hops"))
    if training.gpu_cache_bytes:
        rows.append(Row("train", "rank", "which rows a GPU holds", 4 * shape.num_nodes, "4 x nodes", kind="held"))
    if training.library:
        told = "8 x edges: the library's sampler takes no int32"
        rows.append(Row("train", "rank", "edges as int64", 8 * num_edges, told, kind="held"))
    return rows


def _relabel_row(shape: DatasetShape, training: Training, targets: float) -> Row:
    if shape.num_nodes <= DENSE_TABLE_NODES:
        each, formula = 8 * shape.num_nodes, "sampler threads x 8 x nodes of the graph"
    else:
        each, formula = round(64 * targets), "sampler threads x 64 x nodes of a batch"
    return Row("train", "rank", "relabelling tables", training.sampler_threads * each, formula, kind="held")


def on_several_machines() -> bool:
    """Whether a launcher such as torchrun has started processes elsewhere too."""
    size, local_size = os.environ.get("WORLD_SIZE", "1"), os.environ.get("LOCAL_WORLD_SIZE", "")
    return "RANK" in os.environ and local_size.isdigit() and size.isdigit() and int(size) > int(local_size)
