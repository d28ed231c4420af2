"""The model's output for every node over all its neighbours: layer by layer, in bounded memory, each row once."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor, nn

from pygsage.data.files.arrays import map_copied
from pygsage.data.one_graph.feature_rows import ColdRows, FeatureRows
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.native.memory import prefer_huge_pages, release_buffers
from pygsage.nn.gather import Gather
from pygsage.nn.needed import needed_rows, row_chunks
from pygsage.nn.sage import GraphSAGE

if TYPE_CHECKING:
    from pygsage.distributed import World

ROWS_AT_ONCE = 1 << 13


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
    features: FeatureRows | None = None,
    on_all_machines: bool = False,
) -> Tensor:
    """The output of `model` for all nodes, as its full-batch forward in `eval()` mode gives, in order of node id.

    Args:
        model: A `GraphSAGE`, or a wrapper such as DDP that has it as `module`; it is called without the wrapper.
        x: Floating [N, F], of the model's dtype or float16, resident or mapped from a file. The neighbours are
            aggregated where it lies.
        indptr: int64 [N + 1]: where each node's in-neighbours begin in `indices`.
        indices: int32 or int64 [E].
        world: When given, the rows are split over the ranks of this machine, which all have to call this.
        on_all_machines: Split the rows over the ranks of all machines, which all have to call this; they send each
            other the outputs of each layer, N x width values of the rows that are computed.
        scratch: A folder on this machine that its ranks share; needed when there are several. Where it is given, the
            layers' outputs are files there, which need no RAM that the kernel cannot take back.
        edge_budget: The most edges that are aggregated at once; a node with more neighbours is done in parts.
        device: Where the linear maps run (default: where the model is).
        last_hidden: Return the last hidden layer, before the last convolution, instead of the output.
        wanted: int64 [n]: the only nodes whose outputs are used; those of others are then undefined, and are not
            computed where the wanted ones do not need them.
        features: Reads the rows of `x`, where it is mapped from a file that does not fit in RAM.

    Returns:
        [N, out_channels], or [N, hidden_channels], of the model's dtype. In one process it lies beside `x`; with
        several ranks, or with `scratch`, it is mapped copy-on-write from a file without a name, and whole on each of
        them.

    Raises:
        DatasetError: when the shapes of `x`, `indptr` and `indices` do not fit together.

    Costs two arrays of N x width for all ranks together (of wanted nodes and what they need, only those rows are
    touched), and the ids of an edge budget and 8,192 rows x 3 widths besides (on a GPU, and of rows that are
    read, an edge budget x width); no messages of E x width.
    """
    sage = _unwrapped(model)
    _check(sage, x, indptr, indices, edge_budget)
    parameter = next(sage.parameters())
    device = torch.device(device) if device is not None else parameter.device
    num_layers = sage.num_layers - 1 if last_hidden else sage.num_layers
    arrays = _Arrays(len(x), parameter.dtype, x.device, world, scratch, on_all_machines)
    was_training = sage.training
    sage.eval()
    try:
        needed = needed_rows(indptr, indices, wanted, num_layers)
        gather = Gather(sage.aggr, edge_budget, features)
        inputs = x

        def parts(layer: int, rank: int | None = None) -> Iterable[slice | Tensor]:
            """A rank's rows of a layer, piece by piece; this one's, if none is named."""
            own = needed[layer]
            if own is not None:
                return arrays.chunks_of(own, indptr, edge_budget, rank)
            return (slice(*ends) for ends in _chunks(indptr, *arrays.rows_of(indptr, rank), edge_budget))

        def narrows(layer: int, width_before: int) -> bool:
            """Whether a layer makes rows so much narrower that its linear map comes first."""
            narrower = 0 < layer < num_layers and 2 * sage.convs[layer].out_channels <= width_before
            return narrower and sage.aggr != "max" and device.type == "cpu"

        for layer in range(num_layers):
            width = sage.convs[layer].out_channels
            outputs = arrays.next(width)
            with torch.inference_mode():
                is_narrow = narrows(layer, inputs.shape[1])
                if is_narrow:  # the map overwrites what it reads
                    _map_in_place(sage, layer, inputs, parts(layer - 1))
                    # The neighbours may be another rank's.
                    arrays.finish(inputs, partial(parts, layer - 1), slice(2 * width))
                for some in parts(layer):
                    if is_narrow:
                        rows = gather.aggregate(inputs, indptr, indices, some, width)
                        rows += inputs[some][:, width : 2 * width]
                    else:
                        joined = gather.joined(inputs, indptr, indices, some)
                        rows = sage.combine(layer, joined.to(device=device, dtype=parameter.dtype))
                        del joined
                    if layer < sage.num_layers - 1:
                        rows = torch.relu_(sage.normalize(layer, rows))
                    outputs[some] = rows.to(outputs.device)
            if layer == 0 and features is not None:
                features.finish()
            # What is mapped in place next is read by the rank that wrote it alone.
            arrays.finish(None if narrows(layer + 1, width) else outputs, partial(parts, layer))
            inputs = outputs
            if gather.features is not None:
                gather.features = ColdRows(outputs) if arrays.in_files else None
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
    for name, array in (("x", x), ("indptr", indptr), ("indices", indices)):
        if not isinstance(array, Tensor):
            raise DatasetError(f"{name} is of type {type(array).__name__}; expected a tensor.")
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
    if not isinstance(edge_budget, int) or edge_budget < 1:
        raise DatasetError(f"edge_budget is {edge_budget!r}; expected a whole number of at least 1.")


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


def _map_in_place(sage: GraphSAGE, layer: int, inputs: Tensor, parts: Iterable[slice | Tensor]) -> None:
    """Puts [W_l h | W_r h + b] where some rows h of [N, width] begin."""
    conv = sage.convs[layer]
    weight = torch.cat([conv.lin_l.weight, conv.lin_r.weight])
    bias = torch.cat([torch.zeros_like(conv.lin_l.bias), conv.lin_l.bias])
    columns = slice(len(weight))
    for some in parts:
        inputs[some, columns] = torch.addmm(bias, inputs[some], weight.t())


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
        self,
        num_rows: int,
        dtype: torch.dtype,
        device: torch.device,
        world: World | None,
        scratch: str | Path | None,
        on_all_machines: bool,
    ) -> None:
        self.num_rows = num_rows
        self.dtype = dtype
        self.device = device
        self.world = world if world is not None and world.local_size > 1 and num_rows > 0 else None
        spans = on_all_machines and world is not None and world.size > world.local_size and num_rows > 0
        self.all_machines = world if spans else None
        self.rank, self.size = 0, 1  # of those that share the rows
        if world is not None and (spans or self.world is not None):
            self.rank, self.size = (world.rank, world.size) if spans else (world.local_rank, world.local_size)
        self.in_files = num_rows > 0 and (self.world is not None or scratch is not None)
        if self.world is not None and scratch is None:
            raise DatasetError("several ranks share the arrays of an inference; expected a scratch folder for them.")
        self.scratch = Path(scratch) if scratch is not None else Path()
        self.live: list[tuple[Tensor, Path | None]] = []  # what the last layer reads, what it writes
        self.num_made = 0

    @property
    def is_plain(self) -> bool:
        """Whether they are ordinary memory of one process, on the CPU."""
        return not self.in_files and self.device.type == "cpu"

    @property
    def is_first(self) -> bool:
        """Whether this process makes and removes the files."""
        return self.world is None or self.world.local_rank == 0

    def rows_of(self, indptr: Tensor, rank: int | None = None) -> tuple[int, int]:
        """A rank's rows, or this one's, so that all have about the same number of edges and rows together."""
        rank = self.rank if rank is None else rank
        whole = int(indptr[-1]) + self.num_rows

        def bound(rank: int) -> int:
            share = whole * rank // self.size
            return bisect_left(range(self.num_rows), share, key=lambda row: int(indptr[row]) + row)

        return bound(rank), bound(rank + 1)

    def chunks_of(self, rows: Tensor, indptr: Tensor, edge_budget: int, rank: int | None = None) -> Iterator[Tensor]:
        """A rank's share of some rows, or this one's, piece by piece."""
        rank = self.rank if rank is None else rank
        rows = rows[len(rows) * rank // self.size : len(rows) * (rank + 1) // self.size]
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
            if self.is_plain:
                prefer_huge_pages(array, now=False)
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

    def finish(
        self,
        array: Tensor | None = None,
        parts_of: Callable[[int], Iterable[slice | Tensor]] | None = None,
        columns: slice = slice(None),
    ) -> None:
        """Waits until every rank has written its rows, and takes those of other machines, where an array is named."""
        if self.world is not None:
            self.world.local_barrier()
        if self.all_machines is None or array is None or parts_of is None:
            return
        if self.is_first:
            for ranks in self.all_machines.machines:
                for some in (each for rank in ranks for each in parts_of(rank)):
                    rows = array[some, columns].contiguous()
                    self.all_machines.between_machines_(rows, ranks[0])
                    if ranks[0] != self.all_machines.rank:
                        array[some, columns] = rows
        if self.world is not None:
            self.world.local_barrier()

    def result(self) -> Tensor:
        array, path = self.live[-1]
        if path is None:
            return array
        array = torch.from_numpy(map_copied(path))  # a rank that writes to it changes no other's
        self.finish()  # all have it open before its name goes
        return array

    def close(self) -> None:
        for _, path in self.live:
            self._remove(path)
        self.live.clear()

    def _remove(self, path: Path | None) -> None:
        if path is not None and self.is_first:
            path.unlink(missing_ok=True)
