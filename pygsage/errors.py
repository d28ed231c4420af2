"""Errors a user can cause, each with its advice and the exit status of the command line."""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "DatasetError",
    "EnvironmentLimitError",
    "PygsageError",
    "RunError",
    "Stopped",
    "TrainingError",
]


class PygsageError(Exception):
    """Base of the errors that a user can cause and mend.

    Args:
        found: One sentence: what was found, where, and what was expected.
        advice: What to type or change next, if there is something to say.

    The command line prints the message without a traceback and exits with `exit_status`.
    """

    exit_status = 2

    def __init__(self, found: str, advice: str = "") -> None:
        super().__init__(found, advice)
        self.found = found
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.found} {self.advice}" if self.advice else self.found


class ConfigError(PygsageError):
    """An option, or a combination of options, that cannot be used."""


class DatasetError(PygsageError):
    """A dataset that is missing, malformed, or not of a kind that can be trained."""


class RunError(PygsageError):
    """A run directory that is missing, in use, damaged, or of another run."""


class EnvironmentLimitError(PygsageError):
    """The machine lacks what was asked for: devices, an optional package, a writable folder."""


class TrainingError(PygsageError):
    """Training cannot go on: the loss is not finite, or a rank was lost."""

    exit_status = 1


class Stopped(PygsageError):
    """A signal asked the run to end; the step was finished and a checkpoint saved."""

    exit_status = 143

    def __init__(self, found: str, advice: str = "", exit_status: int = 143) -> None:
        super().__init__(found, advice)
        self.exit_status = exit_status
