"""A neighbour loader with PyG's interface whose batches are functions of (seed, epoch, step)."""

from __future__ import annotations

import os
import resource
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils.data
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader as PyGNeighborLoader
from torch_geometric.sampler import NumNeighbors

from pygsage.data.one_graph.graph import Graph
from pygsage.errors import ConfigError, DatasetError
from pygsage.memory.machine import read_machine
from pygsage.sampling.arguments import refuse_both, refuse_options, seeds_of
from pygsage.sampling.sample import EdgeType
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler, StepPositions
from pygsage.spelling import whole_number

_LEAST_FILES = 1024  # a batch has some ten tensors; of each worker two are under way, and users keep some


class _Positions(torch.utils.data.Dataset[list[int]]):
    """Hands each batch of positions through whole, so that the step it carries is not lost."""

    def __init__(self, num_seeds: int) -> None:
        self.num_seeds = num_seeds

    def __len__(self) -> int:
        return self.num_seeds

    def __getitems__(self, positions: list[int]) -> list[int]:
        return positions


class _StepDataLoader(torch.utils.data.DataLoader[Any]):
    """Stands between PyG's loader and torch's, where PyG sets the dataset to a plain range."""

    def __init__(self, dataset: Sequence[int], **kwargs: Any) -> None:
        super().__init__(_Positions(len(dataset)), **kwargs)


class NeighborLoader(PyGNeighborLoader, _StepDataLoader):
    """PyG's `NeighborLoader` on our sampler: same batches for any number of workers, threads and runs.

    Yields PyG `Data` or `HeteroData` batches (`n_id`, `e_id`, `input_id`, `batch_size`, `num_sampled_nodes`,
    `num_sampled_edges`, and the node and edge attributes of what was sampled). Seeds are split over the ranks by
    `DistributedSeedSampler`; a rank without seeds in a step gets an empty batch, never one step fewer. Each
    complete pass moves on to the next epoch by itself; `set_epoch` chooses one.

    Args:
        data: A PyG `Data` or `HeteroData`, kept on the CPU, or a pair of PyG's `FeatureStore` and `GraphStore`.
        num_neighbors: Neighbours drawn at each hop, from the seeds outwards; -1 takes all. In a heterogeneous graph
            also a dict of such lists by edge type.
        input_nodes: Seeds: node ids, a bool mask [N], or None for all nodes; in a heterogeneous graph a node type, or
            a pair of one and any of these.
        batch_size: Seeds a step in each process (1).
        shuffle: Whether the order of the seeds changes with the epoch (no).
        seed: Seed of the order and of all draws.
        rank: This process, by default that of torch.distributed, else 0.
        num_ranks: Number of processes, by default that of torch.distributed, else 1.
        batch_sampler: A `DistributedSeedSampler` to use instead of the one made from batch_size, shuffle, rank and
            num_ranks, which are then left out; `seed` is that of the draws.
        num_workers: Worker processes; the features are gathered in this process whatever the number. They are
            started with `spawn` unless `multiprocessing_context` says otherwise (a fork after CUDA or OpenMP
            work can hang), never more than there are cores, and a worker that is silent for `timeout` seconds
            (300) is an error.
        **kwargs: Other arguments of PyG's `NeighborLoader`; those that would change what is drawn are refused.

    Raises:
        ConfigError: for seeds, numbers of neighbours or options that cannot be used.
        DatasetError: when `data` is not one graph, or an edge or a seed is out of range.

    Cost: workers hold the topology in shared memory, once, and hand tensors over as open files; when /dev/shm or
    the hard limit of open files is too small for that, the loader says so and works without them.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]] | NumNeighbors | str,
        input_nodes: Any = None,
        *,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        seed: int = 0,
        rank: int | None = None,
        num_ranks: int | None = None,
        batch_sampler: DistributedSeedSampler | None = None,
        neighbor_sampler: NeighborSampler | None = None,
        num_workers: int = 0,
        **kwargs: Any,
    ) -> None:
        refuse_options(kwargs)
        num_workers = whole_number(num_workers, "num_workers", least=0)
        seed = whole_number(seed, "seed")
        if batch_sampler is not None:
            decides = {"batch_size": batch_size, "shuffle": shuffle, "rank": rank, "num_ranks": num_ranks}
            refuse_both(decides)
        if isinstance(data, Graph):
            raise DatasetError(
                "NeighborLoader was given a Graph, of which PyG's loaders take no rows.",
                "Save it and pass open_stores(folder), from pygsage.data.one_graph.mapped.",
            )
        sampler = neighbor_sampler or NeighborSampler(data, num_neighbors, seed)
        if isinstance(data, Data) and sampler.num_nodes != data.num_nodes:
            raise DatasetError(
                f"neighbor_sampler was made for {sampler.num_nodes} nodes, and data has {data.num_nodes}; expected the "
                "same graph."
            )
        self._to_workers = False
        if num_workers > 0:
            num_workers = _workers_that_help(num_workers, sampler)
        if num_workers > 0:
            _raise_open_file_limit()
            kwargs.setdefault("multiprocessing_context", "spawn")
            kwargs.setdefault("timeout", 300)
        node_type, nodes = seeds_of(sampler, input_nodes)
        num_seeds = int(nodes.sum()) if nodes.dtype == torch.bool else len(nodes)
        if batch_sampler is None:
            batch_sampler = DistributedSeedSampler(
                num_seeds,
                1 if batch_size is None else batch_size,
                rank=rank,
                num_ranks=num_ranks,
                shuffle=bool(shuffle),
                seed=seed,
            )
        elif not isinstance(batch_sampler, DistributedSeedSampler):
            raise ConfigError(
                f"batch_sampler is a {type(batch_sampler).__name__}; expected a DistributedSeedSampler.",
                "Stock samplers of torch go into PyG's own NeighborLoader(…, neighbor_sampler=NeighborSampler(…)).",
            )
        elif batch_sampler.num_seeds != num_seeds:
            raise ConfigError(f"batch_sampler is for {batch_sampler.num_seeds} seeds, but input_nodes has {num_seeds}.")
        self._shards = batch_sampler
        # Set explicitly: PyG's documentation says the opposite of what its default does on CPU data.
        kwargs.setdefault("filter_per_worker", False)
        super().__init__(  # type: ignore[call-arg]  # as mypy sees it PyG's loader follows, not ours
            data,
            num_neighbors,
            nodes if node_type is None else (node_type, nodes),
            neighbor_sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            **kwargs,
        )

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that the next pass draws."""
        self._shards.set_epoch(epoch)

    def __iter__(self) -> Iterator[Data | HeteroData]:  # type: ignore[override]
        epoch = self._shards.epoch
        yield from super().__iter__()
        # Only a complete pass moves on: a peek at the first batch must not set one rank apart from the others.
        if self._shards.epoch == epoch:
            self.set_epoch(epoch + 1)

    def collate_fn(self, index: Any) -> Any:
        """Samples one batch; runs in the worker process when there is one."""
        if not isinstance(index, StepPositions):
            return super().collate_fn(index)
        out = self.node_sampler.sample_from_nodes(self.input_data[index], epoch=index.epoch, step=index.step)
        return self.filter_fn(out) if self.filter_per_worker else out

    def _get_iterator(self) -> Any:
        self._to_workers = True
        try:
            return super()._get_iterator()
        finally:
            self._to_workers = False

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # A worker that does not gather needs the sampler only; the data would be copied to shared memory.
        if self._to_workers and not self.filter_per_worker:
            state["data"] = None
        state.pop("_iterator", None)
        return state


