"""A folder that is being made: beside its target, under another name, by one process; renamed when it is whole."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

from pygsage.data.files.arrays import MANIFEST, sync_folder, write_manifest, write_synced
from pygsage.errors import DatasetError

PROGRESS = "progress.json"
Unfinished = Literal["refuse", "resume", "restart", "auto"]


class UnfinishedFolder:
    """The folder `.NAME.partial` beside the folder NAME that it becomes.

    Args:
        target: The folder to be made.
        fingerprint: Of the inputs and options; only what was begun with the same is gone on with.
        overwrite: Whether a target that exists is replaced, at the end and in one step.
        unfinished: What to do with one that an earlier process left: refuse, go on with it, or begin anew; auto
            goes on with what was begun with the same fingerprint. One that has no progress yet is begun anew.

    Raises:
        DatasetError: when the target exists, another process is making it, or one was left and is refused.
    """

    def __init__(
        self,
        target: Path,
        fingerprint: Mapping[str, Any],
        *,
        overwrite: bool = False,
        unfinished: Unfinished = "refuse",
    ) -> None:
        target = Path(os.path.realpath(target))  # through links: what they lead to is replaced, never a link
        if not target.name:
            raise DatasetError(f"{target} cannot be made; expected the name of a new folder.")
        self.target = target
        self.path = target.with_name(f".{target.name}.partial")
        self.fingerprint = json.loads(json.dumps(fingerprint))
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the folder, which is renamed: a lock inside would go with it while another process waits for it.
        self._lock_path = target.with_name(f".{target.name}.lock")
        self._lock = self._take_lock()
        try:
            _check_target(target, overwrite)
            if self.path.is_symlink():
                raise DatasetError(f"{self.path} is a link; expected a folder that pygsage made, or nothing.")
            self.path.mkdir(exist_ok=True)
            self.progress = self._begin(unfinished)
        except BaseException:
            self.close()
            raise

    @property
    def is_whole(self) -> bool:
        """Whether an earlier process was killed when all but the renaming was done."""
        return (self.path / MANIFEST).exists()

    def save_progress(self, progress: Mapping[str, Any]) -> None:
        """Replaces the record of how far it is; what it tells of has to be synced before."""
        content = json.dumps({"fingerprint": self.fingerprint, **progress}).encode()
        text = json.dumps({"progress": content.decode(), "crc32": zlib.crc32(content)}).encode()
        write_synced(self.path / f"{PROGRESS}.new", lambda file: file.write(text))
        os.replace(self.path / f"{PROGRESS}.new", self.path / PROGRESS)
        sync_folder(self.path)

    def publish(self, manifest: Mapping[str, Any] | None = None) -> None:
        """Writes the manifest, and renames the folder to its target; one that it replaces is deleted.

        Files that the manifest does not name are deleted before; without a manifest, the one that is there is meant.
        """
        if manifest is not None:
            write_manifest(self.path, manifest)
        told = json.loads((self.path / MANIFEST).read_bytes())["arrays"]
        kept = {MANIFEST, *(Path(entry.get("file", name)).parts[0] for name, entry in told.items())}
        for path in self.path.iterdir():
            if path.name not in kept:
                path.unlink()
        sync_folder(self.path)
        if self.target.is_dir() and any(self.target.iterdir()):
            _exchange(self.path, self.target)
            sync_folder(self.target.parent)
            shutil.rmtree(self.path)
        else:
            os.replace(self.path, self.target)
        sync_folder(self.target.parent)
        self.close()

    def close(self) -> None:
        """Lets another process go on with it. What is there stays."""
        if not self._lock.closed:
            self._lock_path.unlink(missing_ok=True)
            self._lock.close()

    def discard(self) -> None:
        """Deletes it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.close()

    def _take_lock(self) -> IO[bytes]:
        while True:
            lock = open(self._lock_path, "ab")  # noqa: SIM115  # held until close
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock.fileno()), os.stat(self._lock_path)):
                    return lock
            except FileNotFoundError:
                pass
            except OSError:
                lock.close()
                raise DatasetError(
                    f"{self.target} is being written by another process.", "Wait until it is done."
                ) from None
            lock.close()  # its holder has finished and taken it away in the meantime: try the one that is there now

    def _begin(self, unfinished: Unfinished) -> dict[str, Any] | None:
        if self.is_whole and _changed(self.target) > _changed(self.path):
            (self.path / MANIFEST).unlink()  # the old one, of a process that was killed when it had swapped them
        progress = self._read_progress()
        if progress is not None and unfinished == "refuse":
            raise DatasetError(
                f"{self.path} holds an unfinished {self.target.name}; expected to be told what to do with it.",
                "Resume it (--resume, resume=True) or begin anew (--overwrite, overwrite=True).",
            )
        is_same = progress is not None and progress["fingerprint"] == self.fingerprint
        if is_same and unfinished in ("resume", "auto"):
            return progress
        if progress is not None and unfinished == "resume":
            raise DatasetError(
                f"{self.path} was begun from another dataset or with other options; expected the same.",
                "Give those, or begin anew (--overwrite, overwrite=True).",
            )
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return None

    def _read_progress(self) -> dict[str, Any] | None:
        if self.is_whole:
            try:
                told = json.loads((self.path / MANIFEST).read_bytes())
                return {"fingerprint": told["fingerprint"]}
            except (ValueError, KeyError, TypeError, OSError):
                return None
        try:
            told = json.loads((self.path / PROGRESS).read_bytes())
            content = told["progress"].encode()
            progress = json.loads(content)
            return dict(progress) if zlib.crc32(content) == told["crc32"] else None
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            return None


def _check_target(target: Path, overwrite: bool) -> None:
    if not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / MANIFEST).is_file():
        held = "holds other files" if target.is_dir() else "is a file"
        raise DatasetError(
            f"{target} exists already and {held}; expected a new folder{', or one that pygsage wrote' * overwrite}.",
            "Name another.",
        )
    if not overwrite:
        raise DatasetError(
            f"{target} exists already; expected a new folder.",
            "Name another, or replace it (--overwrite, overwrite=True).",
        )


def _changed(folder: Path) -> int:
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


def _exchange(new: Path, old: Path) -> None:
    """Swaps two folders in one step where the system can; else there is a moment with neither under its name."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    at_here, exchange = -100, 2
    if renameat2 is not None and renameat2(at_here, os.fsencode(new), at_here, os.fsencode(old), exchange) == 0:
        return
    aside = new.with_name(f"{new.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    os.replace(old, aside)
    os.replace(new, old)
    os.replace(aside, new)
