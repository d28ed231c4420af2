"""Rows of a large array and the aggregates of neighbours' rows, a bounded number at a time, for an inference."""

from __future__ import annotations

import torch
from torch import Tensor

from pygsage.data.one_graph.feature_rows import FeatureRows
from pygsage.native.memory import empty
from pygsage.nn.join import aggregate
from pygsage.nn.needed import edges_of
from pygsage.sampling.features import joined_features

_GATHERED_VALUES = 1 << 23  # of rows on the disk, and of float16 rows on a GPU, at once


class Gather:
    """Reads rows of an array and aggregates those of neighbours, where the array lies.

    Args:
        aggr: `mean`, `sum` or `max`.
        edge_budget: The most edges that are aggregated at once; a node with more neighbours is done in parts.
        features: Reads rows in the place of the array, where they have to be read; each layer has its own.
    """

    def __init__(self, aggr: str, edge_budget: int, features: FeatureRows | None) -> None:
        self.aggr, self.edge_budget = aggr, edge_budget
        self.features = features if features is not None and features.resident is None else None

    def rows(self, x: Tensor, some: slice | Tensor) -> Tensor:
        """Some rows, as they are."""
        if self.features is None:
            return x[some]
        return self.features.read(torch.arange(some.start, some.stop) if isinstance(some, slice) else some)

    def joined(self, x: Tensor, indptr: Tensor, indices: Tensor, some: slice | Tensor) -> Tensor:
        """The aggregate of the in-neighbours of some rows beside the rows: [n, 2 F], float32 for float16."""
        if x.device.type == "cpu" and self.features is None:
            threads = torch.get_num_threads()
            if isinstance(some, slice):
                edge, edge_end = int(indptr[some.start]), int(indptr[some.stop])
                if edge_end - edge <= self.edge_budget:
                    own, offsets = torch.arange(some.start, some.stop), indptr[some.start : some.stop + 1] - edge
                    return joined_features(x, own, offsets, indices[edge:edge_end], self.aggr, num_threads=threads)
            elif len(some) > 1:
                offsets, ids = next(edges_of(indptr, indices, some))
                return joined_features(x, some, offsets, ids, self.aggr, num_threads=threads)
        neighbours = self.aggregate(x, indptr, indices, some)
        both = self._empty((len(neighbours), 2 * x.shape[1]), neighbours.dtype, x.device)
        both[:, : x.shape[1]] = neighbours
        del neighbours  # before the rows are read
        both[:, x.shape[1] :] = self.rows(x, some)
        return both

    def aggregate(
        self, x: Tensor, indptr: Tensor, indices: Tensor, some: slice | Tensor, width: int | None = None
    ) -> Tensor:
        """The aggregate of the in-neighbours of some rows, which are within the budget or a single one.

        `width`: how many columns of `x` are taken, from the first; all by default.
        """
        width = x.shape[1] if width is None else width
        if isinstance(some, slice):
            begin, end = some.start, some.stop
        elif len(some) == 1:
            begin = int(some)
            end = begin + 1
        else:
            offsets, neighbours = next(edges_of(indptr, indices, some))
            return self._sum_up(x, offsets.to(x.device), neighbours.to(x.device), self.aggr, width)
        edge, edge_end = int(indptr[begin]), int(indptr[end])
        if edge_end - edge <= self.edge_budget:
            offsets = (indptr[begin : end + 1] - edge).to(x.device)
            return self._sum_up(x, offsets, indices[edge:edge_end].to(x.device), self.aggr, width)
        # One node with more neighbours than the budget.
        total: Tensor | None = None
        for part in range(edge, edge_end, self.edge_budget):
            piece = indices[part : min(part + self.edge_budget, edge_end)].to(x.device)
            offsets = torch.tensor([0, len(piece)], device=x.device)
            row = self._sum_up(x, offsets, piece, "max" if self.aggr == "max" else "sum", width).double()
            if total is None:
                total = row
            else:
                total = torch.maximum(total, row) if self.aggr == "max" else total + row
        assert total is not None
        whole = total / (edge_end - edge) if self.aggr == "mean" else total
        return whole.to(torch.promote_types(x.dtype, torch.float32))

    def _sum_up(self, x: Tensor, indptr: Tensor, indices: Tensor, aggr: str, width: int) -> Tensor:
        """Of rows on the disk, and of float16 on a GPU, after they were gathered and widened in pieces."""
        if self.features is None and x.device.type == "cpu":
            return sum_up(x, indptr, indices, aggr, width)
        if self.features is None and x.dtype != torch.float16:
            return aggregate(x[:, :width], indptr, indices, aggr)
        wide = torch.promote_types(x.dtype, torch.float32)
        found = self._empty((len(indptr) - 1, width), wide, x.device)
        at_once = max(1, _GATHERED_VALUES // x.shape[1])
        begin, last = 0, len(indptr) - 1
        while begin < last:
            edge = int(indptr[begin])
            end = max(begin + 1, int(torch.searchsorted(indptr, edge + at_once, right=True)) - 1)
            ids, places = torch.unique(indices[edge : int(indptr[end])], return_inverse=True)
            rows, offsets = self.rows(x, ids.to(torch.int64)), indptr[begin : end + 1] - edge
            if x.device.type == "cpu":
                found[begin:end] = sum_up(rows, offsets, places, aggr, width)
            else:
                found[begin:end] = aggregate(rows[:, :width].to(wide), offsets, places, aggr)
            begin = end
            del rows  # before the next are read
        return found

    @staticmethod
    def _empty(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """On a CPU in memory that is used again, whose holes the allocator need not fill."""
        return empty(shape, dtype) if device.type == "cpu" else torch.empty(shape, dtype=dtype, device=device)


def sum_up(x: Tensor, indptr: Tensor, indices: Tensor, aggr: str, width: int) -> Tensor:
    """The aggregate of the first `width` columns of the neighbours' rows of each target, on the CPU."""
    return joined_features(x, None, indptr, indices, aggr, num_threads=torch.get_num_threads(), columns=width)
