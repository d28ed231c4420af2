"""The columnar backend's files while they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pygsage.data.files.streams import Content, Stream
from pygsage.data.store.attributes import Growing
from pygsage.data.store.intake import Intake
from pygsage.data.store.layout import Block, Taken
from pygsage.data.store.schema import Group, Schema

_OVERHEAD_BYTES = 48


@dataclass
class _Pile:
    """One attribute of the graphs since the last flush: the rows of each, -1 for none, and the bytes of those with it.

    Plain lists of bytes and ints, so that the garbage collector has nothing to look through.
    """

    rows: list[int]
    contents: list[Content] = field(default_factory=list)


class ColumnSink:
    """The columnar backend: a file an attribute, and files that say where each graph's rows begin."""

    def __init__(self, folder: Path, intake: Intake, state: Mapping[str, Any] | None) -> None:
        self._folder, self._intake = folder, intake
        self._streams: dict[str, Stream] = {}
        self._ends: dict[str, int] = dict(state["ends"]) if state else {}
        self._num_graphs = intake.num_graphs
        self._num_kept = 0  # graphs since the last flush
        self._piles: list[_Pile] = []  # of those, by the number of the column
        self._counts: dict[Group, list[int]] = {}
        self.num_buffered_bytes = 0
        self.sizes: dict[str, list[int]] = {}  # its slices tell them
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
        """Appends one graph; its bytes are kept until `flush`, which writes column by column."""
        num_bytes = 0
        for column, content, rows in taken.values:
            if column.number >= len(self._piles):
                self._piles += [_Pile([-1] * self._num_kept) for _ in range(column.number + 1 - len(self._piles))]
            pile = self._piles[column.number]
            pile.contents.append(content)
            pile.rows.append(rows)
            num_bytes += len(content) + _OVERHEAD_BYTES
        for group, count in taken.counts.items():
            if group not in self._counts:
                self._counts[group] = [0] * self._num_kept
            self._counts[group].append(count)
        self._num_kept += 1
        if len(taken.values) < len(self._piles):
            for pile in self._piles:
                pile.rows += [-1] * (self._num_kept - len(pile.rows))
        if len(taken.counts) < len(self._counts):
            for counts in self._counts.values():
                counts += [0] * (self._num_kept - len(counts))
        self.num_buffered_bytes += num_bytes

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
        if self._num_kept:
            self._write_kept()
        self._flush_streams()

    def _flush_streams(self) -> None:
        for stream in self._streams.values():
            stream.flush()
        self.num_buffered_bytes = 0

    def _write_kept(self) -> None:
        num_kept, self._num_kept = self._num_kept, 0
        piles, self._piles = self._piles, []
        counted, self._counts = self._counts, {}
        for column in self._intake.columns:
            pile = piles[column.number] if column.number < len(piles) else _Pile([-1] * num_kept)
            if column.name not in self._streams:
                self._begin_column(column)
            stream, rows = self._streams[column.name], np.array(pile.rows, dtype=np.int64)
            present = rows >= 0
            if column.is_stacked and not present.all():
                found, hole = iter(pile.contents), bytes(stream.row_bytes)
                pile.contents = [next(found) if here else hole for here in present.tolist()]
            stream.extend(pile.contents, num_kept if column.is_stacked else int(rows.sum(where=present)))
            if not column.is_stacked:
                self._add_ends(column.name, np.maximum(rows, 0))
            self._streams[f"{column.name}.present"].add(present.tobytes(), num_kept)
        for count in self._intake.counts.values():
            if f"{count.name}.slices" not in self._streams:
                self._begin_slices(count.name)
            self._add_ends(count.name, np.array(counted.get(count.group, [0] * num_kept), dtype=np.int64))
        self._num_graphs += num_kept

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
