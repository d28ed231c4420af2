"""Which devices the processes of one machine compute on, and how many threads each of them has."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from pygsage.errors import EnvironmentLimitError
from pygsage.launched import in_launched_job, number_of


def choose_devices(
    gpus: int | list[int] | None, procs: int | None = None, environ: Mapping[str, str] | None = None
) -> list[torch.device]:
    """The devices of this machine's processes, by local rank; starts no CUDA context.

    Args:
        gpus: A count (0 is the CPU), a list of ids, or None: all that are visible, else the CPU.
        procs: Processes on the CPU (default 1).
        environ: The environment; under torchrun it says how many processes there are.

    Raises:
        EnvironmentLimitError: when these devices are not there, or do not go with the number of processes.
    """
    environ = os.environ if environ is None else environ
    visible = torch.cuda.device_count()
    asked = visible if gpus is None else gpus
    ids = list(range(asked)) if isinstance(asked, int) else asked
    if any(not 0 <= i < visible for i in ids):
        wish = f"GPU {','.join(str(i) for i in ids)}" if isinstance(gpus, list) else _count(len(ids), "GPU")
        raise EnvironmentLimitError(f"asked for {wish}, found {_found(visible)}.", _instead(visible, len(ids)))
    started: int | None = None
    if in_launched_job(environ):
        started = number_of("LOCAL_WORLD_SIZE", number_of("WORLD_SIZE", environ=environ), environ)
    if procs is not None and started is not None and procs != started:
        raise EnvironmentLimitError(
            f"asked for {_count(procs, 'process')}, but the launcher started {started} on this machine.",
            f"Leave --procs out, or type torchrun --nproc-per-node {procs}.",
        )
    if not ids:
        return [torch.device("cpu")] * (started or procs or 1)
    if procs is not None and procs != len(ids):
        raise EnvironmentLimitError(
            f"asked for {_count(procs, 'process')} with {_count(len(ids), 'GPU')}; each GPU has one process.",
            f"Leave --procs out, or type --gpus 0 --procs {procs} to use the CPU.",
        )
    # With --gpus auto a launcher may leave GPUs idle; a number that was typed must be the one that is used.
    if started is not None and (started > len(ids) or (gpus is not None and started != len(ids))):
        raise EnvironmentLimitError(
            f"the launcher started {_count(started, 'process')} on this machine for {_count(len(ids), 'GPU')}.",
            f"Type torchrun --nproc-per-node {len(ids)}, or add --gpus 0 to use the CPU.",
        )
    return [torch.device("cuda", i) for i in ids[:started]]


def cores_per_process(usable_cores: int, local_size: int) -> int:
    """Threads for each process, so that together they do not exceed the cores that may be used; at least 1."""
    return max(1, usable_cores // max(1, local_size))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}{'es' if what.endswith('s') else 's'}"


def _found(visible: int) -> str:
    if visible:
        return f"{visible} ({', '.join(str(i) for i in range(visible))})" if visible > 1 else "1 (id 0)"
    return "none" if torch.version.cuda or torch.version.hip else "none: this torch was built without CUDA"


def _instead(visible: int, asked: int) -> str:
    on_cpu = f"--gpus 0 --procs {asked} for the CPU"
    return f"Type --gpus {visible}, or {on_cpu}." if visible else f"Type {on_cpu}."
