"""Where the store of a recipe of many graphs is kept, and whether one that is there was made from the same files."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from pygsage.config import TrainConfig
from pygsage.data.files.fingerprint import read_options
from pygsage.data.names import Reference, short_name
from pygsage.data.store.column_store import is_store

FOLDER = "pygsage-graphs"
_MOST_FILES = 10_000


def recipe_store(config: TrainConfig, reference: Reference) -> tuple[Path | None, dict[str, Any]]:
    """The folder in the user's cache, and the fingerprint of what the graphs depend on.

    What a recipe reads is not known: its file and those beside it, or all below `--root`. Where these are too many to
    be looked at, there is no folder.
    """
    path = (reference.path or Path()).absolute()
    text = str(path.resolve()) + f":{reference.class_name}:{config.root}"
    name = f"{short_name(reference.text)}-{zlib.crc32(text.encode()):08x}"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    files = Path(os.path.expanduser(config.root)).rglob("*") if config.root is not None else path.parent.glob("*")
    inputs = inputs_of(reference.text, (file for file in files if file.is_file()))
    return Path(cache) / "pygsage" / "recipes" / name / FOLDER if inputs["complete"] else None, inputs


def is_made(home: Path, inputs: Mapping[str, Any]) -> bool:
    """Whether a store is kept there that was made from the same inputs."""
    return is_store(home / "store") and read_options(home) == inputs


def inputs_of(name: str, paths: Iterable[Path]) -> dict[str, Any]:
    """A fingerprint: the name, and path, size and time of change of each file that is there.

    `complete` says whether that are all of them: of more than 10,000 not all are looked at.
    """
    files = []
    found = sorted(islice(paths, _MOST_FILES + 1))
    for path in found:
        try:
            status = path.stat()
        except OSError:
            continue
        files.append([str(path), status.st_size, status.st_mtime_ns])
    return {"name": name, "complete": len(found) <= _MOST_FILES, "files": files}
