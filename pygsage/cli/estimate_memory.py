"""`pygsage estimate-memory`: what a dataset takes, and whether it fits, before it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pygsage.data.memory import own_defaults, shape_with_torch, typed_options
from pygsage.memory.answer import answer
from pygsage.memory.options import EstimateConfig

Parse = Callable[[type[EstimateConfig], Sequence[str], str, dict[str, Any]], dict[str, Any]]


def run(argv: Sequence[str], parse: Parse | None = None) -> int:
    """Parses the options, estimates, and prints; returns 0 (fits in memory), 3 (on disk only) or 4 (neither).

    Args:
        parse: Reads the words as `cli.parser.parse` does, which serves when it is not given.

    Raises:
        PygsageError: when the options cannot be used, or the dataset's size cannot be known beforehand.
    """
    if parse is None:
        from pygsage.cli import parser

        parse = parser.parse
    typed = parse(EstimateConfig, argv, "estimate-memory", {})
    defaults = own_defaults(typed["dataset"])
    if defaults:
        typed = parse(EstimateConfig, argv, "estimate-memory", defaults)
    config = EstimateConfig(**typed)
    found = replace(answer(config, shape=shape_with_torch(config)), typed=typed_options(config, defaults))
    print(json.dumps(found.to_dict(), allow_nan=False) if config.json else found.text(), flush=True)
    return found.exit_status
