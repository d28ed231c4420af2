"""ReLU and dropout whose mask is a pure function of (stream, layer, node id, column).

Which rows share a batch, on which rank, device or thread, changes no mask. The definition, which `native/kernels.cpp`
repeats for the fused pass of `nn/join.py`:

    row    = mix64(mix64(mix64(stream ^ DROPOUT_SALT) ^ layer) ^ node)
    word j = mix64(row + j * GOLDEN)                         the SplitMix64 sequence that starts at `row`
    t      = floor(p * 256 + 1/2), at most 255               p is in force in steps of 1/256
    t == 128:   column c is kept if bit c % 64 of word c // 64 is set
    otherwise:  column c is kept if byte c % 8 of word c // 8 (lowest first) is at least t

and what is kept is multiplied by 256 / (256 - t).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pygsage.sampling.keys import GOLDEN, MASK, mix64, mix64_tensor, signed

DROPOUT_SALT = 0xD509D509D509D509  # parts the masks from the neighbour draws of the same stream


def threshold(p: float) -> int:
    """The share `p` in [0, 1) that is dropped, in 256ths, at most 255."""
    return min(int(p * 256 + 0.5), 255)


def mask_start(stream: int, layer: int) -> int:
    """What the key of each row's mask is made of, besides its node: `row = mix64(mask_start(…) ^ node)`."""
    return mix64(mix64(stream ^ DROPOUT_SALT) ^ layer)


def keep_mask(n_id: Tensor, num_columns: int, p: float, stream: int, layer: int) -> Tensor:
    """Which activations are kept: bool [n, num_columns], on the device of `n_id` (int64 [n], global node ids).

    Costs one 64-bit hash for 64 columns when `p` is one half, for 8 columns otherwise, and one byte an
    activation of memory besides the result.
    """
    dropped = threshold(p)
    columns_a_word = 64 if dropped == 128 else 8
    row = mix64_tensor(n_id ^ signed(mask_start(stream, layer)))
    num_words = -(-num_columns // columns_a_word)
    steps = torch.tensor([signed(j * GOLDEN & MASK) for j in range(num_words)], dtype=torch.int64, device=n_id.device)
    words = mix64_tensor(row.unsqueeze(1) + steps)
    octets = words.view(torch.uint8)  # [n, 8 * num_words], lowest byte first
    if columns_a_word == 8:
        return (octets >= dropped)[:, :num_columns]
    bit = torch.tensor([1 << b for b in range(8)], dtype=torch.uint8, device=n_id.device)
    return (octets.unsqueeze(-1) & bit).flatten(1).ne_(0).view(torch.bool)[:, :num_columns]


def activation_dropout(x: Tensor, p: float, stream: int | None, layer: int, n_id: Tensor) -> Tensor:
    """ReLU, then dropout of the share `p`, in steps of 1/256, with the mask of `keep_mask`.

    Args:
        x: Floating [n, H], any device.
        p: Share of the activations that become zero, in [0, 1); with 0 this is ReLU and costs no more.
        stream: 64-bit number of the step, from `sampling.keys.stream_of`; None drops nothing.
        layer: Index of the layer, from 0 at the input.
        n_id: int64 [n], the global id of the node of each row.

    Returns:
        [n, H] of the dtype of `x`. For the gradient only the result itself is kept.
    """
    if stream is None or threshold(p) == 0:
        return torch.relu(x)
    result: Tensor = _ActivationDropout.apply(x, p, stream, layer, n_id)
    return result


class _ActivationDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, stream: int, layer: int, n_id: Tensor) -> Tensor:
        kept = keep_mask(n_id.to(x.device), x.shape[1], p, stream, layer)
        ctx.scale = 256.0 / (256 - threshold(p))
        out = torch.relu(x).mul_(kept).mul_(ctx.scale)
        ctx.save_for_backward(out)  # positive exactly where x was positive and kept
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (out,) = ctx.saved_tensors
        return (grad * ctx.scale).masked_fill_(out <= 0, 0.0), None, None, None, None
