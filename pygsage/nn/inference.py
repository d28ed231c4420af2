"""The model's output for every node over all its neighbours: layer by layer, in bounded memory, each row once."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor, nn

from pygsage.data.cold import cold_rows
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.nn.needed import edges_of, needed_rows, row_chunks
from pygsage.nn.sage import GraphSAGE, aggregate

if TYPE_CHECKING:
    from pygsage.distributed import World

ROWS_AT_ONCE = 1 << 13
_GATHERED_VALUES = 1 << 23  # of float16 rows, and of rows on the disk, at once


def layerwise_inference(
    model: nn.Module,
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    world: World | None = None,
    scratch: str | Path | None = None,
    edge_budget: int = 1 << 18,
    device: str | torch.device | None = None,
    last_hidden: bool = False,
    wanted: Tensor | None = None,
    cold: bool = False,
) -> Tensor:
    """The output of `model` for all nodes, as its full-batch forward in `eval()` mode gives, in order of node id.

    Args:
        model: A `GraphSAGE`, or a wrapper such as DDP that has it as `module`; it is called without the wrapper.
        x: Floating [N, F], of the model's dtype or float16, resident or mapped from a file. The neighbours are
            aggregated where it lies.
        indptr: int64 [N + 1]: where each node's in-neighbours begin in `indices`.
        indices: int32 or int64 [E].
        world: When given, the rows are split over the ranks of this machine, which all have to call this.
        scratch: A folder on this machine that its ranks share; needed when there are several. Where it is given, the
            layers' outputs are files there, which need no RAM that the kernel cannot take back.
        edge_budget: The most edges that are aggregated at once; a node with more neighbours is done in parts.
        device: Where the linear maps run (default: where the model is).
        last_hidden: Return the last hidden layer, before the last convolution, instead of the output.
        wanted: int64 [n]: the only nodes whose outputs are used; those of others are then undefined, and are not
            computed where the wanted ones do not need them.
        cold: `x` is mapped from a file that does not fit in RAM: rows are asked for ahead, and in order.

    Returns:
        [N, out_channels], or [N, hidden_channels], of the model's dtype. In one process it lies beside `x`; with
        several ranks, or with `scratch`, it is mapped copy-on-write from a file without a name, and whole on each of
        them.

    Raises:
        DatasetError: when the shapes of `x`, `indptr` and `indices` do not fit together.

    Costs two arrays of N x width for all ranks together (of wanted nodes and what they need, only those rows are
    touched), and (edge budget + 8,192 rows) x width at most besides;
    no messages of E x width.
    """
    sage = _unwrapped(model)
    _check(sage, x, indptr, indices, edge_budget)
    parameter = next(sage.parameters())
    device = torch.device(device) if device is not None else parameter.device
    num_layers = sage.num_layers - 1 if last_hidden else sage.num_layers
    arrays = _Arrays(len(x), parameter.dtype, x.device, world, scratch)
    was_training = sage.training
    sage.eval()
    try:
        first, last = arrays.own_rows(indptr)
        needed = needed_rows(indptr, indices, wanted, num_layers)
        gather = _Gather(sage.aggr, edge_budget, cold)
        inputs = x
        for layer in range(num_layers):
            outputs = arrays.next(sage.convs[layer].out_channels)
            own = needed[layer]
            chunks: Iterable[slice | Tensor] = (slice(*ends) for ends in _chunks(indptr, first, last, edge_budget))
            if own is not None:
                chunks = arrays.chunks_of(own, indptr, edge_budget)
            with torch.inference_mode():
                for some in chunks:
                    neighbours = gather.aggregate(inputs, indptr, indices, some)
                    rows = sage.combine(
                        layer,
                        neighbours.to(device=device, dtype=parameter.dtype),
                        gather.rows(inputs, some).to(device=device, dtype=parameter.dtype),
                    )
                    if layer < sage.num_layers - 1:
                        rows = torch.relu_(sage.normalize(layer, rows))
                    outputs[some] = rows.to(outputs.device)
            arrays.finish()
            inputs = outputs
        return arrays.result() if num_layers else x.to(parameter.dtype)
    finally:
        sage.train(was_training)
        arrays.close()


def _unwrapped(model: nn.Module) -> GraphSAGE:
    while not isinstance(model, GraphSAGE) and hasattr(model, "module"):
        model = cast(nn.Module, model.module)
    if not isinstance(model, GraphSAGE):
        raise DatasetError(
            f"layerwise_inference got a {type(model).__name__}; expected a pygsage.GraphSAGE.",
            "Load the weights into one: its state_dict is that of torch_geometric.nn.GraphSAGE.",
        )
    return model


def _check(sage: GraphSAGE, x: Tensor, indptr: Tensor, indices: Tensor, edge_budget: int) -> None:
    if x.dim() != 2 or x.shape[1] != sage.in_channels:
        raise DatasetError(f"x has shape {tuple(x.shape)}; expected [N, {sage.in_channels}], as the model takes.")
    if indptr.dim() != 1 or len(indptr) != len(x) + 1:
        raise DatasetError(
            f"indptr has shape {tuple(indptr.shape)}; expected [{len(x) + 1}], one more than the rows of x."
        )
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices):
        raise DatasetError(
            f"indptr runs from {int(indptr[0])} to {int(indptr[-1])}; expected 0 to {len(indices)}, the edges."
        )
    if edge_budget < 1:
        raise DatasetError(f"edge_budget is {edge_budget}; expected at least 1.")


def _chunks(indptr: Tensor, first: int, last: int, edge_budget: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows within the budget, and single rows that exceed it."""
    begin = first
    while begin < last:
        limit = int(indptr[begin]) + edge_budget
        most = min(last, begin + ROWS_AT_ONCE)
        end = bisect_right(range(most + 1), limit, lo=begin + 1, key=lambda row: int(indptr[row])) - 1
        end = max(end, begin + 1)
        yield begin, end
        begin = end


