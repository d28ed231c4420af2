"""Our sampler as PyG's `BaseSampler`, and as the trainer's source of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample

from pygsage import native
from pygsage.config import parse_fanouts
from pygsage.data.csc import build_csc
from pygsage.data.graph import Graph
from pygsage.errors import ConfigError, DatasetError, EnvironmentLimitError
from pygsage.sampling import native as native_sampler
from pygsage.sampling import reference
from pygsage.sampling.keys import stream_of, stream_of_seeds
from pygsage.sampling.sample import Block, Hop, Sample

SampleFunction = Callable[[Tensor, Tensor, Tensor, Sequence[int], int, bool], Sample]


class NeighborSampler(BaseSampler):
    """Draws in-neighbours uniformly without replacement, as a pure function of (seed, epoch, step, node).

    PyG's loaders run on it: `NeighborLoader(data, num_neighbors=…, neighbor_sampler=NeighborSampler(data, …))`;
    there it has PyG's meaning of fanouts: a node draws once, with the fanout of the hop that reached it first.
    `sample_blocks` has the trainer's meaning: at hop h every target reached so far uses the first `fanouts[h]`
    of its draw (with equal fanouts the two are the same).

    Args:
        data: A homogeneous PyG `Data` with `edge_index [2, E]`, or a `Graph`.
        num_neighbors: Neighbours drawn at each hop, from the seeds outwards; -1 takes all.
        seed: Seed of all draws.
        backend: `native`, `reference`, or `auto`: native where it is built.

    Raises:
        DatasetError: when `data` is not one homogeneous graph, or its edges are out of range.
        EnvironmentLimitError: when the native sampler is asked for and was not built.

    Cost: for `Data`, one counting sort of the edges: O(E) time; holds 16 bytes an edge (12 with int32 indices)
    and 8 a node. A batch costs O(sampled edges).
    """

    def __init__(
        self, data: Data | Graph, num_neighbors: Sequence[int] | str, seed: int = 0, backend: str = "auto"
    ) -> None:
        fanouts = parse_fanouts(num_neighbors) if isinstance(num_neighbors, str) else tuple(num_neighbors)
        if not fanouts or any(k < -1 or k == 0 for k in fanouts):
            raise ConfigError(f"num_neighbors is {list(fanouts)}; expected positive integers, or -1 for all.")
        self.fanouts = fanouts
        self.seed = seed
        self.backend = resolve_backend(backend)
        if isinstance(data, Graph):
            self.indptr, self.indices, self._edge_id = data.indptr, data.indices, data.edge_id
        else:
            edge_index, num_nodes = _edges_of(data)
            try:
                csc = build_csc(edge_index, num_nodes)
            except ValueError as error:
                raise DatasetError(f"The graph's {error}.") from None
            self.indptr, self.indices, self._edge_id = csc.indptr, csc.indices, csc.perm

    @property
    def num_nodes(self) -> int:
        """Number of nodes in the graph."""
        return len(self.indptr) - 1

    @property
    def edge_permutation(self) -> Tensor:
        """For each edge of the sampler its position in the user's edge list, int64 [E]; -1 for added edges."""
        return self._edge_id

    def sample_from_nodes(
        self, index: NodeSamplerInput, epoch: int | None = None, step: int | None = None, **kwargs: Any
    ) -> SamplerOutput:
        """Samples around seed nodes for PyG's loaders; seeds come first in `node`, duplicates included.

        Without `epoch` and `step`, as when a loader of PyG calls it, the draw is keyed by the ordered seeds.
        """
        seeds = index.node.to(torch.int64)
        if step is None:
            stream = stream_of_seeds(seeds) ^ stream_of(self.seed, 0, 0)
        else:
            stream = stream_of(self.seed, epoch or 0, step)
        out = self._sample(seeds, stream)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput:
        """Samples around the ends of seed edges, for PyG's `LinkNeighborLoader`; negatives are PyG's own."""

        def sample(seeds: Tensor, *_: Any) -> SamplerOutput:
            return self._sample(seeds, stream_of_seeds(seeds) ^ stream_of(self.seed, 0, 0))

        return edge_sample(index, sample, self.num_nodes, False, None, neg_sampling)

    def sample_blocks(self, seeds: Tensor, epoch: int, step: int) -> tuple[Tensor, list[Block]]:
        """Samples what one training step needs.

        Args:
            seeds: Node ids, int64 [n]; may be empty.
            epoch: The epoch, part of the key of every draw.
            step: The step within the epoch, likewise.

        Returns:
            The ids of all nodes reached, int64, seeds first, then by hop; and one block a layer, outermost
            (the model's first layer) first.
        """
        equal = len(set(self.fanouts)) == 1
        sample = self._draw(seeds, stream_of(self.seed, epoch, step), layered=not equal)
        if not equal:
            return sample.nodes, [Block(hop.indptr, hop.indices) for hop in reversed(sample.hops)]
        # With equal fanouts a target's edges are the same at every later hop: each block is a prefix of the next.
        indptr, indices = _joined(sample.hops)
        blocks = []
        for num_dst in sample.num_nodes[-2::-1]:
            pointers = indptr[: num_dst + 1]
            blocks.append(Block(pointers, indices[: int(pointers[-1])]))
        return sample.nodes, blocks

    def _draw(self, seeds: Tensor, stream: int, layered: bool) -> Sample:
        function: SampleFunction = native_sampler.sample if self.backend == "native" else reference.sample
        return function(self.indptr, self.indices, seeds, self.fanouts, stream, layered)

    def _sample(self, seeds: Tensor, stream: int) -> SamplerOutput:
        sample = self._draw(seeds, stream, layered=False)
        indptr, row = _joined(sample.hops)
        col = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
        counts = [0, *sample.num_nodes]
        return SamplerOutput(
            node=sample.nodes,
            row=row,
            col=col,
            edge=torch.cat([hop.positions for hop in sample.hops]),
            num_sampled_nodes=[after - before for before, after in pairwise(counts)],
            num_sampled_edges=[len(hop.indices) for hop in sample.hops],
        )


