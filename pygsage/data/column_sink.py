"""The columnar backend's files while they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pygsage.data.attributes import Growing
from pygsage.data.intake import Block, Intake, Taken
from pygsage.data.schema import Schema
from pygsage.data.streams import Stream

_OVERHEAD_BYTES = 48


class ColumnSink:
    """The columnar backend: a file an attribute, and files that say where each graph's rows begin."""

    def __init__(self, folder: Path, intake: Intake, state: Mapping[str, Any] | None) -> None:
        self._folder, self._intake = folder, intake
        self._streams: dict[str, Stream] = {}
        self._ends: dict[str, int] = dict(state["ends"]) if state else {}
        self._num_graphs = intake.num_graphs
        self._kept: list[Taken] = []
        self.num_buffered_bytes = 0
        if state is not None:
            kept = {f"{name}.npy" for name in state["streams"]} | {"progress.json", "lock"}
            for path in folder.iterdir():
                if path.name not in kept:
                    path.unlink()  # begun after the progress that is gone on from
            for column in intake.columns:
                self._open_column(column, state["streams"])
            for count in intake.counts.values():
                self._open(f"{count.name}.slices", "int64", (), state["streams"])

    def add(self, taken: Taken) -> None:
        """Appends one graph; it is kept as it is until `flush`, where all are written column by column."""
        self._kept.append(taken)
        self.num_buffered_bytes += sum([len(content) + _OVERHEAD_BYTES for _, content, _ in taken.values])

    def add_block(self, block: Block) -> None:
        """Appends graphs that are joined already, and hands them to the operating system."""
        self.flush()
        for column, content, rows in block.values:
            if column.name not in self._streams:
                self._begin_column(column)
            self._streams[column.name].add(content, int(rows.sum()))
            if not column.is_stacked:
                self._add_ends(column.name, rows)
            self._streams[f"{column.name}.present"].add(b"\1" * block.num_graphs, block.num_graphs)
        for count in self._intake.counts.values():
            if f"{count.name}.slices" not in self._streams:
                self._begin_slices(count.name)
            self._add_ends(count.name, block.counts[count.group])
        self._num_graphs += block.num_graphs
        self._flush_streams()

    def flush(self) -> None:
        """Hands everything to the operating system."""
        if self._kept:
            self._write_kept()
        self._flush_streams()

    def _flush_streams(self) -> None:
        for stream in self._streams.values():
            stream.flush()
        self.num_buffered_bytes = 0

    def _write_kept(self) -> None:
        kept, self._kept = self._kept, []
        for column, contents, rows in self._by_column(kept):
            if column.name not in self._streams:
                self._begin_column(column)
            stream, present = self._streams[column.name], rows >= 0
            if column.is_stacked and not present.all():
                hole = bytes(stream.row_bytes)
                found = iter(contents)
                contents = [next(found) if here else hole for here in present.tolist()]
            stream.extend(contents, len(rows) if column.is_stacked else int(rows.sum(where=present)))
            if not column.is_stacked:
                self._add_ends(column.name, np.maximum(rows, 0))
            self._streams[f"{column.name}.present"].add(present.tobytes(), len(rows))
        for count in self._intake.counts.values():
            if f"{count.name}.slices" not in self._streams:
                self._begin_slices(count.name)
            self._add_ends(count.name, np.array([taken.counts.get(count.group, 0) for taken in kept], dtype=np.int64))
        self._num_graphs += len(kept)

    def _by_column(self, kept: list[Taken]) -> Iterator[tuple[Growing, list[bytes], np.ndarray]]:
        """For each column the bytes of the graphs that have it, and how many rows each graph has, -1 for none."""
        columns = self._intake.columns
        every = [column.number for column in columns]
        if all([column.number for column, _, _ in taken.values] == every for taken in kept):  # as a rule
            for place, column in enumerate(columns):
                rows = np.array([taken.values[place][2] for taken in kept], dtype=np.int64)
                yield column, [taken.values[place][1] for taken in kept], rows
            return
        contents: list[list[bytes]] = [[] for _ in columns]
        table = np.full((len(columns), len(kept)), -1, dtype=np.int64)
        for number, taken in enumerate(kept):
            for column, content, num_rows in taken.values:
                contents[column.number].append(content)
                table[column.number, number] = num_rows
        yield from zip(columns, contents, table, strict=True)

    def sync(self) -> Mapping[str, Any]:
        """Waits until everything is on the disk, and returns the state to go on from."""
        for stream in self._streams.values():
            stream.sync()
        return {"ends": self._ends, "streams": {name: stream.state() for name, stream in self._streams.items()}}

    def finish(self, schema: Schema) -> Mapping[str, Any]:
        """Completes the files that the schema needs."""
        needed = {column.name for column in schema.columns}
        needed |= {column.rows for column in schema.columns if isinstance(column.rows, str)}
        needed |= {count.rows for count in schema.counts if isinstance(count.rows, str)}
        needed |= {f"{column.name}.present" for column in schema.columns if column.optional}
        return {name: stream.finish() for name, stream in sorted(self._streams.items()) if name in needed}

    def close(self) -> None:
        """Nothing is held open."""

    def _begin_column(self, column: Growing) -> None:
        self._open_column(column, None)
        self._streams[f"{column.name}.present"].fill(self._num_graphs)
        if column.is_stacked:
            self._streams[column.name].fill(self._num_graphs)
        else:
            self._ends[column.name] = 0
            self._streams[f"{column.name}.slices"].fill(1 + self._num_graphs)

    def _begin_slices(self, name: str) -> None:
        self._open(f"{name}.slices", "int64", (), None)
        self._ends[name] = 0
        self._streams[f"{name}.slices"].fill(1 + self._num_graphs)

    def _open_column(self, column: Growing, states: Mapping[str, Any] | None) -> None:
        dtype = "uint16" if column.dtype == "bfloat16" else column.dtype
        self._open(column.name, dtype, column.shape, states)
        self._open(f"{column.name}.present", "bool", (), states)
        if not column.is_stacked:
            self._open(f"{column.name}.slices", "int64", (), states)

    def _open(self, name: str, dtype: str, shape: tuple[int, ...], states: Mapping[str, Any] | None) -> None:
        self._streams[name] = Stream(self._folder, name, dtype, shape, states[name] if states is not None else None)

    def _add_ends(self, name: str, rows: np.ndarray) -> None:
        ends = np.cumsum(rows) + self._ends[name]
        self._ends[name] = int(ends[-1])
        self._streams[f"{name}.slices"].add(ends.astype("<i8").tobytes(), len(rows))
