"""Where features and batches lie while a model trains on a GPU: what each placement takes, and which is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pygsage.memory.degrees import SampledBatch
from pygsage.memory.headers import ITEM_BYTES
from pygsage.memory.rows import Row
from pygsage.memory.shapes import DatasetShape
from pygsage.memory.step import Arrays
from pygsage.spelling import size_text

if TYPE_CHECKING:
    from pygsage.memory.training import Training

PLACEMENTS = ("cpu-cpu", "cpu-cuda", "pinned-cuda", "cuda-cuda")
GPU_SHARE = 0.9  # of its free memory, what may be planned: the rest is for what torch's allocator splits
PINNED_SHARE = 0.1  # of the RAM, what is pinned without being asked for: it cannot be taken back
CUDA_BYTES = 500 << 20


@dataclass(frozen=True)
class PlacementChoice:
    """The placement of a run.

    Attributes:
        kind: One of `PLACEMENTS`.
        need_bytes: What one GPU must have free; 0 without.
        free_bytes: What the GPU with the least has; None where that is not known.
        fits: Whether it fits there, as far as is known.
        reason: One sentence with the numbers; empty without a GPU.
    """

    kind: str
    need_bytes: int = 0
    free_bytes: int | None = None
    fits: bool = True
    reason: str = ""


NO_GPU = PlacementChoice("cpu-cpu")


def choose_placement(
    asked: str, needs: dict[str, int], free_bytes: int | None, pinned_bytes: int = 0, ram_bytes: int | None = None
) -> PlacementChoice:
    """The placement that was asked for, checked; for `auto` the fastest that fits.

    Args:
        asked: `auto` or one of `PLACEMENTS`.
        needs: What one GPU must have free, by each placement that can be had; none without a GPU.
        free_bytes: What the GPU with the least has free; None where that is not known.
        pinned_bytes: RAM that all processes pin with `pinned-cuda`.
        ram_bytes: RAM that there is.
    """
    if not needs:
        return NO_GPU
    pins = ram_bytes is None or pinned_bytes <= PINNED_SHARE * ram_bytes
    if asked != "auto":
        kind = asked
    elif free_bytes is None:
        kind = "pinned-cuda" if pins else "cpu-cuda"
    else:
        fitting = [k for k in ("cuda-cuda", "pinned-cuda", "cpu-cuda") if k in needs and _fits(needs[k], free_bytes)]
        kind = next((k for k in fitting if k != "pinned-cuda" or pins), "cpu-cuda")
    need = needs[kind]
    if free_bytes is None:
        return PlacementChoice(
            kind, need, None, True, f"{kind}: needs {size_text(need)} of a GPU; what is free there is not known."
        )
    fits = _fits(need, free_bytes)
    share = f"{GPU_SHARE:.0%} of the {size_text(free_bytes)} that are free on the GPU"
    reason = f"{kind}: needs {size_text(need)} of a GPU, {'under' if fits else 'over'} {share}"
    if asked == "auto" and kind != "cuda-cuda" and "cuda-cuda" in needs:
        reason += f" (cuda-cuda would need {size_text(needs['cuda-cuda'])})"
    return PlacementChoice(kind, need, free_bytes, fits, reason + ".")


def _fits(need: int, free_bytes: int) -> bool:
    return need <= GPU_SHARE * free_bytes


def stored_bytes(shape: DatasetShape) -> int:
    """Of a feature, as a graph of ours holds it."""
    return ITEM_BYTES["float16" if shape.x_dtype == "float16" else "float32"]


def sent_bytes(shape: DatasetShape, training: Training, batch: SampledBatch) -> int:
    """What one batch sends to the device."""
    targets, reached, outer = batch.num_nodes[-2], batch.num_nodes[-1], batch.num_edges[-1]
    inner = 8 * targets + sum(8 * n + 4 * e for n, e in zip(batch.num_nodes[:-2], batch.num_edges[:-1], strict=True))
    inner += 8 * batch.num_nodes[0] * shape.y_columns
    index = 4 if shape.num_nodes < 2**31 else 8
    if training.gpu_cache_bytes:
        rows = stored_bytes(shape) * shape.num_features * reached  # all of them missed
        return round(inner + rows + 4 * reached + 16 * targets + 4 * outer)
    if training.placement == "cuda-cuda":
        return round(inner + 8 * targets + index * outer)
    return round(inner + (4 if training.precision == "bf16" else 8) * targets * shape.num_features)


def staging_bytes(shape: DatasetShape, training: Training, batch: SampledBatch) -> int:
    """Pinned RAM of one process: a buffer a thread and one more, each a power of two."""
    if training.placement not in ("pinned-cuda", "cuda-cuda"):
        return 0
    return (training.sampler_threads + 1) * (1 << (sent_bytes(shape, training, batch) - 1).bit_length())


def gpu_rows(
    shape: DatasetShape, training: Training, batch: SampledBatch, layers: Sequence[tuple[int, int]], weights: int
) -> list[Row]:
    """What one GPU holds while a model trains on nodes of one graph, and while it is evaluated."""
    targets, reached, outer = batch.num_nodes[-2], batch.num_nodes[-1], batch.num_edges[-1]
    f, item = shape.num_features, stored_bytes(shape)
    staged = training.placement in ("pinned-cuda", "cuda-cuda")
    held = training.sampler_threads + 2 if staged else 1
    each = sent_bytes(shape, training, batch)
    many = "(sampler threads + 2) x " if staged else ""
    rows = [Row("train", "gpu", "batches", held * each, f"{many}{size_text(each)}, as sent")]
    kept: list[Row] = []
    if training.placement == "cuda-cuda":
        kept.append(
            Row(
                "train",
                "gpu",
                "features",
                shape.num_nodes * f * item,
                f"{shape.num_nodes:,} nodes x {f:,} x {item}",
                kind="held",
            )
        )
    if training.gpu_cache_bytes:
        size = min(training.gpu_cache_bytes, shape.num_nodes * f * item)
        kept.append(Row("train", "gpu", "hottest rows of the features", size, "--gpu-cache-size", kind="held"))
        rows.append(
            Row(
                "train",
                "gpu",
                "rows of a batch, put together",
                round(reached * f * item),
                f"{reached:,.0f} nodes x {f:,} x {item}",
            )
        )
    if kept:
        made = 24 * outer + 16 * targets * f
        rows.append(
            Row(
                "train",
                "gpu",
                "first layer's input",
                round(made),
                "16 x nodes x features + 24 x edges of the outermost hop",
            )
        )
    step = gpu_step_bytes(layers, batch.num_nodes[-2::-1], training.norm, training.precision == "bf16")
    rows.append(
        Row("train", "gpu", "activations and their gradients", step, "a step played out, by torch's operations")
    )
    rows.append(
        Row("train", "gpu", "edges by source", round(40 * sum(batch.num_edges[:-1])), "40 x edges of inner hops")
    )
    return [*held_on_gpu(weights, kept), *rows]


def held_on_gpu(weights: int, kept: Sequence[Row] = ()) -> list[Row]:
    """What stays on a GPU from the beginning to the end."""
    rows = [
        Row("train", "gpu", "CUDA itself", CUDA_BYTES, "context, kernels, cuBLAS workspace", kind="held"),
        Row("train", "gpu", "weights, gradients, Adam", 20 * weights, "20 x weights", kind="held"),
        *kept,
    ]
    return [*rows, *(replace(row, phase="evaluate") for row in rows)]


def gpu_step_bytes(widths: Sequence[tuple[int, int]], rows: Sequence[float], norm: str, bf16: bool) -> int:
    """The most at once of a step on a GPU beside its batch, where activation, dropout and aggregate are torch's own.

    Args:
        widths: In and out of each layer.
        rows: What each layer puts out, the outermost first.
    """
    item, arrays = 2 if bf16 else 4, Arrays(keeps=False)
    saved: list[list[int]] = []
    last = len(widths) - 1
    for layer, ((_, o), d) in enumerate(zip(widths, rows, strict=True)):
        out = arrays.take(item * d * o)
        if layer == last:
            saved.append([out, arrays.take(8 * d * o)])  # log-probabilities, and their gradient
            break
        kept = [out, *(arrays.take(4 * d * o) for _ in range(2))] if norm != "none" else []
        mask = [arrays.take(8 * d * -(-o // 8)), arrays.take(2 * d * o)]  # words and bytes
        kept.append(arrays.take(item * d * o))
        arrays.give(*mask, *([] if norm != "none" else [out]))
        t = rows[layer + 1]
        mean = arrays.take(item * t * o)
        kept.append(arrays.take(2 * item * t * o))
        arrays.give(mean)
        saved.append(kept)
    grad = arrays.take(4 * rows[last] * widths[last][1])
    for layer in range(last, 0, -1):
        w, d = widths[layer][0], rows[layer - 1]
        into = arrays.take(2 * item * rows[layer] * w)
        arrays.give(grad, *saved.pop())
        parts = [arrays.take(item * d * w) for _ in range(3)]  # of the aggregate, of the own rows, their sum
        arrays.give(into, *parts[:2])
        grad = parts[2]
    arrays.give(grad, *(each for kept in saved for each in kept))
    return arrays.peak_bytes
