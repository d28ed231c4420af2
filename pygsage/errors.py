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


_WORDS = {
    "BadZipFile": "it is no zip file, or is cut short",
    "EOFError": "it ends too early",
    "UnicodeDecodeError": "it is not text",
    "TypeError": "an entry is of another kind than expected",
    "AttributeError": "an entry is of another kind than expected",
    "IndexError": "an entry is shorter than expected",
    "error": "its packed bytes are damaged",  # of zlib and struct
}
_OF_LIBRARIES = (  # how their texts begin
    "invalid literal for",
    "could not convert",
    "cannot convert",
    "cannot reshape",
    "buffer is smaller",
    "not enough values",
    "too many values",
)


def in_words(error: BaseException) -> str:
    """What an exception of Python or of a library says of a file, for a sentence: no name of a class, no code."""
    kind = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror[0].lower() + error.strerror[1:]
        return f"{error.filename}: {reason}" if error.filename else reason
    if kind == "JSONDecodeError":
        return f"it is not JSON from line {error.lineno} on"  # type: ignore[attr-defined]
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    if kind in _WORDS:
        return _WORDS[kind]
    text = " ".join(str(error).split()).rstrip(".")
    if not text or text.startswith(_OF_LIBRARIES):
        return "an entry is not of the kind or length that was expected"
    return text
