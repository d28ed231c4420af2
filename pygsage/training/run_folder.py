"""What may become, or go on as, a run directory; known before torch is loaded."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import yaml

from pygsage.config import BATCH_OF, TrainConfig
from pygsage.config.file import not_yaml
from pygsage.errors import RunError
from pygsage.spelling import flag

LOCK = ".lock"  # of a run directory; holds whose run it is
# These say how long to train, not what; a resumed run may change them.
EXTENDABLE = ("epochs", "max_steps", "patience", "eval_every", "root", "storage")


def check_folder(config: TrainConfig) -> None:
    """Refuses a run directory that belongs to another run or job; makes and changes nothing.

    Raises:
        RunError: see above.
    """
    if config.run_dir is None:
        return
    path = Path(config.run_dir)
    saved = saved_config(path)
    if saved is not None and _is_held(path):
        raise RunError(f"Another job is writing to the run '{path}'.", "Choose another --run-dir.")
    if saved is not None and not config.resume:
        raise RunError(f"'{path}' already holds a run.", "Type --resume to go on with it, or choose another --run-dir.")
    if saved is None and path.exists() and (not path.is_dir() or any(_foreign(path))):
        raise RunError(f"'{path}' exists and is no run directory.", "Choose another --run-dir.")
    if saved is not None:
        _same_run(path, saved, config)


def saved_config(path: Path) -> dict[str, Any] | None:
    """The options in a run directory's `config.yaml`, or None when there is none.

    Raises:
        RunError: when the file cannot be understood.
    """
    file = path / "config.yaml"
    if not file.is_file():
        return None
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"'{file}' cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RunError(
            f"'{file}' is damaged: it {not_yaml(error)}; expected the options of the run, as train wrote them.",
            "Mend it, or train anew in another --run-dir.",
        ) from None
    if not isinstance(values, dict):
        raise RunError(f"'{file}' holds no options; expected the config of a pygsage run.")
    return values


def _is_held(path: Path) -> bool:
    try:
        with open(path / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _foreign(path: Path) -> list[str]:
    """What lies in a folder that no run of ours can have left there before its config was written."""
    return [name for name in os.listdir(path) if name != LOCK and not name.endswith(".partial")]


def _same_run(path: Path, saved: dict[str, Any], config: TrainConfig) -> None:
    now = config.to_dict()
    for name, value in now.items():
        if name == "batch_size" and value is None and saved.get(name) in BATCH_OF.values():
            continue  # it was left out then, too
        if name not in EXTENDABLE and name in saved and saved[name] != value:
            raise RunError(
                f"The run '{path}' was made with {flag(name)} {_shown(saved[name])}, not {_shown(value)}.",
                "Leave the option out to go on with the run, or choose another --run-dir.",
            )


def _shown(value: Any) -> str:
    return ",".join(str(v) for v in value) if isinstance(value, list) else str(value)
