"""Files from the network, and zips: whole, or not there. Nothing is asked, nothing of the user's is deleted."""

from __future__ import annotations

import fcntl
import http.client
import os
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pygsage.errors import DatasetError
from pygsage.memory.disk import full_disk

_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 60.0  # without a single byte

Progress = Callable[[int, int], None]


def download(url: str, target: Path, *, progress: Progress | None = None) -> None:
    """Fetches a file in pieces to `NAME.part` beside `target`, and renames it when all of it is there and on disk.

    A part that an earlier call left is gone on with, if the server can and its file is still the same.

    Args:
        progress: Called with the bytes that are there and the bytes of the whole, 0 if the server does not say.

    Raises:
        DatasetError: when the network, the server or the disk fails; the part is kept for the next call.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        with _only_one(part) as file:
            _fetch(url, file, part, progress)
            os.replace(part, target)
            part.with_name(f"{part.name}.etag").unlink(missing_ok=True)
    except (OSError, http.client.HTTPException, ValueError) as error:
        told = full_disk(error, part.parent, "then type the same command again: what has come is kept")
        if told is not None:
            raise told from None
        have = part.stat().st_size if part.is_file() else 0
        if not have:
            part.unlink(missing_ok=True)
        kept = f" Its first {have:,} bytes are kept: type the same command again to go on." if have else ""
        raise DatasetError(f"{url} could not be downloaded: {_reason(error)}.{kept}") from None


def extract(path: Path, folder: str, target: Path) -> None:
    """Takes one folder out of a zip, every file's checksum looked at, and renames it to `target`, which is new.

    Raises:
        DatasetError: when the zip is cut short, damaged, or has no such folder, or the disk is too small.
    """
    scratch = ""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.startswith(f"{folder}/")]
            if not members:
                raise DatasetError(f"{path} has no folder {folder}; expected the zip of {target.name}.")
            need, free = sum(m.file_size for m in members), shutil.disk_usage(target.parent).free
            if need > free:
                raise DatasetError(f"{path} needs {need:,} bytes to be unpacked; {target.parent} has {free:,} free.")
            scratch = tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent)
            for member in members:
                _sync(archive.extract(member, scratch))
        os.replace(Path(scratch, folder), target)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DatasetError(
            f"{path} is cut short or damaged ({_reason(error)}); expected a whole zip.", "Delete it, and try again."
        ) from None
    except OSError as error:
        told = full_disk(error, target.parent)
        raise told or DatasetError(f"{path} cannot be unpacked to {target}: {error.strerror or error}.") from None
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Makes a folder, and takes away what it made of it when that stayed empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for path in made:
                path.rmdir()
        raise


@contextmanager
def _only_one(part: Path) -> Iterator[Any]:
    """The part, opened to be gone on with, while no other process writes to it."""
    with open(part, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DatasetError(f"{part} is being downloaded by another process.", "Wait until it is done.") from None
        yield file


def _fetch(url: str, file: Any, part: Path, progress: Progress | None) -> None:
    note = part.with_name(f"{part.name}.etag")  # tells whether the server's file is the one that was begun
    begun = note.read_text(encoding="utf-8") if note.is_file() else ""
    have = file.tell() if begun else 0
    headers = {"Range": f"bytes={have}-", "If-Range": begun} if have else {}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # the part is as long as the file or longer: begin again
            raise
        have = 0
        answer = urllib.request.urlopen(urllib.request.Request(url), timeout=_TIMEOUT_S)
    with answer:
        if answer.status != 206:
            have = 0
        file.truncate(have)
        file.seek(have)
        tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        if tag and not tag.startswith("W/"):
            note.write_text(tag, encoding="utf-8")
        else:
            note.unlink(missing_ok=True)
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else 0
        free = shutil.disk_usage(part.parent).free
        if total - have > free:
            raise OSError(f"it has {total:,} bytes, and {part.parent} has {free:,} free")
        while chunk := answer.read(_CHUNK_BYTES):
            file.write(chunk)
            have += len(chunk)
            if progress is not None:
                progress(have, total)
        file.flush()
        os.fsync(file.fileno())
    if total and have != total:
        raise OSError(f"the connection ended after {have:,} of {total:,} bytes")


def _reason(error: Exception) -> str:
    said = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return " ".join(str(said).split())[:200].rstrip(".") or type(error).__name__
