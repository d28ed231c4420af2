"""A linear map whose weight gradient is summed precisely, so that splitting a batch does not change it.

In float32 the sum over the rows of a batch depends on where it is cut. After a softmax the terms almost cancel, and
what is left of the rounding can pass 1e-6 of the gradient's norm, the most that one rank and many may differ by. So
`ROWS_AT_ONCE` rows are summed in float32, and those sums in float64: the error of n rows is sqrt(ROWS_AT_ONCE / n) of
what it would be.

After ReLU and dropout three of four elements of a gradient are zero. On a CPU the two products of the backward pass
then skip them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pygsage.nn import kernels

ROWS_AT_ONCE = 256  # native/layers.h: kRowsOfSum


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

    On a CPU the gradient of weight and bias is summed as in `linear`, from bfloat16 values; on a GPU the float32 sum is
    rounded to bfloat16.
    """
    out: Tensor = _Linear.apply(x.bfloat16(), weight, bias, True)
    return out.to(x.dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, bf16: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        if not bf16:
            return F.linear(x, weight, bias)
        return F.linear(x, weight.bfloat16(), None if bias is None else bias.bfloat16())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad = grad.contiguous()
        if kernels.usable(grad, x) and kernels.is_sparse(grad):
            grad_x = kernels.times_weight(grad, weight.contiguous()) if needs_x else None
            both = kernels.outer_sum(grad, x.contiguous()) if needs_weight or needs_bias else (None, None)
            return grad_x, both[0], both[1] if needs_bias else None, None
        grad_x = grad @ weight.to(grad.dtype) if needs_x else None
        grad_weight = _sum_of_outer_products(grad, x).to(weight.dtype) if needs_weight else None
        grad_bias = grad.sum(0, dtype=weight.dtype) if needs_bias else None
        return grad_x, grad_weight, grad_bias, None


def _sum_of_outer_products(grad: Tensor, x: Tensor) -> Tensor:
    if grad.device.type != "cpu":
        return grad.t() @ x
    if len(x) <= ROWS_AT_ONCE:
        return grad.float().t() @ x.float()
    total = torch.zeros(grad.shape[1], x.shape[1], dtype=torch.float64)
    for begin in range(0, len(x), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        total += grad[rows].float().t() @ x[rows].float()
    return total
