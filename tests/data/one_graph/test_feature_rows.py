"""Features as rows to be read: the same rows, wherever they lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pygsage.config import TrainConfig
from pygsage.data.files import fetch
from pygsage.data.one_graph import feature_rows
from pygsage.data.one_graph.feature_rows import CachedRows, ColdRows, ResidentRows, rows_of
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open import open_graph
from pygsage.memory.machine import read_machine
from pygsage.native import core


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("piece_pages", [1, 10, 1 << 14])
def test_every_way_reads_the_same_rows(
    dtype: type, piece_pages: int, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PIECE_PAGES", piece_pages)
    monkeypatch.setattr(feature_rows, "_FILL_ROWS", 130)
    if not compiled:
        monkeypatch.setattr(fetch, "core", None)
        monkeypatch.setattr(feature_rows, "core", None)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(500, 300)).astype(dtype))
    x = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    held = torch.from_numpy(rng.random(500) < 0.3)
    nothing, all_of_it = torch.zeros(500, dtype=torch.bool), torch.ones(500, dtype=torch.bool)
    ways = [ResidentRows(x), ColdRows(x), *(CachedRows(x, some) for some in (held, nothing, all_of_it))]
    for ids in (rng.integers(0, 500, 120), np.arange(500), np.array([499, 0, 0]), np.empty(0, np.int64)):
        wanted = torch.from_numpy(ids)
        for way in ways:
            found = way.read(wanted)
            assert found.dtype == x.dtype
            assert torch.equal(found, x[wanted])
        in_cache = int(held[wanted].sum())
        assert [way.counts() for way in ways] == [
            (0, 0),
            (0, 0),
            (in_cache, len(ids) - in_cache),
            (0, len(ids)),
            (len(ids), 0),
        ]
        assert ways[2].counts() == (0, 0)
    assert [way.resident is not None for way in ways] == [True, False, False, False, False]


@pytest.mark.parametrize("num_nodes", [1, 63, 64, 65, 128])
def test_the_place_of_each_row_that_is_held(num_nodes: int) -> None:
    x = torch.arange(num_nodes, dtype=torch.float32).reshape(-1, 1).clone()
    held = torch.arange(num_nodes) % 3 == 0
    rows = CachedRows(x, held)
    assert rows.num_held == int(held.sum())
    assert rows.num_bytes == 4 * rows.num_held + 12 * -(-num_nodes // 64)
    assert torch.equal(rows.read(torch.arange(num_nodes)), x)
    assert rows.counts() == (rows.num_held, num_nodes - rows.num_held)


@pytest.mark.skipif(core is None, reason="the native core is not built")
def test_rows_that_are_not_there_are_refused() -> None:
    x = torch.zeros(70, 3)
    for rows in (ColdRows(x), CachedRows(x, torch.arange(70) < 3)):
        for wrong in ([70], [-1], [1, 2**62]):
            with pytest.raises((ValueError, IndexError)):
                rows.read(torch.tensor(wrong))
    assert core is not None
    core.at_random(np.zeros((0, 3), np.float32))
    bits, before = np.zeros(1, np.uint64), np.zeros(1, np.uint32)
    ids = np.zeros(4, np.int64)
    for out, missed in ((np.zeros((4, 2), np.float32), ids), (np.zeros((4, 3), np.float32), ids[:2])):
        with pytest.raises(ValueError, match=r"out has not a row|too short"):
            core.take_held(bits, before, np.zeros((0, 3), np.float32), ids.copy(), out, missed.copy())


@pytest.mark.skipif(core is None, reason="the native core is not built")
def test_a_graph_larger_than_the_page_cache_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = open_graph(TrainConfig(dataset="digits"))
    graph.save(tmp_path / "out")
    assert isinstance(rows_of(Graph.open(tmp_path / "out")), ResidentRows)
    monkeypatch.setattr("pygsage.memory.hot.ALWAYS_FITS_BYTES", 0)
    assert not Graph.open(tmp_path / "out").is_cold
    small = replace(read_machine(), memory_available_bytes=graph.x.nbytes)
    monkeypatch.setattr("pygsage.data.one_graph.graph.read_machine", lambda: small)
    cold = Graph.open(tmp_path / "out")
    assert cold.is_cold
    assert isinstance(rows_of(cold), ColdRows)
    assert cold.split_anew({"train": torch.arange(3)}, ()).is_cold
    assert torch.equal(cold.x, graph.x)
