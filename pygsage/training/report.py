"""What rank 0 says while a run goes on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from tqdm import tqdm


class Report:
    """Prints for one rank; silent on all but rank 0.

    Args:
        active: Whether this rank speaks.
        quiet: Leave out everything but the result.
        json: Standard output is kept for the result; lines go to standard error.
    """

    def __init__(self, active: bool, quiet: bool = False, json: bool = False) -> None:
        self._speaks = active and not quiet
        self._stream: TextIO = sys.stderr if json else sys.stdout
        self._bar: tqdm[Any] | None = None

    def line(self, text: str) -> None:
        """Prints one line, above the bar when there is one."""
        if not self._speaks or not text:
            return
        if self._bar is not None:
            self._bar.clear()
        print(text, file=self._stream, flush=True)

    def start_epoch(self, epoch: int, num_epochs: int, num_steps: int, first_step: int) -> None:
        """Begins a bar of steps, when the output is a terminal."""
        if self._speaks and self._stream.isatty():
            self._bar = tqdm(
                total=num_steps,
                initial=first_step,
                desc=f"epoch {epoch + 1}/{num_epochs}",
                unit="step",
                leave=False,
                file=self._stream,
            )

    def step(self, loss: float) -> None:
        """Moves the bar on by one step."""
        if self._bar is not None:
            self._bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            self._bar.update()

    def end_epoch(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
