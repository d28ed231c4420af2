"""Which attempt of a job a rank belongs to, where torchrun starts the ranks again. Standard library only."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Protocol

_PAUSE_S = 0.01


class KeyStore(Protocol):
    """What torch's stores can do."""

    def set(self, key: str, value: str, /) -> Any:
        """Keeps a value for all ranks."""

    def get(self, key: str, /) -> bytes:
        """The value of a key that is there."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are there."""


def under_torchrun() -> bool:
    """Whether torchrun has started this process, or what starts ranks as it does."""
    return "TORCHELASTIC_RESTART_COUNT" in os.environ


def restarts() -> int:
    """How often torchrun says that it has started this machine's ranks again.

    It counts failures of the machine's own ranks: where those of another have failed it starts all again and does not
    count, so that machines differ.
    """
    told = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(told) if told.isdigit() else 0


def attempt(store: KeyStore, rank: int, size: int) -> str:
    """A name that the ranks which run now agree on, and that none before them had; all ranks together.

    The store outlives the ranks, so what stands there may be from ranks that are dead: rank 0 answers what the others
    write until each has told it that it has read the answer.

    Costs a few messages to the store for each rank.
    """
    own = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"
    if rank > 0:
        store.set(f"come-{rank}", own)
        while True:
            answered, _, name = _read(store, f"answer-{rank}").partition(" ")
            if answered == own:
                store.set(f"heard-{rank}", name)
                return name
            time.sleep(_PAUSE_S)
    answers: dict[int, str] = {}
    missing = set(range(1, size))
    while missing:
        for other in sorted(missing):
            come = _read(store, f"come-{other}")
            if come and come != answers.get(other):
                answers[other] = come
                store.set(f"answer-{other}", f"{come} {own}")
            elif _read(store, f"heard-{other}") == own:
                missing.discard(other)
        if missing:
            time.sleep(_PAUSE_S)
    return own


def _read(store: KeyStore, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""
