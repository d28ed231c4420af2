"""What a sampler returns, and what a layer is fed with."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

EdgeType = tuple[str, str, str]  # source node type, relation, destination node type


@dataclass(frozen=True, eq=False)
class Hop:
    """The edges that one hop drew. All tensors are int64 on the CPU.

    Attributes:
        first_target: Row of the first target in `Sample.nodes`; the targets are that row and those after it, in order.
        indptr: [num_targets + 1], where each target's edges begin.
        indices: [num_drawn], rows in `Sample.nodes` of the drawn neighbours, target by target, in draw order.
        positions: [num_drawn], the places of the drawn edges in the graph's `indices`.
    """

    first_target: int
    indptr: Tensor
    indices: Tensor
    positions: Tensor


@dataclass(frozen=True, eq=False)
class Sample:
    """A batch's neighbourhood.

    Attributes:
        nodes: int64 [num_nodes[-1]], global ids: the seeds as given, duplicates included, then the other nodes in the
            order in which they were first reached.
        num_nodes: One number more than hops: how many nodes are known before each hop, and at the end.
        hops: From the seeds outwards.
    """

    nodes: Tensor
    num_nodes: list[int]
    hops: list[Hop]


@dataclass(frozen=True, eq=False)
class Relation:
    """The edges of one type, and how many of them to draw.

    Attributes:
        edge_type: Source node type, relation, destination node type.
        indptr: int64 [number of destination nodes + 1], where each destination's in-neighbours begin in `indices`.
        indices: int32 or int64 [E], source nodes.
        fanouts: Neighbours that each destination draws, a number a hop; -1 draws all.
    """

    edge_type: EdgeType
    indptr: Tensor
    indices: Tensor
    fanouts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class HeteroSample:
    """A batch's neighbourhood in a graph with several types of nodes or edges.

    Attributes:
        nodes: Each node type's ids, as in `Sample.nodes`.
        num_nodes: Each node type's counts, as in `Sample.num_nodes`.
        hops: Each edge type's hops, from the seeds outwards: targets are rows of its destination type's nodes,
            neighbours rows of its source type's.
    """

    nodes: dict[str, Tensor]
    num_nodes: dict[str, list[int]]
    hops: dict[EdgeType, list[Hop]]


@dataclass(frozen=True, eq=False)
class Block:
    """The edges of one layer: its destinations are the first `num_dst` rows of its input.

    Attributes:
        indptr: int64 [num_dst + 1], where each destination's edges begin.
        indices: int32 or int64 [num_edges], rows of the layer's input.
    """

    indptr: Tensor
    indices: Tensor

    @property
    def num_dst(self) -> int:
        """How many rows the layer puts out."""
        return len(self.indptr) - 1


@dataclass(frozen=True, eq=False)
class Layers:
    """What a training step needs: the outermost hop's neighbours get no rows, as only their aggregate is wanted.

    Attributes:
        nodes: int64 [t], global ids of the outermost hop's targets: the seeds, then the others by first reach.
        blocks: One a layer but the first, outermost first.
        outer_indptr: int64 [t + 1], where the neighbours of each of `nodes` begin.
        outer_ids: int32 or int64, their global ids, in draw order.
    """

    nodes: Tensor
    blocks: list[Block]
    outer_indptr: Tensor
    outer_ids: Tensor
