"""In memory, on disk, or neither: from an estimate and what the machine has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pygsage.memory.estimate import Estimate
from pygsage.memory.machine import Machine
from pygsage.spelling import size_text

__all__ = ["DISK_SHARE", "Decision", "decide", "size_text"]

# Training from disk has no other way to turn to: all but a tenth may be planned, which the page cache needs.
DISK_SHARE = 0.9


@dataclass(frozen=True)
class Decision:
    """Where a dataset is held.

    Attributes:
        storage: `memory`, `disk`, or `none` when it fits neither.
        exit_status: 0, 3 or 4.
        available_bytes: RAM that was counted on; None when the machine does not tell.
        available_source: Where that number comes from.
        reason: One sentence with both numbers, and with the flag to change when it does not fit.
    """

    storage: Literal["memory", "disk", "none"]
    exit_status: int
    available_bytes: int | None
    available_source: str
    reason: str


def decide(
    memory: Estimate, disk: Estimate, machine: Machine, limit_bytes: int | None = None, share: float = 0.5
) -> Decision:
    """In memory when every phase stays under `share` of what is available, else on disk if that fits.

    The margin is for what an estimate cannot see: memory that was freed and never went back to the kernel, other
    jobs, the page cache. `available` is what is free before the run begins, under every control group above it.

    Args:
        memory: The estimate of our way in memory.
        disk: Of our way on disk.
        machine: What there is.
        limit_bytes: What `--memory-limit` allows; it counts instead of what is available.
        share: Of the available, what may be planned.
    """
    if limit_bytes is not None:
        available: int | None = limit_bytes
        source = "--memory-limit"
    else:
        available, source = machine.memory_available_bytes, machine.memory_available_source
    if available is None:
        return Decision("memory", 0, None, source, "The machine does not tell its memory: taken as enough.")
    need, budget = memory.need_bytes, int(share * available)
    phase = memory.highest_phase()
    have = f"{size_text(available)} ({source})"
    if need <= budget:
        reason = f"In memory: needs {size_text(need)} ({phase}), under {share:.0%} of {have}."
        return Decision("memory", 0, available, source, reason)
    over = f"needs {size_text(need)} in memory ({phase}), over {share:.0%} of {have}"
    need_disk, free = disk.need_bytes, machine.disk_free_bytes
    if need_disk > DISK_SHARE * available:
        phase = disk.highest_phase()
        cure = "Leave evaluation out with --eval-every 0, or change" if phase == "evaluate" else "Change --batch-size,"
        reason = (
            f"Neither: {over}, and {size_text(need_disk)} of RAM even from disk ({phase}). {cure} "
            f"{'' if phase == 'evaluate' else '--fanouts, '}--hidden or --procs, or raise --memory-limit."
        )
        return Decision("none", 4, available, source, reason)
    if free is not None and disk.disk_bytes > free:
        reason = (
            f"Neither: {over}, and {size_text(disk.disk_bytes)} on disk, where {size_text(free)} are free "
            f"({machine.disk_folder}). Name another folder with --disk, or raise --memory-limit."
        )
        return Decision("none", 4, available, source, reason)
    reason = (
        f"On disk: {over}; from disk it takes {size_text(need_disk)} of RAM and {size_text(disk.disk_bytes)} of disk."
    )
    return Decision("disk", 3, available, source, reason)
