"""The sampler in plain Python: slow, obvious, and the definition that the native one is tested against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pygsage.sampling.keys import GOLDEN, MASK, mix64
from pygsage.sampling.sample import Hop, Sample


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
    for fanout in fanouts:
        if fanout < -1:
            raise ValueError(f"a fanout is {fanout}; expected -1 for all, or 0 or more")
    nodes: list[int] = seeds.tolist()
    row_of: dict[int, int] = {}
    for i, node in enumerate(nodes):
        _check_id(node, num_nodes, f"seeds[{i}]")
        row_of.setdefault(node, i)

    counts = [len(nodes)]
    hops = []
    reached_before = 0
    for fanout in fanouts:
        first_target = 0 if layered else reached_before
        reached_before = len(nodes)
        ends, rows, positions = [0], [], []
        for target in nodes[first_target:]:
            begin, end = int(indptr[target]), int(indptr[target + 1])
            if not 0 <= begin <= end <= len(indices):
                raise ValueError(
                    f"indptr is damaged: node {target} has the edges from {begin} to {end} of {len(indices)}"
                )
            for offset in draw(mix64(stream ^ target), end - begin, fanout):
                position = begin + offset
                neighbour = int(indices[position])
                _check_id(neighbour, num_nodes, f"indices[{position}]")
                if neighbour not in row_of:
                    row_of[neighbour] = len(nodes)
                    nodes.append(neighbour)
                rows.append(row_of[neighbour])
                positions.append(position)
            ends.append(len(rows))
        hops.append(Hop(first_target, _tensor(ends), _tensor(rows), _tensor(positions)))
        counts.append(len(nodes))
    return Sample(_tensor(nodes), counts, hops)


def _check_id(node: int, num_nodes: int, where: str) -> None:
    if not 0 <= node < num_nodes:
        raise ValueError(f"{where} is {node}; expected a node id from 0 to below {num_nodes}")


def _tensor(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)
