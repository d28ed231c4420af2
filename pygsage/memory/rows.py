"""A row of an estimate."""

from __future__ import annotations

from dataclasses import dataclass

PHASES = ("read", "process", "collate", "save", "load", "train", "evaluate")
PLACES = ("shared", "rank", "worker", "shm", "mapped", "disk", "gpu")


@dataclass(frozen=True)
class Row:
    """One thing that takes memory in one phase.

    Attributes:
        phase: One of `PHASES`.
        place: `shared` (RAM, once a machine), `rank` or `worker` (RAM, once a process), `shm`, `mapped` (pages of
            files, which the kernel takes back when it must), `disk`, `gpu`.
        what: In words.
        num_bytes: Its size.
        formula: How that was reached.
        kind: `base`, the process; `held` until the end; `work`, gone after the phase.
    """

    phase: str
    place: str
    what: str
    num_bytes: int
    formula: str
    kind: str = "work"
