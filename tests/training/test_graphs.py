"""Whole runs on many graphs, with labels of graphs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pygsage import (
    ConfigError,
    DatasetError,
    EnvironmentLimitError,
    OnDiskGraphs,
    RunError,
    TrainConfig,
    predict,
    to_on_disk_dataset,
    train,
)
from pygsage.training.launch import dry_run

SHARED = Path(__file__).parents[3] / "shared" / "data"
RECIPES = Path(__file__).parents[2] / "datasets"
SMALL: dict[str, Any] = {
    "hidden": 8, "fanouts": (1, 1), "batch_size": 16, "epochs": 2, "lr": 0.01, "gpus": "0", "quiet": True,
    "split": "random:.6/.2/.2",
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def graphs(num_graphs: int = 60, **changes: Any) -> list[Data]:
    """Of 1 to 12 nodes; the label is whether the first feature is positive on average."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for number in range(num_graphs):
        num_nodes = number % 12 + 1
        x = torch.randn(num_nodes, 3, generator=generator) + (number % 2) * torch.tensor([1.5, 0, 0])
        edges = torch.randint(num_nodes, (2, 2 * num_nodes if number % 5 else 0), generator=generator)
        made.append(Data(x=x, edge_index=edges, y=torch.tensor([number % 2])))
    for key, value in changes.items():
        for number, graph in enumerate(made):
            graph[key] = value(number, graph)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Path:
    to_on_disk_dataset(graphs(), tmp_path / "store")
    return tmp_path / "store"


def losses(run: Path | str) -> list[float]:
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "epoch"]


def run(dataset: Any, folder: Path, **options: Any) -> list[float]:
    train(dataset, run_dir=str(folder), **{**SMALL, **options})
    return losses(folder)


def test_a_step_takes_64_graphs_where_nothing_is_said_and_added_edges_are_told(store: Path) -> None:
    told = TrainConfig(dataset=str(store), gpus="0", split="random:.8/.1/.1", undirected=True, self_loops=True)
    lines = "\n".join(dry_run(told))
    assert "edges and their reverse and self-loops, 3 features" in lines
    assert "; 64 graphs a step over 1 process" in lines
    assert "64 graphs a step" not in "\n".join(dry_run(told.with_values({"batch_size": 8}, "")))


def test_the_same_in_memory_from_disk_from_sqlite_and_given_in_python(store: Path, tmp_path: Path) -> None:
    expected = run(str(store), tmp_path / "a", storage="memory")
    to_on_disk_dataset(OnDiskGraphs(store), tmp_path / "sqlite", "sqlite")
    assert run(str(store), tmp_path / "b", storage="disk") == expected
    assert run(str(tmp_path / "sqlite"), tmp_path / "c") == expected
    assert run(OnDiskGraphs(store), tmp_path / "d") == expected
    assert run(graphs(), tmp_path / "e") == expected
    assert run(str(store), tmp_path / "f", sampler_threads=3) == expected
    assert run(str(store), tmp_path / "g", seed=1) != expected
    weights = [torch.load(tmp_path / name / "best.pt", weights_only=True)["model"] for name in "abc"]
    for other in weights[1:]:
        assert all(torch.equal(value, other[name]) for name, value in weights[0].items())


def test_a_database_is_not_held_in_memory(store: Path, tmp_path: Path) -> None:
    to_on_disk_dataset(graphs(), tmp_path / "sqlite", "sqlite")
    with pytest.raises(ConfigError, match="--storage memory needs a columnar store"):
        run(str(tmp_path / "sqlite"), tmp_path / "run", storage="memory")
    with pytest.raises(EnvironmentLimitError, match="does not fit in memory"):
        run(str(store), tmp_path / "run", storage="memory", memory_limit="10KiB")
    assert not (tmp_path / "run").exists()


