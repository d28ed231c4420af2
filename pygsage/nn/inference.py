"""The model's output for every node over all its neighbours: layer by layer, in bounded memory, each row once."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor, nn

from pygsage import native
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.native.memory import prefer_huge_pages, release_buffers
from pygsage.nn.join import aggregate as aggregate_by_torch
from pygsage.nn.sage import GraphSAGE
from pygsage.sampling.features import joined_features

if TYPE_CHECKING:
    from pygsage.distributed import World

ROWS_AT_ONCE = 1 << 13  # of a width of 256 their inputs and outputs fit the processor's cache


def layerwise_inference(
    model: nn.Module,
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    world: World | None = None,
    scratch: str | Path | None = None,
    edge_budget: int = 1 << 20,
    device: str | torch.device | None = None,
    last_hidden: bool = False,
) -> Tensor:
    """The output of `model` for all nodes, as its full-batch forward in `eval()` mode gives, in order of node id.

    Args:
        model: A `GraphSAGE`, or a wrapper such as DDP that has it as `module`; it is called without the wrapper.
        x: Floating [N, F], resident or mapped from a file. The neighbours are aggregated where it lies.
        indptr: int64 [N + 1]: where each node's in-neighbours begin in `indices`.
        indices: int32 or int64 [E].
        world: When given, the rows are split over the ranks of this machine, which all have to call this.
        scratch: A folder on this machine that its ranks share; needed when there are several.
        edge_budget: The most edges that are aggregated at once; a node with more neighbours is done in parts.
        device: Where the linear maps run (default: where the model is).
        last_hidden: Return the last hidden layer, before the last convolution, instead of the output.

    Returns:
        [N, out_channels], or [N, hidden_channels], of the model's dtype. In one process it lies beside `x`; with
        several ranks it is mapped copy-on-write from a file without a name, and whole on each of them.

    Raises:
        DatasetError: when the shapes of `x`, `indptr` and `indices` do not fit together.

    Costs two arrays of N x width for all ranks together, and 8,192 rows x 3 widths besides, and
    the ids of one edge budget; no messages of E x width.
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
        inputs = x
        for layer in range(num_layers):
            conv = sage.convs[layer]
            outputs = arrays.next(conv.out_channels)
            with torch.inference_mode():
                # Where it makes rows narrower the linear map comes first, and overwrites what it reads.
                first_linear = layer > 0 and _is_narrower(sage, layer, inputs, device)
                if first_linear:
                    _map_in_place(sage, layer, inputs, first, last)
                    arrays.finish()  # the neighbours may be another rank's
                for begin, end in _chunks(indptr, first, last, edge_budget):
                    if first_linear:
                        width = conv.out_channels
                        rows = _aggregate_rows(inputs, indptr, indices, begin, end, sage.aggr, edge_budget, width)
                        rows += inputs[begin:end, width : 2 * width]
                    else:
                        joined = _joined_rows(inputs, indptr, indices, begin, end, sage.aggr, edge_budget)
                        rows = sage.combine(layer, joined.to(device=device, dtype=parameter.dtype))
                        del joined
                    if layer < sage.num_layers - 1:
                        rows = torch.relu_(sage.normalize(layer, rows))
                    outputs[begin:end] = rows
                    del rows
            arrays.finish()
            inputs = outputs
        return arrays.result() if num_layers else x.to(parameter.dtype)
    finally:
        sage.train(was_training)
        arrays.close()
        release_buffers()


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


def _is_narrower(sage: GraphSAGE, layer: int, inputs: Tensor, device: torch.device) -> bool:
    """Whether both maps of a layer fit into the rows that it reads, and may come before the aggregation."""
    both = 2 * sage.convs[layer].out_channels
    return sage.aggr != "max" and both <= inputs.shape[1] and device.type == "cpu" and native.core is not None


def _map_in_place(sage: GraphSAGE, layer: int, inputs: Tensor, first: int, last: int) -> None:
    """Puts [W_l h | W_r h + b] where the rows `first` to `last` begin."""
    conv = sage.convs[layer]
    weight = torch.cat([conv.lin_l.weight, conv.lin_r.weight])
    bias = torch.cat([torch.zeros_like(conv.lin_l.bias), conv.lin_l.bias])
    for begin in range(first, last, ROWS_AT_ONCE):
        rows = inputs[begin : min(begin + ROWS_AT_ONCE, last)]
        rows[:, : len(weight)] = torch.addmm(bias, rows, weight.t())


