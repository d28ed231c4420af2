"""What a run will take in memory, said and acted on before the dataset is read."""

from __future__ import annotations

import json
from pathlib import Path

from pygsage import native
from pygsage.config import TrainConfig
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.memory.answer import MemoryAnswer, answer
from pygsage.memory.decide import size_text
from pygsage.memory.peak import PeakMemory, undroppable_bytes
from pygsage.training.checkpoint import write_atomically


def forecast(config: TrainConfig, num_ranks: int) -> MemoryAnswer | None:
    """Estimates the memory of a run on this machine; None where the dataset does not tell its size beforehand.

    Args:
        config: The options in force.
        num_ranks: Processes of the job on this machine.

    Raises:
        EnvironmentLimitError: when the run would not fit, with exit status 3 or 4 as `estimate-memory` has it.
    """
    try:
        told = answer(config, base_bytes=undroppable_bytes(), num_ranks=num_ranks, compiled=native.core is not None)
    except DatasetError:  # a recipe, or a mistake that the door explains better
        return None
    if told.shape.num_graphs > 1:  # they are read from a store: nothing has to fit
        return None
    available, need = told.decision.available_bytes, told.memory.need_bytes
    if available is not None and need > available:
        error = EnvironmentLimitError(
            f"Training on {config.dataset} needs {size_text(need)} of RAM, and {size_text(available)} are there "
            f"({told.decision.available_source}); this version holds one graph in memory.",
            "Change --batch-size, --fanouts, --hidden or --procs; `pygsage estimate-memory` shows what takes how "
            "much; a larger --memory-limit goes ahead all the same.",
        )
        error.exit_status = told.decision.exit_status
        raise error
    return told


def sentence_of(told: MemoryAnswer) -> str:
    """One line for the run to print."""
    if told.decision.storage == "memory":
        return told.sentence()
    need, available = told.memory.need_bytes, told.decision.available_bytes or 0
    return (
        f"warning: memory: needs {size_text(need)} of the {size_text(available)} that are there "
        f"({told.decision.available_source}); other jobs could make it too little"
    )


def write_comparison(path: Path, told: MemoryAnswer | None, measured: PeakMemory, num_ranks: int) -> None:
    """Writes the estimated and the measured peaks side by side: bytes, of the first rank by phase, of all in sum."""
    estimated = {} if told is None else {p: told.memory.first_rank_bytes(p) for p in told.memory.phases()}
    content = {
        "num_ranks": num_ranks,
        "of_first_rank": {
            "estimated_bytes": {**estimated, "peak": max(estimated.values(), default=None)},
            "measured_bytes": {**measured.phase_bytes, "peak": measured.peak_bytes},
        },
    }
    write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")