def test_two_processes_learn_what_one_does(store: Path, tmp_path: Path) -> None:
    expected = run(str(store), tmp_path / "one", batch_size=32, dropout=0.5)
    together = train(str(store), run_dir=str(tmp_path / "two"), **{**SMALL, "dropout": 0.5, "procs": 2})
    assert losses(tmp_path / "two") == pytest.approx(expected, rel=1e-6)
    assert (together.num_procs, together.test["num_graphs"]) == (2, 12)
    assert not list((tmp_path / "two").glob(".scratch*"))


def test_predictions_and_embeddings_are_a_row_a_graph(store: Path, tmp_path: Path) -> None:
    result = train(str(store), run_dir=str(tmp_path / "run"), **{**SMALL, "epochs": 20})
    scores = predict(tmp_path / "run", "test")
    assert scores.shape == (12, 2)
    everything = predict(tmp_path / "run", "all")
    assert everything.shape == (60, 2)
    assert predict(tmp_path / "run", "all", embeddings=True).shape == (60, 8)
    order = np.random.default_rng(0).permutation(60)
    test = np.sort(order[48:])
    np.testing.assert_allclose(scores, everything[test], rtol=1e-5, atol=1e-6)
    assert result.test["accuracy"] == (scores.argmax(1) == test % 2).mean()
    shutil.rmtree(store)
    to_on_disk_dataset([Data(x=torch.randn(2, 4), y=torch.tensor([n % 2])) for n in range(40)], store)
    with pytest.raises(RunError, match="has 3 features and 2 outputs, the dataset now has 4 and 2"):
        predict(tmp_path / "run", "test")


def test_c109_resumed_as_never_stopped(store: Path, tmp_path: Path) -> None:
    options = {"dropout": 0.5, "norm": "batch", "scheduler": "plateau"}
    run(str(store), tmp_path / "straight", epochs=4, **options)
    run(str(store), tmp_path / "twice", epochs=2, **options)
    run(str(store), tmp_path / "twice", epochs=4, resume=True, **options)
    straight, twice = (torch.load(tmp_path / f / "last.pt", weights_only=True) for f in ("straight", "twice"))
    assert straight["progress"] == twice["progress"]
    assert all(torch.equal(value, twice["model"][name]) for name, value in straight["model"].items())


def test_several_labels_with_missing_ones(tmp_path: Path) -> None:
    def label(number: int, graph: Data) -> torch.Tensor:
        return torch.tensor([[float(number % 2), float("nan") if number % 3 else 1.0, float(number % 5 == 0)]])

    folder = tmp_path / "run"
    result = train(graphs(y=label), run_dir=str(folder), **{**SMALL, "epochs": 15})
    assert (result.metric, result.test["num_graphs"]) == ("rocauc", 12)
    assert result.test["rocauc"] > 0.5


def test_measurements(tmp_path: Path) -> None:
    result = train(
        graphs(y=lambda number, graph: graph.x[:, :1].sum(0, keepdim=True) + 0.25),
        run_dir=str(tmp_path / "run"), readout="sum", **{**SMALL, "epochs": 60, "lr": 0.03, "dropout": 0.0},
    )  # fmt: skip
    assert result.metric == "rmse"
    assert result.test["rmse"] < 3


def test_own_splits_by_words_and_by_masks(tmp_path: Path) -> None:
    words = graphs(split=lambda number, _: ("train", "val", "test", "")[number % 4])
    masks = graphs(
        train_mask=lambda number, _: torch.tensor([number % 4 == 0]),
        val_mask=lambda number, _: torch.tensor([number % 4 == 1]),
        test_mask=lambda number, _: torch.tensor([number % 4 == 2]),
    )
    assert run(words, tmp_path / "words", split="public") == run(masks, tmp_path / "masks", split="public")
    with pytest.raises(DatasetError, match="Graph 0: split is 'learn'; expected train, val or test"):
        run(graphs(split=lambda number, _: "learn"), tmp_path / "no", split="public")
    with pytest.raises(DatasetError, match="has no training split"):
        run(graphs(), tmp_path / "no", split="public")


