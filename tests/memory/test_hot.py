"""How many rows are held in RAM."""

from __future__ import annotations

import pytest

from pygsage.config import TrainConfig
from pygsage.memory.answer import answer
from pygsage.memory.hot import hot_rows, is_cold, topology_bytes
from pygsage.memory.machine import read_machine
from pygsage.memory.options import EstimateConfig
from pygsage.memory.shapes import DatasetShape

GIB = 1 << 30
PAPERS = DatasetShape(
    "papers", "a test", 27_764_989, 403_921_468, 128, 172, x_dtype="float16", made="folder", num_train=301_795,
    mapped=frozenset(("x", "edge_index")),
)  # fmt: skip


def test_features_that_fit_are_not_cold() -> None:
    assert is_cold(5 * GIB, 8 * GIB)
    assert not is_cold(3 * GIB, 8 * GIB)
    assert not is_cold(5 * GIB, None)
    assert not is_cold(1000, 1)


@pytest.mark.parametrize(("num_ranks", "gib"), [(1, 8), (2, 12), (1, 10)])
def test_they_take_what_is_left(num_ranks: int, gib: int) -> None:
    config = TrainConfig(dataset="papers", eval_every=0, gpus="0", memory_limit=f"{gib}GiB", procs=num_ranks)
    told = answer(config, shape=PAPERS, machine=read_machine())
    assert 0 < told.hot_rows < PAPERS.num_nodes
    assert "evaluate" not in told.memory.phases()
    for way in (told.memory, told.disk):
        (row,) = [row for row in way.rows if row.what == "hot rows of the features"]
        assert (row.phase, row.place) == ("train", "rank")
        assert row.num_bytes == 256 * told.hot_rows + PAPERS.num_nodes * 3 // 16
        whole = way.ram_bytes("train") + way.launcher_bytes
        room = 0.9 * gib * GIB - whole + num_ranks * 256 * told.hot_rows
        whole += min(topology_bytes(PAPERS, PAPERS.num_edges), room / 4)
        assert whole <= 0.9 * gib * GIB
        assert way is told.memory or whole > 0.89 * gib * GIB  # it is sized for what reads rows from the disk besides
    assert not [row for row in told.pyg.rows if row.what == "hot rows of the features"]


def test_none_are_held_where_all_fit_or_nothing_is_left() -> None:
    for limit, expected in (("64GiB", 0), ("1GiB", 0)):
        config = TrainConfig(dataset="papers", eval_every=0, gpus="0", memory_limit=limit)
        assert answer(config, shape=PAPERS, machine=read_machine()).hot_rows == expected
    plain = answer(EstimateConfig(num_graphs=9, avg_nodes=5, avg_edges=5, num_features=5), machine=read_machine())
    assert plain.hot_rows == 0
    assert hot_rows(PAPERS, plain.disk, 10, None) == 0
    assert hot_rows(PAPERS, plain.disk, 10, 13 * GIB) > 0


def test_an_evaluation_counts_where_there_is_one() -> None:
    config = TrainConfig(dataset="papers", gpus="0", memory_limit="64GiB")
    assert "evaluate" in answer(config, shape=PAPERS, machine=read_machine()).disk.phases()


def test_edges_that_do_not_fit_leave_three_quarters_to_the_hottest_rows() -> None:
    found = []
    for gib in (2, 10):
        config = TrainConfig(dataset="papers", eval_every=0, gpus="0", memory_limit=f"{gib}GiB")
        told = answer(config, shape=PAPERS, machine=read_machine())
        room = int(0.9 * gib * GIB) - told.disk.ram_bytes("train") + 256 * told.hot_rows - told.disk.launcher_bytes
        found.append(256 * told.hot_rows / room)
    assert found[0] == pytest.approx(0.75, abs=0.01)
    assert found[1] > 0.76
