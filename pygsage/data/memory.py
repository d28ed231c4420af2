"""The estimate of a dataset's memory as one call, with the defaults that a dataset sets for itself. Loads no torch."""

from __future__ import annotations

from dataclasses import fields, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from pygsage.config import TrainConfig
from pygsage.data.names import dataset_defaults, parse_reference
from pygsage.errors import DatasetError
from pygsage.memory.answer import MemoryAnswer, answer
from pygsage.memory.known import find_known
from pygsage.memory.options import EstimateConfig
from pygsage.memory.peak import undroppable_bytes
from pygsage.memory.shapes import TYPE_NUMBERS, DatasetShape
from pygsage.spelling import check_names, flag

if TYPE_CHECKING:
    from torch_geometric.data import Data, Dataset


def estimate_memory(dataset: str | PathLike[str] | Data | Dataset = "", **options: Any) -> MemoryAnswer:
    """What a dataset takes in RAM, on disk and on a GPU, and whether it fits this machine; nothing is read but headers.

    Of a recipe the first graphs are made. Of a dataset in Python what it holds in RAM already counts for the process.

    Args:
        dataset: A name, a file or a folder, as for `pygsage estimate-memory`; empty when numbers are given; or a PyG
            `Data`, a PyG dataset or a list of `Data`, as for `pygsage.train`.
        **options: Fields of `EstimateConfig`, such as `num_graphs=…` or `memory_limit="8GiB"`.

    Raises:
        ConfigError: for options that cannot be used.
        DatasetError: when the dataset's size cannot be known beforehand.
    """
    check_names(options, EstimateConfig, "estimate_memory()")
    if not isinstance(dataset, (str, PathLike)):
        from pygsage.data.open_many import shape_of_given

        shape = shape_of_given(dataset)
        return answer(EstimateConfig(dataset=shape.name, **options), shape=shape, base_bytes=undroppable_bytes())
    dataset = fspath(dataset)
    defaults = own_defaults(dataset)
    config = EstimateConfig(dataset=dataset, **{**defaults, **options})
    return replace(answer(config, shape=shape_with_torch(config)), typed=typed_options(config, defaults))


def shape_with_torch(config: EstimateConfig) -> DatasetShape | None:
    """The shape of a recipe, which is run for it; None for what is known without."""
    if not config.dataset.partition(":")[0].endswith(".py"):
        return None
    reference = parse_reference(config.dataset)
    try:
        from pygsage.data.sampled import shape_of_recipe
    except ImportError as error:
        raise DatasetError(
            f"{config.dataset} is a recipe, which has to be run, and {error.name or 'torch'} is not installed.",
            TYPE_NUMBERS,
        ) from None
    return shape_of_recipe(reference, config.root)


def typed_options(config: EstimateConfig, defaults: dict[str, Any]) -> str:
    """The options of `train` that differ from a dataset's own, such as `--procs 4 --undirected`."""
    of_train = {f.name for f in fields(TrainConfig)} - {"dataset", "json"}
    if not config.dataset.partition(":")[0].endswith(".py"):
        of_train -= {"root"}  # the shape's own name has it
    words = []
    for f in fields(config):
        value = getattr(config, f.name)
        if f.name not in of_train or value == defaults.get(f.name, f.default):
            continue
        if isinstance(value, bool):
            words.append(flag(f.name) if value else flag(f"no_{f.name}"))
        else:
            words.append(f"{flag(f.name)} {','.join(map(str, value)) if isinstance(value, tuple) else value}")
    return " ".join(words)


def own_defaults(dataset: str) -> dict[str, Any]:
    """Those of a dataset's own defaults of `train` that change memory."""
    known = find_known(dataset)
    names = {f.name for f in fields(EstimateConfig)}
    return {name: value for name, value in dataset_defaults(known[0] if known else dataset).items() if name in names}
