"""Which rows of each layer an evaluation needs, so that a few nodes of a large graph do not cost all of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

_CHUNK_EDGES = 1 << 20


def needed_rows(indptr: Tensor, indices: Tensor, wanted: Tensor | None, num_layers: int) -> list[Tensor | None]:
    """The rows that each layer has to put out, the first layer's first, for the last one's rows to be `wanted`.

    Args:
        indptr: int64 [N + 1].
        indices: int32 or int64 [E], in-neighbours.
        wanted: int64 [n], in any order; None for all.

    Returns:
        For each layer ascending int64 ids; None for all rows, which serves where they are more than half.

    Costs O(edges of these rows) time, 1 byte a node, and pieces of a million edges.
    """
    needed: list[Tensor | None] = [None] * num_layers
    if wanted is None:
        return needed
    mark = torch.zeros(len(indptr) - 1, dtype=torch.bool)
    mark[wanted] = True
    for layer in range(num_layers - 1, -1, -1):
        rows = mark.nonzero().flatten()
        if 2 * len(rows) > len(mark):
            break
        needed[layer] = rows
        if layer:
            for begin, end in row_chunks(indptr, rows, _CHUNK_EDGES, len(rows)):
                for _, neighbours in edges_of(indptr, indices, rows[begin:end]):
                    mark[neighbours.long()] = True
    return needed


def row_chunks(indptr: Tensor, rows: Tensor, edge_budget: int, most_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of `rows` within the budget, and single rows that exceed it."""
    ends = torch.zeros(len(rows) + 1, dtype=torch.int64)
    torch.cumsum(indptr[rows + 1] - indptr[rows], 0, out=ends[1:])
    begin = 0
    while begin < len(rows):
        end = int(torch.searchsorted(ends, ends[begin] + edge_budget, right=True)) - 1
        end = min(max(end, begin + 1), begin + most_rows, len(rows))
        yield begin, end
        begin = end


def edges_of(indptr: Tensor, indices: Tensor, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Where each row's in-neighbours begin, int64 [n + 1], and all of them; of a single long row in pieces."""
    degrees = indptr[rows + 1] - indptr[rows]
    if len(rows) == 1:
        first, last = int(indptr[rows[0]]), int(indptr[rows[0] + 1])
        for begin in range(first, last, _CHUNK_EDGES):
            piece = indices[begin : min(begin + _CHUNK_EDGES, last)]
            yield torch.tensor([0, len(piece)]), piece
        return
    offsets = torch.zeros(len(rows) + 1, dtype=torch.int64)
    torch.cumsum(degrees, 0, out=offsets[1:])
    places = torch.repeat_interleave(indptr[rows] - offsets[:-1], degrees)
    places += torch.arange(len(places))
    yield offsets, indices[places]
