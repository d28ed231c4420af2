"""A field that is an option of the command line.

A field's metadata hold its help text; `positional` marks arguments without a flag, `transient` marks
options that say how to run rather than what to compute: they are not written to `config.yaml`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str, **metadata: bool | str) -> Any:
    return field(default=default, metadata={"help": help, **metadata})
