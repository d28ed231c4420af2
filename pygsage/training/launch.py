"""Training from one call: in this process, in several on this machine, or as a rank that torchrun started."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygsage.config import TrainConfig
from pygsage.data.files.scratch import scratch_folder
from pygsage.data.names import dataset_defaults
from pygsage.data.open import GIVEN
from pygsage.data.open_many import not_a_dataset
from pygsage.data.storage import Storage, choose_storage, existing_folder
from pygsage.devices import cores_per_process
from pygsage.distributed import World
from pygsage.errors import Stopped
from pygsage.launched import in_launched_job
from pygsage.memory.disk import writing_to
from pygsage.memory.machine import read_machine
from pygsage.training.opening import open_problem
from pygsage.training.placing import checked_placement, devices_of
from pygsage.training.plan import check_options, plan
from pygsage.training.processes import run_ranks
from pygsage.training.rank import train_rank
from pygsage.training.result import TrainResult
from pygsage.training.run_folder import saved_config

if TYPE_CHECKING:
    from torch_geometric.data import Data, Dataset


def train(dataset: str | PathLike[str] | TrainConfig | Data | Dataset = "digits", **options: Any) -> TrainResult:
    """Trains GraphSAGE on a dataset and keeps the run in a directory.

    One process a device: on one device it trains in this process, on several it starts one process each and
    waits for them; in a process that torchrun started it is that rank.

    Args:
        dataset: A dataset as on the command line, or a path, whose own defaults then apply; a `TrainConfig`, which is
            taken as it is; or a PyG `Data`, a PyG dataset or a list of `Data`, which is left as it is.
        **options: Fields of `TrainConfig` to set, such as `epochs=5`.

    Raises:
        PygsageError: for a mistake in the options, the dataset or the run directory (`ConfigError`,
            `DatasetError`, `RunError`, `EnvironmentLimitError`), before any long work; `TrainingError` when the
            loss is not finite or a process died; `Stopped` after a stop signal.
    """
    given = None
    dataset = fspath(dataset) if isinstance(dataset, PathLike) else dataset
    if dataset is None:
        raise not_a_dataset(None)
    if isinstance(dataset, TrainConfig):
        config = dataset.with_values(options, "train()")
    elif isinstance(dataset, str):
        saved = _saved(options)
        if dataset == "digits":  # where none was named
            dataset = saved.get("dataset", dataset)
        typed = {**dataset_defaults(dataset), **saved, "dataset": dataset, **options}
        config = TrainConfig().with_values(typed, "train()")
    else:
        given = dataset
        config = TrainConfig().with_values({**_saved(options), "dataset": GIVEN, **options}, "train()")
    devices = devices_of(config)
    if in_launched_job() or len(devices) == 1:
        with writing_to(), World.start(devices) as world:
            told = Storage("memory", num_ranks=world.local_size)
            return train_rank(
                config, world, None if given is None else lambda stack: open_problem(config, stack, given, told)
            )
    command = [sys.executable, "-m", "pygsage.training.child", json.dumps(asdict(config))]
    threads = cores_per_process(read_machine().num_cores, len(devices))
    with writing_to(), ExitStack() as stack:
        if given is not None:  # the ranks are other processes: they map it from a folder
            problem = open_problem(config, stack, given, Storage("memory", num_ranks=len(devices)))
            check_options(config, problem)
            folder = stack.enter_context(scratch_folder()) / "graph"
            problem.data.save(folder)
            del problem
            command.append(str(folder))
        ended = run_ranks(command, len(devices), threads=threads)
    if ended.status:
        raise Stopped("Stopped before the first step.", exit_status=ended.status)
    return TrainResult(**ended.value)


def _saved(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the run that is resumed, which need not be said again."""
    if not (options.get("resume") is True and isinstance(options.get("run_dir"), (str, PathLike))):
        return {}
    return saved_config(Path(options["run_dir"])) or {}


def dry_run(config: TrainConfig) -> list[str]:
    """Checks all that `train` checks before its first step and says what it would do; makes nothing.

    Raises:
        PygsageError: as `train`.
    """
    devices = devices_of(config)
    storage = choose_storage(config, len(devices))
    here = World(local_size=len(devices), device=devices[0])
    choice = checked_placement(config, here, storage, None)
    with ExitStack() as stack:
        if storage.folder is not None and not storage.is_built:
            folder = stack.enter_context(scratch_folder(existing_folder(storage.folder), ".pygsage-"))
            problem = open_problem(config, stack, storage=replace(storage, folder=folder / "graph"))
        else:
            problem = open_problem(config, stack, storage=storage)
        check_options(config, problem)
        if problem.storage is not None:  # what was decided late; not the folder that goes with this dry run
            storage = replace(problem.storage, folder=storage.folder or problem.storage.folder)
        choice = choice or checked_placement(config, here, storage, None, problem)
        num_weights = sum(p.numel() for p in problem.build_model(config).parameters())
        names = ", ".join(str(device) for device in devices)
        last = [f"{num_weights:,} weights; devices: {names}", "dry run: nothing was trained"]
        first = [storage.sentence()] if storage.takes_a_while else []
        if choice is not None and choice.reason:
            first.append(f"placement: {choice.reason}")
        return [*first, *plan(config, problem, len(devices)), *last]
