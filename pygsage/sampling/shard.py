"""Which seeds are this rank's in which step: every seed once an epoch, never padded, never dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Sampler

from pygsage.errors import ConfigError
from pygsage.sampling.homes import SeedHomes
from pygsage.sampling.keys import permutation
from pygsage.spelling import whole_number


class StepPositions(list[int]):
    """One rank's positions in the seed list for one step; carries where in training it belongs.

    A list, so that any PyTorch `DataLoader` takes it for a batch; pickles with its attributes, so that
    worker processes know the step too.
    """

    def __init__(self, positions: list[int], epoch: int, step: int, num_global: int) -> None:
        super().__init__(positions)
        self.epoch = epoch
        self.step = step
        self.num_global = num_global

    def __reduce__(self) -> tuple[type[StepPositions], tuple[list[int], int, int, int]]:
        return StepPositions, (list(self), self.epoch, self.step, self.num_global)


@dataclass(frozen=True)
class SeedShard:
    """One rank's part of a step.

    Attributes:
        step: The step within its epoch.
        positions: Positions in the seed list, int64, possibly empty.
        num_global: Seeds in this step over all ranks; never zero.
        global_positions: Positions of the seeds of all ranks, int64, in one order everywhere.
    """

    step: int
    positions: Tensor
    num_global: int
    global_positions: Tensor


class DistributedSeedSampler(Sampler[list[int]]):
    """A *batch* sampler that splits each global batch evenly over the ranks.

    Seeds are shuffled by (seed, epoch) alone and cut into global batches of `batch_size * num_ranks`; the last
    may be smaller. Each global batch is cut into contiguous shares whose sizes differ by at most one. A rank
    that has no seed in a step yields an empty list, so that every rank takes the same number of steps. The union
    over ranks is therefore the same for any number of ranks at the same global batch.

    Args:
        num_seeds: How many seeds there are; at least one.
        batch_size: Seeds a step in each process.
        rank: This process; by default that of torch.distributed when it is in use, else 0.
        num_ranks: Number of processes; by default that of torch.distributed when it is in use, else 1.
        shuffle: Whether the order changes with the epoch; otherwise seeds come as listed.
        seed: Seed of the order.
        global_batch_size: Seeds a step over all ranks; replaces `batch_size * num_ranks`.
        homes: Where seeds and ranks are at home: shares are then chosen by that, of the same sizes.

    Yields lists of positions in the seed list (`StepPositions`). Pass it to a `DataLoader` as `batch_sampler=`.

    Raises:
        ConfigError: when there are no seeds, or a size or rank is out of range.

    Cost: a sort of the seeds an epoch, O(n log n); 32 bytes a seed while it lasts, 8 afterwards.
    """

    def __init__(
        self,
        num_seeds: int,
        batch_size: int = 1024,
        *,
        rank: int | None = None,
        num_ranks: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        global_batch_size: int | None = None,
        homes: SeedHomes | None = None,
    ) -> None:
        if rank is None or num_ranks is None:
            rank, num_ranks = _current_ranks() if rank is None and num_ranks is None else (rank or 0, num_ranks or 1)
        if whole_number(num_seeds, "num_seeds") < 1:
            raise ConfigError("There are no seed nodes to sample from; expected at least one.")
        batch_size, seed = whole_number(batch_size, "batch_size"), whole_number(seed, "seed")
        rank, num_ranks = whole_number(rank, "rank"), whole_number(num_ranks, "num_ranks")
        if global_batch_size is not None:
            global_batch_size = whole_number(global_batch_size, "global_batch_size")
        if batch_size < 1 or (global_batch_size is not None and global_batch_size < 1):
            raise ConfigError(f"The batch size is {min(batch_size, global_batch_size or 1)}; expected at least 1.")
        if not 0 <= rank < num_ranks:
            raise ConfigError(f"Rank {rank} of {num_ranks} does not exist; expected 0 to {num_ranks - 1}.")
        self.num_seeds = num_seeds
        self.global_batch_size = global_batch_size or batch_size * num_ranks
        self.rank = rank
        self.num_ranks = num_ranks
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self._homes = homes

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order: epochs with the same number have the same order on every rank."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Steps an epoch, the same on every rank."""
        return (self.num_seeds + self.global_batch_size - 1) // self.global_batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for shard in self.shards(self.epoch):
            yield StepPositions(shard.positions.tolist(), self.epoch, shard.step, shard.num_global)

    def shards(self, epoch: int, first_step: int = 0) -> Iterator[SeedShard]:
        """The rank's shares of an epoch from `first_step` on; skipped steps cost nothing."""
        order = permutation(self.num_seeds, self.seed, epoch) if self.shuffle else torch.arange(self.num_seeds)
        for step in range(first_step, len(self)):
            batch = order[step * self.global_batch_size : (step + 1) * self.global_batch_size]
            if self._homes is None:
                own = batch[share_of(len(batch), self.rank, self.num_ranks)]
            else:
                own = self._homes.share(batch, self.rank)
            yield SeedShard(step, own, len(batch), batch)


def share_of(num_items: int, rank: int, num_ranks: int) -> slice:
    """The rank's contiguous share of `num_items`; shares differ by at most one and cover each item once."""
    return slice(num_items * rank // num_ranks, num_items * (rank + 1) // num_ranks)


def _current_ranks() -> tuple[int, int]:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
