"""Recipes: a user's code, and what is said when it goes wrong."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from pygsage.config import TrainConfig
from pygsage.data.names import parse_reference
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.open import open_graph
from pygsage.data.sources.recipe import read_recipe
from pygsage.errors import DatasetError

RING = """
    import torch
    from torch_geometric.data import Data
    from pygsage import Recipe


    class Ring(Recipe):
        num_graphs = 1

        def graphs(self):
            nodes = torch.arange(6)
            y = nodes % 2
            yield Data(x=torch.rand(6, 2), edge_index=torch.stack([nodes, (nodes + 1) % 6]), y=y, train_mask=nodes < 3)
"""


def write(tmp_path: Path, code: str, name: str = "ring.py") -> Path:
    (tmp_path / name).write_text(textwrap.dedent(code))
    return tmp_path / name


def read(path: Path | str, root: Path | None = None) -> RawGraph:
    return read_recipe(parse_reference(str(path)), str(root) if root else None)


def refused(path: Path | str, said: str) -> DatasetError:
    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        read(path)
    assert caught.value.exit_status == 2
    return caught.value


def test_a_recipe_is_a_dataset_and_leaves_no_trace(tmp_path: Path) -> None:
    path = write(tmp_path, RING)
    modules, paths, state = set(sys.modules), list(sys.path), torch.random.get_rng_state()
    graph = open_graph(TrainConfig(dataset=str(path)))
    assert (graph.num_nodes, graph.num_edges, graph.splits["train"].tolist()) == (6, 6, [0, 1, 2])
    assert torch.equal(graph.x, open_graph(TrainConfig(dataset=f"{path}:Ring")).x)  # random, yet the same
    assert torch.equal(state, torch.random.get_rng_state())
    assert sys.path == paths
    assert not {name for name in set(sys.modules) - modules if "recipe" in name and not name.startswith("pygsage.")}
    assert [p.name for p in tmp_path.iterdir()] == ["ring.py"]


def test_a_neighbour_can_be_imported_and_is_forgotten(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, f"FEATURES = {number}", "settings_of_mine.py")
        path = write(folder, RING.replace("import torch\n", "import torch\n    import settings_of_mine\n", 1).replace(
            "torch.rand(6, 2)", "torch.ones(6, settings_of_mine.FEATURES)"
        ))  # fmt: skip
        assert read(path).x.shape == (6, number)
    assert "settings_of_mine" not in sys.modules


def test_the_root_is_the_files_folder_or_what_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, RING.replace("torch.rand(6, 2)", "torch.load(self.root / 'x.pt')"))
    (tmp_path / "data").mkdir()
    torch.save(torch.ones(6, 3), tmp_path / "x.pt")
    torch.save(torch.ones(6, 4), tmp_path / "data" / "x.pt")
    assert read(path).x.shape == (6, 3)
    assert read(path, tmp_path / "data").x.shape == (6, 4)
    with pytest.raises(DatasetError, match="is not a folder; expected the one with the data"):
        read(path, tmp_path / "nowhere")


def test_a_file_of_several_recipes(tmp_path: Path) -> None:
    more = textwrap.dedent(RING) + "\n\nclass Other(Recipe):\n    pass\n\n\nclass Small(Ring):\n    pass\n"
    path = write(tmp_path, more)
    error = refused(path, "has 2 recipes; expected to be told which")
    assert error.advice == f"Type {path}:Other or {path}:Small"
    assert read(f"{path}:Small").origin == f"{path}:Small"
    refused(f"{path}:Smal", f"the class Smal is not there; expected a class that derives from pygsage.Recipe (found: "
            f"Ring, Other, Small). Did you mean {path}:Small?")  # fmt: skip
    refused(f"{path}:Other", "Other has no method graphs(self)")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1", "has no recipe; expected a class that derives from pygsage.Recipe"),
        ("class Ring:\n    pass", "has no recipe (found the classes Ring)"),
        ("import torch\n\ndef f(:\n    pass", "ring.py, line 3: invalid syntax"),
        ("import torch\n1 / 0", "ring.py, line 2: ZeroDivisionError: division by zero"),
        ("import not_there_at_all", "ring.py, line 1: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("raise SystemExit(3)", "ring.py, line 1: SystemExit: 3"),
        (RING.replace("nodes % 2", "nodes / None"), "line 12: TypeError: unsupported operand"),
        (RING.replace("yield Data(", "return Data("), "graphs() returned a Data; expected a generator"),
        (RING.replace("yield Data(", "yield dict("), "holds a dict; expected one graph"),
        (RING.replace("yield Data(", "for _ in range(3): yield Data("), "yields more than one graph"),
        (RING.replace("num_graphs = 1", "num_graphs = 1000"), "holds 1000 graphs; expected one graph"),
        (RING.replace("yield Data(", "if False: yield Data("), "graphs() yielded no graph"),
        (RING.replace("num_graphs = 1", "num_graphs = input()"), "EOFError"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, code: str, said: str) -> None:
    assert "\n" not in str(refused(write(tmp_path, code), said))
    assert "pygsage_recipe" not in sys.modules


def test_only_one_graph_more_is_asked_for(tmp_path: Path) -> None:
    endless = RING.replace("num_graphs = 1", "num_graphs = None").replace("yield Data(", "while True: yield Data(")
    refused(write(tmp_path, endless), "yields more than one graph")


def test_what_the_recipe_prints_is_not_our_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read(write(tmp_path, RING + "\n    print('hello')"))
    assert capsys.readouterr() == ("", "hello\n")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    write(tmp_path, RING)
    expected = "expected a Python file with a class that derives from pygsage.Recipe"
    refused(tmp_path / "rign.py", f"does not exist; {expected}. Did you mean {tmp_path / 'ring.py'}?")
    refused(f"{tmp_path / 'ring.py'}:not-a-name", "names no class after the colon")
