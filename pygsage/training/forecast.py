"""What a run was to take in memory beside what it took."""

from __future__ import annotations

import json
from pathlib import Path

from pygsage.data.storage import Storage
from pygsage.memory.peak import PeakMemory
from pygsage.training.checkpoint import write_atomically


def estimated_peak_bytes(storage: Storage | None) -> int:
    """The ranks' peaks in sum, of the way that is gone; 0 where nothing was known beforehand."""
    if storage is None or storage.told is None:
        return 0
    return (storage.told.disk if storage.kind == "disk" else storage.told.memory).peak_bytes


def write_comparison(path: Path, storage: Storage | None, measured: PeakMemory, num_ranks: int) -> None:
    """Writes the estimated and the measured peaks side by side: bytes, of the first rank by phase, of all in sum."""
    estimated = {}
    if storage is not None and storage.told is not None:
        way = storage.told.disk if storage.kind == "disk" else storage.told.memory
        estimated = {phase: way.first_rank_bytes(phase) for phase in way.phases()}
    content = {
        "storage": storage.kind if storage is not None and storage.told is not None else None,
        "num_ranks": num_ranks,
        "of_first_rank": {
            "estimated_bytes": {**estimated, "peak": max(estimated.values(), default=None)},
            "measured_bytes": {**measured.phase_bytes, "peak": measured.peak_bytes},
        },
    }
    write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")
