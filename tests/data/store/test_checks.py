"""What is looked at in all features and edges of many graphs, and what a store's writer notes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pygsage import to_on_disk_dataset
from pygsage.config import TrainConfig
from pygsage.data.many_graphs.door import check_graphs
from pygsage.data.many_graphs.graph_set import GraphSet
from pygsage.data.many_graphs.reader import GraphReader
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.store import checks as graph_checks
from pygsage.data.store.checks import Checked, check_edges
from pygsage.data.store.writer import manifest_checksum
from pygsage.errors import DatasetError


def graphs(x: Any, num_graphs: int = 12) -> list[Data]:
    """Graphs of 3, 4, 5, 3, … nodes in a ring."""
    found = []
    for number in range(num_graphs):
        n = 3 + number % 3
        ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
        found.append(Data(x=x(number, n), edge_index=ring, y=torch.tensor([number % 2]), num_nodes=n))
    return found


def opened(folder: Path) -> GraphSet:
    config = TrainConfig(dataset=str(folder), split="random:.6/.2/.2")
    return check_graphs(GraphReader(folder), config, RawGraph("d", "d", None, None, None, {}, []))


def manifest(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return told


def rewrite(folder: Path, **changes: Any) -> None:
    told = {**manifest(folder), **changes}
    told["checksum"] = manifest_checksum(told)
    (folder / "manifest.json").write_text(json.dumps(told))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_checks, "_VALUES_AT_ONCE", 10)


FEATURES = {
    "numbers": lambda number, n: torch.full((n, 2), float(number)),
    "half": lambda number, n: torch.full((n, 2), number / 4, dtype=torch.float16),
    "bits": lambda number, n: torch.full((n,), number % 2 == 0),
    "categories": lambda number, n: torch.tensor([[number % 5, number]]).repeat(n, 1),
    "signed": lambda number, n: torch.tensor([[number - 5, number]]).repeat(n, 1),
    "none": lambda number, n: None,
}


@pytest.mark.parametrize("kind", FEATURES)
def test_the_writer_s_note_and_every_backend_say_the_same(tmp_path: Path, kind: str) -> None:
    made = graphs(FEATURES[kind])
    found = []
    for backend in ("columnar", "sqlite"):
        to_on_disk_dataset(made, tmp_path / backend, backend)
        found.append(opened(tmp_path / backend))
    rewrite(tmp_path / "columnar", checked=None)
    found.append(opened(tmp_path / "columnar"))
    first = found[0]
    for other in found[1:]:
        assert other.features == first.features
        assert other.notes == first.notes
        assert (other.nodes == first.nodes).all()
        assert (other.edges == first.edges).all()
        assert other.y.equal(first.y)
    if kind == "categories":
        assert first.features.table_sizes == (5, 12)


def test_graphs_that_were_checked_are_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "store"
    to_on_disk_dataset(graphs(FEATURES["categories"]), folder)
    assert manifest(folder)["checked"] == {
        "lowest": [0, 0], "highest": [4, 11], "most_neighbours": 0, "version": 1,
    }  # fmt: skip

    def never(*arguments: Any) -> Any:
        raise AssertionError("looked at again")

    monkeypatch.setattr("pygsage.data.many_graphs.reader.check_columns", never)
    assert opened(folder).features.table_sizes == (5, 12)
    for changes in ({"checked": None}, {"checked": {**manifest(folder)["checked"], "version": 0}}):
        rewrite(folder, **changes)  # of other checks, or of none
        with pytest.raises(AssertionError, match="looked at again"):
            opened(folder)


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: g.x.__setitem__((2, 1), float("nan")), "graph 7: x is nan at node 2, column 1; expected finite"),
        (lambda g: g.x.__setitem__((0, 0), 1e300), r"graph 7: x is 1e\+300 at node 0, column 0; expected finite"),
        (lambda g: g.edge_index.__setitem__((0, 3), 4), "graph 7: edge 3 of edge_index is 4 -> 0, and the graph has 4"),
        (lambda g: g.edge_index.__setitem__((1, 0), -1), "graph 7: edge 0 of edge_index is 0 -> -1"),
    ],
)
def test_c035_what_is_wrong_is_named_in_any_backend_and_never_noted_as_checked(
    tmp_path: Path, backend: str, change: Any, said: str
) -> None:
    made = graphs(lambda number, n: torch.ones(n, 2, dtype=torch.float64))
    change(made[7])
    to_on_disk_dataset(made, tmp_path / "store", backend)
    assert "checked" not in manifest(tmp_path / "store")
    with pytest.raises(DatasetError, match=said):
        opened(tmp_path / "store")


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
def test_edges_in_some_graphs_only_are_refused(tmp_path: Path, backend: str) -> None:
    made = graphs(FEATURES["numbers"])
    del made[3].edge_index
    to_on_disk_dataset(made, tmp_path / "store", backend, missing="keep")
    with pytest.raises(DatasetError, match="some graphs have no edge_index, which others have"):
        opened(tmp_path / "store")


def test_a_database_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = graphs(FEATURES["numbers"])
    for number, graph in enumerate(made):
        graph.split = ("train", "val", "test")[number % 3]
    to_on_disk_dataset(made, tmp_path / "store", "sqlite")
    reader = GraphReader(tmp_path / "store")
    asked: list[int] = []
    get = reader.database.get
    monkeypatch.setattr(reader.database, "get", lambda number: asked.append(number) or get(number))
    config = TrainConfig(dataset=str(tmp_path / "store"))
    found = check_graphs(reader, config, RawGraph("d", "d", None, None, None, {}, []))
    assert asked == list(range(12))
    assert found.splits["val"].tolist() == [1, 4, 7, 10]


def test_a_label_from_a_database_does_not_keep_its_graph(tmp_path: Path) -> None:
    to_on_disk_dataset(graphs(lambda number, n: torch.ones(n, 500)), tmp_path / "store", "sqlite")
    reader = GraphReader(tmp_path / "store")
    column = reader.schema.column("y")
    assert column is not None
    value = reader._value(column, reader.database.get(0), 0)
    assert value.untyped_storage().nbytes() == 8


def test_an_edge_is_found_in_any_piece() -> None:
    nodes = np.array([0, 4, 4, 10])
    edges = np.array([0, 7, 7, 30])
    ids = torch.zeros(30, 2, dtype=torch.int64)
    check_edges(ids, nodes, edges, 0, "d")
    for edge, graph, most in ((6, 0, 4), (7, 2, 6), (29, 2, 6)):
        wrong = ids.clone()
        wrong[edge, 1] = most
        with pytest.raises(DatasetError, match=rf"d: graph {graph + 5}: edge {edge - edges[graph]} .* -> {most}, "):
            check_edges(wrong, nodes, edges, 5, "d")


def test_what_a_manifest_says_is_read_back() -> None:
    told = Checked([0], [3], 7)
    assert Checked.from_dict(json.loads(json.dumps(told.to_dict()))) == told
    assert Checked.from_dict(None) is None
