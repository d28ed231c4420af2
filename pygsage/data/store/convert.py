"""Any dataset of many graphs to a store on disk, streamed, in bounded memory, and resumable."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from pygsage.data.store import writer as store_writer
from pygsage.data.store.collated import Blocks
from pygsage.data.store.column_store import warn_of
from pygsage.data.store.graph_source import GraphSource, graph_source
from pygsage.data.store.intake import Missing
from pygsage.data.store.on_disk import OnDiskGraphs
from pygsage.data.store.writer import GraphWriter
from pygsage.errors import DatasetError, EnvironmentLimitError, PygsageError
from pygsage.memory.decide import size_text
from pygsage.memory.disk import full_disk
from pygsage.memory.machine import read_machine
from pygsage.spelling import check_choice, path_of

OnError = Literal["stop", "skip"]
Progress = Callable[[int, int], None]


def to_on_disk_dataset(
    dataset: Any,
    root: str | Path,
    backend: str = "columnar",
    *,
    overwrite: bool = False,
    resume: bool = False,
    missing: Missing = "refuse",
    on_error: OnError = "stop",
    progress: Progress | None = None,
    log: bool = False,
) -> OnDiskGraphs:
    """Writes a dataset of many graphs to disk, and opens it; later it is opened by its path: `OnDiskGraphs(root)`.

    One graph is held at a time, and a few MiB of bytes. Attributes, dtypes and shapes are learnt from all graphs. The
    dataset's `transform` is not applied; the result has it again.

    Args:
        dataset: A PyG dataset, in memory or on disk, or a subset of one; a list, an iterator, or a `Recipe`.
        root: The folder to be made. It appears when all graphs are written.
        backend: `columnar`, `sqlite`, or `rocksdb` (with the package rocksdict).
        overwrite: Replace a store that is there, at the end and in one step; forget an unfinished one.
        resume: Go on with what was interrupted, if it was: the result is the same. An iterator has to begin anew.
        missing: What to do when some graphs lack an attribute: `refuse`, or `keep` it missing there. Node and edge
            types may be missing either way.
        on_error: `stop` at a graph that cannot be written, or `skip` it; the store's manifest lists which ones were.
        progress: Called after each graph, or after some MiB of them, with the number of graphs and of bytes so far.
        log: Say on standard error what it will take of disk and RAM, as far as some graphs tell.

    Raises:
        DatasetError: when the target exists; when a graph cannot be written, naming it and the attribute (those
            before are kept for `resume`); when there are no graphs.
        EnvironmentLimitError: when the backend needs a package that is not installed, disk or RAM have too little room
            for what some graphs tell of all, or the disk gets full (what was written is kept for `resume`).
    """
    root = path_of(root, "root")
    check_choice(missing, "missing", get_args(Missing))
    check_choice(on_error, "on_error", get_args(OnError))
    source = graph_source(dataset)
    unfinished: Literal["resume", "restart", "refuse"] = "resume" if resume else "restart" if overwrite else "refuse"
    try:
        with GraphWriter(
            root, backend, source.fingerprint(), missing=missing, overwrite=overwrite, unfinished=unfinished
        ) as writer:
            if not writer.is_whole:
                _check_room(source, writer.num_done, Path(root).absolute().parent, log)
                _write(source, writer, on_error, progress)
            writer.finish()
    except Exception as error:
        told = full_disk(error, Path(root).absolute().parent, "and resume: what was written so far is kept")
        if told is None and isinstance(error, OSError):
            told_otherwise = "What was written so far is kept: mend that, and resume."
            raise DatasetError(f"{root} cannot be written: {error.strerror or error}.", told_otherwise) from error
        if told is None:
            raise
        raise told from error
    warn_of(tuple(note for note in writer.intake.notes if not note.startswith("The graphs are of class")))
    return OnDiskGraphs(root, transform=getattr(dataset, "transform", None), data_class=source.data_class)


def _check_room(source: GraphSource, num_done: int, folder: Path, log: bool) -> None:
    """Refuses to begin what disk or RAM cannot hold, as far as some graphs tell."""
    source.look()
    needed = int(source.mean_bytes * max((source.num_graphs or 0) - num_done, 0))
    free = shutil.disk_usage(folder).free
    ram = 2 * source.most_bytes + 4 * store_writer.BUFFER_BYTES
    machine = read_machine()
    have = machine.memory_available_bytes
    if log and needed:
        has = "" if have is None else f" ({size_text(have)} available)"
        print(
            f"about {size_text(needed)} on disk ({size_text(free)} free), {size_text(ram)} of RAM{has}", file=sys.stderr
        )
    if needed > free:
        raise EnvironmentLimitError(
            f"{source.num_graphs:,} graphs take about {size_text(needed)} on disk; {folder} has {size_text(free)} "
            "free.",
            "Make room, or name a folder on another disk.",
        )
    if have is not None and ram > have:
        raise EnvironmentLimitError(
            f"To write graphs of up to {size_text(source.most_bytes)} takes {size_text(ram)} of RAM; "
            f"{size_text(have)} is available ({machine.memory_available_source}).",
            "End other programs, or raise the limit.",
        )


def _write(source: GraphSource, writer: GraphWriter, on_error: OnError, progress: Progress | None) -> None:
    if source.blocks is not None and writer.takes_blocks:
        _write_blocks(source, source.blocks, writer, on_error, progress)
        return
    for read in source.readers(writer.num_done):
        _write_one(read, writer, on_error, progress)


def _write_blocks(
    source: GraphSource, blocks: Blocks, writer: GraphWriter, on_error: OnError, progress: Progress | None
) -> None:
    while writer.num_done < (source.num_graphs or 0):
        num, block = blocks.take(writer.num_done, writer.intake, store_writer.BUFFER_BYTES)
        if block is not None:
            writer.add_block(block)
            if progress is not None:
                progress(writer.num_done, writer.num_bytes)
            continue
        for read in islice(source.readers(writer.num_done), num if writer.intake.num_graphs else 1):
            _write_one(read, writer, on_error, progress)


def _write_one(read: Callable[[], Any], writer: GraphWriter, on_error: OnError, progress: Progress | None) -> None:
    number = writer.num_done
    try:
        try:
            data = read()
        except PygsageError:
            raise
        except Exception as error:  # another's code: anything can come out of it
            told = f"{type(error).__name__}: {error}".rstrip(".")
            raise DatasetError(f"Graph {number} could not be read: {told}.") from error
        writer.add(data)
    except DatasetError as error:
        if on_error == "skip":
            writer.skip()
            return
        kept = "The graphs before it are kept: mend it and resume, or skip such graphs."
        raise DatasetError(error.found, f"{error.advice} {kept}".strip()) from error
    if progress is not None:
        progress(writer.num_done, writer.num_bytes)
