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

_KINDS = "digits, path/to/graph.npz, or pyg:CLASS/NAME such as pyg:Planetoid/Cora"
_HOW_TO_NPZ = "Save its arrays with numpy.savez('graph.npz', x=…, edge_index=…, y=…, train_mask=…) and name that file."


@dataclass(frozen=True)
class Reference:
    """A dataset that a user named: its kind, and the parts of the name that this kind has."""

    kind: Literal["digits", "npz", "pyg"]
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
    if text.startswith("pyg:"):
        return _parse_pyg(text)
    if not text.strip():
        raise DatasetError("The dataset has no name.", f"Type {_KINDS}.")
    if re.match(r"ogb[nlg]?[-:_]|ogb$", text, re.IGNORECASE):
        raise DatasetError(
            f"{text} is an OGB dataset; this version does not read OGB datasets yet.", f"What works today: {_KINDS}."
        )
    path = Path(os.path.expanduser(text))  # os.path never raises, whatever a user types; Path does
    if os.path.isdir(path):
        raise _folder(text, path)
    if path.suffix.lower() == ".npz":
        return _parse_file(text, path)
    raise _not_known(text, path)


def dataset_defaults(text: str) -> dict[str, Any]:
    """The options of `TrainConfig` that a dataset sets for itself; none for a name that is not known."""
    return {"epochs": 30, "batch_size": 128} if text == "digits" else {}


def short_name(text: str) -> str:
    """A name for folders made from a dataset's: letters, digits, dots, dashes and underscores, at most 60."""
    stem = text[4:] if text.startswith("pyg:") else Path(text).name
    stem = stem[:-4] if stem.lower().endswith(".npz") else stem
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


def _parse_file(text: str, path: Path) -> Reference:
    if os.path.isfile(path):
        return Reference("npz", text, path=path)
    near: list[str] = []
    if os.path.isdir(path.parent):
        near = get_close_matches(path.name, sorted(p.name for p in path.parent.glob("*.npz")), n=1)
    advice = f"Did you mean {path.parent / near[0]}?" if near else ""
    if not advice and not os.path.isdir(path.parent):
        advice = f"The folder {path.parent} does not exist either."
    raise DatasetError(f"The file {text} does not exist; expected an .npz file with x, edge_index and y.", advice)


def _folder(text: str, path: Path) -> DatasetError:
    if os.path.isfile(path / "config.yaml"):
        return DatasetError(
            f"{text} is the folder of a run; expected a dataset: {_KINDS}.", f"To look at the run: pygsage info {text}"
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
    if suffix in (".pt", ".pth", ".pkl", ".pickle"):
        return DatasetError(
            f"{text} is a pickled file, which can run code when it is read; expected {_KINDS}.", _HOW_TO_NPZ
        )
    exists = os.path.exists(path)
    if exists or (suffix and "/" in text):
        missing = "" if exists else " and does not exist"
        return DatasetError(f"{text} is not an .npz file{missing}; expected {_KINDS}.", _HOW_TO_NPZ)
    return DatasetError(f"No dataset is called {text}; expected {_KINDS}.", _nearest(text))


def _nearest(text: str) -> str:
    wanted = text.rpartition("/")[2].rpartition(":")[2].lower()
    known = {name.lower(): name for name in _CLASS_OF}
    near = get_close_matches(wanted, [*known, "digits"], n=1, cutoff=0.7)
    if not near:
        return ""
    name = known.get(near[0], near[0])
    if name == "digits":
        return "Did you mean digits?"
    return f"Did you mean pyg:{_CLASS_OF[name]}/{name}?" if _CLASS_OF[name] else f"Did you mean pyg:{name}?"
