"""A folder of `.npy` arrays and a manifest: written whole or not at all, and mapped back."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.errors import DatasetError

MANIFEST = "manifest.json"


def write_folder(folder: str | Path, write: Callable[[Path], None]) -> None:
    """Has `write` fill a folder that is new or empty: all of it, or nothing.

    It fills one beside it under another name, which is renamed when it is done.

    Raises:
        DatasetError: when the folder holds something already, or cannot be written.
    """
    folder = Path(folder)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DatasetError(f"{folder} exists already and is not empty; expected a new folder.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = folder.with_name(f".{folder.name}.partial-{os.getpid()}-{secrets.token_hex(4)}")
        unfinished.mkdir()
        try:
            write(unfinished)
            os.replace(unfinished, folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        sync_folder(folder.parent)
    except OSError as error:
        raise DatasetError(f"The graph cannot be written to {folder}: {error.strerror or error}.") from None


def write_array(folder: Path, name: str, array: np.ndarray) -> dict[str, Any]:
    """Writes `name.npy`, synced, and returns what the manifest says of it. Costs no copy in RAM."""
    path = folder / f"{name}.npy"
    write_synced(path, partial(np.save, arr=array, allow_pickle=False))
    return {
        "file": f"{name}.npy",
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "bytes": path.stat().st_size,
    }


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Writes the manifest, synced: the last file of a folder, without which it is none."""
    text = json.dumps(manifest, indent=1).encode()
    for inner in filter(Path.is_dir, folder.iterdir()):
        sync_folder(inner)
    write_synced(folder / MANIFEST, lambda file: file.write(text))
    sync_folder(folder)


def read_manifest(folder: Path, versions: Mapping[str, int]) -> dict[str, Any]:
    """Reads the manifest of a folder in one of the formats that are named, each with its version.

    Raises:
        DatasetError: when there is none, or it is damaged or of another format or version.
    """
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder; expected the folder of a graph.")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise DatasetError(f"{folder} has no {MANIFEST}: it is no graph's folder, or was never finished.") from None
    except (OSError, ValueError) as error:
        raise damaged(folder, f"{MANIFEST} cannot be read: {error}") from None
    kind = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(kind, str) or kind not in versions:
        raise DatasetError(f"{folder / MANIFEST} was not written by pygsage; expected the folder of a graph.")
    if manifest.get("version") != versions[kind]:
        raise DatasetError(
            f"{folder} is of version {manifest.get('version')}; this pygsage reads version {versions[kind]}.",
            "Make it again with this version.",
        )
    return dict(manifest)


def map_array(folder: Path, name: str, told: Mapping[str, Any], dtypes: tuple[str, ...] = ()) -> Tensor:
    """Maps `name.npy`, copy-on-write, after comparing it with what the manifest tells.

    Args:
        dtypes: Those that are allowed; none for all.

    Raises:
        ValueError: when the file is not what the manifest tells, or the manifest leads to another file.
    """
    # The names are ours to know: a manifest must not lead to other files.
    if told["file"] != f"{name}.npy":
        raise ValueError(f"{MANIFEST} names the file {told['file']!r} for {name!r}")
    path = folder / f"{name}.npy"
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name}.npy leads out of the folder")
    if path.stat().st_size != told["bytes"]:
        raise ValueError(f"{name}.npy has {path.stat().st_size} bytes; expected {told['bytes']}")
    # Copy-on-write: torch warns about read-only memory, and crashes when it is written to.
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    found = (array.dtype.name, list(array.shape))
    if found != (told["dtype"], told["shape"]) or (dtypes and found[0] not in dtypes):
        raise ValueError(f"{name}.npy is {found[0]} {found[1]}; expected {told['dtype']} {told['shape']}")
    return torch.from_numpy(array)


def damaged(folder: Path, reason: str) -> DatasetError:
    """The error for a folder that is not what was written."""
    return DatasetError(f"The graph in {folder} is damaged: {reason}.", "Delete the folder and make it again.")


def write_synced(path: Path, write: Callable[[Any], Any]) -> None:
    """Has `write` fill a file, and waits until it is on the disk."""
    with open(path, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
