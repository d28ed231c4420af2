"""Says which rank the others wait for, once it takes long."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pygsage.launched import Places

# When the others have stood still for so long, a rank that is paused is named, or one that has just not come yet.
PAUSED_S = 5.0
WAITED_S = 30.0


class Awaited:
    """Watches the places of a job's ranks for the launcher, and writes a line on standard error when they stay."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._seen: tuple[int, ...] = ()
        self._since = 0.0
        self._next_s = 0.0  # when there may be something to say

    def look(self, running: Mapping[int, int], now: float) -> None:
        """Looks once; most times there is nothing to say.

        Args:
            running: The process number of each rank that has not ended.
            now: Seconds of a clock that only goes forward.
        """
        seen = self._places.now()
        if seen != self._seen:
            self._seen, self._since, self._next_s = seen, now, PAUSED_S
        waited = now - self._since
        if waited < self._next_s:
            return
        waiting, late, is_patient = self._places.awaited()
        paused = [running[rank] for rank in late if rank in running and is_paused(running[rank])]
        if not waiting or not late or (not paused and (is_patient or waited < WAITED_S)):
            return
        self._next_s = 4 * max(waited, WAITED_S)
        told = f"{_named(waiting)} {'has' if len(waiting) == 1 else 'have'} waited {waited:.0f} s for {_named(late)}"
        pids = " ".join(map(str, paused))
        why = f", stopped by a signal: `kill -CONT {pids}` lets it go on" if paused else ""
        print(f"note: {told}{why}", file=sys.stderr, flush=True)


def is_paused(pid: int) -> bool:
    """Whether somebody has sent a process SIGSTOP; False where that cannot be known (not Linux)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


def _named(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
