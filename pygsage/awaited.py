"""Says which rank the others wait for, once it takes long."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

from pygsage.attempts import KeyStore
from pygsage.launched import Place, awaited_among

# When the others have stood still for so long, a rank that is paused is named, or one that has just not come yet.
PAUSED_S = 5.0
WAITED_S = 30.0
LOOK_S = 1.0  # between two looks of a rank that no launcher of ours watches


class Watched(Protocol):
    """The places of a job's ranks."""

    def now(self) -> tuple[int, ...]:
        """All places, by rank; fewer where no more is known."""


class Awaited:
    """Watches the places of a job's ranks, and writes a line on standard error when they stay.

    Args:
        places: The ranks' places.
        speaker: The rank that watches, which leaves it to the first that waits to say so; None for a launcher.
    """

    def __init__(self, places: Watched, speaker: int | None = None) -> None:
        self._places = places
        self._speaker = speaker
        self._seen: tuple[int, ...] = ()
        self._since = 0.0
        self._next_s = 0.0  # when there may be something to say

    def look(self, running: Mapping[int, int], now: float, homes: Mapping[int, str] | None = None) -> None:
        """Looks once; most times there is nothing to say.

        Args:
            running: The process number of each rank of this machine that has not ended.
            now: Seconds of a clock that only goes forward.
            homes: The machine of each rank, where that has to be said.
        """
        seen = self._places.now()
        if seen != self._seen:
            self._seen, self._since, self._next_s = seen, now, PAUSED_S
        waited = now - self._since
        if waited < self._next_s:
            return
        waiting, late, is_patient = awaited_among(seen)
        paused = [running[rank] for rank in late if rank in running and is_paused(running[rank])]
        if not waiting or not late or (not paused and (is_patient or waited < WAITED_S)):
            return
        if self._speaker is not None and waiting[0] != self._speaker:
            return
        self._next_s = 4 * max(waited, WAITED_S)
        have = "has" if len(waiting) == 1 else "have"
        told = f"{_named(waiting, homes)} {have} waited {waited:.0f} s for {_named(late, homes)}"
        pids = " ".join(map(str, paused))
        why = f", stopped by a signal: `kill -CONT {pids}` lets it go on" if paused else ""
        print(f"note: {told}{why}", file=sys.stderr, flush=True)


class ToldPlaces:
    """The places of ranks that no launcher of ours has started: each tells its own in the store where they have met.

    Args:
        store: Where all ranks have met.
        place: That of this rank.
        rank: This rank.
        size: Number of ranks.
    """

    def __init__(self, store: KeyStore, place: Place, rank: int, size: int) -> None:
        self._store, self._place, self._rank, self._size = store, place, rank, size
        self._told = -1
        store.set(f"awaited/home-{rank}", f"{os.getpid()} {socket.gethostname()}")

    def now(self) -> tuple[int, ...]:
        """All places, once this rank has waited for a while; before that only this one's."""
        own = self._place.now()
        if own != self._told:
            self._store.set(f"awaited/place-{self._rank}", str(own))
            self._told = own
            return (own,)
        if not own % 2:  # it does not wait
            return (own,)
        return tuple(int(self._of("place", rank) or 0) for rank in range(self._size))

    def homes(self) -> dict[int, tuple[int, str]]:
        """The process and the machine of each rank that has come."""
        told = {rank: self._of("home", rank).partition(" ") for rank in range(self._size)}
        return {rank: (int(pid), host) for rank, (pid, _, host) in told.items() if host}

    def _of(self, what: str, rank: int) -> str:
        key = f"awaited/{what}-{rank}"
        return self._store.get(key).decode() if self._store.check([key]) else ""


@contextmanager
def watching(store: KeyStore, place: Place, rank: int, size: int) -> Iterator[None]:
    """While it lasts, the first rank that waits says for whom, as our launcher does for the ranks that it starts.

    Costs one message to the store a second, and one a rank and second of a rank that waits.
    """
    ended = threading.Event()

    def watch() -> None:
        with suppress(RuntimeError, OSError):  # the store ends with its owner, and then the job does
            places = ToldPlaces(store, place, rank, size)
            awaited = Awaited(places, speaker=rank)
            homes: dict[int, tuple[int, str]] = {}
            while not ended.wait(LOOK_S):
                if place.now() % 2 and len(homes) < size:
                    homes = places.homes()
                here = {each: pid for each, (pid, host) in homes.items() if host == socket.gethostname()}
                hosts = {each: host for each, (_, host) in homes.items()}
                awaited.look(here, time.monotonic(), hosts if len(set(hosts.values())) > 1 else None)

    thread = threading.Thread(target=watch, name="pygsage-awaited", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=1.0)  # longer only where the store does not answer


@contextmanager
def saying_who_is_awaited(found: str) -> Iterator[None]:
    """Says `found` on standard error, with the seconds in place of `{}`, when what it is around takes long."""
    ended, begun = threading.Event(), time.monotonic()

    def watch() -> None:
        pause_s = WAITED_S
        while not ended.wait(pause_s):
            waited = time.monotonic() - begun
            print("note: " + found.format(f"{waited:.0f} s"), file=sys.stderr, flush=True)
            pause_s = 3 * waited

    thread = threading.Thread(target=watch, name="pygsage-awaited", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def is_paused(pid: int) -> bool:
    """Whether somebody has sent a process SIGSTOP; False where that cannot be known (not Linux)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


def _named(ranks: list[int], homes: Mapping[int, str] | None = None) -> str:
    names = [f"{rank} (on {homes[rank]})" if homes and rank in homes else str(rank) for rank in ranks]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(names)}"