def resolve_backend(backend: str) -> str:
    """The sampler in force for `auto`, `native` or `reference`.

    Raises:
        EnvironmentLimitError: when `native` is asked for and was not built.
    """
    if backend not in ("auto", "native", "reference"):
        raise ConfigError(f"The sampler is {backend!r}; expected auto, native or reference.")
    if backend == "native" and native.core is None:
        raise EnvironmentLimitError(
            f"The native sampler is not installed: {native.load_error}.",
            "Install a C++17 compiler, then type: pip install --force-reinstall --no-deps .",
        )
    if backend == "auto":
        return "reference" if native.core is None else "native"
    return backend


def _edges_of(data: Any) -> tuple[Tensor, int]:
    if not isinstance(data, Data):
        raise DatasetError(
            f"The sampler was given a {type(data).__name__}; expected one homogeneous torch_geometric.data.Data."
        )
    edge_index = data.edge_index
    if edge_index is None:
        raise DatasetError("The graph has no edge_index; expected integers of shape [2, E].")
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.is_floating_point():
        raise DatasetError(
            f"edge_index is {edge_index.dtype} of shape {list(edge_index.shape)}; expected integers of shape [2, E]."
        )
    return edge_index.to("cpu", torch.int64), int(data.num_nodes or 0)


def _joined(hops: Sequence[Hop]) -> tuple[Tensor, Tensor]:
    """The hops' targets, which follow one another, as one CSR."""
    offsets = [0]
    for hop in hops:
        offsets.append(offsets[-1] + len(hop.indices))
    pointers = [hop.indptr[1:] + offset for hop, offset in zip(hops, offsets, strict=False)]
    return torch.cat([torch.zeros(1, dtype=torch.int64), *pointers]), torch.cat([hop.indices for hop in hops])
