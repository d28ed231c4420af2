"""The sampler of the native core, for torch tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygsage import native
from pygsage.errors import EnvironmentLimitError
from pygsage.sampling.sample import Hop, Sample


def available() -> bool:
    """Whether the native core was built and can be loaded."""
    return native.core is not None


def sample(
    indptr: Tensor, indices: Tensor, seeds: Tensor, fanouts: Sequence[int], stream: int, layered: bool
) -> Sample:
    """Draws a neighbourhood hop by hop: the same arguments, result and errors as `reference.sample`.

    May be called by several threads at once; the interpreter is free meanwhile. `indptr` and `indices` are read where
    they lie, also when they are mapped from a file. Costs O(fanout) for each target. Each thread that calls keeps
    8 bytes a node of graphs up to 2**24 nodes, and at most 64 bytes a node of its largest batch for larger ones.

    Raises:
        EnvironmentLimitError: when the native core was not built.
        ValueError: as `reference.sample`.
        TypeError: for a tensor of another dtype or shape, or one that is not contiguous.
    """
    if native.core is None:
        raise EnvironmentLimitError(
            f"The native core cannot be used: {native.load_error}.",
            "Use --sampler reference, or install a C++17 compiler and then pygsage again.",
        )
    nodes, num_nodes, hops = native.core.sample(
        indptr.numpy(), indices.numpy(), seeds.contiguous().numpy(), list(fanouts), stream, layered
    )
    return Sample(
        torch.from_numpy(nodes),
        num_nodes,
        [
            Hop(first_target, torch.from_numpy(ends), torch.from_numpy(rows), torch.from_numpy(positions))
            for first_target, ends, rows, positions in hops
        ],
    )
