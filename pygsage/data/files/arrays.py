"""A folder of `.npy` arrays and a manifest: written whole or not at all, and mapped back."""

from __future__ import annotations

import errno
import json
import mmap
import os
import secrets
import shlex
import shutil
import sys
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from pygsage.errors import DatasetError, EnvironmentLimitError, in_words
from pygsage.memory.disk import full_disk, reserve

MANIFEST = "manifest.json"
_FLAGS = ("undirected", "self_loops", "normalize_features", "relabel")  # of convert, as a fingerprint tells them


def write_folder(folder: str | Path, write: Callable[[Path], None]) -> None:
    """Has `write` fill a folder that is new or empty: all of it, or nothing.

    It fills one beside it under another name, which is renamed when it is done.

    Raises:
        DatasetError: when the folder holds something already, or cannot be written.
        EnvironmentLimitError: when the disk is full.
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
        told = full_disk(error, folder.parent)
        raise told or DatasetError(f"The graph cannot be written to {folder}: {error.strerror or error}.") from None


def write_array(folder: Path, name: str, array: np.ndarray) -> dict[str, Any]:
    """Writes `name.npy`, synced, and returns what the manifest says of it. Costs no copy in RAM of a contiguous one."""
    told: dict[str, Any] = {}

    def write(file: IO[bytes]) -> None:
        writer = ArrayWriter(folder, name, array.dtype, array.shape[1:], file)
        writer.write(array)
        told.update(writer.finish())

    write_synced(folder / f"{name}.npy", write)
    return told


class ArrayWriter:
    """One `name.npy`, written from its first row to its last; its bytes are those that `numpy.save` writes.

    Args:
        shape: Of one row.
        file: The file, where it is open already; else it is made.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        dtype: np.dtype,
        shape: tuple[int, ...] = (),
        file: IO[bytes] | None = None,
    ) -> None:
        self._name, self._dtype, self._shape = f"{name}.npy", dtype, shape
        self._path = folder / self._name
        self._num_rows, self._crc32 = 0, 0
        self._file = file or open(self._path, "wb")  # noqa: SIM115  # closed by __exit__
        self._file.write(_header(dtype, (0, *shape)))

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, rows: np.ndarray) -> None:
        """Appends rows; they are cast to the array's dtype."""
        rows = np.ascontiguousarray(rows, dtype=self._dtype)
        content = rows.reshape(-1).view(np.uint8).data
        self._crc32 = zlib.crc32(content, self._crc32)
        self._file.write(content)
        self._num_rows += len(rows)

    def finish(self) -> dict[str, Any]:
        """Writes the header, waits until all of it is on the disk, and returns what the manifest says of it."""
        shape = (self._num_rows, *self._shape)
        self._file.seek(0)
        self._file.write(_header(self._dtype, shape))
        self._file.flush()
        os.fsync(self._file.fileno())
        return {
            "file": self._name,
            "dtype": self._dtype.name,
            "shape": list(shape),
            "bytes": self._path.stat().st_size,
            "crc32": self._crc32,
        }


def verify_array(folder: Path, name: str, told: Mapping[str, Any]) -> None:
    """Compares every byte of an array that `map_array` took with what was written. Reads it in pieces of 1 MiB.

    Raises:
        ValueError: when a byte differs, or the manifest has no checksum to compare with.
    """
    if "crc32" not in told:
        raise ValueError(f"{MANIFEST} has no checksum of {name}")
    expected = _header(np.dtype(told["dtype"]), tuple(told["shape"]))
    crc = 0
    with open(folder / f"{name}.npy", "rb") as file:
        if file.read(len(expected)) != expected:
            raise ValueError(f"{name}.npy does not begin as it was written")
        while piece := file.read(1 << 20):
            crc = zlib.crc32(piece, crc)
    if crc != told["crc32"]:
        raise ValueError(f"{name}.npy is not what was written: its checksum is {crc:08x}; expected {told['crc32']:08x}")


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Of the same length for any number of rows: NumPy leaves room for it."""
    file = BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue()


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
        raise damaged(folder, f"{MANIFEST} cannot be read: {in_words(error)}") from None
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
    array = map_copied(path)
    found = (array.dtype.name, list(array.shape))
    if found != (told["dtype"], told["shape"]) or (dtypes and found[0] not in dtypes):
        raise ValueError(f"{name}.npy is {found[0]} {found[1]}; expected {told['dtype']} {told['shape']}")
    return torch.from_numpy(array)


def map_copied(path: Path) -> np.ndarray:
    """Maps an `.npy` file as `map_pages` does.

    Raises:
        ValueError: when it is no such file, or holds objects.
        EnvironmentLimitError: when the limit of open files is reached.
    """
    try:
        return _map_copied(path)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise EnvironmentLimitError(
            f"{path} cannot be mapped: too many files are open.", "Raise the limit of open files: `ulimit -n 4096`."
        ) from None


def _map_copied(path: Path) -> np.ndarray:
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        offset = file.tell()
        if dtype.hasobject:
            raise ValueError(f"{path.name} holds Python objects")
        return np.ndarray(shape, dtype, map_pages(file), offset, order="F" if fortran else "C")


def map_pages(file: IO[bytes]) -> mmap.mmap:
    """Maps a file copy-on-write, also one that is larger than RAM and swap together.

    Copy-on-write: torch warns about read-only memory, and crashes when it is written to. Linux counts such a map as
    memory that may be needed and refuses one of more than there is, unless it is told that none is to be kept for it
    (mmap(2), MAP_NORESERVE).
    """
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
    return mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def new_array(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A mapped array in a new file, whose room on the disk is taken.

    Raises:
        EnvironmentLimitError: when the disk is too full for all of it.
    """
    try:
        array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        reserve(path)
    except OSError as error:
        told = full_disk(error, path.parent)
        if told is None:
            raise
        raise told from None
    return array


def counts_up(edge_id: np.ndarray, first: int = 0) -> bool:
    """Whether the ids are `first`, `first + 1`, … ."""
    for start in range(0, len(edge_id), 1 << 20):
        piece = edge_id[start : start + (1 << 20)]
        if not np.array_equal(piece, np.arange(first + start, first + start + len(piece))):
            return False
    return True


def damaged(folder: Path, reason: str) -> DatasetError:
    """The error for a folder that is not what was written."""
    return DatasetError(f"The graph in {folder} is damaged: {reason}.", f"Delete the folder and {made_by(folder)}")


def made_by(folder: Path) -> str:
    """What makes a folder again, as far as its manifest can still tell."""
    try:
        told = json.loads((folder / MANIFEST).read_bytes())
        if "parts" in told:
            how = told["partition"]
            words = [
                "partition",
                told["partition_of"],
                folder,
                "--parts",
                len(told["parts"]),
                "--method",
                how["method"],
            ]
            words += ["--seed", how["seed"]] if how.get("seed") else []
            return f"type: pygsage {shlex.join(map(str, words))}"
        made = told["fingerprint"]
        if folder.parent.name.endswith(".pygsage"):
            return f"type the command again, which makes it anew from {made['dataset']}."
        flags = [f"--{name.replace('_', '-')}" for name in _FLAGS if name in made["options"].split("+")]
        return f"type: pygsage {shlex.join(['convert', made['dataset'], str(folder), *flags])}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"make it again: pygsage convert DATASET {shlex.quote(str(folder))}"


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
