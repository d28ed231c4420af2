"""Rows of features that lie on other machines, asked for and sent in rounds that all ranks take together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from pygsage.connections import notice_silence
from pygsage.distributed import World

_DONE = -1
_PATIENCE = timedelta(hours=4)  # as long as the other collectives; a machine that is gone is noticed sooner


class Exchange:
    """A group beside the one that reduces gradients, so that rows come while a step is computed.

    Args:
        world: The ranks, all of which make one, together.
        row_bytes: Size of a row.

    It is used by one thread at a time. A round costs three messages between each two ranks: how many rows are wanted,
    which, and the rows. They are on the CPU, whatever the device of the model.
    """

    def __init__(self, world: World, row_bytes: int) -> None:
        self._world = world
        self._row_bytes = row_bytes
        self.num_ranks = world.size
        with world.peer_errors():
            self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)
        notice_silence()

    def round(
        self, wanted: np.ndarray, num_wanted: np.ndarray, serve: Callable[[np.ndarray], np.ndarray], done: bool = False
    ) -> tuple[np.ndarray, bool]:
        """One round; every rank has to take it.

        Args:
            wanted: int64 `[n]`: storage numbers of rows, those that rank 0 is asked for first, then rank 1's.
            num_wanted: int64 `[ranks]`: how many of them each is asked for.
            serve: The rows of the storage numbers that others want, uint8 `[m, row_bytes]`.
            done: Whether this rank wants no more, in this round or later ones.

        Returns:
            The rows, uint8 `[n, row_bytes]`, and whether all ranks are done: no other round is to follow then.

        Raises:
            PeerLostError: when another rank is gone.
        """
        with self._world.peer_errors():
            asked = torch.from_numpy(np.full(len(num_wanted), _DONE) if done else num_wanted.astype(np.int64))
            told = torch.empty_like(asked)
            dist.all_to_all_single(told, asked, group=self._group)
            if int(told.max()) == _DONE:
                return np.empty((0, self._row_bytes), np.uint8), True
            sends, takes = told.clamp(min=0).tolist(), asked.clamp(min=0).tolist()
            others = torch.empty(sum(sends), dtype=torch.int64)
            dist.all_to_all_single(others, torch.from_numpy(wanted), sends, takes, group=self._group)
            rows = torch.from_numpy(serve(others.numpy()))
            found = torch.empty(len(wanted), self._row_bytes, dtype=torch.uint8)
            dist.all_to_all_single(found, rows, takes, sends, group=self._group)
        return found.numpy(), False


def owners(machines: list[int], num_parts: int) -> tuple[list[int], list[int]]:
    """Which machines hold which parts: the home of each rank, and of each part.

    Args:
        machines: The machine of each rank.

    Machines share out the parts in order. Where there are fewer parts than machines, several machines hold the same;
    where there are more, a machine holds several. A home is what holds the same parts.
    """
    numbered = {machine: number for number, machine in enumerate(sorted(set(machines)))}
    num_homes = min(num_parts, len(numbered))
    of_ranks = [numbered[machine] * num_homes // len(numbered) for machine in machines]
    return of_ranks, [part * num_homes // num_parts for part in range(num_parts)]


def servers(rank: int, of_ranks: list[int], of_parts: list[int]) -> np.ndarray:
    """The rank that this one asks for rows of each part, int64 `[parts]`; -1 for its own home's.

    The ranks of a home are asked by different ranks, so that all serve about as much.
    """
    holders = {home: [r for r, each in enumerate(of_ranks) if each == home] for home in set(of_parts)}
    return np.asarray(
        [-1 if home == of_ranks[rank] else holders[home][rank % len(holders[home])] for home in of_parts], np.int64
    )


def as_bytes(rows: np.ndarray) -> np.ndarray:
    """Rows `[n, F]` as uint8 `[n, F x item size]`; no copy."""
    return np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), rows.shape[1] * rows.itemsize)
