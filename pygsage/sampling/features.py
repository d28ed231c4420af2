"""The first layer's input: the rows of a graph's features that a step needs, aggregated where they lie."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pygsage import native
from pygsage.native.memory import empty


def joined_features(
    x: Tensor,
    nodes: Tensor | None,
    indptr: Tensor,
    ids: Tensor,
    aggr: str,
    dtype: torch.dtype | None = None,
    num_threads: int = 1,
    columns: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Each target's aggregated neighbours, beside its own row: one row of a matrix that a layer is a product of.

    Args:
        x: float32, float16 or float64 [N, F], resident or mapped, or on a GPU, as are then the other tensors. float16
            is widened before it is summed.
        nodes: int64 [t]: each target's own row of `x`; None leaves the second half out.
        indptr: int64 [t + 1]: where each target's neighbours begin in `ids`.
        ids: int32 or int64 [E]: rows of `x`.
        aggr: `mean`, `sum` or `max`; without neighbours it is zero.
        dtype: Of the result: float32, bfloat16 (rounded once, at the end), or float64 for float64; by default that of
            `x`, float32 for float16.
        num_threads: Threads of the native pass; their number changes no bit.
        columns: F, how many columns of `x` are taken, from the first; by default all.
        out: On the CPU, where the result is written; by default it is made.

    Returns:
        [t, 2 F], or [t, F] without nodes. Sums are in the order of `ids`: native ones are the same to the last bit with
        every set of instructions; torch's, which serves where the core was not built, differ by rounding.

    Costs one pass over the rows, E x F elements read and none held beside the result.
    """
    if dtype is None:
        dtype = joined_dtype(x)
    if native.core is None or x.device.type != "cpu":
        found = _by_torch(x if columns is None else x[:, :columns], nodes, indptr, ids, aggr, dtype)
        return found if out is None else out.copy_(found)
    width = x.shape[1] if columns is None else columns
    if out is None:
        out = empty((len(indptr) - 1, width * (1 if nodes is None else 2)), dtype)
    own = None if nodes is None else nodes.numpy()
    seen = out.view(torch.int16) if dtype == torch.bfloat16 else out
    native.core.join_features(x.numpy(), own, indptr.numpy(), ids.numpy(), aggr, seen.numpy(), num_threads, "", width)
    return out


def joined_dtype(x: Tensor) -> torch.dtype:
    """That of the sums of rows of `x`: its own, or float32 for float16."""
    return torch.float32 if x.dtype == torch.float16 else x.dtype


def _by_torch(x: Tensor, nodes: Tensor | None, indptr: Tensor, ids: Tensor, aggr: str, dtype: torch.dtype) -> Tensor:
    own = None if nodes is None else x[nodes]
    ids = ids.to(indptr.dtype)
    if x.dtype == torch.float16:
        reached, ids = ids.unique(return_inverse=True)
        x = x[reached].float()
    parts = [F.embedding_bag(ids, x, indptr, mode=aggr, include_last_offset=True)]
    if own is not None:
        parts.append(own.to(x.dtype))
    return torch.cat(parts, 1).to(dtype)
