"""Rows of a file that does not fit in RAM: the same rows, however many pages are asked for at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pygsage.config import TrainConfig
from pygsage.data.cold import cold_rows
from pygsage.data.graph import Graph
from pygsage.data.open import open_graph
from pygsage.memory.machine import read_machine
from pygsage.native import core


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("piece_bytes", [1, 10 * 4096, 1 << 24])
def test_rows_are_those_asked_for(
    dtype: type, piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pygsage.data.cold.PIECE_BYTES", piece_bytes)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(500, 7)).astype(dtype))
    x = np.load(tmp_path / "x.npy", mmap_mode="c")
    for ids in (rng.integers(0, 500, 120), np.arange(500), np.array([499, 0, 0]), np.empty(0, np.int64)):
        np.testing.assert_array_equal(cold_rows(x, ids), x[ids])
    monkeypatch.setattr("pygsage.data.cold.core", None)
    np.testing.assert_array_equal(cold_rows(x, np.array([3, 1])), x[[3, 1]])


@pytest.mark.skipif(core is None, reason="the native core is not built")
def test_rows_that_are_not_there_are_not_asked_for() -> None:
    assert core is not None
    x = np.zeros((4, 3), np.float32)
    core.will_need(x, np.array([-1, 4, 2**62, 1]))
    core.at_random(x)
    core.at_random(np.zeros((0, 3), np.float32))


@pytest.mark.skipif(core is None, reason="the native core is not built")
def test_a_graph_larger_than_the_page_cache_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = open_graph(TrainConfig(dataset="digits"))
    graph.save(tmp_path / "out")
    assert not Graph.open(tmp_path / "out").is_cold
    monkeypatch.setattr("pygsage.data.graph._ALWAYS_FITS_BYTES", 0)
    assert not Graph.open(tmp_path / "out").is_cold
    small = replace(read_machine(), memory_available_bytes=graph.x.nbytes)
    monkeypatch.setattr("pygsage.data.graph.read_machine", lambda: small)
    cold = Graph.open(tmp_path / "out")
    assert cold.is_cold
    assert cold.split_anew({"train": torch.arange(3)}, ()).is_cold
    assert torch.equal(cold.x, graph.x)