def test_folds_cover_every_graph_once(store: Path, tmp_path: Path) -> None:
    from contextlib import ExitStack

    from pygsage.data.open_many import open_data

    tested = []
    for fold in range(5):
        with ExitStack() as stack:
            config = TrainConfig(dataset=str(store), split="folds:5", split_id=fold)
            found, _ = open_data(config, stack)
        splits = found.splits
        assert sorted(torch.cat(list(splits.values())).tolist()) == list(range(60))
        assert abs(int(found.y[splits["test"]].sum()) - 6) <= 1
        tested += splits["test"].tolist()
    assert sorted(tested) == list(range(60))
    with pytest.raises(ConfigError, match=r"makes 5 folds; expected a number from 0 to 4"):
        run(str(store), tmp_path / "no", split="folds:5", split_id=5)
    with ExitStack() as stack:
        first, _ = open_data(TrainConfig(dataset=str(store), split="folds:5"), stack)
    assert first.splits["test"].tolist() == tested[: len(first.splits["test"])]
    assert "Of 5 folds the first is the test; --split-id 0 to 4 picks another." in first.notes


def test_without_features_the_degree_is_one(tmp_path: Path) -> None:
    bare = [Data(edge_index=g.edge_index, num_nodes=g.num_nodes, y=g.y) for g in graphs()]
    folder = tmp_path / "run"
    assert len(run(bare, folder)) == 2
    with pytest.raises(DatasetError, match="neither x nor num_nodes") as refused:  # c031
        run([Data(edge_index=g.edge_index, y=g.y) for g in graphs()], tmp_path / "no")
    assert "num_nodes" in refused.value.found


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x": lambda n, g: g.x / (n != 7)}, r"graph 7: x is -?(inf|nan) at node \d, column 0; expected finite"),
        ({"edge_index": lambda n, g: g.edge_index + (n == 8) * 20}, r"graph 8: edge 0 of edge_index is 2\d -> 2\d,"),
        ({"x": lambda n, g: g.x[:, : 2 + (n != 3)]}, r"Graph 3: x "),  # c019
        ({"x": lambda n, g: g.x.double() if n == 2 else g.x}, "Graph 2: x "),
        ({"y": lambda n, g: None}, "the graphs have no y"),
        ({"y": lambda n, g: torch.zeros(4) if g.num_nodes != 4 else None}, r"Graph 0: y has shape \[4\]"),  # c029
        ({"y": lambda n, g: "cat"}, "y is a text"),
        ({"y": lambda n, g: torch.tensor([float("nan") if n < 30 else 1.0])}, "split has graphs without a label"),
        ({"x": lambda n, g: torch.empty(g.num_nodes, 0)}, "x is"),
        ({"x": lambda n, g: g.x.view(-1, 3, 1)}, r"x is \['nodes', 3, 1\] in each graph"),
        ({"z": lambda n, g: torch.ones(1) if n else None}, "Graph 1 has z, which no graph before has"),  # c016, c017
    ],
)  # fmt: skip
def test_c035_a_bad_graph_is_named_and_nothing_is_written(
    tmp_path: Path, own_cache: Path, changes: dict[str, Any], said: str
) -> None:
    options = {**SMALL, "split": "public", "run_dir": str(tmp_path / "run")}
    bad = graphs(**changes, split=lambda number, _: ("train", "val", "test")[number % 3])
    with pytest.raises(DatasetError, match=said):
        train(bad, **options)
    assert list(tmp_path.iterdir()) == []
    assert list(own_cache.iterdir()) == []


