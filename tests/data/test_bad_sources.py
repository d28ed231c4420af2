"""Recipes, names and OGB's folders with mistakes, given to the command: each is refused with a sentence."""

from __future__ import annotations

import gzip
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pygsage.config import TrainConfig
from pygsage.data.open import open_graph

Refusal = Callable[..., str]
NUM_NODES, NUM_EDGES, NUM_FEATURES = 40, 90, 3


def graph_arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    nodes = np.arange(NUM_NODES)
    return {
        "x": rng.normal(size=(NUM_NODES, NUM_FEATURES)).astype(np.float32),
        "edge_index": rng.integers(0, NUM_NODES, (2, NUM_EDGES)),
        "y": nodes % 3,
        "train_mask": nodes < 20,
        "val_mask": (nodes >= 20) & (nodes < 30),
        "test_mask": nodes >= 30,
    }


# Recipes

BODY = """
import torch
from torch_geometric.data import Data, HeteroData
from pygsage import Recipe

nodes = torch.arange(40)
good = dict(x=torch.ones(40, 2), edge_index=torch.stack([nodes, nodes.flip(0)]), y=nodes % 2, train_mask=nodes < 20)

class Mine(Recipe):
    def graphs(self):
        yield Data(**good)
"""


def body(graphs: str) -> str:
    return BODY.replace(
        "        yield Data(**good)\n", textwrap.indent(textwrap.dedent(graphs).strip(), " " * 8) + "\n"
    )


RAISED = ("ValueError('wrong')", "KeyError('x')", "RuntimeError()", "OSError(2, 'gone')", "MemoryError()",
          "SystemExit(0)", "SystemExit('done')", "AssertionError()", "StopIteration()",
          "UnicodeDecodeError('utf8', b'x', 0, 1, 'bad')",
          "GeneratorExit()", "Exception('several\\nlines\\tof text' * 99)", "RecursionError('deep')")  # fmt: skip
