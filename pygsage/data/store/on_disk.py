"""Datasets of many graphs that stay on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import OnDiskDataset
from torch_geometric.data.dataset import Dataset

from pygsage.data.store.column_store import ColumnStore
from pygsage.data.store.database import BACKENDS, ColumnarDatabase, GraphDatabase, open_database
from pygsage.data.store.intake import Missing
from pygsage.data.store.stored import Filter, StoredGraphs, Transform
from pygsage.data.store.writer import GraphWriter
from pygsage.errors import DatasetError


class OnDiskGraphs(StoredGraphs, OnDiskDataset):
    """PyG's `OnDiskDataset` over a store of raw bytes: columnar, SQLite or RocksDB.

    Given the path of a store, it opens that, and `backend` is the store's. A subclass has a generator `graphs()`, or a
    `process()` that calls `append` or `extend`; its store is made in `processed_dir` when it is not there. No schema
    is given: it is learnt from all graphs. Plain values come back as they were, a number as a number.

    It is pickled as a path, and each process opens the files for itself.

    Args:
        root: The folder of a store, or PyG's `root` of a subclass.
        transform: Applied to each graph that is read, by every way of reading.
        pre_filter, pre_transform: Applied once, in this order, to what `graphs()` yields.
        backend: `columnar`, `sqlite` or `rocksdb` (with the package rocksdict).
        log: Print a line when processing begins and ends.
        force_reload: Process again.
        missing: What to do when some graphs lack an attribute: `refuse`, or `keep` it missing there.
        data_class: The class of the graphs that come out, if not `Data` or `HeteroData`.

    Raises:
        DatasetError: when there is no store, or it is damaged, or was made with other options.
        EnvironmentLimitError: when the backend needs a package that is not installed.
    """

    BACKENDS = BACKENDS

    def __init__(
        self,
        root: str | Path,
        transform: Transform | None = None,
        pre_filter: Filter | None = None,
        backend: str = "columnar",
        *,
        pre_transform: Transform | None = None,
        log: bool = True,
        force_reload: bool = False,
        missing: Missing = "refuse",
        data_class: type | None = None,
    ) -> None:
        if backend not in BACKENDS:
            raise DatasetError(f"There is no backend {backend!r}; expected one of {', '.join(BACKENDS)}.")
        self.backend, self.missing, self.data_class = backend, missing, data_class
        self._db: GraphDatabase | None = None
        self._writer: GraphWriter | None = None
        self._num_appended = 0
        # PyG's own constructor of on-disk datasets knows neither pre_transform nor force_reload.
        Dataset.__init__(self, str(root), transform, pre_transform, pre_filter, log, force_reload)
        self._check_store()
        self._db = self.db
        self.backend = self._db.backend

    @property
    def db(self) -> GraphDatabase:
        """The store as a PyG `Database`."""
        if self._db is None:
            self._db = open_database(self.store_path, self.data_class)
        return self._db

    @property
    def schema(self) -> Any:
        """What the graphs have."""
        return self.db.graph_schema

    @property
    def _columns(self) -> ColumnStore | None:
        return self.db.store if isinstance(self.db, ColumnarDatabase) else None

    def append(self, data: Any) -> None:
        """Adds a graph, inside `process`.

        Raises:
            DatasetError: when it does not go with those before, or the dataset is complete.
        """
        if self._writer is None:
            raise DatasetError(
                f"{self!r} is complete, and read only.", "Append in process(), or write a new store with all graphs."
            )
        self._num_appended += 1
        if self._num_appended > self._writer.num_done:  # else a process that was killed had added it
            self._writer.add(data)

    def extend(self, data_list: Iterable[Any], batch_size: int | None = None) -> None:
        """Adds graphs, inside `process`; `batch_size` is PyG's, and not needed."""
        for data in data_list:
            self.append(data)

    def _run_process(self) -> None:
        if type(self).process is StoredGraphs.process:
            super()._run_process()
            return
        with self._open_writer() as writer:  # a process() of the user's own, which appends
            self._writer, self._num_appended = writer, 0
            try:
                if not writer.is_whole:
                    self.process()
            finally:
                self._writer = None
            writer.finish()

    def get(self, idx: int) -> Any:
        """The graph of that number in the store, not transformed.

        Raises:
            IndexError: when there is none.
        """
        return self.db.get(idx)

    def multi_get(self, indices: Iterable[int] | Tensor | slice | range, batch_size: int | None = None) -> list[Any]:
        """The graphs at some positions of this dataset or subset, transformed; as many as were asked for.

        Raises:
            IndexError: when there is no such graph.
        """
        if isinstance(indices, slice):
            indices = range(*indices.indices(len(self)))
        elif isinstance(indices, Tensor):
            indices = indices.tolist()
        return self.__getitems__(list(indices))

    def __getitems__(self, positions: Sequence[int]) -> list[Any]:
        """The graphs at some positions, transformed: what a loader asks for."""
        return StoredGraphs.__getitems__(self, positions)

    def len(self) -> int:
        """How many graphs there are in the store."""
        return len(self.db)

    def verify(self) -> None:
        """Compares every byte of the store with what was written.

        Raises:
            DatasetError: naming the file that differs.
        """
        self.db.verify()

    def close(self) -> None:
        """Closes the files; they are opened again when they are read."""
        if self._db is not None:
            self._db.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self) if self._writer is None else ''})"
