"""Graphs as rows of bytes in a database, one graph a row, never pickled; and the databases: SQLite and RocksDB."""

from __future__ import annotations

import math
import os
import sqlite3
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch_geometric.data import Data, HeteroData

from pygsage.data.files.streams import pieces
from pygsage.data.store.layout import Taken
from pygsage.data.store.schema import Column, Schema, as_tensor
from pygsage.errors import EnvironmentLimitError

FILES = {"sqlite": "graphs.sqlite", "rocksdb": "graphs.rocksdb"}


def encode_row(taken: Taken) -> bytes:
    """A graph's bytes: int64 words (how many attributes, then number and rows of each), then their bytes in turn.

    Each begins at a multiple of 8 bytes.
    """
    words = [len(taken.values)]
    parts: list[bytes | memoryview] = [b""]
    for column, content, rows in taken.values:
        words += [column.number, rows]
        parts += [*pieces(content), bytes(-len(content) % 8)]
    parts[0] = np.array(words, dtype="<i8").tobytes()
    return b"".join(parts)


def decode_row(row: bytes, schema: Schema, data_class: type | None = None) -> Any:
    """The graph that was encoded; its tensors share a new piece of memory.

    Raises:
        ValueError: when the bytes are none of this schema.
    """
    memory = np.frombuffer(bytearray(row), dtype=np.uint8)
    (num_values,) = memory[:8].view("<i8").tolist()
    if not 0 < num_values <= len(schema.columns):
        raise ValueError("a row does not go with the schema")
    start = 8 * (1 + 2 * num_values)
    words = memory[8:start].view("<i8").tolist()
    data = (data_class or (HeteroData if schema.hetero else Data))()
    for number, rows in zip(words[::2], words[1::2], strict=True):
        column = schema.columns[number]
        size = np.dtype(column.array_dtype).itemsize * math.prod(column.shape) * rows
        if not 0 <= start <= start + size <= len(memory):
            raise ValueError("a row is shorter than it says")
        storage = data.stores[0] if column.group is None else data[column.group]
        storage[column.key] = _value(memory[start : start + size], column, rows)
        start += size + -size % 8
    return data


def _value(memory: np.ndarray, column: Column, rows: int) -> Any:
    if column.kind == "str":
        return memory.tobytes().decode()
    array = memory.view(column.array_dtype)
    if column.kind != "tensor":
        return array.item()
    if column.cat_dim is None:
        return as_tensor(array.reshape(column.shape), column.dtype)
    array = array.reshape(rows, *column.shape)
    if column.cat_dim:
        array = np.ascontiguousarray(np.moveaxis(array, 0, column.cat_dim))
    return as_tensor(array, column.dtype)


class RowSink:
    """Appends graphs to a database in the folder of a store that is being written."""

    def __init__(self, folder: Path, backend: str, state: Mapping[str, Any] | None) -> None:
        self._path = folder / FILES[backend]
        self._database = SqliteRows(self._path) if backend == "sqlite" else RocksRows(self._path)
        self._num_graphs = int(state["num_graphs"]) if state else 0
        self._database.cut(self._num_graphs)
        self._kept: list[tuple[int, bytes]] = []
        self.num_buffered_bytes = 0
        # Of nodes and of edges: the sum, the sum of squares, and the most a graph: an estimate reads no rows.
        self.sizes: dict[str, list[int]] = {name: [0, 0, 0] for name in ("nodes", "edges")}
        if state:
            self.sizes = {name: list(told) for name, told in state.get("sizes", {}).items()}

    def add(self, taken: Taken) -> None:
        """Appends one graph."""
        row = encode_row(taken)
        self._kept.append((self._num_graphs, row))
        self._num_graphs += 1
        edges = sum(rows for column, _, rows in taken.values if column.key == "edge_index")
        for name, size in (("nodes", sum(taken.counts.values())), ("edges", edges)) if self.sizes else ():
            total, squares, most = self.sizes[name]
            self.sizes[name] = [total + size, squares + size * size, max(most, size)]
        self.num_buffered_bytes += len(row)

    def flush(self) -> None:
        """Hands everything to the database."""
        self._database.write(self._kept)
        self._kept.clear()
        self.num_buffered_bytes = 0

    def sync(self) -> Mapping[str, Any]:
        """Commits, and returns the state to go on from."""
        self._database.commit()
        return {"num_graphs": self._num_graphs, "sizes": self.sizes}

    def finish(self, schema: Schema) -> Mapping[str, Any]:
        """Completes the database, and returns the size and checksum of each of its files."""
        self._database.commit()
        self._database.close()
        return describe_files(self._path)

    def close(self) -> None:
        """Closes the database; what was not committed is lost."""
        self._database.close()