RECIPES: dict[str, tuple[str, str]] = {
    **{f"raises {what[:20]}": ("line", body(f"raise {what}\nyield")) for what in RAISED},
    "raises at import": ("line 2", "\nraise ValueError('at once')"),
    "exits at import": ("line 2", "import sys\nsys.exit(3)"),
    "asks": ("line", body("input()\nyield")),
    "reads a file that is not there": ("line", body("yield torch.load('nothing.pt')")),
    "divides by zero": ("line", body("yield 1 / 0")),
    "a name that is not there": ("line", body("yield undefined")),
    "a package that is not there": ("pip install nothing_of_this_name", "import nothing_of_this_name.part"),
    "no Python": ("line 1", "class Mine(Recipe) yield"),
    "an indent": ("line 2", "x = 1\n  y = 2"),
    "an open bracket": ("line", "x = (1,"),
    "a byte of zero": ("expected", "x = 1\0"),
    "empty": ("has no recipe", ""),
    "no recipe": ("has no recipe (found the classes Mine)", "class Mine:\n    def graphs(self):\n        yield 1"),
    "a function": ("has no recipe", "def graphs():\n    yield 1"),
    "imported only": ("has no recipe", "from pygsage import Recipe"),
    "two recipes": ("has 2 recipes", BODY + "class Other(Recipe):\n    pass"),
    "no graphs": ("has no method graphs", body("").replace("    def graphs(self):\n", "    pass\n")),
    "graphs with an argument": ("missing 1 required positional", BODY.replace("graphs(self)", "graphs(self, which)")),
    "graphs is data": ("not callable", BODY[: BODY.index("    def g")] + "    graphs = []"),
    "a class that wants arguments": (
        "missing 1 required positional argument: 'b'",
        BODY.replace("    def g", "    def __init__(self, a, b):\n        pass\n    def g"),
    ),
    "returns a list": ("graphs() returned a list", body("return [Data(**good)]")),
    "returns a graph": ("graphs() returned a Data", body("return Data(**good)")),
    "returns nothing": ("graphs() returned a NoneType", body("pass")),
    "yields nothing": ("yielded no graph", body("return\nyield")),  # C024
    "yields None": ("yielded no graph", body("yield")),
    "says two": ("yielded 1", BODY.replace("class Mine(Recipe):", "class Mine(Recipe):\n    num_graphs = 2")),
    "says none": ("num_graphs is 0", BODY.replace("class Mine(Recipe):", "class Mine(Recipe):\n    num_graphs = 0")),
    "says text": ("num_graphs", BODY.replace("class Mine(Recipe):", "class Mine(Recipe):\n    num_graphs = 'one'")),
    "raises after the first": ("line", body("yield Data(**good)\nraise ValueError('late')")),
    "yields HeteroData": ("is heterogeneous", body("yield HeteroData({'paper': {'x': torch.ones(2, 2)}})")),
    "yields a dict": ("holds a dict", body("yield good")),
    "yields a tuple": ("holds a tuple", body("yield good['x'], good['y']")),
    "yields a tensor": ("holds a Tensor", body("yield good['x']")),
    "yields a class": ("holds a ", body("yield Data")),
    **{
        f"without {key}": (f"has no {key}", body(f"del good['{key}']\nyield Data(**good)"))
        for key in ("x", "edge_index", "y")
    },
    "an empty split": ("training split is empty", body("good['train_mask'] &= False\nyield Data(**good)")),
    "without a split": ("has no training split", body("del good['train_mask']\nyield Data(**good)")),
    **{
        f"{key} = {value[:24]}": (key, body(f"good['{key}'] = {value}\nyield Data(**good)"))
        for key, value in (
            ("x", "torch.ones(40)"), ("x", "torch.full((40, 2), torch.nan)"), ("x", "[[1.0]] * 40"), ("x", "'text'"),
            ("edge_index", "torch.ones(5, 2, dtype=torch.int64)"), ("edge_index", "torch.full((2, 5), 40)"),
            ("edge_index", "-torch.ones(2, 5, dtype=torch.int64)"), ("edge_index", "torch.rand(2, 5)"),
            ("edge_index", "None"), ("y", "nodes[:9]"), ("y", "-nodes - 1"), ("y", "None"), ("y", "nodes * 1000000"),
            ("y", "torch.full((40,), torch.nan)"), ("train_mask", "nodes"),
            ("train_mask", "nodes.float()"), ("train_mask", "torch.ones(3, dtype=torch.bool)"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_with_a_mistake_is_refused(name: str, tmp_path: Path, refusal: Refusal) -> None:
    says, code = RECIPES[name]
    (tmp_path / "mine.py").write_text(code)
    said = refusal("mine.py")
    assert "mine.py" in said
    assert says in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine.py:Yours", "the class Yours is not there"),
        ("mine.py:Min", "Did you mean mine.py:Mine?"),
        ("mine.py:Data", "the class Data is not there"),
        ("mine.py:", "names no class after the colon"),
        ("mine.py:a b", "names no class after the colon"),
        ("min.py", "The file min.py does not exist"),
        ("mine.pyc", "No dataset is called mine.pyc"),
        ("away/mine.py", "The folder away does not exist"),
        ("folder.py", "folder.py is a folder"),
        ("folder.npz", "folder.npz is a folder"),
        ("graph.npz", "The file graph.npz does not exist"),
        ("broken.npz", "The file broken.npz does not exist"),
        ("graph.pt", "The file graph.pt does not exist"),
        ("graph.pkl", "is a pickled file"),
        ("graph.csv", "graph.csv"),
        ("", "no name"),
        (" ", "no name"),
        ("cora", "Did you mean pyg:Planetoid/Cora?"),
        ("digit", "Did you mean digits?"),
        ("pyg:", "is no name of a PyG dataset"),
        ("pyg:Planetoid/", "is no name of a PyG dataset"),
        ("pyg:Planetoid", "holds several datasets"),
        ("pyg:Planetoids/Cora", "Did you mean Planetoid?"),
        ("pyg:../x", "is no name of a PyG dataset"),
        ("pyg:Planetoid/../x", "is no name of a PyG dataset"),
        ("pyg:Data", "has no class Data"),
        ("pyg:os.system", "is no name of a PyG dataset"),
        ("pyg:Reddit/large", "takes no name"),
        ("ogbn-arxive", "Did you mean ogbn-arxiv?"),
        ("ogbg-molhif", "Did you mean ogbg-molhiv?"),
        ("ogbl-collab", "edges to be predicted"),
        ("ogbn-arxiv", "is not on this machine"),
        ("x\ny", "No dataset is called"),
        ("\0.npz", "does not exist"),
        ("a" * 5000, "No dataset is called"),
        ("a" * 5000 + ".npz", "does not exist"),
    ],
)  # fmt: skip
def test_a_name_with_a_mistake_is_refused(
    name: str, says: str, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(BODY)
    for folder in ("folder.py", "folder.npz"):
        (tmp_path / folder).mkdir()
    (tmp_path / "broken.npz").symlink_to("nowhere")
    said = refusal(name)
    assert says in said
    assert len(said) < 1000


def test_c024_a_recipe_without_a_graph_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "mine.py").write_text(body("return\nyield"))
    assert "mine.py: graphs() yielded no graph; expected one" in refusal("mine.py")


# OGB's layouts


def table(rows: Any) -> bytes:
    lines = [",".join(map(str, np.atleast_1d(row).tolist())) for row in np.asarray(rows)]
    return ("\n".join(lines) + "\n").encode()


def write_products(root: Path) -> dict[str, Path]:
    """A small ogbn-products; returns its files by name."""
    folder, arrays = root / "ogbn_products", graph_arrays()
    rows = {
        "raw/edge": arrays["edge_index"].T,
        "raw/node-feat": arrays["x"],
        "raw/node-label": arrays["y"],
        "raw/num-node-list": [NUM_NODES],
        "raw/num-edge-list": [NUM_EDGES],
        "split/sales_ranking/train": arrays["train_mask"].nonzero()[0],
        "split/sales_ranking/valid": arrays["val_mask"].nonzero()[0],
        "split/sales_ranking/test": arrays["test_mask"].nonzero()[0],
    }
    paths = {}
    for name, content in rows.items():
        paths[name.rpartition("/")[2]] = path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(table(content), compresslevel=1))
    return paths


OGB_FILES = ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list", "train", "valid", "test")
OGB_DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "of no bytes": lambda _: b"",
    "empty": lambda _: gzip.compress(b""),
    "blank": lambda _: gzip.compress(b"\n\n"),
    "not packed": gzip.decompress,
    "cut short": lambda packed: packed[: len(packed) // 2],
    "without its end": lambda packed: packed[:-4],
    "with a header": lambda packed: gzip.compress(b"a,b,c\n" + gzip.decompress(packed)),
    "with a word": lambda packed: gzip.compress(b"word" + gzip.decompress(packed)[1:]),
    "binary": lambda packed: gzip.compress(bytes(range(256)) * 4),
    "with semicolons": lambda packed: gzip.compress(b"1;2\n" + gzip.decompress(packed)),
    "with a longer row": lambda packed: gzip.compress(gzip.decompress(packed) + b"1,2,3,4,5,6,7\n"),
    "with a row more": lambda packed: gzip.compress(
        gzip.decompress(packed) + gzip.decompress(packed).split(b"\n")[0] + b"\n"
    ),
    "a half more": lambda packed: gzip.compress(gzip.decompress(packed).replace(b"\n", b".5\n")),
    "negative": lambda packed: gzip.compress(b"-7" + gzip.decompress(packed)),
    "huge": lambda packed: gzip.compress(b"99999999999999999999999" + gzip.decompress(packed)),
    "nan": lambda packed: gzip.compress(b"nan\n" + gzip.decompress(packed).split(b"\n", 1)[1]),
}
# These are no mistakes: a measurement may be negative or large.
OGB_FINE = {("node-feat", "negative"), ("node-feat", "huge")}


@pytest.mark.parametrize("damage", OGB_DAMAGES)
@pytest.mark.parametrize("file", OGB_FILES)
def test_a_damaged_ogb_folder_is_refused(file: str, damage: str, tmp_path: Path, refusal: Refusal) -> None:
    path = write_products(tmp_path)[file]
    content = OGB_DAMAGES[damage](path.read_bytes())
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    if (file, damage) in OGB_FINE:
        open_graph(TrainConfig(dataset="ogbn-products", root=str(tmp_path), offline=True))
        return
    said = refusal("ogbn-products", "--root", ".")
    assert "ogbn_products" in said
    assert "expected" in said


def test_how_many_there_are() -> None:
    count = len(RECIPES) + len(OGB_FILES) * len(OGB_DAMAGES) - len(OGB_FINE)
    print(f"{count} distinct bad sources")
    assert count >= 180
