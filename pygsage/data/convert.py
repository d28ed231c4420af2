"""Any dataset of many graphs to a store on disk, streamed, in bounded memory, and resumable."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.data.dataset import Dataset

from pygsage.data import store_writer
from pygsage.data.collated import Blocks, blocks_of, reader
from pygsage.data.intake import Intake, Missing
from pygsage.data.on_disk import OnDiskGraphs
from pygsage.data.recipe import Recipe
from pygsage.data.store import warn_of
from pygsage.data.store_writer import GraphWriter
from pygsage.errors import DatasetError, EnvironmentLimitError, PygsageError

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

    Raises:
        DatasetError: when the target exists; when a graph cannot be written, naming it and the attribute (those
            before are kept for `resume`); when there are no graphs; when the disk is full.
        EnvironmentLimitError: when the backend needs a package that is not installed, or the disk has too little room.
    """
    source = _source(dataset)
    unfinished: Literal["resume", "restart", "refuse"] = "resume" if resume else "restart" if overwrite else "refuse"
    try:
        with GraphWriter(
            root, backend, source.fingerprint(), missing=missing, overwrite=overwrite, unfinished=unfinished
        ) as writer:
            if not writer.is_whole:
                _check_room(source, writer.num_done, Path(root).absolute().parent)
                _write(source, writer, on_error, progress)
            writer.finish()
    except OSError as error:
        advice = "What was written so far is kept: make room, and resume."
        raise DatasetError(f"{root} cannot be written: {error.strerror or error}.", advice) from error
    warn_of(tuple(note for note in writer.intake.notes if not note.startswith("The graphs are of class")))
    return OnDiskGraphs(root, transform=getattr(dataset, "transform", None), data_class=source.data_class)


def _check_room(source: _Source, num_done: int, folder: Path) -> None:
    """Refuses to begin what the disk cannot hold, as far as a few graphs tell."""
    needed = source.mean_bytes * max((source.num_graphs or 0) - num_done, 0)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise EnvironmentLimitError(
            f"{source.num_graphs:,} graphs take about {needed / 2**30:,.1f} GiB; {folder} has {free / 2**30:,.1f} GiB "
            "free.",
            "Make room, or name a folder on another disk.",
        )


def _write(source: _Source, writer: GraphWriter, on_error: OnError, progress: Progress | None) -> None:
    if source.blocks is not None and writer.takes_blocks:
        _write_blocks(source, source.blocks, writer, on_error, progress)
        return
    for read in source.readers(writer.num_done):
        _write_one(read, writer, on_error, progress)


def _write_blocks(
    source: _Source, blocks: Blocks, writer: GraphWriter, on_error: OnError, progress: Progress | None
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


class _Source:
    """Graphs by their number, never kept."""

    data_class: type | None = None
    mean_bytes = 0.0  # of the graphs that were looked at

    def __init__(
        self, name: str, num_graphs: int | None, read: Callable[[int], Any] | None, blocks: Blocks | None = None
    ) -> None:
        self.name, self.num_graphs, self._read, self.blocks = name, num_graphs, read, blocks

    def readers(self, start: int) -> Iterator[Callable[[], Any]]:
        """A function for each graph from that number on, which reads it."""
        assert self._read is not None
        for number in range(start, self.num_graphs or 0):
            yield lambda number=number: self._read(number)  # type: ignore[misc]

    def fingerprint(self) -> dict[str, Any]:
        """What is cheap to tell of the graphs: how many, and the bytes of three of them."""
        return {"source": self.name, "num_graphs": self.num_graphs, "sample": self._sample()}

    def _sample(self) -> list[int]:
        if self._read is None or not self.num_graphs:
            return []
        told: list[int] = []
        sizes: list[int] = []
        for number in sorted({0, self.num_graphs // 2, self.num_graphs - 1}):
            crc = 0
            try:
                data = self._read(number)
                for _, content, _ in Intake("keep").take(data).values:
                    crc = zlib.crc32(content, crc)
                    sizes.append(len(content))
                if number == 0 and type(data).__mro__[1] is not object and type(data).__name__ not in _PLAIN:
                    self.data_class = type(data)
            except Exception:  # it is met again, and told of, when its turn comes
                crc = -1
            told.append(crc)
        self.mean_bytes = sum(sizes) / len(told)
        return told


class _Stream(_Source):
    """Graphs that can only be had one after the other."""

    def __init__(self, name: str, num_graphs: int | None, graphs: Iterable[Any]) -> None:
        super().__init__(name, num_graphs, None)
        self._graphs = iter(graphs)

    def readers(self, start: int) -> Iterator[Callable[[], Any]]:
        """A function for each graph from that number on; those before are read and dropped."""
        for _ in range(start):
            next(self._graphs, None)
        while True:
            try:
                data = next(self._graphs)
            except StopIteration:
                return
            yield lambda data=data: data  # type: ignore[misc]


_PLAIN = ("Data", "HeteroData")


def _source(dataset: Any) -> _Source:
    kind = type(dataset)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(dataset, Recipe):
        return _Stream(name, dataset.num_graphs, dataset.graphs())
    if isinstance(dataset, Dataset):
        indices = dataset.indices()
        get = dataset.get
        if isinstance(dataset, InMemoryDataset) and kind.get is InMemoryDataset.get:
            get = reader(dataset)
            return _Source(name, len(indices), lambda number: get(indices[number]), blocks_of(dataset))
        return _Source(name, len(indices), lambda number: get(indices[number]))
    if isinstance(dataset, (Data, str, bytes, dict)):
        raise DatasetError(f"The dataset is a {kind.__name__}; expected a dataset, list or iterator of many graphs.")
    if isinstance(dataset, Sequence) or (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        return _Source(name, len(dataset), lambda number: dataset[number])
    if isinstance(dataset, Iterable):
        return _Stream(name, None, dataset)
    raise DatasetError(f"The dataset is a {kind.__name__}; expected a dataset, list or iterator of many graphs.")
