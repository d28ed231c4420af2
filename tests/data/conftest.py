"""Small graphs as a source gives them, files of them, and where the real data lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pygsage.data.one_graph.raw import RawGraph


@pytest.fixture
def raw() -> Callable[..., RawGraph]:
    """Makes six nodes in a ring with two features, two classes and one split; keywords replace its parts."""

    def make(**parts: Any) -> RawGraph:
        nodes = torch.arange(6)
        splits = {key: torch.zeros(6, dtype=torch.bool) for key in ("train_mask", "val_mask", "test_mask")}
        splits["train_mask"][:3] = splits["val_mask"][3] = splits["test_mask"][4:] = True
        defaults: dict[str, Any] = {
            "name": "ring",
            "origin": "ring",
            "x": torch.arange(12, dtype=torch.float32).reshape(6, 2),
            "edge_index": torch.stack([nodes, (nodes + 1) % 6]),
            "y": nodes % 2,
            "splits": splits,
        }
        return RawGraph(**{**defaults, **parts})

    return make


@pytest.fixture
def ring_npz(tmp_path: Path, raw: Callable[..., RawGraph]) -> Callable[..., Path]:
    """Writes the same graph to a file; keywords replace its arrays, None leaves one out."""

    def write(name: str = "ring.npz", **arrays: Any) -> Path:
        graph = raw()
        own: dict[str, Any] = {"x": graph.x, "edge_index": graph.edge_index, "y": graph.y, **graph.splits}
        own = {key: value.numpy() for key, value in own.items()} | arrays
        path = tmp_path / name
        np.savez(path, **{key: value for key, value in own.items() if value is not None})
        return path

    return write


@pytest.fixture
def raw_folder(tmp_path: Path) -> Callable[[str, str], Path]:
    """Makes a writable root with real raw files: `raw_folder("planetoid/Cora", "Cora")`; skips without them."""

    def make(source: str, name: str) -> Path:
        files = Path(__file__).parents[2].parent / "shared" / "data" / source / "raw"
        if not files.is_dir():
            pytest.skip(f"no {source} among the shared data files")
        root = tmp_path / "root"
        (root / name).mkdir(parents=True)
        (root / name / "raw").symlink_to(files)
        return root

    return make
