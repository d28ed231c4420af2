"""Large arrays for what a step makes anew: in huge pages, and used again by the next step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pygsage import native

LEAST_BYTES = 1 << 20  # smaller ones are left to torch


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """`torch.empty` on the CPU, which keeps the memory of large tensors for the next ones of about the same size.

    Costs up to an eighth more than the tensor, and up to eight that are not in use, which together with those that are
    stay within 5/4 of the most that was in use at once; until `release_buffers`.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    core: Any = native.core
    if core is None or not hasattr(core, "buffer") or num_bytes < LEAST_BYTES:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(core.buffer(num_bytes)).view(dtype).view(*shape)


def release_buffers() -> None:
    """Gives the memory that no tensor uses back to the system."""
    if native.core is not None and hasattr(native.core, "release_buffers"):
        native.core.release_buffers()


def prefer_huge_pages(tensor: Tensor, now: bool = True) -> None:
    """Asks the system to hold a tensor in huge pages, of which random reads miss fewer; changes nothing else.

    For memory that is neither mapped from a file nor shared. Costs a copy of it, 2 MiB at a time; without `now`
    nothing, and only memory that was never written to is concerned.
    """
    if native.core is not None and tensor.numel():
        native.core.prefer_huge_pages(tensor.detach().numpy(), now)
