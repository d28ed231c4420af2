"""The native core's kernels for torch tensors: which tensors they take, and the calls.

They run on the thread that calls and on as many others as `torch.get_num_threads()` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage import native
from pygsage.native.memory import empty

DTYPES = (torch.float32, torch.bfloat16)
WIDEST = 4096  # native/kernels.h: kWidestTimes
SPARSE = 0.6  # up to this share of non-zeros the sparse products are faster than the dense ones


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels were built and take these: dense, of one dtype of `DTYPES`, on the CPU."""
    return native.core is not None and all(
        t.device.type == "cpu" and t.dtype in DTYPES and t.dtype == tensors[0].dtype for t in tensors
    )


def _seen(tensor: Tensor) -> np.ndarray:
    """The tensor's memory as NumPy has it: bfloat16 as int16."""
    tensor = tensor.detach()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _core() -> Any:
    assert native.core is not None
    return native.core


def activation_bits(x: Tensor, n_id: Tensor, start: int, dropped: int) -> Tensor:
    """Where `x` [n, H] is positive and kept: int64 [n, ceil(H / 64)], 64 columns a word."""
    bits = torch.empty(len(x), -(-x.shape[1] // 64), dtype=torch.int64)
    nodes = n_id.contiguous().numpy()
    _core().activation_bits(_seen(x), nodes, start, dropped, bits.numpy().view(np.uint64), torch.get_num_threads())
    return bits


def join_hidden(
    x: Tensor, bits: Tensor, scale: float, indptr: Tensor, indices: Tensor, aggr: str, with_chosen: bool
) -> tuple[Tensor, Tensor | None]:
    """[t, 2 H]: the neighbours' aggregate beside the own row, of what `bits` keep of `x` [n, H], times `scale`.

    `with_chosen`: also int32 [t, H], the edge that gave each maximum.
    """
    out = empty((len(indptr) - 1, 2 * x.shape[1]), x.dtype)
    chosen = empty((len(out), x.shape[1]), torch.int32) if with_chosen and aggr == "max" else None
    _core().join_hidden(
        _seen(x), bits.numpy().view(np.uint64), scale, indptr.numpy(), indices.numpy(), aggr, _seen(out),
        None if chosen is None else chosen.numpy(), torch.get_num_threads(),
    )  # fmt: skip
    return out, chosen


def spread_hidden(
    grad: Tensor, bits: Tensor, scale: float, indptr: Tensor, indices: Tensor, aggr: str, chosen: Tensor | None
) -> Tensor:
    """The gradient of `join_hidden` with respect to `x`, from that of its result."""
    grad = grad.contiguous()
    out = empty((len(bits), grad.shape[1] // 2), grad.dtype)
    _core().spread_hidden(
        _seen(grad), bits.numpy().view(np.uint64), scale, indptr.numpy(), indices.numpy(), aggr, _seen(out),
        None if chosen is None else chosen.numpy(), torch.get_num_threads(),
    )  # fmt: skip
    return out


def is_sparse(grad: Tensor) -> bool:
    """Whether a gradient [n, m] has so many zeros that the two products below are worth it."""
    return grad.shape[1] <= WIDEST and len(grad) >= 64 and _core().density(_seen(grad)) <= SPARSE


def outer_sum(grad: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """float32 (grad^T values [m, k], sums of grad's columns [m]), skipping the zeros of grad [n, m]."""
    out, sums = torch.empty(grad.shape[1], values.shape[1]), torch.empty(grad.shape[1])
    _core().sparse_outer_sum(_seen(grad), _seen(values), out.numpy(), sums.numpy(), torch.get_num_threads())
    return out, sums


def times_weight(grad: Tensor, weight: Tensor) -> Tensor:
    """grad weight [n, k] in the dtype of grad, skipping the zeros of grad [n, m]; weight: float32 [m, k]."""
    out = empty((len(grad), weight.shape[1]), grad.dtype)
    _core().sparse_times_weight(_seen(grad), _seen(weight), _seen(out), torch.get_num_threads())
    return out


def column_sums(values: Tensor) -> Tensor:
    """float32 [m], the sums of the columns of `values` [n, m]: of 128 rows in float32, of those in float64."""
    sums = torch.empty(values.shape[1])
    _core().column_sums(_seen(values), sums.numpy())
    return sums