def _workers_that_help(num_workers: int, sampler: NeighborSampler) -> int:
    """At most one worker for each core of this rank, and none without room for what they share or hand over."""
    machine = read_machine()
    cores = max(1, machine.num_cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if num_workers > cores:
        found = f"{cores} core{'s' if cores > 1 else ''}"
        warnings.warn(
            f"num_workers is {num_workers}, but this process has {found}: using {cores}.",
            RuntimeWarning,
            stacklevel=3,
        )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < _LEAST_FILES:  # -1: no limit
        warnings.warn(
            f"Worker processes hand over each tensor of a batch as an open file, and there is a hard limit of {hard:,} "
            f"open files: sampling in this process instead. Raise it to {_LEAST_FILES:,} (ulimit -Hn) to use "
            "num_workers.",
            RuntimeWarning,
            stacklevel=3,
        )
        return 0
    needed = sum(t.numel() * t.element_size() for t in sampler.held() if not t.is_shared())
    free = machine.shm_free_bytes
    if free is None or needed <= free:
        return min(num_workers, cores)
    warnings.warn(
        f"Worker processes need {needed / 2**20:.0f} MiB in /dev/shm for the topology and {free / 2**20:.0f} MiB are "
        "free: sampling in this process instead. Raise it (docker: --shm-size) to use num_workers.",
        RuntimeWarning,
        stacklevel=3,
    )
    return 0


def _raise_open_file_limit() -> None:
    """Workers pass each batch through file descriptors, and the usual soft limit is soon reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
