"""The sampler in plain Python: slow, obvious, and the definition that the native one is tested against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pygsage.sampling.keys import GOLDEN, MASK, mix64, relation_stream
from pygsage.sampling.sample import HeteroSample, Hop, Relation, Sample


def draw(key: int, degree: int, fanout: int) -> list[int]:
    """Draws `fanout` of the numbers [0, degree) uniformly without replacement, in order.

    The first m of a draw are the draw of m. When nothing is to be chosen, because `fanout` is -1 or at least `degree`,
    it is all numbers in ascending order. The rest is the shuffle of Fisher and Yates (Durstenfeld, CACM 7(7), 1964),
    stopped early.
    """
    numbers = list(range(degree))
    if fanout == -1 or degree <= fanout:
        return numbers
    for j in range(fanout):
        r = mix64((key + j * GOLDEN) & MASK)
        t = j + ((r * (degree - j)) >> 64)
        numbers[j], numbers[t] = numbers[t], numbers[j]
    return numbers[:fanout]


def sample(
    indptr: Tensor, indices: Tensor, seeds: Tensor, fanouts: Sequence[int], stream: int, layered: bool
) -> Sample:
    """Draws a neighbourhood hop by hop: a pure function of its arguments.

    Args:
        indptr: int64 [N + 1], on the CPU: where each node's in-neighbours begin in `indices`.
        indices: int32 or int64 [E], on the CPU: the in-neighbours, grouped by node.
        seeds: int64 [n], node ids. A seed given twice gets a row of its own each time, with the same draw; as a
            neighbour it is known by its first row.
        fanouts: How many neighbours each target draws, a number a hop; -1 draws all.
        stream: The 64-bit number that the randomness starts from (`keys.stream_of`).
        layered: Hop h draws for every node known so far, as a GNN's layers need it with unequal fanouts; else only for
            those that the hop before reached first.

    Raises:
        ValueError: for a seed, an `indptr` or an index out of range, and for a fanout below -1.

    Costs O(degree) for each target whatever its fanout, at the speed of Python.
    """
    num_nodes = len(indptr) - 1
    if num_nodes < 0:
        raise ValueError("indptr is empty; expected one element more than nodes")
    _check_fanouts(fanouts)
    nodes, row_of = _start(seeds, num_nodes)
    counts = [len(nodes)]
    hops = []
    reached_before = 0
    for fanout in fanouts:
        first_target = 0 if layered else reached_before
        reached_before = len(nodes)
        targets = nodes[first_target:]
        hops.append(_draw_hop(indptr, indices, num_nodes, targets, first_target, fanout, stream, nodes, row_of))
        counts.append(len(nodes))
    return Sample(_tensor(nodes), counts, hops)


def sample_hetero(
    relations: Sequence[Relation], num_nodes: Mapping[str, int], seeds: Mapping[str, Tensor], stream: int
) -> HeteroSample:
    """Draws a neighbourhood in a graph with several types of nodes or edges: a pure function of its arguments.

    In each hop every relation in turn draws for those nodes of its destination type that the hop before reached first.

    Args:
        relations: The edges of each type, on the CPU; their order is that of the draws and of first reach.
        num_nodes: Each node type's number of nodes.
        seeds: int64 node ids of some types, as in `sample`.
        stream: The 64-bit number that the randomness starts from; each relation's is made of it and its place.

    Raises:
        ValueError: as `sample`, and when the relations have fanouts of different lengths or name an unknown node type.

    Costs as `sample`.
    """
    num_hops = len(relations[0].fanouts) if relations else 0
    for relation in relations:
        if len(relation.fanouts) != num_hops:
            raise ValueError("the relations have fanouts of different lengths; expected one number a hop")
        _check_fanouts(relation.fanouts)
    check_node_types(relations, num_nodes, seeds)
    started = {name: _start(seeds.get(name, _tensor([])), count) for name, count in num_nodes.items()}
    nodes = {name: ids for name, (ids, _) in started.items()}
    counts = {name: [len(ids)] for name, ids in nodes.items()}
    hops: dict[tuple[str, str, str], list[Hop]] = {relation.edge_type: [] for relation in relations}
    begins = dict.fromkeys(num_nodes, 0)
    for hop in range(num_hops):
        ends = {name: len(ids) for name, ids in nodes.items()}
        for place, relation in enumerate(relations):
            source, _, target = relation.edge_type
            targets = nodes[target][begins[target] : ends[target]]
            drawn = _draw_hop(
                relation.indptr,
                relation.indices,
                num_nodes[source],
                targets,
                begins[target],
                relation.fanouts[hop],
                relation_stream(stream, place),
                *started[source],
            )
            hops[relation.edge_type].append(drawn)
        begins = ends
        for name, ids in nodes.items():
            counts[name].append(len(ids))
    return HeteroSample({name: _tensor(ids) for name, ids in nodes.items()}, counts, hops)


def check_node_types(relations: Sequence[Relation], num_nodes: Mapping[str, int], seeds: Mapping[str, Tensor]) -> None:
    """Raises ValueError for a node type without a count, and for an indptr that does not fit its type's."""
    for name in seeds:
        if name not in num_nodes:
            raise ValueError(f"there are seeds of the unknown node type {name!r}")
    for relation in relations:
        source, _, target = relation.edge_type
        if source not in num_nodes or target not in num_nodes:
            raise ValueError(f"the edge type {relation.edge_type} has an unknown node type")
        if len(relation.indptr) != num_nodes[target] + 1:
            raise ValueError(
                f"the indptr of {relation.edge_type} has {len(relation.indptr)} elements; expected "
                f"{num_nodes[target] + 1}"
            )


def _start(seeds: Tensor, num_nodes: int) -> tuple[list[int], dict[int, int]]:
    """The seeds as the first nodes, and each one's first row."""
    nodes: list[int] = seeds.tolist()
    row_of: dict[int, int] = {}
    for i, node in enumerate(nodes):
        _check_id(node, num_nodes, f"seeds[{i}]")
        row_of.setdefault(node, i)
    return nodes, row_of


def _draw_hop(
    indptr: Tensor,
    indices: Tensor,
    num_sources: int,
    targets: Sequence[int],
    first_target: int,
    fanout: int,
    stream: int,
    nodes: list[int],
    row_of: dict[int, int],
) -> Hop:
    """Draws for the targets, and adds the neighbours that are new to `nodes` and `row_of`."""
    ends, rows, positions = [0], [], []
    for target in targets:
        begin, end = int(indptr[target]), int(indptr[target + 1])
        if not 0 <= begin <= end <= len(indices):
            raise ValueError(f"indptr is damaged: node {target} has the edges from {begin} to {end} of {len(indices)}")
        for offset in draw(mix64(stream ^ target), end - begin, fanout):
            position = begin + offset
            neighbour = int(indices[position])
            _check_id(neighbour, num_sources, f"indices[{position}]")
            if neighbour not in row_of:
                row_of[neighbour] = len(nodes)
                nodes.append(neighbour)
            rows.append(row_of[neighbour])
            positions.append(position)
        ends.append(len(rows))
    return Hop(first_target, _tensor(ends), _tensor(rows), _tensor(positions))


def _check_fanouts(fanouts: Sequence[int]) -> None:
    for fanout in fanouts:
        if fanout < -1:
            raise ValueError(f"a fanout is {fanout}; expected -1 for all, or 0 or more")


def _check_id(node: int, num_nodes: int, where: str) -> None:
    if not 0 <= node < num_nodes:
        raise ValueError(f"{where} is {node}; expected a node id from 0 to below {num_nodes}")


def _tensor(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)
