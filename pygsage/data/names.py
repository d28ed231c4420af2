"""What a user types to name a dataset. Standard library only, so that a command answers before torch is loaded."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pygsage.errors import DatasetError

# What people write when they mean these; used only to say what to type.
_CLASS_OF = {
    "Cora": "Planetoid",
    "CiteSeer": "Planetoid",
    "PubMed": "Planetoid",
    "Computers": "Amazon",
    "Photo": "Amazon",
    "CS": "Coauthor",
    "Physics": "Coauthor",
    "Minesweeper": "HeterophilousGraphDataset",
    "Roman-empire": "HeterophilousGraphDataset",
    "Amazon-ratings": "HeterophilousGraphDataset",
    "Tolokers": "HeterophilousGraphDataset",
    "Questions": "HeterophilousGraphDataset",
    "Texas": "WebKB",
    "Cornell": "WebKB",
    "Wisconsin": "WebKB",
    "Reddit": "",
    "Flickr": "",
    "Yelp": "",
    "Actor": "",
    "WikiCS": "",
}

# The one-graph datasets of OGB, and what its own examples do to their edges before they train.
_OGB_DEFAULTS: dict[str, dict[str, Any]] = {
    "ogbn-arxiv": {"undirected": True, "self_loops": True},  # DGL's examples/pytorch/ogb/ogbn-arxiv
    "ogbn-mag": {"undirected": True},  # OGB's examples/nodeproppred/mag/gnn.py
    "ogbn-papers100M": {},
    "ogbn-products": {},
    "ogbn-proteins": {},
}

# Those of many graphs, with a label each.
_OGB_GRAPHS = (
    "ogbg-molbace",
    "ogbg-molbbbp",
    "ogbg-molclintox",
    "ogbg-molesol",
    "ogbg-molfreesolv",
    "ogbg-molhiv",
    "ogbg-mollipo",
    "ogbg-molmuv",
    "ogbg-molpcba",
    "ogbg-molsider",
    "ogbg-moltox21",
    "ogbg-moltoxcast",
    "ogbg-ppa",
)
_OF_GRAPHS: dict[str, Any] = {"epochs": 20, "batch_size": 32, "hidden": 64, "norm": "batch", "dropout": 0.0}

_KINDS = (
    "digits, digits-grid, path/to/graph.npz or .pt, path/to/recipe.py, the folder of a store, ogbn-arxiv, "
    "ogbg-molbace, or pyg:CLASS/NAME such as pyg:Planetoid/Cora"
)
_FILE_KINDS: dict[str, tuple[Literal["npz", "pt"], str]] = {
    ".npz": ("npz", "an .npz file with x, edge_index and y"),
    ".pt": ("pt", "a file that torch.save wrote of a PyG Data, or of a dict with x, edge_index and y"),
    ".pth": ("pt", "a file that torch.save wrote of a PyG Data, or of a dict with x, edge_index and y"),
}
_FROM_NETWORKX = (
    "Read it with networkx.{}, and train on what torch_geometric.utils.from_networkx makes of it, with x and y: "
    "pygsage.train(data), or torch.save(data, 'graph.pt')."
)
# Files of others that people try, and what makes a dataset of them.
_OTHERS = {
    ".graphml": ("a GraphML file", _FROM_NETWORKX.format("read_graphml")),
    ".gml": ("a GML file", _FROM_NETWORKX.format("read_gml")),
    ".gexf": ("a GEXF file", _FROM_NETWORKX.format("read_gexf")),
    ".net": ("a Pajek file", _FROM_NETWORKX.format("read_pajek")),
    ".edgelist": ("a list of edges", _FROM_NETWORKX.format("read_edgelist")),
    ".adjlist": ("a list of neighbours", _FROM_NETWORKX.format("read_adjlist")),
}
_HOW_TO_NPZ = "Save its arrays with numpy.savez('graph.npz', x=…, edge_index=…, y=…, train_mask=…) and name that file."


@dataclass(frozen=True)
class Reference:
    """A dataset that a user named: its kind, and the parts of the name that this kind has."""

    kind: Literal["digits", "digits-grid", "graph", "npz", "ogb", "ogb-graphs", "pt", "pyg", "recipe", "store"]
    text: str
    path: Path | None = None
    class_name: str = ""
    name: str | None = None


def parse_reference(text: str) -> Reference:
    """Reads a dataset's name; looks on the disk only whether a file is there.

    Raises:
        DatasetError: when it names nothing that can be read, with what to type.
    """
    if text == "digits":
        return Reference("digits", text)
    if text == "digits-grid":
        return Reference("digits-grid", text)
    if text.startswith("pyg:"):
        return _parse_pyg(text)
    if not text.strip():
        raise DatasetError("The dataset has no name.", f"Type {_KINDS}.")
    if re.match(r"ogb[nlg]?[-:_]|ogb$", text, re.IGNORECASE) and not os.path.isfile(text):
        return _parse_ogb(text)
    recipe = re.fullmatch(r"(?s)(.*\.py)(?::(.*))?", text)
    if recipe:
        return _parse_recipe(text, *recipe.groups())
    path = Path(os.path.expanduser(text))  # os.path never raises, whatever a user types; Path does
    if _is_graph(path):
        return Reference("graph", text, path=path)
    if _is_store(path):
        return Reference("store", text, path=path)
    if os.path.isdir(path):
        raise _folder(text, path)
    if path.suffix.lower() in _FILE_KINDS:
        return _parse_file(text, path)
    raise _not_known(text, path)


def dataset_defaults(text: str) -> dict[str, Any]:
    """The options of `TrainConfig` that a dataset sets for itself; none for a name that is not known."""
    if text == "digits":
        return {"epochs": 30, "batch_size": 128}
    if text == "digits-grid" or text in _OGB_GRAPHS:
        return {**_OF_GRAPHS, "lr": 0.01} if text == "digits-grid" else dict(_OF_GRAPHS)
    return dict(_OGB_DEFAULTS.get(text, {}))


def short_name(text: str) -> str:
    """A name for folders made from a dataset's: letters, digits, dots, dashes and underscores, at most 60."""
    stem = text[4:] if text.startswith("pyg:") else re.split(r"[/\\]", text)[-1]
    stem = re.sub(r"(?i)\.(npz|pt|pth|py)(?=$|:)", "", stem)
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", stem)[:60].strip(".-")
    return safe or "dataset"


