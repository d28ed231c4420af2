"""A job that its launcher has started again goes on from its last checkpoint by itself."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pygsage.config import TrainConfig
from pygsage.distributed import World
from pygsage.training.run_folder import LOCK


def launchers(world: World) -> list[str]:
    """What tells the launchers of this job from all others, the same on every rank: a process and when it began.

    torchrun's processes stay while it starts the ranks again. All ranks together.
    """
    return sorted(set(world.gather(_launcher())))


def after_restart(config: TrainConfig, world: World, owners: list[str]) -> TrainConfig:
    """The options, with `resume` where torchrun has started this job again and the run directory is its own.

    So a rank that was killed costs what came after the last checkpoint (`torchrun --max-restarts`). A run directory
    that was there before the job is refused again as it was at first: nothing is gone on with that nobody asked for.
    All ranks together; rank 0 decides, whose disk the run directory is on.
    """
    again = False
    if world.is_main and config.run_dir is not None and not config.resume and restarts() > 0:
        again = bool(set(owners_of(Path(config.run_dir))) & set(owners))
    return replace(config, resume=True) if world.broadcast(again) else config


def restarts() -> int:
    """How often torchrun has started this job again."""
    told = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(told) if told.isdigit() else 0


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
