"""Seeds go to the machines where their features lie, as far as shares stay even."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class SeedHomes:
    """Where seeds and ranks are at home.

    Args:
        of_seeds: int64 `[seeds]`: the home of each, by its position in the seed list.
        of_ranks: The home of each rank.
    """

    of_seeds: Tensor
    of_ranks: tuple[int, ...]

    def share(self, batch: Tensor, rank: int) -> Tensor:
        """The rank's seeds of a global batch, int64 `[n]`, in the order of the batch.

        The shares are of the sizes that contiguous ones have. Each rank takes seeds of its own home first; those that
        are too many for the ranks of their home fill up the others, in order. Every rank computes the same.
        """
        size, num_ranks = len(batch), len(self.of_ranks)
        bounds = np.arange(num_ranks + 1) * size // num_ranks
        room = np.diff(bounds)
        homes, ranks = self.of_seeds[batch].numpy(), np.asarray(self.of_ranks)
        owner = np.full(size, -1)
        for home in np.unique(ranks):
            there = np.flatnonzero(ranks == home)
            takers = np.repeat(there, room[there])
            seeds = np.flatnonzero(homes == home)[: len(takers)]
            owner[seeds] = takers[: len(seeds)]
        left = room - np.bincount(owner[owner >= 0], minlength=num_ranks)
        owner[owner < 0] = np.repeat(np.arange(num_ranks), left)
        return batch[torch.from_numpy(np.flatnonzero(owner == rank))]
