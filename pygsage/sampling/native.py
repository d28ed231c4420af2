"""The sampler of the native core, for torch tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from pygsage import native
from pygsage.errors import EnvironmentLimitError
from pygsage.sampling.reference import check_node_types
from pygsage.sampling.sample import Block, HeteroSample, Hop, Layers, Relation, Sample


def available() -> bool:
    """Whether the native core was built and can be loaded."""
    return native.core is not None


def sample(
    indptr: Tensor,
    indices: Tensor,
    seeds: Tensor,
    fanouts: Sequence[int],
    stream: int,
    layered: bool,
    is_mapped: bool = False,
) -> Sample:
    """Draws a neighbourhood hop by hop: the same arguments, result and errors as `reference.sample`.

    May be called by several threads at once; the interpreter is free meanwhile. `indptr` and `indices` are read where
    they lie, also when they are mapped from a file: with `is_mapped`, what a hop needs of it is read many pages at a
    time where it is not in memory. Costs O(fanout) for each target. Each thread that calls keeps
    8 bytes a node of graphs up to 2**24 nodes, and at most 64 bytes a node of its largest batch for larger ones; and
    16 bytes a node of its largest batch.

    Raises:
        EnvironmentLimitError: when the native core was not built.
        ValueError: as `reference.sample`.
        TypeError: for a tensor of another dtype or shape, or one that is not contiguous.
    """
    nodes, num_nodes, hops = _core().sample(
        indptr.numpy(), indices.numpy(), seeds.contiguous().numpy(), list(fanouts), stream, layered, is_mapped=is_mapped
    )
    return Sample(torch.from_numpy(nodes), num_nodes, _hops(hops))


def sample_layers(indptr: Tensor, indices: Tensor, seeds: Tensor, fanouts: Sequence[int], stream: int) -> Layers:
    """Draws what a training step needs: the same neighbours as `sample(…, layered=True)`.

    Threads, costs and errors as for `sample`; keeps at most 16 bytes more for each edge of the hops but the last.
    """
    nodes, num_nodes, drawn, outer_indptr, outer_ids = _core().sample_layers(
        indptr.numpy(), indices.numpy(), seeds.contiguous().numpy(), list(fanouts), stream
    )
    arrays = [(torch.from_numpy(ends), torch.from_numpy(rows)) for ends, rows in drawn]
    if len(arrays) == 1:  # each block is a prefix of the next
        ((ends, rows),) = arrays
        arrays = [(ends[: count + 1], rows[: int(ends[count])]) for count in num_nodes[:-1]]
    blocks = [Block(ends, rows) for ends, rows in reversed(arrays)]
    return Layers(torch.from_numpy(nodes), blocks, torch.from_numpy(outer_indptr), torch.from_numpy(outer_ids))


def sample_hetero(
    relations: Sequence[Relation], num_nodes: Mapping[str, int], seeds: Mapping[str, Tensor], stream: int
) -> HeteroSample:
    """Draws in a graph with several types: the arguments, result and errors of `reference.sample_hetero`.

    Threads and costs as for `sample`; each thread keeps that memory for each node type.

    Raises:
        EnvironmentLimitError: when the native core was not built.
        ValueError: as `reference.sample_hetero`.
        TypeError: for a tensor of another dtype or shape, or one that is not contiguous.
    """
    core = _core()
    check_node_types(relations, num_nodes, seeds)
    place = {name: i for i, name in enumerate(num_nodes)}
    none = torch.empty(0, dtype=torch.int64)
    nodes, counts, hops = core.sample_hetero(
        list(num_nodes.values()),
        [seeds.get(name, none).contiguous().numpy() for name in num_nodes],
        [relation.indptr.numpy() for relation in relations],
        [relation.indices.numpy() for relation in relations],
        [(place[relation.edge_type[0]], place[relation.edge_type[2]]) for relation in relations],
        [list(relation.fanouts) for relation in relations],
        stream,
    )
    return HeteroSample(
        {name: torch.from_numpy(ids) for name, ids in zip(num_nodes, nodes, strict=True)},
        dict(zip(num_nodes, counts, strict=True)),
        {relation.edge_type: _hops(drawn) for relation, drawn in zip(relations, hops, strict=True)},
    )


def _core() -> ModuleType:
    if native.core is None:
        raise EnvironmentLimitError(
            f"The native core cannot be used: {native.load_error}.",
            "Use --sampler reference, or install a C++17 compiler and then pygsage again.",
        )
    return native.core


def _hops(hops: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]) -> list[Hop]:
    return [
        Hop(first_target, torch.from_numpy(ends), torch.from_numpy(rows), torch.from_numpy(positions))
        for first_target, ends, rows, positions in hops
    ]
