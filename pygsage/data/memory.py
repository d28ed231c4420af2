"""The estimate of a dataset's memory as one call, with the defaults that a dataset sets for itself. Loads no torch."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pygsage.data.names import dataset_defaults
from pygsage.memory.answer import MemoryAnswer, answer
from pygsage.memory.known import find_known
from pygsage.memory.options import EstimateConfig


def estimate_memory(dataset: str = "", **options: Any) -> MemoryAnswer:
    """What a dataset takes in RAM, on disk and on a GPU, and whether it fits this machine; nothing is read but headers.

    Args:
        dataset: A name, a file or a folder, as for `pygsage estimate-memory`; empty when numbers are given.
        **options: Fields of `EstimateConfig`, such as `num_graphs=…` or `memory_limit="8GiB"`.

    Raises:
        ConfigError: for options that cannot be used.
        DatasetError: when the dataset's size cannot be known beforehand.
    """
    return answer(EstimateConfig(dataset=dataset, **{**own_defaults(dataset), **options}))


def own_defaults(dataset: str) -> dict[str, Any]:
    """Those of a dataset's own defaults of `train` that change memory."""
    known = find_known(dataset)
    own = dataset_defaults(known[0] if known else dataset)
    names = {f.name for f in fields(EstimateConfig)}
    return {name: value for name, value in own.items() if name in names}
