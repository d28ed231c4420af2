"""The recipes that people copy."""

from __future__ import annotations

import csv
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pygsage.config import TrainConfig
from pygsage.data.names import parse_reference
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open import open_graph
from pygsage.data.sources.recipe import open_recipe
from pygsage.errors import DatasetError

RECIPES = Path(__file__).parents[2] / "datasets"
X = torch.arange(12, dtype=torch.float32).reshape(6, 2) / 4
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]
LABELS = [0, 1, 0, 1, 0, -1]
SPLITS = ["train", "train", "val", "test", "test", ""]


def opened(recipe: str, root: Path, **options: Any) -> Graph:
    return open_graph(TrainConfig(dataset=str(RECIPES / recipe), root=str(root), **options))


def check(graph: Graph) -> None:
    assert torch.equal(graph.x, X)
    assert graph.y.tolist() == LABELS
    assert graph.indices.tolist() == [5, 0, 1, 2, 3, 4]
    assert {name: ids.tolist() for name, ids in graph.splits.items()} == {"train": [0, 1], "val": [2], "test": [3, 4]}


def refused(said: str, recipe: str, root: Path) -> None:
    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        opened(recipe, root)
    assert str(RECIPES / recipe) in caught.value.found


def write_csv(root: Path) -> None:
    with open(root / "nodes.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "label", "width", "split", "height"])
        for node, ((a, b), label, split) in enumerate(zip(X.tolist(), LABELS, SPLITS, strict=True)):
            table.writerow([f"n{node}", ["", "cat", "dog"][label + 1], a, split, b])
    with open(root / "edges.csv", "w", newline="") as file:
        csv.writer(file).writerows([("source", "target"), *((f"n{a}", f"n{b}") for a, b in EDGES)])


def test_csv(tmp_path: Path) -> None:
    write_csv(tmp_path)
    check(opened("csv_graph.py", tmp_path))
    with open(tmp_path / "edges.csv", "a") as file:
        file.write("n1,n9\n")
    refused("ValueError: edges.csv, line 8: nodes.csv has no id n9", "csv_graph.py", tmp_path)
    (tmp_path / "edges.csv").unlink()
    refused("FileNotFoundError", "csv_graph.py", tmp_path)


def write_sqlite(root: Path) -> None:
    with closing(sqlite3.connect(root / "graph.sqlite")) as database, database:
        database.execute("CREATE TABLE node (id INTEGER PRIMARY KEY, features BLOB, label INTEGER, split TEXT)")
        database.execute("CREATE TABLE edge (source INTEGER, target INTEGER)")
        for node, (row, label, split) in enumerate(zip(X, LABELS, SPLITS, strict=True)):
            values = (node * 7, row.numpy().astype("<f4").tobytes(), None if label < 0 else label, split or None)
            database.execute("INSERT INTO node VALUES (?, ?, ?, ?)", values)
        database.executemany("INSERT INTO edge VALUES (?, ?)", [(a * 7, b * 7) for a, b in EDGES])


def test_sqlite(tmp_path: Path) -> None:
    write_sqlite(tmp_path)
    check(opened("sqlite_graph.py", tmp_path))
    with closing(sqlite3.connect(tmp_path / "graph.sqlite")) as database, database:
        database.execute("INSERT INTO edge VALUES (0, 3)")
    refused("ValueError: edge has the id 3, which node has not", "sqlite_graph.py", tmp_path)


def test_npz(tmp_path: Path) -> None:
    x, adjacency = X.numpy(), np.zeros((6, 6))
    adjacency[tuple(zip(*EDGES, strict=True))] = 1
    arrays: dict[str, Any] = {"labels": np.array([0, 1, 0, 1, 0, 1])}
    for name, matrix in (("adj", adjacency), ("attr", x)):
        rows, columns = matrix.nonzero()
        arrays |= {
            f"{name}_data": matrix[rows, columns],
            f"{name}_indices": columns,
            f"{name}_indptr": np.searchsorted(rows, np.arange(len(matrix) + 1)),
            f"{name}_shape": np.array(matrix.shape),
        }
    np.savez(tmp_path / "graph.npz", **arrays)
    graph = opened("npz_graph.py", tmp_path, split="per-class:1/1")
    assert torch.equal(graph.x, X)
    assert graph.indices.tolist() == [5, 0, 1, 2, 3, 4]
    del arrays["labels"]
    np.savez(tmp_path / "graph.npz", **arrays)
    refused("KeyError: 'labels", "npz_graph.py", tmp_path)


def test_npz_reads_the_benchmarks_own_files(tmp_path: Path) -> None:
    shared = RECIPES.parents[1] / "shared" / "data" / "npz" / "cora.npz"
    if not shared.is_file():
        pytest.skip("no Cora among the shared data files")
    (tmp_path / "graph.npz").symlink_to(shared)
    graph = opened("npz_graph.py", tmp_path, split="per-class:20/30")
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (2708, 10556, 1433, 7)


def test_shapes_are_a_thousand_graphs_that_are_made_one_by_one(tmp_path: Path) -> None:
    with open_recipe(parse_reference(str(RECIPES / "shapes.py")), None) as recipe:
        type(recipe).num_graphs = 8
        graphs = list(recipe.graphs())
        assert [int(graph.y) for graph in graphs] == [0, 1, 2, 3] * 2
        assert [graph.num_edges for graph in graphs[:4]] == [1000, 998, 2 * (25 * 19 + 24 * 20), 998]
        assert all(graph.x.shape == (500, 64) and graph.validate() for graph in graphs)
        assert torch.equal(next(iter(recipe.graphs())).x, graphs[0].x)
