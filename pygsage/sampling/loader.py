"""A neighbour loader with PyG's interface whose batches are functions of (seed, epoch, step)."""

from __future__ import annotations

import os
import resource
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.utils.data
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader as PyGNeighborLoader
from torch_geometric.sampler import SamplerOutput

from pygsage.memory.machine import read_machine
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler, StepPositions


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

    Yields PyG `Data` batches (`n_id`, `e_id`, `input_id`, `batch_size`, `num_sampled_nodes`,
    `num_sampled_edges`, and the node and edge attributes of what was sampled). Seeds are split over the ranks by
    `DistributedSeedSampler`; a rank without seeds in a step gets an empty batch, never one step fewer. Each
    complete pass moves on to the next epoch by itself; `set_epoch` chooses one.

    Args:
        data: A homogeneous PyG `Data`, kept on the CPU.
        num_neighbors: Neighbours drawn at each hop, from the seeds outwards; -1 takes all.
        input_nodes: Seeds: node ids, a bool mask [N], or None for all nodes.
        batch_size: Seeds a step in each process.
        shuffle: Whether the order of the seeds changes with the epoch.
        seed: Seed of the order and of all draws.
        rank: This process, by default that of torch.distributed, else 0.
        num_ranks: Number of processes, by default that of torch.distributed, else 1.
        batch_sampler: A `DistributedSeedSampler` to use instead of the one made from the arguments above.
        num_workers: Worker processes; the features are gathered in this process whatever the number. They are
            started with `spawn` unless `multiprocessing_context` says otherwise (a fork after CUDA or OpenMP
            work can hang), never more than there are cores, and a worker that is silent for `timeout` seconds
            (300) is an error.
        **kwargs: Other arguments of PyG's `NeighborLoader`.

    Cost: workers hold the topology in shared memory, once; when /dev/shm cannot hold it, the loader says so
    and works without them.
    """

    def __init__(
        self,
        data: Data,
        num_neighbors: Sequence[int] | str,
        input_nodes: Any = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        num_ranks: int | None = None,
        batch_sampler: DistributedSeedSampler | None = None,
        neighbor_sampler: NeighborSampler | None = None,
        num_workers: int = 0,
        **kwargs: Any,
    ) -> None:
        sampler = neighbor_sampler or NeighborSampler(data, num_neighbors, seed)
        if num_workers > 0:
            num_workers = _workers_that_help(num_workers, sampler)
        if num_workers > 0:
            _raise_open_file_limit()
            kwargs.setdefault("multiprocessing_context", "spawn")
            kwargs.setdefault("timeout", 300)
        if batch_sampler is None:
            batch_sampler = DistributedSeedSampler(
                _count_seeds(data, input_nodes),
                batch_size,
                rank=rank,
                num_ranks=num_ranks,
                shuffle=shuffle,
                seed=seed,
            )
        # Set explicitly: PyG's documentation says the opposite of what its default does on CPU data.
        kwargs.setdefault("filter_per_worker", False)
        super().__init__(
            data,
            list(sampler.fanouts),
            input_nodes,
            neighbor_sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            **kwargs,
        )

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that the next pass draws."""
        self.batch_sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Data]:
        epoch = self.batch_sampler.epoch
        yield from super().__iter__()
        # Only a complete pass moves on: a peek at the first batch must not set one rank apart from the others.
        if self.batch_sampler.epoch == epoch:
            self.set_epoch(epoch + 1)

    def collate_fn(self, index: Any) -> Any:
        """Samples one batch; runs in the worker process when there is one."""
        if not isinstance(index, StepPositions):
            return super().collate_fn(index)
        out: SamplerOutput = self.node_sampler.sample_from_nodes(
            self.input_data[index], epoch=index.epoch, step=index.step
        )
        return self.filter_fn(out) if self.filter_per_worker else out

    def __getstate__(self) -> dict[str, Any]:
        # A worker that does not gather needs the sampler only; the data would be copied to shared memory.
        state = dict(self.__dict__)
        if not self.filter_per_worker:
            state["data"] = None
        state.pop("_iterator", None)
        return state


def _count_seeds(data: Data, input_nodes: Any) -> int:
    if input_nodes is None:
        return int(data.num_nodes or 0)
    nodes = torch.as_tensor(input_nodes)
    return int(nodes.sum()) if nodes.dtype == torch.bool else len(nodes)


def _workers_that_help(num_workers: int, sampler: NeighborSampler) -> int:
    """At most one worker for each core of this rank, and none when /dev/shm cannot hold what they share."""
    machine = read_machine()
    cores = max(1, machine.num_cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if num_workers > cores:
        warnings.warn(
            f"num_workers is {num_workers}, but this process has {cores} core{'s' if cores > 1 else ''}: using {cores}.",
            RuntimeWarning,
            stacklevel=3,
        )
    held = (sampler.indptr, sampler.indices, sampler.edge_permutation)
    needed = sum(t.numel() * t.element_size() for t in held if not t.is_shared())
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
