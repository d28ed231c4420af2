"""A linear map whose weight gradient is summed precisely, so that splitting a batch does not change it.

In float32 the sum over the rows of a batch depends on where it is cut. After a softmax the terms almost cancel, and
what is left of the rounding can pass 1e-6 of the gradient's norm, the most that one rank and many may differ by. So
`ROWS_AT_ONCE` rows are summed in float32, and those sums in float64; the narrow gradients of a last layer, which come
from the softmax itself, are multiplied in float64.

After ReLU and dropout three of four elements of a gradient are zero. On a CPU the two products of the backward pass
then skip them in float32, which is faster than the dense ones. In bfloat16 the gradient of the weight is summed so as
well: torch would round its sum to bfloat16.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pygsage.native.memory import empty
from pygsage.nn import kernels

ROWS_AT_ONCE = 128  # native/layers.h: kRowsOfSum
NARROW = 64  # columns of a gradient up to which float64 costs next to nothing
ROWS_IN_DOUBLE = 1024
PIECE_ROWS, LEAST_PIECE_ROWS = 4096, 64  # of bfloat16 that are multiplied at once; halved from one to the other
ROWS_WIDENED = 2048  # of bfloat16 at once: they stay in a core's cache


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b: [n, in] and [out, in] to [n, out], as `torch.nn.functional.linear` in value.

    On a CPU the gradient of weight and bias is summed as above, in float32.
    """
    precise = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    if not precise or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    out: Tensor = _Linear.apply(x, weight, bias, False)
    return out


def linear_bf16(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear` whose products are of bfloat16 values, with float32 sums; the result has the dtype of `x`.

    Args:
        x: bfloat16 or float32 [n, in]; what is kept for the gradient is bfloat16.
        weight: float32 [out, in].
        bias: float32 [out].

    The gradient of the weight is summed as in `linear` on a CPU; on a GPU its float32 sum is rounded to bfloat16.
    """
    out: Tensor = _Linear.apply(x.bfloat16(), weight, bias, True)
    return out.to(x.dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, bf16: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        if bf16:
            weight, bias = weight.bfloat16(), None if bias is None else bias.bfloat16()
        if x.device.type != "cpu":
            return F.linear(x, weight, bias)
        return _times(x, weight.t(), bias, empty((len(x), len(weight)), x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad = grad.contiguous()
        if grad.dtype == torch.float32 and kernels.usable(grad, x) and kernels.is_sparse(grad):
            grad_x = kernels.times_weight(grad, weight.contiguous()) if needs_x else None
            both = kernels.outer_sum(grad, x.contiguous()) if needs_weight or needs_bias else (None, None)
            return grad_x, both[0], both[1] if needs_bias else None, None
        grad_x = None
        if needs_x:
            into = weight.to(grad.dtype)
            on_cpu = grad.device.type == "cpu"
            grad_x = _times(grad, into, None, empty(x.shape, grad.dtype)) if on_cpu else torch.mm(grad, into)
        grad_weight = _sum_of_outer_products(grad, x).to(weight.dtype) if needs_weight else None
        grad_bias = None
        if needs_bias:
            grad_bias = kernels.column_sums(grad) if kernels.usable(grad) else grad.sum(0, dtype=weight.dtype)
        return grad_x, grad_weight, grad_bias, None


def _times(x: Tensor, matrix: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """x times a matrix, and a bias, on a CPU; bfloat16 in pieces of few sizes.

    torch compiles a program for each number of rows of bfloat16 that it meets, and keeps a thousand of them of 0.7 MB
    (oneDNN's primitives): batches, each of another size, would take hundreds of megabytes, and be compiled for each.
    """
    if x.dtype != torch.bfloat16:
        return torch.mm(x, matrix, out=out) if bias is None else torch.addmm(bias, x, matrix, out=out)
    begin, size = 0, PIECE_ROWS
    while begin < len(x):
        left = len(x) - begin
        while size > max(left, LEAST_PIECE_ROWS):
            size //= 2
        piece, into = x[begin : begin + size], out[begin : begin + size]
        if left < size:
            piece, into = F.pad(piece, (0, 0, 0, size - left)), out.new_empty(size, matrix.shape[1])
        if bias is None:
            torch.mm(piece, matrix, out=into)
        else:
            torch.addmm(bias, piece, matrix, out=into)
        if left < size:
            out[begin:] = into[:left]
        begin += size
    return out


def _sum_of_outer_products(grad: Tensor, x: Tensor) -> Tensor:
    if grad.device.type != "cpu":
        return grad.t() @ x
    total = torch.zeros(grad.shape[1], x.shape[1], dtype=torch.float64)
    if grad.dtype == torch.bfloat16 and kernels.usable(grad, x) and kernels.is_sparse(grad):
        wide_grad, wide = torch.empty(ROWS_WIDENED, grad.shape[1]), torch.empty(ROWS_WIDENED, x.shape[1])
        for some_grad, some in zip(grad.split(ROWS_WIDENED), x.split(ROWS_WIDENED), strict=True):
            num = len(some)
            total += kernels.outer_sum(wide_grad[:num].copy_(some_grad), wide[:num].copy_(some))[0]
        return total
    exact = torch.float64 if grad.dtype == torch.float64 or grad.shape[1] <= NARROW else torch.float32
    at_once = ROWS_AT_ONCE if exact == torch.float32 else ROWS_IN_DOUBLE
    for some_grad, some in zip(grad.split(at_once), x.split(at_once), strict=True):
        total += some_grad.to(exact).t() @ some.to(exact)
    return total
