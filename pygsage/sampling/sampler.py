"""Our sampler as PyG's `BaseSampler`, and as the trainer's source of blocks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample

from pygsage import native
from pygsage.errors import ConfigError, DatasetError, EnvironmentLimitError
from pygsage.sampling import native as native_sampler
from pygsage.sampling import reference
from pygsage.sampling.keys import mix64, stream_of, stream_of_seeds
from pygsage.sampling.sample import Block, EdgeType, HeteroSample, Hop, Layers, Relation, Sample
from pygsage.sampling.topology import Edges, HeteroEdges, path_of, read_edges
from pygsage.spelling import parse_fanouts

HeteroSampleFunction = Callable[[Sequence[Relation], Mapping[str, int], Mapping[str, Tensor], int], HeteroSample]


class NeighborSampler(BaseSampler):
    """Draws in-neighbours uniformly without replacement, as a pure function of (seed, epoch, step, node, edge type).

    PyG's loaders run on it: `NeighborLoader(data, num_neighbors=…, neighbor_sampler=NeighborSampler(data, …))`;
    there it has PyG's meaning of fanouts: a node draws once, with the fanout of the hop that reached it first.
    `sample_blocks` has the trainer's meaning: at hop h every target reached so far uses the first `fanouts[h]`
    of its draw (with equal fanouts the two are the same).

    In a heterogeneous graph each edge type draws on its own for the nodes of its destination type that the hop before
    reached first, the types in sorted order; every node and edge type is in the output, if only with nothing in it.

    Args:
        data: A PyG `Data` or `HeteroData` with `edge_index [2, E]`, a `Graph`, or a pair of PyG's `FeatureStore` and
            `GraphStore`, whose edges may be in any layout (CSC is read where it lies).
        num_neighbors: Neighbours drawn at each hop, from the seeds outwards; -1 takes all. In a heterogeneous graph
            also a dict of such lists by edge type, 0 for none, or PyG's `NumNeighbors`.
        seed: Seed of all draws.
        backend: `native`, `reference`, or `auto`: native where it is built.

    Raises:
        ConfigError: for a number of neighbours below -1, a list with 0, and a dict that names an edge type that does
            not exist or leaves one out.
        DatasetError: when `data` is not one graph, or its edges are out of range.
        EnvironmentLimitError: when the native sampler is asked for and was not built.

    Cost: for edges in another layout than CSC, one counting sort: O(E) time; holds 16 bytes an edge (12 with int32
    indices) and 8 a node. A batch costs O(sampled edges). Over a graph that is mapped from a folder it holds nothing,
    and is pickled as the folder's path.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]] | NumNeighbors | str,
        seed: int = 0,
        backend: str = "auto",
    ) -> None:
        self.seed = seed
        self.backend = resolve_backend(backend)
        self._num_neighbors = parse_fanouts(num_neighbors) if isinstance(num_neighbors, str) else num_neighbors
        self._path = path_of(data)
        self._take(read_edges(data))

    def _take(self, edges: Edges | HeteroEdges) -> None:
        self.is_hetero = isinstance(edges, HeteroEdges)
        self.fanouts: tuple[int, ...] = ()  # those of a homogeneous graph
        self.relations: tuple[Relation, ...] = ()  # those of a heterogeneous one
        if isinstance(edges, Edges):
            self.fanouts = _fanouts(self._num_neighbors)
            self.indptr, self.indices, self._edge_id = edges
            return
        self._num_nodes_of = edges.num_nodes
        self._edge_ids = {edge_type: part.edge_id for edge_type, part in edges.edges.items()}
        fanouts = _fanouts_by_type(self._num_neighbors, list(edges.edges))
        self.relations = tuple(
            Relation(edge_type, part.indptr, part.indices, fanouts[edge_type])
            for edge_type, part in edges.edges.items()
        )

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """Number of nodes in the graph, or of each node type."""
        return dict(self._num_nodes_of) if self.is_hetero else len(self.indptr) - 1

    @property
    def edge_permutation(self) -> Tensor | dict[EdgeType, Tensor | None] | None:
        """For each edge of the sampler its position in the user's edge list, int64 [E]; -1 for added edges.

        A dict by edge type in a heterogeneous graph. None where the two orders are the same.
        """
        return dict(self._edge_ids) if self.is_hetero else self._edge_id

    def held(self) -> list[Tensor]:
        """The tensors that are copied to worker processes: none of a graph that is mapped from a folder."""
        if self._path is not None:
            return []
        if not self.is_hetero:
            return [tensor for tensor in (self.indptr, self.indices, self._edge_id) if tensor is not None]
        tensors = [tensor for relation in self.relations for tensor in (relation.indptr, relation.indices)]
        return tensors + [edge_id for edge_id in self._edge_ids.values() if edge_id is not None]

    def __getstate__(self) -> dict[str, Any]:
        if self._path is None:
            return self.__dict__
        taken = ("indptr", "indices", "_edge_id", "relations", "_edge_ids")
        return {name: value for name, value in self.__dict__.items() if name not in taken}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._path is not None:
            self._take(read_edges(self._path))

    def sample_from_nodes(
        self, index: NodeSamplerInput, epoch: int | None = None, step: int | None = None, **kwargs: Any
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples around seed nodes for PyG's loaders; seeds come first in `node`, duplicates included.

        Without `epoch` and `step`, as when a loader of PyG calls it, the draw is keyed by the ordered seeds.

        Raises:
            DatasetError: when the seeds are of no type of a heterogeneous graph.
        """
        seeds = index.node.to(torch.int64)
        if step is None:
            stream = stream_of_seeds(seeds) ^ stream_of(self.seed, 0, 0)
        else:
            stream = stream_of(self.seed, epoch or 0, step)
        out = self._sample_hetero({index.input_type: seeds}, stream) if self.is_hetero else self._sample(seeds, stream)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples around the ends of seed edges, for PyG's `LinkNeighborLoader`; negatives are PyG's own.

        The draw is keyed by the ordered seeds.
        """
        of_sampler = stream_of(self.seed, 0, 0)

        def sample(seeds: Tensor | dict[str, Tensor], *_: Any) -> SamplerOutput | HeteroSamplerOutput:
            if not isinstance(seeds, dict):
                return self._sample(seeds, stream_of_seeds(seeds) ^ of_sampler)
            stream = of_sampler
            for name in sorted(seeds):
                stream = mix64(stream) ^ stream_of_seeds(seeds[name])
            return self._sample_hetero(seeds, stream)

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

        Raises:
            DatasetError: when the graph is heterogeneous: there are no such blocks.
        """
        if self.is_hetero:
            raise DatasetError("The graph is heterogeneous; expected one with a single type of nodes and edges.")
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

    def sample_layers(self, seeds: Tensor, epoch: int, step: int) -> Layers:
        """Samples what one training step needs when the outermost hop is only to be aggregated.

        The arguments, errors and neighbours of `sample_blocks`; those of its outermost block are global ids here.
        """
        if self.backend == "native" and not self.is_hetero:
            stream = stream_of(self.seed, epoch, step)
            return native_sampler.sample_layers(self.indptr, self.indices, seeds, self.fanouts, stream)
        nodes, blocks = self.sample_blocks(seeds, epoch, step)
        outer = blocks[0]
        return Layers(nodes[: outer.num_dst], blocks[1:], outer.indptr, nodes[outer.indices])

    def _draw(self, seeds: Tensor, stream: int, layered: bool) -> Sample:
        if self.backend == "native":
            is_mapped = self._path is not None
            return native_sampler.sample(self.indptr, self.indices, seeds, self.fanouts, stream, layered, is_mapped)
        return reference.sample(self.indptr, self.indices, seeds, self.fanouts, stream, layered)

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

    def _sample_hetero(self, seeds: dict[str, Tensor], stream: int) -> HeteroSamplerOutput:
        unknown = next((name for name in seeds if name not in self._num_nodes_of), None)
        if unknown is not None or not seeds:
            raise DatasetError(f"There are seeds of node type {unknown!r}; expected one of {list(self._num_nodes_of)}.")
        function: HeteroSampleFunction = (
            native_sampler.sample_hetero if self.backend == "native" else reference.sample_hetero
        )
        sample = function(self.relations, self._num_nodes_of, seeds, stream)
        joined = {edge_type: _joined(hops) for edge_type, hops in sample.hops.items()}
        return HeteroSamplerOutput(
            node=sample.nodes,
            row={edge_type: row for edge_type, (_, row) in joined.items()},
            col={
                edge_type: torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
                for edge_type, (indptr, _) in joined.items()
            },
            edge={edge_type: torch.cat([hop.positions for hop in hops]) for edge_type, hops in sample.hops.items()},
            num_sampled_nodes={
                name: [after - before for before, after in pairwise([0, *counts])]
                for name, counts in sample.num_nodes.items()
            },
            num_sampled_edges={
                edge_type: [len(hop.indices) for hop in hops] for edge_type, hops in sample.hops.items()
            },
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


def _fanouts(num_neighbors: Any) -> tuple[int, ...]:
    values = num_neighbors.values if isinstance(num_neighbors, NumNeighbors) else num_neighbors
    if isinstance(values, Mapping):
        raise ConfigError("num_neighbors is a dict of edge types, but the graph has none; expected a list of integers.")
    try:
        given = tuple(values)
    except TypeError:
        raise ConfigError(
            f"num_neighbors is {values!r}; expected a list with a number for each hop.",
            f"Type for example num_neighbors=[{values if isinstance(values, int) else 10}, 10].",
        ) from None
    try:
        fanouts = tuple(map(operator.index, given))
    except TypeError:
        fanouts = ()
    if not fanouts or any(k < -1 or k == 0 for k in fanouts):
        raise ConfigError(f"num_neighbors is {list(given)}; expected positive integers, or -1 for all.")
    return fanouts


def _fanouts_by_type(num_neighbors: Any, edge_types: list[EdgeType]) -> dict[EdgeType, tuple[int, ...]]:
    if not isinstance(num_neighbors, (NumNeighbors, Mapping)):
        return dict.fromkeys(edge_types, _fanouts(num_neighbors))
    try:
        if isinstance(num_neighbors, Mapping):
            anew = NumNeighbors(dict(num_neighbors))
        else:  # one that was asked about another graph remembers that answer
            anew = NumNeighbors(num_neighbors.values, num_neighbors.default)
        values = anew.get_values(edge_types)
    except ValueError as error:
        raise ConfigError(f"num_neighbors does not fit the graph: {error}. Its edge types are {edge_types}.") from None
    fanouts: dict[EdgeType, tuple[int, ...]] = {}
    for edge_type in edge_types:
        try:
            fanouts[edge_type] = tuple(map(operator.index, values[edge_type]))
        except TypeError:
            fanouts[edge_type] = ()
        if not fanouts[edge_type] or any(k < -1 for k in fanouts[edge_type]):
            raise ConfigError(
                f"num_neighbors of {edge_type} is {values[edge_type]!r}; expected a list of integers of 0 or more, or "
                "-1 for all."
            )
    return fanouts


def _joined(hops: Sequence[Hop]) -> tuple[Tensor, Tensor]:
    """The hops' targets, which follow one another, as one CSR."""
    offsets = [0]
    for hop in hops:
        offsets.append(offsets[-1] + len(hop.indices))
    pointers = [hop.indptr[1:] + offset for hop, offset in zip(hops, offsets, strict=False)]
    return torch.cat([torch.zeros(1, dtype=torch.int64), *pointers]), torch.cat([hop.indices for hop in hops])
