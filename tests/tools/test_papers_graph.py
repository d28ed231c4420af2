"""The graph that tools/bench/papers_graph.py makes."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from sys import modules
from typing import Any

import pytest
import torch

from pygsage.data.one_graph.graph import Graph
from pygsage.errors import DatasetError

SCRIPT = Path(__file__).parents[2] / "tools" / "bench" / "papers_graph.py"


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = spec_from_file_location("papers_graph", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(modules, "papers_graph", module)  # for its dataclass
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROWS", 1 << 12)
    return module


def test_it_is_a_store_of_that_shape(papers: Any, tmp_path: Path) -> None:
    papers.make(tmp_path / "out", 0.0002)
    Graph.verify(tmp_path / "out")
    graph = Graph.open(tmp_path / "out")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (22_212, 128, 172)
    assert abs(graph.num_edges / 323_137 - 1) < 0.02
    assert (graph.x.dtype, graph.indices.dtype) == (torch.float16, torch.int32)
    assert {name: len(ids) for name, ids in graph.splits.items()} == {"train": 241, "val": 25, "test": 43}
    labelled = torch.cat(list(graph.splits.values()))
    assert torch.equal(labelled.sort().values, (graph.y >= 0).nonzero().flatten())
    assert int(graph.y.max()) < 172
    assert int(graph.indices.min()) >= 0
    assert int(graph.indices.max()) < graph.num_nodes
    assert torch.isfinite(graph.x).all()
    assert abs(float(graph.x.float().std()) - 3**-0.5) < 0.01
    # Hubs: a hundredth of the nodes are the ends of (1 / 100)**0.4 = 16 % of the edges, on both sides alike.
    into, out = graph.indptr.diff(), torch.bincount(graph.indices.long(), minlength=graph.num_nodes)
    for degrees in (into, out):
        share = float(degrees.sort(descending=True).values[:222].sum()) / graph.num_edges
        assert 0.13 < share < 0.2
    assert float(torch.corrcoef(torch.stack([into, out]).double())[0, 1]) > 0.9


def test_one_that_was_stopped_goes_on_and_is_the_same(papers: Any, tmp_path: Path) -> None:
    papers.make(tmp_path / "whole", 0.0002, seed=3)
    for pieces in (1, 3, 4, 4):
        with pytest.raises(SystemExit, match="stopped"):
            papers.make(tmp_path / "parts", 0.0002, seed=3, stop_after=pieces)
    with pytest.raises(DatasetError):
        Graph.open(tmp_path / "parts")
    with open(tmp_path / "parts" / "indices.npy", "ab") as file:
        file.write(b"not synced")
    with pytest.raises(SystemExit, match="unfinished store of"):
        papers.make(tmp_path / "parts", 0.0002, seed=4)
    papers.make(tmp_path / "parts", 0.0002, seed=3)
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "parts" / path.relative_to(tmp_path / "whole")).read_bytes()
    assert not (tmp_path / "parts" / papers.STATE).exists()
    papers.make(tmp_path / "other", 0.0002, seed=4)
    assert not torch.equal(Graph.open(tmp_path / "other").indices[:50], Graph.open(tmp_path / "whole").indices[:50])
