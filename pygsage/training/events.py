"""Event files for TensorBoard, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pygsage.memory.disk import writing_to


class EventFiles:
    """Writes each number of `metrics.jsonl` to `RUN/tensorboard` too; does nothing without the package `tensorboard`.

    Args:
        folder: The run directory.
        first_epoch: What an earlier job of the run wrote for this epoch (from 1) and later ones is hidden.
    """

    def __init__(self, folder: Path, first_epoch: int) -> None:
        self._writer: Any = None
        self._folder = folder
        if find_spec("tensorboard") is None:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:  # a part of it is missing or of the wrong version: no reason not to train
            return
        with writing_to(folder):
            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_epoch)

    def add(self, event: str, epoch: int, values: dict[str, float]) -> None:
        """Adds the values of an event under `event/name`, at the step `epoch`."""
        if self._writer is not None:
            with writing_to(self._folder, "then go on with --resume"):
                for name, value in values.items():
                    self._writer.add_scalar(f"{event}/{name}", value, epoch)

    def close(self) -> None:
        """Sends what is left to the disk."""
        if self._writer is not None:
            self._writer.close()