class SqliteRows:
    """A table `graphs (id, row)`; opened for reading, it needs no lock and writes nothing, so any number may read."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        mode = "ro&immutable=1" if read_only else "rwc"
        quoted = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        self._connection = sqlite3.connect(f"file:{quoted}?mode={mode}", uri=True, check_same_thread=False)
        if not read_only:
            self._connection.execute("CREATE TABLE IF NOT EXISTS graphs (id INTEGER PRIMARY KEY, row BLOB NOT NULL)")

    def cut(self, num_graphs: int) -> None:
        """Deletes all rows from that number on."""
        self._connection.execute("DELETE FROM graphs WHERE id >= ?", (num_graphs,))

    def write(self, rows: list[tuple[int, bytes]]) -> None:
        """Adds rows; they are safe after `commit`."""
        self._connection.executemany("INSERT INTO graphs (id, row) VALUES (?, ?)", rows)

    def commit(self) -> None:
        """Waits until what was written is on the disk."""
        self._connection.commit()

    def read(self, idx: int) -> bytes | None:
        """The row of that number, if there is one."""
        found = self._connection.execute("SELECT row FROM graphs WHERE id = ?", (idx,)).fetchone()
        return None if found is None else found[0]

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()


class RocksRows:
    """The same in a RocksDB, whose keys are eight bytes each."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        rocksdict = need_rocksdict()
        access = rocksdict.AccessType.read_only() if read_only else rocksdict.AccessType.read_write()
        self._is_open = True
        self._database: Any = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True), access_type=access)

    def cut(self, num_graphs: int) -> None:
        """Rows from that number on are written again, so none is deleted."""

    def write(self, rows: list[tuple[int, bytes]]) -> None:
        """Adds rows; they are safe after `commit`."""
        for idx, row in rows:
            self._database[idx.to_bytes(8, "big")] = row

    def commit(self) -> None:
        """Waits until what was written is on the disk."""
        self._database.flush()

    def read(self, idx: int) -> bytes | None:
        """The row of that number, if there is one."""
        found: bytes | None = self._database.get(idx.to_bytes(8, "big"))
        return found

    def close(self) -> None:
        """Closes the files."""
        if self._is_open:
            self._database.close()
        self._is_open = False


def need_rocksdict() -> Any:
    """The package that the RocksDB backend needs.

    Raises:
        EnvironmentLimitError: when it is not installed.
    """
    try:
        import rocksdict  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise EnvironmentLimitError(
            "The backend rocksdb needs the package rocksdict, which is not installed.",
            "Type pip install rocksdict, or take the backend columnar.",
        ) from None
    return rocksdict


def describe_files(path: Path) -> dict[str, dict[str, Any]]:
    """Size and checksum of a database's files, by their path below its folder. Reads them all."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    told = {}
    for file in files:
        crc = 0
        with open(file, "rb") as content:
            while piece := content.read(1 << 20):
                crc = zlib.crc32(piece, crc)
            os.fsync(content.fileno())
        told[str(file.relative_to(path.parent))] = {"bytes": file.stat().st_size, "crc32": crc}
    return told