def test_options_of_one_graph_are_refused_or_do_what_they_say(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--relabel gives the nodes of one graph numbers"):
        run(str(store), tmp_path / "no", relabel=True)
    with pytest.raises(ConfigError, match="--root goes with"):
        run(str(store), tmp_path / "no", root=str(tmp_path))
    plain = run(str(store), tmp_path / "plain")
    for option in ("undirected", "self_loops", "normalize_features", "class_weights"):
        assert run(str(store), tmp_path / option, **{option: True}) != plain or option == "class_weights"
    text = "\n".join(dry_run(TrainConfig(dataset=str(store), **{**SMALL, "readout": "max"})))
    assert "60 graphs, 390 nodes, 624 edges, 3 features, 2 classes; 36 train, 12 val, 12 test" in text
    assert "2 SAGE layers (mean), max readout, hidden 8" in text
    assert "all neighbours (of --fanouts only the count of layers is used); 16 graphs a step" in text


def test_graphs_without_nodes_or_edges_have_scores(tmp_path: Path) -> None:
    odd = [
        *graphs(40),
        *(Data(x=torch.empty(0, 3), edge_index=torch.empty(2, 0), y=torch.tensor([n % 2])) for n in range(4)),
    ]
    for readout in ("mean", "sum", "max"):
        folder = tmp_path / readout
        train(odd, run_dir=str(folder), **{**SMALL, "readout": readout})
        scores = predict(folder, "all", data=odd)
        assert np.isfinite(scores).all()
        assert (scores[-4:] == scores[-1]).all()


RECIPE = """
import torch
from torch_geometric.data import Data
from pygsage import Recipe

class Mine(Recipe):
    def graphs(self):
        {counting}
        for number in range(40):
            x = torch.randn(3, 2) + number % 2
            if number == {bad}:
                raise ValueError("no such graph")
            yield Data(x=x, edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([number % 2]))
"""


def test_c041_a_recipe_is_made_once_and_again_when_it_changed(tmp_path: Path, own_cache: Path) -> None:
    path, data = tmp_path / "mine.py", tmp_path / "data"
    data.mkdir()
    calls = tmp_path / "calls"
    path.write_text(RECIPE.format(bad=-1, counting=f'with open("{calls}", "a") as file: file.write("x")'))
    expected = run(str(path), tmp_path / "a", root=str(data))
    assert run(str(path), tmp_path / "b", root=str(data)) == expected
    made_once = len(calls.read_text())
    (data / "input.csv").write_text("1")
    assert run(str(path), tmp_path / "c", root=str(data)) == expected
    assert len(calls.read_text()) > made_once + 1
    stores = list((own_cache / "pygsage" / "recipes").iterdir())
    assert len(stores) == 1
    assert [p.name for p in stores[0].iterdir()] == ["pygsage-graphs"]


def test_a_recipe_that_fails_leaves_nothing(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RECIPE.format(bad=30, counting="pass"))
    with pytest.raises(DatasetError, match=r"mine\.py, line 12: ValueError: no such graph"):
        run(str(path), tmp_path / "run")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.py"]
    assert not [p for p in own_cache.rglob("*") if p.is_file()]


def test_digits_grid(tmp_path: Path) -> None:
    text = "\n".join(dry_run(TrainConfig(dataset="digits-grid", gpus="0", fanouts=(1, 1), hidden=8)))
    assert "1,797 graphs, 115,008 nodes, 402,528 edges, 3 features, 10 classes; 1,078 train, 360 val, 359 test" in text


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data of the project")
def test_ogb_graphs_are_ogbs_own_and_scored_by_ogb(tmp_path: Path) -> None:
    from ogb.graphproppred import Evaluator

    shutil.copytree(SHARED / "ogb" / "ogbg_molfreesolv", tmp_path / "ogb" / "ogbg_molfreesolv")
    root = {"root": str(tmp_path / "ogb"), "offline": True}
    options = {**SMALL, **root, "split": "public"}
    result = train("ogbg-molfreesolv", run_dir=str(tmp_path / "run"), **options)
    assert (result.metric, result.test["num_graphs"]) == ("ogb_rmse", 65)
    scores = predict(tmp_path / "run", "test")
    raw = tmp_path / "ogb" / "ogbg_molfreesolv"
    labels = np.loadtxt(raw / "raw" / "graph-label.csv.gz")
    test = np.loadtxt(raw / "split" / "scaffold" / "test.csv.gz", dtype=int)
    told = Evaluator("ogbg-molfreesolv").eval({"y_true": labels[test, None].astype(np.float32), "y_pred": scores})
    assert result.test["ogb_rmse"] == pytest.approx(told["rmse"], rel=1e-5)
    assert result.test["rmse"] == pytest.approx(told["rmse"], rel=1e-5)
    first = OnDiskGraphs(raw / "processed" / "pygsage-graphs" / "store")[0]
    edges = np.loadtxt(raw / "raw" / "edge.csv.gz", delimiter=",", dtype=int)
    half = first.num_edges // 2
    assert first.edge_index[:, ::2].T.tolist() == edges[:half].tolist()
    assert first.edge_index[:, 1::2].flip(0).T.tolist() == edges[:half].tolist()
    (raw / "raw" / "edge.csv.gz").write_bytes((raw / "raw" / "edge.csv.gz").read_bytes()[:-500])
    with pytest.raises(DatasetError, match=r"edge\.csv\.gz"):
        train("ogbg-molfreesolv", run_dir=str(tmp_path / "no"), **options)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data of the project")
def test_tu_datasets_by_the_name_of_pygs_class(tmp_path: Path) -> None:
    from torch_geometric.datasets import TUDataset

    shutil.copytree(SHARED / "tu" / "MUTAG" / "raw", tmp_path / "tu" / "MUTAG" / "raw")
    options = {**SMALL, "split": "folds:10", "split_id": 3}
    run("pyg:TUDataset/MUTAG", tmp_path / "run", root=str(tmp_path / "tu"), **options)
    made = OnDiskGraphs(tmp_path / "tu" / "MUTAG" / "processed" / "pygsage-graphs" / "store")
    theirs = TUDataset(str(tmp_path / "tu"), "MUTAG")
    assert len(made) == len(theirs) == 188
    assert torch.equal(made[187].x, theirs[187].x)
    subset = theirs[:50]
    assert len(run(subset, tmp_path / "subset")) == 2


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data of the project")
def test_c087_graphs_with_labels_of_nodes_are_joined(tmp_path: Path) -> None:
    recipe = str(RECIPES / "musae_twitch.py")
    options = {**SMALL, "split": "public", "fanouts": (5, 5), "batch_size": 512, "root": str(SHARED / "musae-twitch")}
    result = train(recipe, run_dir=str(tmp_path / "run"), **options)
    assert (result.val["num_nodes"], result.test["num_nodes"]) == (383, 4385)
    assert predict(tmp_path / "run", "test").shape == (4385, 2)


def test_c087_whole_graphs_belong_to_splits_of_nodes(tmp_path: Path) -> None:
    """Three graphs of nodes with labels; the last one has no node to train on."""
    parts = graphs(4, y=lambda number, graph: (graph.x[:, 0] > 0).long())[1:]
    for graph, split in zip(parts, ("train", "val", "test"), strict=True):
        graph.split = split
    result = train(parts, run_dir=str(tmp_path / "run"), **{**SMALL, "split": "public"})
    assert (result.val["num_nodes"], result.test["num_nodes"]) == (3, 4)
    assert predict(tmp_path / "run", "all", data=parts).shape == (9, 2)
    parts[1].edge_index = torch.tensor([[0], [3]])  # would lead into the next graph
    with pytest.raises(DatasetError, match="graph 1: edge 0 of edge_index is 0 -> 3, and the graph has 3 nodes"):
        train(parts, run_dir=str(tmp_path / "no"), **{**SMALL, "split": "public"})
