"""Writes a store of many graphs, one graph after the other, in memory that does not grow with their number."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from pygsage.data.files.unfinished import Unfinished, UnfinishedFolder
from pygsage.data.store.checks import check_written
from pygsage.data.store.column_sink import ColumnSink
from pygsage.data.store.intake import Intake, Missing
from pygsage.data.store.layout import Block, Taken
from pygsage.data.store.schema import Schema
from pygsage.errors import DatasetError

FORMAT = "pygsage-graphs"
VERSION = 1
BUFFER_BYTES = 4 << 20
CHECKPOINT_BYTES = 64 << 20
CHECKPOINT_S = 5.0


class Sink(Protocol):
    """Where a backend puts graphs that were checked."""

    num_buffered_bytes: int
    sizes: dict[str, list[int]]  # of graphs, where the files themselves do not tell them

    def add(self, taken: Taken) -> None:
        """Appends one graph; it may be kept in memory until `flush`."""

    def flush(self) -> None:
        """Hands everything to the operating system."""

    def sync(self) -> Mapping[str, Any]:
        """Waits until everything is on the disk, and returns the state to go on from."""

    def finish(self, schema: Schema) -> Mapping[str, Any]:
        """Completes the files, synced, and returns what the manifest says of them."""

    def close(self) -> None:
        """Lets go of the files as they are."""


class GraphWriter:
    """Makes a store: `with GraphWriter(folder, …) as writer`, `add` each graph, `finish`.

    What was added is safe after every 64 MiB or 5 seconds: a process that is killed can be gone on with, by another
    writer with `unfinished="resume"`, which skips the graphs that are there. The result is the same byte by byte with
    the columnar backend, and the same graphs with the others.

    Args:
        target: The folder of the store; it appears under this name when it is whole.
        backend: `columnar`, `sqlite` or `rocksdb`.
        fingerprint: Of the inputs and options; kept in the manifest.
        missing: What to do when some graphs lack an attribute: `refuse`, or `keep` it missing there.
        overwrite: Replace a target that exists, at the end and in one step.
        unfinished: What to do with what a killed writer left: `refuse`, `resume` or `restart`.

    Raises:
        DatasetError: when the target exists, or is being written by another process.
        EnvironmentLimitError: when the backend needs a package that is not installed.
    """

    def __init__(
        self,
        target: str | Path,
        backend: str = "columnar",
        fingerprint: Mapping[str, Any] | None = None,
        *,
        missing: Missing = "refuse",
        overwrite: bool = False,
        unfinished: Unfinished = "refuse",
    ) -> None:
        self.backend = backend
        _check_backend(backend)
        told = {"backend": backend, "missing": missing, **(fingerprint or {})}
        self._folder = UnfinishedFolder(Path(target), told, overwrite=overwrite, unfinished=unfinished)
        self.is_whole = self._folder.is_whole
        progress = self._folder.progress or {}
        self.num_done = progress.get("num_done", 0)  # graphs of the source that are dealt with, skipped ones included
        self.skipped: list[int] = progress.get("skipped", [])
        self.num_bytes = progress.get("num_bytes", 0)
        try:
            self.intake = Intake(missing, progress.get("intake"))
            # What is whole is renamed, and its database not opened.
            kind = "columnar" if self.is_whole else backend
            self._sink = _sink(kind, self._folder.path, self.intake, progress.get("sink"))
        except BaseException:
            self._folder.close()
            raise
        self._last_checkpoint = (self.num_bytes, time.monotonic())
        self._is_consistent = True

    def add(self, data: Any) -> None:
        """Appends a graph.

        Raises:
            DatasetError: when it does not go with those before, naming it and the attribute; it is then not appended.
        """
        taken = self.intake.take(data, self.num_done)
        self._is_consistent = False
        self._sink.add(taken)
        self.num_done += 1
        self.num_bytes += sum(len(content) for _, content, _ in taken.values)
        if self._sink.num_buffered_bytes >= BUFFER_BYTES:
            self._sink.flush()
        self._is_consistent = True
        self._checkpoint_if_due()

    def add_block(self, block: Block) -> None:
        """Appends graphs that are joined already, and that the intake allows; only where `takes_blocks`."""
        assert isinstance(self._sink, ColumnSink)
        self._is_consistent = False
        self.intake.take_block(block)
        self._sink.add_block(block)
        self.num_done += block.num_graphs
        self.num_bytes += sum(len(content) for _, content, _ in block.values)
        self._is_consistent = True
        self._checkpoint_if_due()

    @property
    def takes_blocks(self) -> bool:
        """Whether graphs may be appended many at a time."""
        return isinstance(self._sink, ColumnSink)

    def _checkpoint_if_due(self) -> None:
        if self._sink.num_buffered_bytes == 0:
            then_bytes, then = self._last_checkpoint
            if self.num_bytes - then_bytes >= CHECKPOINT_BYTES or time.monotonic() - then >= CHECKPOINT_S:
                self.checkpoint()

    def skip(self) -> None:
        """Leaves out the next graph of the source; the manifest tells which ones were."""
        self.skipped.append(self.num_done)
        self.num_done += 1

    def pass_over(self) -> None:
        """Counts a graph of the source that a filter dropped."""
        self.num_done += 1

    def checkpoint(self) -> None:
        """Makes everything that was added safe."""
        # A database that could not commit has rolled back: what a second try would commit lacks those rows.
        self._is_consistent = False
        self._sink.flush()
        sink = self._sink.sync()
        self._folder.save_progress(
            {
                "num_done": self.num_done,
                "num_bytes": self.num_bytes,
                "skipped": self.skipped,
                "intake": self.intake.state(),
                "sink": sink,
            }
        )
        self._last_checkpoint = (self.num_bytes, time.monotonic())
        self._is_consistent = True

    def finish(self) -> None:
        """Completes the store, and gives it its name.

        Raises:
            DatasetError: when there are no graphs; what was begun is then deleted.
        """
        if self.is_whole:
            self._folder.publish()
            return
        try:
            schema = self.intake.finish()
        except DatasetError:
            self._sink.close()
            self._folder.discard()
            raise
        self.checkpoint()
        self._is_consistent = False
        arrays = self._sink.finish(schema)
        self._sink.close()
        checked, refused = None, list[str]()
        if self.backend == "columnar":
            checked, refused = check_written(self._folder.path, schema, self.intake.num_graphs, arrays)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "backend": self.backend,
            "num_graphs": self.intake.num_graphs,
            "schema": schema.to_dict(),
            "notes": [*self.intake.notes, *refused],
            "skipped": self.skipped,
            "fingerprint": self._folder.fingerprint,
            **({"checked": checked.to_dict()} if checked is not None else {}),
            **({"sizes": self._sink.sizes} if self._sink.sizes else {}),
            "arrays": arrays,
        }
        self._folder.publish({**manifest, "checksum": manifest_checksum(manifest)})

    def __enter__(self) -> GraphWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        can_go_on = isinstance(error, Exception) and not isinstance(error, OSError) and self._is_consistent
        if can_go_on and self.num_done and not self.is_whole and self._folder.path.exists():
            self.checkpoint()  # it can be gone on with after the cause is mended
        self._sink.close()
        if isinstance(error, Exception) and self.num_done == 0 and not self.is_whole:
            self._folder.discard()
        else:
            self._folder.close()


def manifest_checksum(manifest: Mapping[str, Any]) -> int:
    """The CRC-32 of a manifest without its own checksum."""
    told = {key: value for key, value in manifest.items() if key != "checksum"}
    return zlib.crc32(json.dumps(told, sort_keys=True).encode())


def _check_backend(backend: str) -> None:
    if backend not in ("columnar", "sqlite", "rocksdb"):
        raise DatasetError(f"There is no backend {backend!r}; expected columnar, sqlite or rocksdb.")
    if backend == "rocksdb":
        from pygsage.data.store.rows import need_rocksdict

        need_rocksdict()


def _sink(backend: str, folder: Path, intake: Intake, state: Mapping[str, Any] | None) -> Sink:
    if backend == "columnar":
        return ColumnSink(folder, intake, state)
    from pygsage.data.store.rows import RowSink

    return RowSink(folder, backend, state)
