"""A job that its launcher has started again goes on from its last checkpoint by itself."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pygsage.attempts import restarts, under_torchrun
from pygsage.config import TrainConfig
from pygsage.distributed import World
from pygsage.errors import RunError
from pygsage.training.run_folder import LOCK


def launchers(world: World) -> list[str]:
    """What tells the launchers of this job from all others, the same on every rank: a process and when it began.

    torchrun's processes stay while it starts the ranks again. All ranks together.
    """
    return sorted(set(world.gather(_launcher())))


def after_restart(config: TrainConfig, world: World, owners: list[str]) -> TrainConfig:
    """The options, with `resume` where torchrun has started this job again and the run directory is its own.

    So a rank that was killed costs what came after the last checkpoint (`torchrun --max-restarts`), on whichever
    machine it was. A run directory that was there before the job is refused again as it was at first: nothing is gone
    on with that nobody asked for. All ranks together; rank 0 decides, whose disk the run directory is on.

    Raises:
        RunError: when rank 0 is now on a machine that does not see what the job has written on another.
    """
    ours: list[str] = []
    if under_torchrun() and config.run_dir is not None and not config.resume:
        found = owners_of(Path(config.run_dir))
        ours = found if set(found) & set(owners) else []
    told = world.gather([restarts(), ours, socket.gethostname()])
    writers = [other for _, other, _ in told]
    # Where a machine was replaced no launcher needs to have counted anything.
    if not any(count > 0 for count, _, _ in told) and all(set(other) in (set(), set(owners)) for other in writers):
        return config
    if not writers[0] and any(writers):
        holder = next(rank for rank, other in enumerate(writers) if other)
        raise RunError(
            f"The checkpoints of '{config.run_dir}' are on {told[holder][2]} (rank {holder}), where rank 0 was before "
            f"torchrun started the ranks again, and rank 0 is now on {told[0][2]}, which does not have them.",
            "Put --run-dir on a disk that all machines see, or copy it there and type --resume.",
        )
    return replace(config, resume=True) if writers[0] else config


def owners_of(run: Path) -> list[str]:
    """The launchers of the job that has opened a run directory last."""
    with suppress(OSError, ValueError):
        told = json.loads((run / LOCK).read_text())
        return [str(each) for each in told] if isinstance(told, list) else []
    return []


def _launcher() -> str:
    """The machine since it was started, the process that started this one, and when that began, in clock ticks."""
    parent, boot, began = os.getppid(), "", ""
    with suppress(OSError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        began = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{boot} {parent} {began}"