def aggregate(x: Tensor, indptr: Tensor, indices: Tensor, aggr: str, width: int) -> Tensor:
    """The aggregate of the first `width` columns of the neighbours' rows of each target: [t, width]."""
    if x.device.type != "cpu":
        return aggregate_by_torch(x[:, :width], indptr, indices, aggr)
    return joined_features(x, None, indptr, indices, aggr, num_threads=torch.get_num_threads(), columns=width)


def _joined_rows(
    x: Tensor, indptr: Tensor, indices: Tensor, begin: int, end: int, aggr: str, edge_budget: int
) -> Tensor:
    edge, edge_end = int(indptr[begin]), int(indptr[end])
    if x.device.type == "cpu" and edge_end - edge <= edge_budget:
        own, offsets = torch.arange(begin, end), indptr[begin : end + 1] - edge
        threads = torch.get_num_threads()
        return joined_features(x, own, offsets, indices[edge:edge_end], aggr, num_threads=threads)
    neighbours = _aggregate_rows(x, indptr, indices, begin, end, aggr, edge_budget)
    return torch.cat([neighbours, x[begin:end].to(neighbours.dtype)], 1)


def _aggregate_rows(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    begin: int,
    end: int,
    aggr: str,
    edge_budget: int,
    width: int | None = None,
) -> Tensor:
    width = x.shape[1] if width is None else width
    edge, edge_end = int(indptr[begin]), int(indptr[end])
    if edge_end - edge <= edge_budget:
        offsets = (indptr[begin : end + 1] - edge).to(x.device)
        return aggregate(x, offsets, indices[edge:edge_end].to(x.device), aggr, width)
    # One node with more neighbours than the budget.
    total: Tensor | None = None
    for part in range(edge, edge_end, edge_budget):
        some = indices[part : min(part + edge_budget, edge_end)].to(x.device)
        offsets = torch.tensor([0, len(some)], device=x.device)
        row = aggregate(x, offsets, some, "max" if aggr == "max" else "sum", width).double()
        if total is None:
            total = row
        else:
            total = torch.maximum(total, row) if aggr == "max" else total + row
    assert total is not None
    kept = torch.float32 if x.dtype == torch.float16 else x.dtype
    return (total / (edge_end - edge) if aggr == "mean" else total).to(kept)


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
        if self.world is not None and scratch is None:
            raise DatasetError("several ranks share the arrays of an inference; expected a scratch folder for them.")
        self.scratch = Path(scratch) if scratch is not None else Path()
        self.live: list[tuple[Tensor, Path | None]] = []  # what the last layer reads, what it writes
        self.num_made = 0

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

    def next(self, width: int) -> Tensor:
        """The array for the next layer's output; the one before the last is used again where its width fits."""
        old = self.live.pop(0) if len(self.live) == 2 else None
        if old is not None and old[0].shape[1] == width:
            self.live.append(old)
            return old[0]
        if old is not None:
            self._remove(old[1])
            del old  # its memory, before more is taken
        if self.world is None:
            array, path = torch.empty(self.num_rows, width, dtype=self.dtype, device=self.device), None
            if self.device.type == "cpu":
                prefer_huge_pages(array, now=False)
        else:
            path = self.scratch / f"layer-{self.num_made}.npy"
            array = self._mapped(path, width)
        self.num_made += 1
        self.live.append((array, path))
        return array

    def _mapped(self, path: Path, width: int) -> Tensor:
        assert self.world is not None
        if self.world.local_rank == 0:
            try:
                self.scratch.mkdir(exist_ok=True)  # no parents: a run directory that was deleted must not come back
            except OSError as error:
                raise EnvironmentLimitError(f"The folder {self.scratch} cannot be made: {error.strerror}.") from None
            path.unlink(missing_ok=True)  # left by a run that was killed
            numpy_dtype = torch.empty(0, dtype=self.dtype).numpy().dtype
            np.lib.format.open_memmap(path, "w+", numpy_dtype, (self.num_rows, width))
            _reserve(path)
        self.world.local_barrier()
        return torch.from_numpy(np.lib.format.open_memmap(path, "r+"))

    def finish(self) -> None:
        """Waits until every rank has written its rows."""
        if self.world is not None:
            self.world.local_barrier()

    def result(self) -> Tensor:
        array, path = self.live[-1]
        if path is None or self.world is None:
            return array
        array = torch.from_numpy(np.lib.format.open_memmap(path, "c"))  # a rank that writes to it changes no other's
        self.world.local_barrier()  # all have it open before its name goes
        return array

    def close(self) -> None:
        for _, path in self.live:
            self._remove(path)
        self.live.clear()

    def _remove(self, path: Path | None) -> None:
        if path is not None and self.world is not None and self.world.local_rank == 0:
            path.unlink(missing_ok=True)
