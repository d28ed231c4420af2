from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pygsage.config import TrainConfig
from pygsage.data.one_graph.external import ListedEdges, write_csc
from pygsage.memory.building import highest_step, on_disk_rows
from pygsage.memory.peak import PeakMemory, release_free_memory, undroppable_bytes
from pygsage.memory.shapes import DatasetShape, shape_from_numbers
from pygsage.memory.training import Training, resolve

MIB = 1 << 20


def _training(**options: bool) -> Training:
    return resolve(TrainConfig(gpus="0", **options), "node", 2)  # type: ignore[arg-type]


def _read(shape: DatasetShape) -> int:
    rows = on_disk_rows(shape, shape.num_edges, _training(), 256 * MIB)
    return sum(row.num_bytes for row in rows if row.phase == "read" and row.place in ("shared", "rank"))


def test_labels_of_mapped_files_are_in_ram_only_while_they_are_checked() -> None:
    shape = shape_from_numbers(1, 12_000_000, 1_000_000, 64)
    assert _read(shape) == 1 << 22
    assert _read(replace(shape, x_dtype="float64")) == 5 << 22
    assert highest_step(shape, _training(), 256 * MIB)[:2] == ("labels while they are checked", 25 * 12_000_000)
    assert _read(replace(shape, name="ogbn-products")) == (1 << 22) + shape.y_bytes


def test_nodes_are_counted_before_edges_are_sorted_and_not_meanwhile() -> None:
    """Of 2 M nodes and 40 M edges 6 ranges or so are made: a range's nodes lie beside its edges, not all of them."""
    budget = 240 * MIB
    name, size, _ = highest_step(shape_from_numbers(1, 2_000_000, 40_000_000, 64), _training(), budget)
    most = (budget - 16 * 2_000_000) // 36
    assert name == "splits, and edges while they are sorted"
    assert size == pytest.approx(8 * 2_000_000 + 36 * most + 16 * most / 20, rel=1e-3)


@pytest.mark.parametrize(
    ("nodes", "edges", "options"),
    [(100_000, 1_500_000, {}), (600_000, 900_000, {}), (50_000, 900_000, {"self_loops": True})],
)
def test_sorting_takes_what_the_estimate_says(tmp_path: Path, nodes: int, edges: int, options: dict[str, bool]) -> None:
    budget = 40 * MIB
    random = np.random.default_rng(0)
    edge_index = torch.from_numpy(random.integers(0, nodes, (2, edges), dtype=np.int32))
    gc.collect()
    release_free_memory()
    before = undroppable_bytes()
    with PeakMemory(0.001) as memory:
        write_csc(ListedEdges(edge_index), nodes, tmp_path, tmp_path, budget_bytes=budget, **options)
    told = highest_step(shape_from_numbers(1, nodes, edges, 4), _training(**options), budget)[1]
    assert memory.peak_bytes - before == pytest.approx(told, abs=16 * MIB)
