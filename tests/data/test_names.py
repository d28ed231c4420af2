"""Names of datasets: what is read, and what is said of the rest."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pygsage.config import TrainConfig
from pygsage.data.names import Reference, dataset_defaults, parse_reference, short_name
from pygsage.errors import DatasetError


def test_the_kinds(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    path.touch()
    assert parse_reference("digits") == Reference("digits", "digits")
    assert parse_reference(str(path)) == Reference("npz", str(path), path=path)
    (tmp_path / "graph.pt").touch()
    (tmp_path / "recipe.py").touch()
    assert parse_reference(str(tmp_path / "graph.pt")).kind == "pt"
    recipe = parse_reference(f"{tmp_path}/recipe.py:Mine")
    assert (recipe.kind, recipe.path, recipe.class_name) == ("recipe", tmp_path / "recipe.py", "Mine")
    assert parse_reference(str(tmp_path / "recipe.py")).class_name == ""
    assert parse_reference("ogbn-arxiv") == Reference("ogb", "ogbn-arxiv", name="ogbn-arxiv")
    assert parse_reference("pyg:Planetoid/Cora").class_name == "Planetoid"
    assert parse_reference("pyg:Planetoid/Cora").name == "Cora"
    assert parse_reference("pyg:Reddit").name is None
    assert parse_reference("pyg:SNAPDataset/soc-ca-GrQc").name == "soc-ca-GrQc"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no name"),
        ("ogbn-arxv", "Did you mean ogbn-arxiv?"),
        ("ogbn_products", "Did you mean ogbn-products?"),
        ("OGBN-Papers100m", "Did you mean ogbn-papers100M?"),
        ("ogb:arxiv", "Did you mean ogbn-arxiv?"),
        ("ogb", "expected one of ogbn-arxiv"),
        ("ogbg-molhif", "Did you mean ogbg-molhiv?"),
        ("ogbl-collab", "edges to be predicted"),
        ("missing/recipe.py", "The folder missing does not exist either"),
        ("missing.py:Mine", "expected a Python file with a class that derives from pygsage.Recipe"),
        ("some.py:", "names no class after the colon"),
        ("Cora", "Did you mean pyg:Planetoid/Cora?"),
        ("planetoid/citeseer", "Did you mean pyg:Planetoid/CiteSeer?"),
        ("coauthor/CS", "Did you mean pyg:Coauthor/CS?"),
        ("redit", "Did you mean pyg:Reddit?"),
        ("digit", "Did you mean digits?"),
        ("something", "No dataset is called something; expected digits, digits-grid, path/to/graph.npz"),
        ("missing/data.csv", "is not a file that is read and does not exist"),
        ("model.pt", "does not exist; expected a file that torch.save wrote"),
        ("model.pkl", "can run code"),
        ("graph.pkl", "numpy.savez"),
        ("missing.npz", "does not exist"),
        ("no/such/folder/graph.npz", "The folder no/such/folder does not exist either"),
        ("pyg:", "no name of a PyG dataset"),
        ("pyg:Planetoid/", "no name of a PyG dataset"),
        ("pyg:TUDataset/../../etc", "no name of a PyG dataset"),
        ("pyg:Planetoid/a/b", "no name of a PyG dataset"),
        ("pyg:os.system", "no name of a PyG dataset"),
    ],
)
def test_other_names_are_refused_with_what_to_type(text: str, said: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        parse_reference(text)
    assert caught.value.exit_status == 2


@given(st.text(max_size=300).map(lambda text: "pyg:" + text if len(text) % 3 == 0 else text))
@example("~nobody-of-this-name/graph.npz")
@example("a" * 5000 + ".npz")
@example("nul\0.npz")
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(DatasetError):
        assert parse_reference(text).text == text


def test_a_missing_file_has_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "graph.npz").touch()
    with pytest.raises(DatasetError, match=re.escape(f"Did you mean {tmp_path / 'graph.npz'}?")):
        parse_reference(str(tmp_path / "grahp.npz"))


def test_folders_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is a folder"):
        parse_reference(str(tmp_path))
    (tmp_path / "only.npz").touch()
    with pytest.raises(DatasetError, match=r"Did you mean .*only\.npz"):
        parse_reference(str(tmp_path))
    (tmp_path / "raw").mkdir()
    with pytest.raises(DatasetError, match="--root"):
        parse_reference(str(tmp_path))
    (tmp_path / "config.yaml").touch()
    with pytest.raises(DatasetError, match="pygsage info"):
        parse_reference(str(tmp_path))
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DatasetError, match="is a folder"):
        parse_reference(str(tmp_path / "folder.npz"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").touch()
    with pytest.raises(DatasetError, match="is not a file that is read; expected"):
        parse_reference(str(tmp_path / "edges.csv"))


@pytest.mark.parametrize("name", ["g.graphml", "g.gml", "g.gexf", "g.gpickle", "g.edgelist"])
def test_files_of_networkx_are_recognised_and_told_how_to_convert(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(DatasetError) as caught:
        parse_reference(str(tmp_path / name))
    assert "from_networkx" in caught.value.advice
    assert ("can run code" in caught.value.found) == (name == "g.gpickle")


@pytest.mark.parametrize("name", ["g.npz", "g.pt", "recipe.py", "g"])
def test_a_pipe_is_no_file_and_nobody_waits_for_it(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(DatasetError, match="is a pipe, a socket or a device; expected a"):
        parse_reference(str(tmp_path / name))


def test_defaults_are_options_of_a_run() -> None:
    assert dataset_defaults("digits") == {"epochs": 30, "batch_size": 128}
    assert TrainConfig().with_values(dataset_defaults("digits"), "digits").epochs == 30
    assert dataset_defaults("pyg:Planetoid/Cora") == {}
    assert dataset_defaults("ogbn-arxiv") == {"undirected": True, "self_loops": True}
    assert dataset_defaults("ogbn-products") == {}
    assert dataset_defaults("no such thing") == {}


def test_a_step_takes_1024_nodes_or_64_graphs_where_nothing_else_is_said() -> None:
    config = TrainConfig()
    assert (config.batch_of("node"), config.batch_of("graph")) == (1024, 64)
    assert config.for_unit("graph").batch_size == 64
    assert TrainConfig(batch_size=7).batch_of("graph") == TrainConfig(batch_size=7).batch_of("node") == 7
    assert dataset_defaults("digits-grid")["batch_size"] == dataset_defaults("ogbg-molbace")["batch_size"] == 32
    assert dataset_defaults("pyg:TUDataset/PROTEINS") == {}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("digits", "digits"),
        ("pyg:Planetoid/Cora", "Planetoid-Cora"),
        ("pyg:Reddit", "Reddit"),
        ("some/where/my graph.npz", "my-graph"),
        ("some/where/graph.pt", "graph"),
        ("some/where/mine.py", "mine"),
        ("some/where/mine.py:Small", "mine-Small"),
        ("ogbn-arxiv", "ogbn-arxiv"),
        ("../.npz", "dataset"),
        ("", "dataset"),
    ],
)
def test_short_names(text: str, name: str) -> None:
    assert short_name(text) == name


@given(st.text(max_size=100))
def test_a_short_name_is_always_safe_for_a_folder(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,59}", short_name(text))


def test_a_name_without_the_ending_of_a_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.npz").touch()
    with pytest.raises(DatasetError, match=r"No dataset is called mine; .* Did you mean mine\.npz\?"):
        parse_reference("mine")
