"""What one training step holds at once: its large arrays in the order in which they are made and dropped, played out.

The order is that of `nn/join.py`, `nn/linear.py`, `nn/dropout.py` and `nn/readout.py`; native/buffers.h keeps what is
dropped for the next step. Played twice: the second step begins with what the first has left.
"""

from __future__ import annotations

from collections.abc import Sequence

LEAST_BYTES = 1 << 20  # native/memory.py: smaller ones are left to torch
HUGE_PAGE = 2 << 20
MOST_FREE = 8
UNEQUAL = (-1.0, 0.3, -0.4, 0.8, 1.3, -0.7, 0.1, 1.7, -1.2, 0.6, 2.5, -0.2)  # standard deviations from the mean


class Arrays:
    """Counts bytes in use, those that are kept for the next arrays included; `peak_bytes` is the most so far.

    Args:
        keeps: Whether the native core keeps large arrays; without it they go back.
    """

    def __init__(self, keeps: bool = True) -> None:
        self.peak_bytes = 0
        self._keeps = keeps
        self._now = 0
        self._used = 0  # of those that are kept, now and at most
        self._most_used = 0
        self._free: list[int] = []  # the last used first

    def take(self, num_bytes: float, kept: bool = True) -> int:
        """Makes an array, `kept` by the native core or else torch's, and returns the bytes to give back."""
        size = int(num_bytes)
        if not (kept and self._keeps) or size < LEAST_BYTES:
            self._add(size)
            return -size  # of those that are not kept
        wanted = rounded(size)
        fitting = [free for free in self._free if wanted <= free <= wanted + wanted // 4]
        size = min(fitting, default=wanted)
        self._used += size
        self._most_used = max(self._most_used, self._used)
        if fitting:
            self._free.remove(size)
            return size
        while self._free and self._used + sum(self._free) > self._most_used + self._most_used // 4:
            self._now -= self._free.pop()
        self._add(wanted)
        return wanted

    def give(self, *sizes: int) -> None:
        """Drops arrays."""
        for size in sizes:
            if size <= 0:
                self._now += size
                continue
            self._used -= size
            self._free.insert(0, size)
            while len(self._free) > MOST_FREE:
                self._now -= self._free.pop()

    def _add(self, size: int) -> None:
        self._now += size
        self.peak_bytes = max(self.peak_bytes, self._now)


def rounded(size: int) -> int:
    """What an array takes: up to an eighth more, in whole huge pages."""
    step = HUGE_PAGE
    while step * 16 < size:
        step *= 2
    return -(-size // step) * step


def node_step_bytes(
    widths: Sequence[tuple[int, int]], rows: Sequence[float], norm: str, bf16: bool, held: int, keeps: bool = True
) -> int:
    """The most at once in training on nodes, with `held` prepared batches.

    Args:
        widths: In and out of each layer.
        rows: What each layer puts out, the outermost first.
    """
    arrays = Arrays(keeps)
    inputs = [arrays.take(2 * (2 if bf16 else 4) * rows[0] * widths[0][0]) for _ in range(held)]
    for _ in range(2):
        _step(arrays, widths, rows, norm, bf16)
        arrays.give(inputs.pop())  # the step's own, in the place of which another is prepared
        inputs.append(arrays.take(2 * (2 if bf16 else 4) * rows[0] * widths[0][0]))
    return arrays.peak_bytes


def _step(
    arrays: Arrays, widths: Sequence[tuple[int, int]], rows: Sequence[float], norm: str, bf16: bool, head: bool = False
) -> None:
    """Forward and backward of all layers; `head`: the last one is normed and activated too, as before a readout."""
    item = 2 if bf16 else 4
    last = len(widths) - 1
    saved: list[list[int]] = []
    for layer, ((_, o), d) in enumerate(zip(widths, rows, strict=True)):
        out = arrays.take(item * d * o)
        kept: list[int] = []
        if layer == last and not head:
            scores = arrays.take(4 * d * o, kept=False)  # log-probabilities, and their gradient
            saved.append([out, scores])
            continue
        if norm != "none":
            kept.append(out)
            copies = 1 if norm == "batch" else 2
            kept += [arrays.take(4 * d * o, kept=False) for _ in range(copies)]
        if layer == last:
            saved.append([*kept, *_activated(arrays, d, o)])
        else:
            bits = arrays.take(8 * d * -(-o // 64), kept=False)
            saved.append([*kept, bits, arrays.take(2 * item * rows[layer + 1] * o)])
        if norm == "none":
            arrays.give(out)
    d, (_, o) = rows[last], widths[last]
    grad = arrays.take(4 * d * o, kept=False)
    for layer in range(last, -1, -1):
        d, (w, o) = rows[layer], widths[layer]
        if layer < last or head:
            own = [arrays.take(4 * d * o, kept=False)] if norm != "none" or layer == last else []
            arrays.give(*own)
        if layer == 0:
            break
        into = arrays.take(2 * item * d * w)  # beside each other: of the aggregate, and of the own row
        arrays.give(grad, *saved.pop())
        grad = arrays.take(item * rows[layer - 1] * w)
        arrays.give(into)
    arrays.give(grad, *(each for layer_saved in saved for each in layer_saved))


def _activated(arrays: Arrays, d: float, width: int) -> list[int]:
    """ReLU and dropout of what a readout takes: the mask's words and bytes are gone afterwards, the result stays."""
    mask = [arrays.take(2 * d * width, kept=False), arrays.take(d * width, kept=False)]
    out = arrays.take(4 * d * width, kept=False)
    arrays.give(*mask)
    return [out]


def graph_step_bytes(
    widths: Sequence[tuple[int, int]],
    mean_nodes: float,
    spread: float,
    most_nodes: float,
    norm: str,
    bf16: bool,
    embedded: bool,
    keeps: bool = True,
) -> int:
    """The most at once in steps on whole graphs, all of whose nodes every layer sees, beside their batches.

    Arrays that were kept for a smaller batch do not serve a larger one, and stay while memory is within 5/4 of the
    most that was in use: so steps of unequal sizes are played out.

    Args:
        mean_nodes, spread: Of a batch; one is far above the mean.
        most_nodes: What no batch has more than.
        embedded: Whether the first layer takes embedded categories, which have a gradient.
    """
    arrays = Arrays(keeps)
    w = widths[0][0]
    for deviations in UNEQUAL if spread else (0, 0):
        num_nodes = max(1.0, min(most_nodes, mean_nodes + deviations * spread))
        rows = [num_nodes] * len(widths)
        first = [arrays.take(8 * num_nodes * w, kept=not embedded), arrays.take(16 * num_nodes, kept=False)]
        if embedded:
            first.append(arrays.take(4 * num_nodes * w, kept=False))
            gone = arrays.take(4 * num_nodes * w, kept=False)
            arrays.give(gone)
        _step(arrays, widths, rows, norm, bf16, head=True)
        arrays.give(*first)
    return arrays.peak_bytes


def graph_forward_bytes(
    widths: Sequence[tuple[int, int]],
    mean_nodes: float,
    spread: float,
    most_nodes: float,
    norm: str,
    keeps: bool = True,
) -> int:
    """The most at once in evaluating pieces of whole graphs, one after the other; the arguments as above."""
    arrays = Arrays(keeps)
    for deviations in UNEQUAL if spread else (0, 0):
        n = max(1.0, min(most_nodes, mean_nodes + deviations * spread))
        inputs, before = arrays.take(8 * n * widths[0][0]), 0
        for layer, (_, o) in enumerate(widths):
            out = arrays.take(4 * n * o)
            arrays.give(before)  # what a name stood for goes when it stands for the next
            if norm != "none":
                normed = arrays.take(4 * n * o, kept=False)
                arrays.give(out)
                out = normed
            if layer == len(widths) - 1:
                after = arrays.take(4 * n * o, kept=False)
            else:
                bits = arrays.take(8 * n * -(-o // 64), kept=False)
                after = arrays.take(8 * n * o)
                arrays.give(bits)
            arrays.give(inputs)
            inputs, before = after, out
        arrays.give(inputs, before)
    return arrays.peak_bytes
