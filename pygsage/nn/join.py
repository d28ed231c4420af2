"""A layer's input: each target's aggregated neighbours and its own row side by side, so that a layer is one product.

Two ways to the same numbers, up to rounding: torch's operations on every device and dtype, and on a CPU native kernels
that read the rows once, with the activation and its dropout on the way.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pygsage.nn import kernels
from pygsage.nn.dropout import activation_dropout, mask_start, threshold
from pygsage.sampling.features import joined_features
from pygsage.sampling.sample import Block


def aggregate(x: Tensor, indptr: Tensor, indices: Tensor, aggr: str) -> Tensor:
    """The mean, sum or maximum of the neighbours' rows of each target; zero where there are none.

    Args:
        x: Floating [n, F].
        indptr: int64 [t + 1]: where each target's neighbours begin in `indices`.
        indices: int32 or int64 [E]: rows of `x`.
        aggr: `mean`, `sum` or `max`.

    Returns:
        [t, F]. One pass without a message per edge: E x F is never held. The gradient with respect to `x` is
        the same to the last bit for the same number of threads on a CPU.
    """
    return F.embedding_bag(indices.to(indptr.dtype), x, indptr, mode=aggr, include_last_offset=True)


def join(x: Tensor, block: Block, aggr: str) -> Tensor:
    """[t, 2 F]: the aggregate of each target's neighbours, then its own row of `x` [n, F].

    One native pass on a CPU where no gradient of `x` is wanted, else torch's operations.
    """
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and not x.requires_grad:
        own, threads = torch.arange(block.num_dst), torch.get_num_threads()
        indptr = block.indptr.to(torch.int64)
        return joined_features(x.contiguous(), own, indptr, block.indices, aggr, num_threads=threads)
    return torch.cat([aggregate(x, block.indptr, block.indices, aggr), x[: block.num_dst]], 1)


def activated_join(
    x: Tensor, p: float, stream: int | None, layer: int, n_id: Tensor, block: Block, aggr: str
) -> Tensor:
    """`join` of `activation_dropout(x, …)`, whose result is never held on a CPU.

    Args:
        x: Floating [n, H]: what a layer puts out, before its activation.
        p: Share of the activations that are dropped, in steps of 1/256.
        stream: 64-bit number of the step; None drops nothing.
        layer: Index of the layer that put out `x`.
        n_id: int64 [n], the global id of the node of each row.
        block: The edges of the next layer; its targets are the first rows of `x`.
        aggr: `mean`, `sum` or `max`.

    Returns:
        [t, 2 H] of the dtype of `x`. For the gradient one bit an element of `x` is kept (for `max` four bytes an
        element of the result's first half besides). The native gradient is the same to the last bit for any number of
        threads.
    """
    if not kernels.usable(x):
        return join(activation_dropout(x, p, stream, layer, n_id), block, aggr)
    dropped = threshold(p) if stream is not None else 0
    start = mask_start(stream, layer) if stream is not None else 0
    out: Tensor = _ActivatedJoin.apply(
        x,
        n_id,
        block.indptr.to(torch.int64),
        block.indices.to(torch.int32),
        start,
        dropped,
        aggr,
        torch.is_grad_enabled(),
    )
    return out


class _ActivatedJoin(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        n_id: Tensor,
        indptr: Tensor,
        indices: Tensor,
        start: int,
        dropped: int,
        aggr: str,
        with_grad: bool,
    ) -> Tensor:
        x = x.contiguous()
        ctx.scale, ctx.aggr = 256.0 / (256 - dropped), aggr
        bits = kernels.activation_bits(x, n_id, start, dropped)
        out, chosen = kernels.join_hidden(x, bits, ctx.scale, indptr, indices, aggr, with_grad)
        ctx.save_for_backward(bits, indptr, indices, chosen)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        bits, indptr, indices, chosen = ctx.saved_tensors
        return kernels.spread_hidden(grad, bits, ctx.scale, indptr, indices, ctx.aggr, chosen), *[None] * 7
