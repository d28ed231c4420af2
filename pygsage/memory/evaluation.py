"""What an evaluation of one graph holds in RAM and on a GPU: layer by layer, as `nn/inference.py` does it."""

from __future__ import annotations

from pygsage.memory.rows import Row
from pygsage.memory.shapes import DatasetShape
from pygsage.memory.step import LEAST_BYTES, rounded
from pygsage.memory.training import Training, widths

INFERENCE_ROWS = 1 << 13  # nn/inference.py: rows of a chunk, and its edges
INFERENCE_EDGES = 1 << 18
GATHERED_VALUES = 1 << 23  # nn/gather.py: values of rows that are read from disk at once
SCORED_VALUES = 1 << 20  # training/metrics.py: values that are scored at once


def evaluate_nodes(
    shape: DatasetShape, training: Training, num_edges: int, *, on_disk: bool, cold: bool = False
) -> list[Row]:
    """What an evaluation of all nodes takes: never edges x width. `cold` as for `train_rows`."""
    inference = _inference_rows(shape, training, num_edges, on_disk=on_disk, cold=cold)
    scores = _score_rows(shape, training, on_disk=on_disk)
    return max(inference, scores, key=lambda rows: sum(row.num_bytes for row in rows if row.place == "rank"))


def _score_rows(shape: DatasetShape, training: Training, *, on_disk: bool) -> list[Row]:
    """What scoring the whole outputs takes: training/loop.py takes so many values at once, and metrics.py scores them.

    A ranking (of several labels a node, or two classes) keeps a score and a label of each scored node, which the ranks
    exchange, and sorts a label's at the end: some 17 numbers of 8 bytes a node.
    """
    n, c = shape.num_nodes, shape.num_classes
    nodes = -(-shape.scored_size // training.num_ranks)
    at_once = min(nodes, max(1, SCORED_VALUES // max(1, c)))
    place = "disk" if on_disk or training.num_ranks > 1 else "rank"
    of_labels = shape.y_columns > 1
    each = 68 if of_labels else 20  # as they come, and in float64; of labels as integers besides
    rows = [
        Row("evaluate", place, "outputs", 4 * n * c, f"4 x {n:,} nodes x {c:,}"),
        Row("evaluate", "rank", "scores at once", each * at_once * c, f"{each} x {at_once:,} rows x {c:,}"),
    ]
    ranked = c if of_labels else 1 if c == 2 else 0
    if ranked == 0:
        return rows
    kept, every = 8 * nodes * ranked, shape.scored_size
    sent = 12 * every * ranked if training.num_ranks > 1 else 0
    last = sent + max(17 * 8 * every, 4 * nodes * ranked)
    told = f"8 x {nodes:,} scored nodes x {ranked:,}"
    rows.append(Row("evaluate", "rank", "scores and labels to be ranked", kept, told))
    if last > rows[1].num_bytes:
        rows[1] = Row("evaluate", "rank", "a ranking", last, f"136 x {every:,} scored nodes, and what ranks exchange")
    return rows


def _inference_rows(shape: DatasetShape, training: Training, num_edges: int, *, on_disk: bool, cold: bool) -> list[Row]:
    n, own = shape.num_nodes, -(-shape.num_nodes // training.num_ranks)
    mean_degree = num_edges / max(1, n)
    chunk = max(1, min(own, INFERENCE_ROWS, int(INFERENCE_EDGES / mean_degree) if mean_degree else own))
    place = "gpu" if training.num_gpus else "rank"
    found: list[list[Row]] = []
    most = 0  # of the chunks' arrays, which are kept until the evaluation ends
    layers = widths(shape, training)
    for layer, (w, o) in enumerate(layers):
        narrows = layer > 0 and 2 * o <= w
        copies = _norm_copies(training, o) if layer < len(layers) - 1 else 0
        # The joined rows and the product, the product before it until it is replaced; or the two maps of a row.
        by_row = [8 * o, 4 * o] if narrows else [8 * w, 4 * o, 4 * o]
        # Arrays of the last chunk, where it is so much shorter that those of the others do not serve it.
        rest = own % chunk if own > chunk else 0
        full, short = (
            sum(rounded(part) if part >= LEAST_BYTES else part for part in (length * each for each in by_row))
            for length in (chunk, rest if 5 * rest < 4 * chunk else 0)
        )
        # native/buffers.h drops what was kept before there is a quarter more than was ever in use.
        kept = full + (short if 4 * short <= full else 0) + 4 * copies * chunk * o
        most = max(most, kept)
        live = 4 * (n * o + (n * w if layer else 0))
        gathered = 2 * min(GATHERED_VALUES, INFERENCE_EDGES * w) * 4 if cold and layer == 0 else 0
        told = f"{'(2 + 1)' if narrows else f'2 x {w:,} + 2'} x {o:,} values of {chunk:,} rows, in whole huge pages"
        rows = [
            Row(
                "evaluate", "disk" if on_disk or training.num_ranks > 1 else "rank", "outputs of two layers", live,
                f"4 x ({n:,} nodes x {o:,}" + (f" + {n:,} x {w:,})" if layer else ")"),
            ),
            Row("evaluate", place, "one chunk of rows", most, told),
            Row("evaluate", "rank", "rows read from disk", gathered, "8 x up to 8M values"),
            Row("evaluate", "rank", "which nodes are needed", 9 * n, "9 x nodes"),
        ]  # fmt: skip
        if training.num_gpus:
            told = "8 x rows x (in + out), on their way to the GPU"
            rows.append(Row("evaluate", "rank", "one chunk of rows", 8 * chunk * (w + o), told))
        found.append(rows)
    return max(found, key=lambda rows: sum(row.num_bytes for row in rows if row.place != "disk"))


def _norm_copies(training: Training, width: int) -> int:
    return 2 if training.norm != "none" and width == training.hidden else 0