def _parse_pyg(text: str) -> Reference:
    class_name, slash, name = text[4:].partition("/")
    if not class_name.isidentifier() or (slash and not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", name)):
        raise DatasetError(
            f"{text} is no name of a PyG dataset; expected pyg:CLASS/NAME, or pyg:CLASS for a class without names.",
            "Type for example pyg:Planetoid/Cora.",
        )
    return Reference("pyg", text, class_name=class_name, name=name if slash else None)


def _parse_ogb(text: str) -> Reference:
    if text in _OGB_DEFAULTS:
        return Reference("ogb", text, name=text)
    if text in _OGB_GRAPHS:
        return Reference("ogb-graphs", text, name=text)
    of_graphs = text[:4].lower() == "ogbg"
    names = _OGB_GRAPHS if of_graphs else tuple(_OGB_DEFAULTS)
    known = ", ".join(names)
    if text[:4].lower() == "ogbl":
        raise DatasetError(
            f"{text} is an OGB dataset of edges to be predicted; expected one with node labels: {known}."
        )
    lower = {name.lower(): name for name in names}
    prefix = "ogbg-" if of_graphs else "ogbn-"
    near = get_close_matches(re.sub(r"^ogb[ng:]?[-:_]?([ng]-)?", prefix, text.lower()), lower, n=1)
    raise DatasetError(
        f"{text} is no dataset of OGB's that is read; expected one of {known}.",
        f"Did you mean {lower[near[0]]}?" if near else "",
    )


def _parse_recipe(text: str, file: str, class_name: str | None) -> Reference:
    path = Path(os.path.expanduser(file))
    if class_name is not None and not class_name.isidentifier():
        raise DatasetError(f"{text} names no class after the colon; expected path/to/recipe.py:CLASS.")
    if os.path.isdir(path):
        raise _folder(text, path)
    if os.path.isfile(path):
        return Reference("recipe", text, path=path, class_name=class_name or "")
    what = "a Python file with a class that derives from pygsage.Recipe"
    _refuse_special(file, path, what)
    raise DatasetError(f"The file {file} does not exist; expected {what}.", _near_file(path, "*.py"))


def class_with(name: str) -> str:
    """What to type for a dataset that somebody takes for a class of PyG's, such as Cora; empty when it is none."""
    known = {known.lower(): known for known in _CLASS_OF}.get(name.lower())
    if known is None:
        return ""
    return f"pyg:{_CLASS_OF[known]}/{known}" if _CLASS_OF[known] else f"pyg:{known}"


def _parse_file(text: str, path: Path) -> Reference:
    suffix = path.suffix.lower()
    kind, what = _FILE_KINDS[suffix]
    if os.path.isfile(path):
        return Reference(kind, text, path=path)
    _refuse_special(text, path, what)
    raise DatasetError(f"The file {_shown(text)} does not exist; expected {what}.", _near_file(path, f"*{suffix}"))


def _refuse_special(text: str, path: Path, what: str) -> None:
    """A pipe may never end, and cannot be mapped."""
    if os.path.exists(path):
        raise DatasetError(
            f"{_shown(text)} is a pipe, a socket or a device; expected {what}.", "Save what it gives to a file first."
        )


def _is_store(path: Path) -> bool:
    """Whether a folder has the manifest of a store of many graphs."""
    try:
        with open(path / "manifest.json", "rb") as file:
            return b'"pygsage-graphs"' in file.read(200)
    except (OSError, ValueError):
        return False


def _shown(text: str) -> str:
    """A name for an error: on one line, and no longer than that takes."""
    short = text if len(text) <= 300 else f"{text[:300]}…"
    return short if short.isprintable() else repr(short)


def _near_file(path: Path, pattern: str) -> str:
    if not os.path.isdir(path.parent):
        return f"The folder {path.parent} does not exist either."
    near = get_close_matches(path.name, sorted(p.name for p in path.parent.glob(pattern)), n=1)
    return f"Did you mean {path.parent / near[0]}?" if near else ""


def _is_graph(path: Path) -> bool:
    """Whether a folder is that of one graph, which `pygsage convert` wrote."""
    try:
        with open(path / "manifest.json", "rb") as file:
            return b'"pygsage-graph"' in file.read(256)
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return False


def _folder(text: str, path: Path) -> DatasetError:
    if os.path.isfile(path / "config.yaml"):
        return DatasetError(
            f"{text} is the folder of a run; expected a dataset: {_KINDS}.", f"To look at the run: pygsage info {text}"
        )
    if os.path.isfile(path / "manifest.json"):
        return DatasetError(
            f"{text} has a manifest.json that pygsage did not write, or that is damaged; expected {_KINDS}.",
            f"To look at it: pygsage info {text}",
        )
    if os.path.isdir(path / "raw"):
        return DatasetError(
            f"{text} is a folder of a PyG dataset's files; expected {_KINDS}.",
            f"Type pyg:CLASS/NAME --root {path.parent}, or pyg:CLASS --root {path}.",
        )
    files = sorted(path.glob("*.npz"))
    advice = f"Did you mean {files[0]}?" if len(files) == 1 else ""
    return DatasetError(f"{text} is a folder; expected {_KINDS}.", advice)


def _not_known(text: str, path: Path) -> DatasetError:
    suffix = path.suffix.lower()
    unfinished = os.path.join(os.path.dirname(os.path.abspath(path)), f".{path.name}.partial")
    if path.name and not os.path.exists(path) and os.path.isdir(unfinished):
        return DatasetError(
            f"{_shown(text)} is not there: its conversion was interrupted, or still goes on, in {unfinished}.",
            f"Go on with it: pygsage convert DATASET {_shown(text)} --resume",
        )
    if suffix in (".pkl", ".pickle", ".gpickle"):
        of_networkx = "Of a networkx graph that you trust, torch_geometric.utils.from_networkx makes a Data. "
        return DatasetError(
            f"{_shown(text)} is a pickled file, which can run code when it is read; expected {_KINDS}.",
            f"{of_networkx if suffix == '.gpickle' else ''}{_HOW_TO_NPZ}",
        )
    if suffix in _OTHERS and os.path.isfile(path):
        return DatasetError(f"{_shown(text)} is {_OTHERS[suffix][0]}; expected {_KINDS}.", _OTHERS[suffix][1])
    if os.path.exists(path) and not os.path.isfile(path):
        _refuse_special(text, path, "a file")
    exists = os.path.exists(path)
    if exists or (suffix and "/" in text):
        missing = "" if exists else " and does not exist"
        return DatasetError(f"{_shown(text)} is not a file that is read{missing}; expected {_KINDS}.", _HOW_TO_NPZ)
    return DatasetError(f"No dataset is called {_shown(text)}; expected {_KINDS}.", _nearest(text))


def _nearest(text: str) -> str:
    beside = [
        f"{text}{suffix}" for suffix in (".npz", ".pt", ".py") if os.path.isfile(os.path.expanduser(text) + suffix)
    ]
    if beside:
        return f"Did you mean {beside[0]}?"
    wanted = text.rpartition("/")[2].rpartition(":")[2].lower()
    known = {name.lower(): name for name in _CLASS_OF}
    near = get_close_matches(wanted, [*known, "digits"], n=1, cutoff=0.7)
    if not near:
        return ""
    name = known.get(near[0], near[0])
    if name == "digits":
        return "Did you mean digits?"
    return f"Did you mean pyg:{_CLASS_OF[name]}/{name}?" if _CLASS_OF[name] else f"Did you mean pyg:{name}?"


def refuse_inside(source: str | Path, target: str | Path) -> None:
    """Refuses to make a folder inside the one it is made from, or around it; links are followed.

    Raises:
        DatasetError: see above.
    """
    here, there = Path(source).resolve(), Path(target).resolve()
    if here.is_dir() and here != there and (there.is_relative_to(here) or here.is_relative_to(there)):
        where = "inside" if there.is_relative_to(here) else "around"
        raise DatasetError(
            f"{target} lies {where} {source}, which it is to be made from; expected a folder of its own.",
            f"Name one beside it, such as {here.with_name(f'{here.name}_new')}.",
        )
