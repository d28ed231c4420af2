"""A linear map whose weight gradient is summed precisely, so that splitting a batch does not change it.

In float32 the sum over the rows of a batch depends on where it is cut. After a softmax the terms almost cancel, and
what is left of the rounding can pass 1e-6 of the gradient's norm, the most that one rank and many may differ by.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS_AT_ONCE = 2048  # bounds the float64 copies to a few MiB


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b: [n, in] and [out, in] to [n, out], as `torch.nn.functional.linear` in value.

    On a CPU the gradient of the weight is summed in float64, which costs about twice a float32 product.
    """
    precise = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    if not precise or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    out: Tensor = _Linear.apply(x, weight, bias)
    return out


def linear_bf16(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear` whose products are of bfloat16 values, with float32 sums: float32 in and out.

    What is kept for the gradient takes half of the bytes. The gradient of the weight is summed as in `linear` on a CPU;
    on a GPU its float32 sum is rounded to bfloat16.
    """
    out: Tensor = _LinearBf16.apply(x, weight)
    return out if bias is None else out + bias


class _LinearBf16(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.dtype = x.dtype
        x, weight = x.bfloat16(), weight.bfloat16()
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight).to(ctx.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        x, weight = ctx.saved_tensors
        grad = grad.bfloat16()
        grad_x = (grad @ weight).to(ctx.dtype) if ctx.needs_input_grad[0] else None
        if grad.device.type != "cpu":
            return grad_x, (grad.t() @ x).to(ctx.dtype)
        return grad_x, _sum_of_outer_products(grad, x, ctx.dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_x = grad @ weight if needs_x else None
        grad_weight = _sum_of_outer_products(grad, x, x.dtype) if needs_weight else None
        grad_bias = grad.sum(0) if needs_bias else None
        return grad_x, grad_weight, grad_bias


def _sum_of_outer_products(grad: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    total = torch.zeros(grad.shape[1], x.shape[1], dtype=torch.float64)
    for begin in range(0, len(x), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        total.addmm_(grad[rows].double().t(), x[rows].double())
    return total.to(dtype)
