"""`pygsage convert`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pygsage.cli.main import main
from pygsage.data.one_graph.graph import Graph
from pygsage.data.store.on_disk import OnDiskGraphs

RECIPE = """
import torch
from pygsage import Recipe
from torch_geometric.data import Data

class Chains(Recipe):
    num_graphs = 9

    def graphs(self):
        for n in range(2, 11):
            if n == BREAK:
                raise ValueError("no more paper")
            yield Data(x=torch.ones(n, 2), edge_index=torch.tensor([range(n - 1), range(1, n)]), y=torch.tensor([1]))
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "chains.py"
    path.write_text(RECIPE.replace("BREAK", "99"))
    return path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["convert", *words, "--json"]) == 0
    out = capsys.readouterr().out
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
def test_a_recipe(recipe: Path, backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    told = answer(capsys, str(recipe), str(out), "--backend", backend)
    size = sum(path.stat().st_size for path in out.iterdir())
    expected = {"num_graphs": 9, "backend": backend, "skipped": [], "notes": [], "bytes": size, "store": str(out)}
    assert told == expected
    assert [len(data.x) for data in OnDiskGraphs(out)] == list(range(2, 11))
    again = answer(capsys, str(out), str(tmp_path / "again"))
    assert (again["num_graphs"], again["backend"]) == (9, "columnar")


def test_what_was_interrupted_is_gone_on_with(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    recipe.write_text(RECIPE.replace("BREAK", "6"))
    assert main(["convert", str(recipe), str(out)]) == 2
    said = capsys.readouterr().err
    assert "chains.py, line 12: ValueError: no more paper" in said
    assert not out.exists()
    for command in ("info", "train"):
        assert main([command, str(out)]) == 2
        said = capsys.readouterr().err
        assert f"its conversion was interrupted, or still goes on, in {tmp_path / '.out.partial'}" in said
        assert f"pygsage convert DATASET {out} --resume" in said
    recipe.write_text(RECIPE.replace("BREAK", "99"))
    assert main(["convert", str(recipe), str(out)]) == 2
    assert "Resume it (--resume" in capsys.readouterr().err
    assert main(["convert", str(recipe), str(out), "--resume"]) == 0
    assert "9 graphs in" in capsys.readouterr().out
    assert main(["convert", str(recipe), str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["convert", str(recipe), str(out), "--overwrite", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_a_pyg_dataset_of_many_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = Path(__file__).parents[2].parent / "shared" / "data" / "tu" / "MUTAG" / "raw"
    if not raw.is_dir():
        pytest.skip("no tu/MUTAG among the shared data files")
    (tmp_path / "root" / "MUTAG").mkdir(parents=True)
    (tmp_path / "root" / "MUTAG" / "raw").symlink_to(raw)
    words = ["pyg:TUDataset/MUTAG", str(tmp_path / "out"), "--root", str(tmp_path / "root"), "--offline"]
    assert answer(capsys, *words)["num_graphs"] == 188
    assert OnDiskGraphs(tmp_path / "out").num_classes == 2


def test_one_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "digits", str(tmp_path / "out"))["num_graphs"] == 1
    assert Graph.open(tmp_path / "out").num_nodes == 1797
    assert main(["convert", "digits", str(tmp_path / "more"), "--backend", "sqlite"]) == 2
    assert "is one graph" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Type: pygsage convert DATASET OUT"),
        (["digits"], "Type: pygsage convert DATASET OUT"),
        (["digits", "OUT", "--overwrite", "--resume"], "Leave one of them out"),
        (["nothing", "OUT"], "No dataset is called nothing"),
    ],
)
def test_what_cannot_be_converted(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["convert", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_training_will_refuse_is_said_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "odd.py"
    recipe.write_text(
        "import torch\nfrom torch_geometric.data import Data\nfrom pygsage import Recipe\n"
        "class Odd(Recipe):\n    def graphs(self):\n"
        "        edges = torch.tensor([[0], [1]])\n"
        "        yield Data(x=torch.tensor([[1.0], [float('nan')]]), edge_index=edges, y=torch.tensor([1]))\n"
    )
    told = answer(capsys, str(recipe), str(tmp_path / "out"))
    assert told["notes"][-1].startswith("Kept as given, but training will refuse it. It: graph 0: x is nan at node 1")
    assert main(["convert", str(recipe), str(tmp_path / "again")]) == 0
    assert "1 graph in " in capsys.readouterr().out


def test_a_folder_inside_its_source_or_around_it_is_refused(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(recipe), str(tmp_path / "a" / "store"), "--quiet"]) == 0
    before = sorted(tmp_path.rglob("*"))
    for out, where in ((tmp_path / "a" / "store" / "again", "inside"), (tmp_path / "a", "around")):
        assert main(["convert", str(tmp_path / "a" / "store"), str(out), "--overwrite"]) == 2
        assert f"lies {where} " in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
