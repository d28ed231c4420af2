"""`pygsage train`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pygsage.cli.parser import parse
from pygsage.config import TrainConfig, option, read_config_file
from pygsage.data.names import dataset_defaults, parse_reference
from pygsage.errors import RunError


@dataclass(frozen=True)
class _TrainOptions(TrainConfig):
    """Trains GraphSAGE on a dataset and keeps the run in a directory.

    Flags win over --config, the file over the dataset's own defaults.

    Examples: pygsage train graph.npz --split random:.6/.2/.2 --epochs 5 --run-dir runs/mine
    and pygsage train --run-dir runs/mine --resume --epochs 10
    """

    config: str | None = option(None, "a YAML file of these options")


def run(argv: Sequence[str]) -> int:
    """Parses the options, trains, and prints the result."""
    config = resolve(argv)
    if "RANK" not in os.environ:  # under torchrun the first rank may hold it by now
        from pygsage.training.run_folder import check_folder

        check_folder(config)  # before torch and the dataset are loaded
    if config.dry_run:
        from pygsage.training.launch import dry_run

        print("\n".join(dry_run(config)))
        return 0
    from pygsage.training.launch import train

    result = train(config)
    if os.environ.get("RANK", "0") != "0":
        return 0
    print(json.dumps(result.to_dict()) if config.json else result.sentence(), flush=True)
    return 0


def resolve(argv: Sequence[str]) -> TrainConfig:
    """The options in force: flags, over the file (or the run that is resumed), over the dataset's own defaults.

    Raises:
        PygsageError: when they cannot be used.
    """
    asked_for_help = any(word in ("-h", "--help") for word in argv)
    typed = parse(_TrainOptions, argv, "train", {} if asked_for_help else {"dataset": ""})
    defaults: dict[str, Any] = {}
    origin = "pygsage train"
    if typed["config"] is not None:
        defaults, origin = read_config_file(typed["config"]), typed["config"]
    if typed["resume"] and typed["run_dir"] is not None:
        defaults |= _resumed(Path(typed["run_dir"]), named=bool(typed["dataset"] or defaults.get("dataset")))
    dataset = typed["dataset"] or defaults.get("dataset") or "digits"
    own = dataset_defaults(dataset) if isinstance(dataset, str) else {}  # a file may hold anything
    base = TrainConfig().with_values({**own, **defaults, "dataset": dataset}, origin)
    values = parse(_TrainOptions, argv, "train", {f.name: getattr(base, f.name) for f in fields(base)})
    del values["config"]
    config = TrainConfig(**values)
    if not config.resume:
        parse_reference(config.dataset)  # a name with a mistake is refused before torch is loaded
    return config


def _resumed(run_dir: Path, named: bool) -> dict[str, Any]:
    from pygsage.training.run_folder import saved_config

    saved = saved_config(run_dir)
    if saved is None and not named:
        raise RunError(
            f"There is no run in '{run_dir}' to resume.", "Check the folder, or name the dataset to start a new run."
        )
    return saved or {}