class _Gather:
    """Reads rows of an array and aggregates those of neighbours, where the array lies."""

    def __init__(self, aggr: str, edge_budget: int, cold: bool) -> None:
        self.aggr, self.edge_budget = aggr, edge_budget
        self.is_cold = cold

    def rows(self, x: Tensor, some: slice | Tensor) -> Tensor:
        """Some rows, as they are."""
        if not self.is_cold:
            return x[some]
        ids = torch.arange(some.start, some.stop) if isinstance(some, slice) else some
        return torch.from_numpy(cold_rows(x.numpy(), ids.numpy()))

    def aggregate(self, x: Tensor, indptr: Tensor, indices: Tensor, some: slice | Tensor) -> Tensor:
        """The aggregate of the in-neighbours of some rows, which are within the budget or a single one."""
        if isinstance(some, slice):
            begin, end = some.start, some.stop
        elif len(some) == 1:
            begin = int(some)
            end = begin + 1
        else:
            offsets, neighbours = next(edges_of(indptr, indices, some))
            return self._sum_up(x, offsets.to(x.device, indices.dtype), neighbours.to(x.device), self.aggr)
        edge, edge_end = int(indptr[begin]), int(indptr[end])
        if edge_end - edge <= self.edge_budget:
            offsets = (indptr[begin : end + 1] - edge).to(x.device, indices.dtype)
            return self._sum_up(x, offsets, indices[edge:edge_end].to(x.device), self.aggr)
        # One node with more neighbours than the budget.
        total: Tensor | None = None
        for part in range(edge, edge_end, self.edge_budget):
            piece = indices[part : min(part + self.edge_budget, edge_end)].to(x.device)
            offsets = torch.tensor([0, len(piece)], dtype=indices.dtype, device=x.device)
            row = self._sum_up(x, offsets, piece, "max" if self.aggr == "max" else "sum").double()
            if total is None:
                total = row
            else:
                total = torch.maximum(total, row) if self.aggr == "max" else total + row
        assert total is not None
        whole = total / (edge_end - edge) if self.aggr == "mean" else total
        return whole.to(torch.promote_types(x.dtype, torch.float32))

    def _sum_up(self, x: Tensor, indptr: Tensor, indices: Tensor, aggr: str) -> Tensor:
        """`aggregate`; of float16 rows, and of rows on the disk, after they were gathered and widened in pieces."""
        if x.dtype != torch.float16 and not self.is_cold:
            return aggregate(x, indptr, indices, aggr)
        wide = torch.promote_types(x.dtype, torch.float32)
        found = torch.empty(len(indptr) - 1, x.shape[1], dtype=wide, device=x.device)
        at_once = max(1, _GATHERED_VALUES // x.shape[1])
        begin, last = 0, len(indptr) - 1
        while begin < last:
            edge = int(indptr[begin])
            end = max(begin + 1, int(torch.searchsorted(indptr, edge + at_once, right=True)) - 1)
            ids, places = torch.unique(indices[edge : int(indptr[end])], return_inverse=True)
            rows = self.rows(x, ids.to(torch.int64)).to(wide)
            found[begin:end] = aggregate(rows, indptr[begin : end + 1] - edge, places.to(indptr.dtype), aggr)
            begin = end
        return found


def _reserve(path: Path) -> None:
    # A full disk must be an error here, not a bus error at some later write.
    size = path.stat().st_size
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise EnvironmentLimitError(
            f"{path.parent} cannot hold {size / 2**30:.2f} GiB for one layer of the inference: {error.strerror}.",
            "Make room there, or put the run on a larger disk with --run-dir.",
        ) from None


class _Arrays:
    """At most two arrays of [N, width] at a time: in memory, or in files that the ranks of a machine map."""

    def __init__(
        self, num_rows: int, dtype: torch.dtype, device: torch.device, world: World | None, scratch: str | Path | None
    ) -> None:
        self.num_rows = num_rows
        self.dtype = dtype
        self.device = device
        self.world = world if world is not None and world.local_size > 1 and num_rows > 0 else None
        self.in_files = num_rows > 0 and (self.world is not None or scratch is not None)
        if self.world is not None and scratch is None:
            raise DatasetError("several ranks share the arrays of an inference; expected a scratch folder for them.")
        self.scratch = Path(scratch) if scratch is not None else Path()
        self.live: list[tuple[Tensor, Path | None]] = []  # what the last layer reads, what it writes
        self.num_made = 0

    @property
    def is_first(self) -> bool:
        """Whether this process makes and removes the files."""
        return self.world is None or self.world.local_rank == 0

    def own_rows(self, indptr: Tensor) -> tuple[int, int]:
        """This rank's rows, so that all have about the same number of edges and rows together."""
        if self.world is None:
            return 0, self.num_rows
        whole = int(indptr[-1]) + self.num_rows

        def bound(rank: int) -> int:
            share = whole * rank // size
            return bisect_left(range(self.num_rows), share, key=lambda row: int(indptr[row]) + row)

        size = self.world.local_size
        return bound(self.world.local_rank), bound(self.world.local_rank + 1)

    def chunks_of(self, rows: Tensor, indptr: Tensor, edge_budget: int) -> Iterator[Tensor]:
        """This rank's share of some rows, piece by piece."""
        if self.world is not None:
            rank, size = self.world.local_rank, self.world.local_size
            rows = rows[len(rows) * rank // size : len(rows) * (rank + 1) // size]
        for begin, end in row_chunks(indptr, rows, edge_budget, ROWS_AT_ONCE):
            yield rows[begin:end]

    def next(self, width: int) -> Tensor:
        """The array for the next layer's output; the one before the last is used again where its width fits."""
        old = self.live.pop(0) if len(self.live) == 2 else None
        if old is not None and old[0].shape[1] == width:
            self.live.append(old)
            return old[0]
        if old is not None:
            self._remove(old[1])
            del old  # its memory, before more is taken
        if not self.in_files:
            array, path = torch.empty(self.num_rows, width, dtype=self.dtype, device=self.device), None
        else:
            path = self.scratch / f"layer-{self.num_made}.npy"
            array = self._mapped(path, width)
        self.num_made += 1
        self.live.append((array, path))
        return array

    def _mapped(self, path: Path, width: int) -> Tensor:
        if self.is_first:
            try:
                self.scratch.mkdir(exist_ok=True)  # no parents: a run directory that was deleted must not come back
            except OSError as error:
                raise EnvironmentLimitError(f"The folder {self.scratch} cannot be made: {error.strerror}.") from None
            path.unlink(missing_ok=True)  # left by a run that was killed
            numpy_dtype = torch.empty(0, dtype=self.dtype).numpy().dtype
            np.lib.format.open_memmap(path, "w+", numpy_dtype, (self.num_rows, width))
            _reserve(path)
        self.finish()
        return torch.from_numpy(np.lib.format.open_memmap(path, "r+"))

    def finish(self) -> None:
        """Waits until every rank has written its rows."""
        if self.world is not None:
            self.world.local_barrier()

    def result(self) -> Tensor:
        array, path = self.live[-1]
        if path is None:
            return array
        array = torch.from_numpy(np.lib.format.open_memmap(path, "c"))  # a rank that writes to it changes no other's
        self.finish()  # all have it open before its name goes
        return array

    def close(self) -> None:
        for _, path in self.live:
            self._remove(path)
        self.live.clear()

    def _remove(self, path: Path | None) -> None:
        if path is not None and self.is_first:
            path.unlink(missing_ok=True)
