"""What the first layer takes, [targets' aggregated neighbours | their own rows], made on the device.

The same numbers, up to rounding, as `pipeline.NodeBatches` makes on the CPU: by a device that holds all features, to
which ids are sent, or one that holds the hottest rows, to which the others are sent besides.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pygsage.data.one_graph.feature_rows import FeatureRows
from pygsage.sampling.features import joined_dtype, joined_features
from pygsage.sampling.library import StepSampler
from pygsage.sampling.sample import Block
from pygsage.sampling.transfer import Written

_ROWS_AT_ONCE = 1 << 18  # that are brought to a device while it is filled


class DrawnParts(NamedTuple):
    """The neighbours of a step.

    Attributes:
        nodes: int64 [t], the targets of the outermost hop, seeds first.
        blocks: One a layer but the first, outermost first.
        parts: What the first layer's input is made of, by name, to be sent to the device.
    """

    nodes: Tensor
    blocks: list[Block]
    parts: dict[str, Tensor | Written]


class FirstLayer(Protocol):
    """Draws a step's neighbours, and makes the first layer's input of them."""

    def draw(self, seeds: Tensor, epoch: int, step: int) -> DrawnParts:
        """On the CPU; called from several threads at once."""

    def input(self, parts: dict[str, Tensor]) -> Tensor:
        """[t, 2 F], from the parts on the device."""

    def counts(self) -> tuple[int, int]:
        """Rows that were found in a cache and rows that were not, since the last call."""


class OnDevice:
    """The device holds all features; rows are gathered and aggregated there.

    Args:
        sampler: Draws the neighbours.
        x: [N, F] on the device.
        aggr: `mean`, `sum` or `max`.
        dtype: Of the result.
    """

    def __init__(self, sampler: StepSampler, x: Tensor, aggr: str, dtype: torch.dtype) -> None:
        self._sampler, self._x, self._aggr, self._dtype = sampler, x, aggr, dtype

    def draw(self, seeds: Tensor, epoch: int, step: int) -> DrawnParts:
        """As `FirstLayer.draw`."""
        layers = self._sampler.sample_layers(seeds, epoch, step)
        return DrawnParts(layers.nodes, layers.blocks, {"outer": layers.outer_indptr, "ids": layers.outer_ids})

    def input(self, parts: dict[str, Tensor]) -> Tensor:
        """As `FirstLayer.input`."""
        return joined_features(self._x, parts["n_id"], parts["outer"], parts["ids"], self._aggr, self._dtype)

    def counts(self) -> tuple[int, int]:
        """None are counted."""
        return 0, 0


class OnDeviceCached:
    """The device holds some rows; a batch's others are read on the CPU and sent.

    Args:
        sampler: Draws the neighbours.
        rows: How the features are read.
        held: bool [N]: which rows the device holds.
        width: F.
        stored: The dtype of the rows.
        aggr: `mean`, `sum` or `max`.
        dtype: Of the result.
        device: The device.

    Costs the held rows on the device, read once in ascending order, and 4 bytes for each of the N on the CPU.
    """

    def __init__(
        self,
        sampler: StepSampler,
        rows: FeatureRows,
        held: Tensor,
        width: int,
        stored: torch.dtype,
        aggr: str,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._sampler, self._rows, self._aggr, self._dtype = sampler, rows, aggr, dtype
        self.num_held = int(held.sum())
        self._slots = np.full(len(held), -1, np.int32)
        self._slots[held.numpy()] = np.arange(self.num_held, dtype=np.int32)
        self._held = torch.empty(self.num_held, width, dtype=stored, device=device)
        have = 0
        for begin in range(0, len(held), _ROWS_AT_ONCE):
            ids = held[begin : begin + _ROWS_AT_ONCE].nonzero().flatten() + begin
            self._held[have : have + len(ids)].copy_(rows.read(ids))
            have += len(ids)
        rows.counts()  # of the filling, which is no batch
        self._lock, self._hits, self._misses = Lock(), 0, 0

    @property
    def num_bytes(self) -> int:
        """What it holds on the device."""
        return self._held.numel() * self._held.element_size()

    def draw(self, seeds: Tensor, epoch: int, step: int) -> DrawnParts:
        """As `FirstLayer.draw`."""
        reached, (first, *blocks) = self._sampler.sample_blocks(seeds, epoch, step)
        # With NumPy, which starts no threads of its own here, as torch would.
        slots = self._slots[reached.numpy()]
        is_held = slots >= 0
        hits, missed = slots[is_held], torch.from_numpy(reached.numpy()[~is_held])
        # On the device lie the rows that are held, then the others: the edges and the targets are numbered by that.
        order = np.empty(len(slots), np.int32)
        order[is_held] = np.arange(len(hits), dtype=np.int32)
        order[~is_held] = np.arange(len(hits), len(slots), dtype=np.int32)
        with self._lock:
            self._hits += len(hits)
            self._misses += len(missed)
        parts: dict[str, Tensor | Written] = {
            "missed": Written(
                (len(missed), self._held.shape[1]), self._held.dtype, lambda out: self._read(missed, out)
            ),
            "slots": torch.from_numpy(hits),
            "own": torch.from_numpy(order[: first.num_dst].astype(np.int64)),
            "outer": first.indptr,
            "ids": torch.from_numpy(order[first.indices.numpy()]),
        }
        return DrawnParts(reached[: first.num_dst], blocks, parts)

    def _read(self, ids: Tensor, out: Tensor) -> None:
        if self._rows.resident is None:
            out.copy_(self._rows.read(ids))
        else:  # NumPy's own thread; the mode is the one in which it writes where it is told
            np.take(self._rows.resident.numpy(), ids.numpy(), axis=0, out=out.numpy(), mode="clip")

    def input(self, parts: dict[str, Tensor]) -> Tensor:
        """As `FirstLayer.input`."""
        slots, missed = parts["slots"], parts["missed"]
        rows = missed.new_empty(len(slots) + len(missed), missed.shape[1])
        torch.index_select(self._held, 0, slots, out=rows[: len(slots)])
        rows[len(slots) :] = missed
        return joined_features(rows, parts["own"], parts["outer"], parts["ids"], self._aggr, self._dtype)

    def counts(self) -> tuple[int, int]:
        """Rows that the device held and rows that were sent, since the last call."""
        with self._lock:
            found = self._hits, self._misses
            self._hits = self._misses = 0
        return found


def to_device(x: Tensor, rows: FeatureRows, device: torch.device) -> Tensor:
    """Features [N, F] on a device, brought there in pieces: they may be mapped from a file that does not fit in RAM."""
    out = torch.empty(x.shape, dtype=x.dtype, device=device)
    for begin in range(0, len(x), _ROWS_AT_ONCE):
        end = min(len(x), begin + _ROWS_AT_ONCE)
        # A file that is touched in no order is not read ahead: many pages are asked for at once instead.
        out[begin:end].copy_(x[begin:end] if rows.resident is not None else rows.read(torch.arange(begin, end)))
    return out


def input_dtype(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of the first layer's input: as told, or by the features'."""
    return joined_dtype(x) if dtype is None else dtype
