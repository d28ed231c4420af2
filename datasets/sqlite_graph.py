"""A graph in a SQLite database. Copy this file and change the queries.

    pygsage train datasets/sqlite_graph.py --root FOLDER

Here `node(id INTEGER PRIMARY KEY, features BLOB, label INTEGER, split TEXT)`, with features of little-endian float32
and NULL for no label, and `edge(source INTEGER, target INTEGER)` with ids of `node`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import torch
from torch_geometric.data import Data

from pygsage import Recipe


class SqliteGraph(Recipe):
    """Fetches rows by the thousand into arrays that have their final size; never changes the database."""

    file = "graph.sqlite"
    nodes = "SELECT id, features, label, split FROM node ORDER BY id"
    edges = "SELECT source, target FROM edge"
    rows_at_once = 10_000
    num_graphs = 1

    def graphs(self) -> Iterator[Data]:
        """Yields the one graph."""
        path = (self.root / self.file).resolve()
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            num_nodes, num_bytes = database.execute("SELECT count(*), max(length(features)) FROM node").fetchone()
            (num_edges,) = database.execute("SELECT count(*) FROM edge").fetchone()
            ids = np.empty(num_nodes, dtype=np.int64)
            x = np.empty((num_nodes, (num_bytes or 0) // 4), dtype=np.float32)
            y = np.full(num_nodes, -1, dtype=np.int64)
            split = np.full(num_nodes, "", dtype="U5")
            for start, rows in self._fetch(database, self.nodes):
                end = start + len(rows)
                ids[start:end] = [row[0] for row in rows]
                x[start:end] = [np.frombuffer(row[1], dtype="<f4") for row in rows]
                y[start:end] = [-1 if row[2] is None else row[2] for row in rows]
                split[start:end] = [row[3] or "" for row in rows]
            edges = np.empty((2, num_edges), dtype=np.int64)
            for start, rows in self._fetch(database, self.edges):
                edges[:, start : start + len(rows)] = np.array(rows).T

        position = np.searchsorted(ids, edges).clip(max=max(num_nodes - 1, 0))
        if (ids[position] != edges).any():
            raise ValueError(f"edge has the id {edges[ids[position] != edges][0]}, which node has not")
        masks = {f"{name}_mask": torch.from_numpy(split == name) for name in ("train", "val", "test")}
        yield Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(position), y=torch.from_numpy(y), **masks)

    def _fetch(self, database: sqlite3.Connection, query: str) -> Iterator[tuple[int, list[tuple]]]:
        start, cursor = 0, database.execute(query)
        while rows := cursor.fetchmany(self.rows_at_once):
            yield start, rows
            start += len(rows)
