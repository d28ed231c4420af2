"""ogbn-papers100M in small: its raw files become a store piece by piece, the same as the way through RAM makes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pygsage.cli.main import main
from pygsage.config import TrainConfig
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open import open_graph
from pygsage.memory.peak import PeakMemory, undroppable_bytes

MIB = 1 << 20


def write_raw(root: Path, num_nodes: int, num_edges: int, num_features: int, compressed: bool) -> None:
    """The layout of ogbn-papers100M: float16 features, int64 edges, float32 labels that are NaN where unknown."""
    rng = np.random.default_rng(0)
    folder = root / "ogbn_papers100M"
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / "time").mkdir(parents=True)
    order = rng.permutation(num_nodes)[:300]
    for name, ids in zip(("train", "valid", "test"), np.split(order, [200, 250]), strict=True):
        with gzip.open(folder / "split" / "time" / f"{name}.csv.gz", "wt") as file:
            file.writelines(f"{number}\n" for number in ids)
    y = np.full((num_nodes, 1), np.nan, np.float32)
    y[order, 0] = rng.integers(0, 172, 300)
    y[order[0]] = 171
    bits = rng.integers(0, 1 << 10, (num_nodes, num_features), dtype=np.uint16) | np.uint16(0x3C00)
    save: Callable[..., None] = np.savez_compressed if compressed else np.savez
    save(
        folder / "raw" / "data.npz",
        edge_index=rng.integers(0, num_nodes, (2, num_edges)),
        node_feat=bits.view(np.float16),
        node_year=np.full((num_nodes, 1), 2010),
        num_nodes_list=np.array([num_nodes]),
        num_edges_list=np.array([num_edges]),
    )
    save(folder / "raw" / "node-label.npz", node_label=y)
    (folder / "RELEASE_v1.txt").touch()


@pytest.mark.parametrize("compressed", [False, True])
def test_the_store_is_what_the_way_through_ram_makes(compressed: bool, tmp_path: Path) -> None:
    write_raw(tmp_path, 700, 5000, 8, compressed)
    words = ["convert", "ogbn-papers100M", str(tmp_path / "out"), "--root", str(tmp_path), "--offline", "--quiet"]
    assert main(words) == 0
    Graph.verify(tmp_path / "out")
    stored = Graph.open(tmp_path / "out")
    held = open_graph(TrainConfig(dataset="ogbn-papers100M", root=str(tmp_path), offline=True))
    assert stored.x.dtype == torch.float16
    assert torch.equal(stored.x.float(), held.x)
    assert (stored.num_classes, stored.task) == (172, "classes")
    assert set(stored.splits) == {"train", "val", "test"}
    for name, array in held.arrays().items():
        if name != "x":
            assert torch.equal(stored.arrays()[name], array), name


def test_it_is_streamed(tmp_path: Path) -> None:
    write_raw(tmp_path, 600_000, 100_000, 128, compressed=False)  # 146 MiB of features
    words = ["convert", "ogbn-papers100M", str(tmp_path / "out"), "--root", str(tmp_path), "--offline", "--quiet"]
    before = undroppable_bytes()
    with PeakMemory(0.002) as memory:
        assert main([*words, "--memory-limit", "1GiB"]) == 0
    # 4M values at a time are checked and written, and 60 bytes a node are held.
    assert memory.peak_bytes - before < 140 * MIB, memory.peak_bytes - before
    assert (tmp_path / "out" / "x.npy").stat().st_size > 146 * MIB
