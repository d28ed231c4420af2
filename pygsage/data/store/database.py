"""PyG's `Database` over a store of many graphs: columnar, SQLite or RocksDB; read only, and the same from each."""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data.database import Database

from pygsage.data.files.arrays import damaged
from pygsage.data.store.column_store import ColumnStore, open_manifest, out_of_range
from pygsage.data.store.rows import FILES, RocksRows, SqliteRows, decode_row, describe_files
from pygsage.data.store.schema import Schema
from pygsage.errors import DatasetError, in_words

_NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb",
    "smb3",
    "smbfs",
    "afs",
    "9p",
    "fuse.sshfs",
    "ceph",
    "fuse.s3fs",
    "fuse.gcsfuse",
)


class GraphDatabase(Database):
    """The graphs of a store by their number.

    Pickled as the store's path; each process opens the files for itself, when it first reads.

    Args:
        folder: The store's folder.
        data_class: The class of the graphs that come out; None for `Data` or `HeteroData`.

    Raises:
        DatasetError: when it is no store of this backend, or is damaged.
    """

    backend = ""

    def __init__(self, folder: str | Path, data_class: type | None = None) -> None:
        super().__init__()
        self.folder, self.data_class = Path(folder).absolute(), data_class
        self.connect()

    def connect(self) -> None:
        """Opens the files; done by itself."""
        raise NotImplementedError

    def get(self, index: int) -> Any:
        """One graph, copied.

        Raises:
            IndexError: when there is no such graph.
        """
        raise NotImplementedError

    def multi_get(self, indices: Iterable[int] | Tensor | slice | range, batch_size: int | None = None) -> list[Any]:
        """The graphs of these numbers, in this order, as many as were asked for.

        Raises:
            IndexError: when one of them is not there.
        """
        if isinstance(indices, slice):
            indices = range(*indices.indices(len(self)))
        elif isinstance(indices, Tensor):
            indices = indices.tolist()
        return [self.get(int(index)) for index in indices]

    def insert(self, index: int, data: Any) -> None:
        """Refused: a store is written once.

        Raises:
            DatasetError: always.
        """
        raise DatasetError(f"The store in {self.folder} is read only.", "Write a new one with to_on_disk_dataset.")

    def close(self) -> None:
        """Closes the files."""

    def verify(self) -> None:
        """Compares every byte with what was written.

        Raises:
            DatasetError: naming the file that differs.
        """
        raise NotImplementedError

    def __reduce__(self) -> tuple[Callable[..., GraphDatabase], tuple[Any, ...]]:
        return type(self), (self.folder, self.data_class)


class ColumnarDatabase(GraphDatabase):
    """The columnar store as a database."""

    backend = "columnar"

    def connect(self) -> None:
        """Maps the files."""
        self.store = ColumnStore.open(self.folder)
        self.graph_schema = self.store.schema

    def get(self, index: int) -> Any:
        """One graph, copied."""
        return self.store.get(index, self.data_class)

    def verify(self) -> None:
        """Compares every byte with what was written."""
        self.store.verify()

    def __len__(self) -> int:
        return self.store.num_graphs


class RowDatabase(GraphDatabase):
    """A database with a row a graph."""

    def connect(self) -> None:
        """Reads the schema, and compares the sizes of the files; the database itself is opened when it is read."""
        manifest = open_manifest(self.folder, self.backend)
        try:
            self.graph_schema = Schema.from_dict(manifest["schema"])
            self._num_graphs, self._told = int(manifest["num_graphs"]), dict(manifest["arrays"])
            for name, told in self._told.items():
                path = self.folder / name
                if not path.resolve().is_relative_to(self.folder.resolve()) or ".." in Path(name).parts:
                    raise ValueError(f"{name} leads out of the folder")
                if path.stat().st_size != told["bytes"]:
                    raise ValueError(f"{name} has {path.stat().st_size} bytes; expected {told['bytes']}")
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise damaged(self.folder, in_words(error)) from None
        self._rows: SqliteRows | RocksRows | None = None
        self._process = -1

    def get(self, index: int) -> Any:
        """One graph, from its row."""
        if not 0 <= index < self._num_graphs:
            raise out_of_range(index, self._num_graphs)
        if self._rows is None or self._process != os.getpid():  # a connection must not cross a fork
            warn_of_network(self.folder)
            self._rows, self._process = self._open(), os.getpid()
        try:
            row = self._rows.read(index)
            if row is None:
                raise ValueError("its row is missing")
            return decode_row(row, self.graph_schema, self.data_class)
        except (ValueError, IndexError, sqlite3.DatabaseError) as error:
            raise damaged(self.folder, f"graph {index}: {in_words(error)}") from None

    def verify(self) -> None:
        """Compares every byte with what was written."""
        if describe_files(self.folder / FILES[self.backend]) != self._told:
            raise damaged(self.folder, f"{FILES[self.backend]} is not what was written (its checksum differs)")

    def close(self) -> None:
        """Closes the database; it is opened again when it is read."""
        if self._rows is not None and self._process == os.getpid():
            self._rows.close()
        self._rows = None

    def _open(self) -> SqliteRows | RocksRows:
        raise NotImplementedError

    def __len__(self) -> int:
        return self._num_graphs


class SqliteGraphDatabase(RowDatabase):
    """SQLite, opened without locks: any number of processes may read it, also where nothing can be written."""

    backend = "sqlite"

    def _open(self) -> SqliteRows:
        return SqliteRows(self.folder / FILES[self.backend], read_only=True)


class RocksGraphDatabase(RowDatabase):
    """RocksDB, by the package rocksdict."""

    backend = "rocksdb"

    def _open(self) -> RocksRows:
        return RocksRows(self.folder / FILES[self.backend], read_only=True)


BACKENDS: dict[str, type[GraphDatabase]] = {
    kind.backend: kind for kind in (ColumnarDatabase, SqliteGraphDatabase, RocksGraphDatabase)
}


def open_database(folder: str | Path, data_class: type | None = None) -> GraphDatabase:
    """Opens a store with the backend that it was written with.

    Raises:
        DatasetError: when it is no store of many graphs, or is damaged.
    """
    backend = str(open_manifest(Path(folder)).get("backend"))
    if backend not in BACKENDS:
        raise DatasetError(f"{folder} is of the backend {backend}; expected one of {', '.join(BACKENDS)}.")
    return BACKENDS[backend](folder, data_class)


def warn_of_network(folder: Path, mounts: str | Path = "/proc/self/mounts") -> None:
    """Warns when a database lies on a network file system, where single rows are slow to read."""
    try:
        lines = [line.split() for line in Path(mounts).read_text().splitlines()]
    except OSError:
        return
    resolved = folder.resolve()
    found = [(len(line[1]), line[2]) for line in lines if len(line) > 2 and resolved.is_relative_to(line[1])]
    if found and max(found)[1] in _NETWORK:
        warnings.warn(
            f"{folder} is on a network file system ({max(found)[1]}), where a database is slow; copy the folder to a "
            "local disk, and open it there.",
            UserWarning,
            stacklevel=3,
        )
