from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pygsage.config import TrainConfig
from pygsage.errors import DatasetError
from pygsage.memory.answer import answer, gpus_of_driver
from pygsage.memory.machine import read_machine
from pygsage.memory.options import EstimateConfig
from pygsage.memory.shapes import shape_from_numbers

MIB = 1 << 20
MACHINE = replace(read_machine(), memory_available_bytes=4_096 * MIB, num_cores=4, disk_free_bytes=1 << 50)


def test_a_run_asks_with_its_own_options() -> None:
    found = answer(TrainConfig("ogbn-arxiv", gpus="0", procs=2, batch_size=64), machine=MACHINE)
    assert (found.training.num_ranks, found.training.batch_size) == (2, 64)
    assert found.sentence().startswith("memory: ")
    assert found.chosen.peak_bytes > 0
    assert answer(TrainConfig("digits", gpus="0"), machine=MACHINE, num_ranks=3).training.num_ranks == 3


def test_what_the_process_holds_already_is_not_counted_twice() -> None:
    plain = answer(TrainConfig("digits", gpus="0"), machine=MACHINE)
    measured = answer(TrainConfig("digits", gpus="0"), machine=MACHINE, base_bytes=500 * MIB)
    assert plain.decision.available_bytes == 4_096 * MIB
    assert measured.decision.available_bytes == 4_596 * MIB


def test_a_recipe_is_told_by_its_sample() -> None:
    config = TrainConfig("datasets/shapes.py", gpus="0", batch_size=64)
    with pytest.raises(DatasetError, match="recipe"):
        answer(config, machine=MACHINE)
    shape = replace(shape_from_numbers(100_000, 300, 3_000, 64), name=config.dataset, train_as="")
    found = answer(config, machine=MACHINE, shape=shape)
    assert found.decision.storage == "disk"
    assert found.next_command().startswith("pygsage train datasets/shapes.py  # builds it on disk by itself")


def test_the_next_command_can_be_typed() -> None:
    found = answer(EstimateConfig("Cora", gpus="0"), machine=MACHINE)
    assert found.next_command() == "pygsage train pyg:Planetoid/Cora"
    rooted = answer(EstimateConfig("Cora", root="/data", gpus="0"), machine=MACHINE)
    assert rooted.next_command() == "pygsage train pyg:Planetoid/Cora --root /data"
    none = answer(EstimateConfig("ogbn-arxiv", gpus="0", memory_limit="1MiB"), machine=MACHINE)
    assert none.next_command() == "pygsage estimate-memory ogbn-arxiv --batch-size 256 --fanouts 5,5,5"


def test_gpus_are_those_of_the_driver(tmp_path: Path) -> None:
    assert gpus_of_driver(tmp_path) == 0
    for number in range(2):
        (tmp_path / "proc/driver/nvidia/gpus" / str(number)).mkdir(parents=True)
    assert gpus_of_driver(tmp_path) == 2


@pytest.mark.parametrize("name", ["empty.npz", "empty.npy"])
def test_a_graph_without_nodes_is_refused(name: str, tmp_path: Path) -> None:
    x = np.zeros((0, 4), np.float32)
    if name.endswith(".npy"):
        np.save(tmp_path / name, x)
    else:
        np.savez(tmp_path / name, x=x, edge_index=np.zeros((2, 0), np.int64), y=np.zeros(0, np.int64))
    with pytest.raises(DatasetError, match="has no nodes; expected at least one"):
        answer(EstimateConfig(str(tmp_path / name), gpus="0"), machine=MACHINE)


def test_arrays_of_objects_are_told_as_such(tmp_path: Path) -> None:
    things = np.array([[1, None], ["a", 2]], dtype=object)
    np.save(tmp_path / "x.npy", things, allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=things, edge_index=np.zeros((2, 0), np.int64), y=np.zeros(2, np.int64))
    for name, what in (("x.npy", "x.npy"), ("x.npz", "x.npz: x")):
        with pytest.raises(DatasetError, match=rf"{what} is of dtype '\|O', which are objects of Python; expected num"):
            answer(EstimateConfig(str(tmp_path / name), gpus="0"), machine=MACHINE)


def test_the_folder_of_a_run_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("epochs: 3")
    with pytest.raises(
        DatasetError, match="is the folder of a run; expected a dataset. To look at the run: pygsage info"
    ):
        answer(EstimateConfig(str(tmp_path), gpus="0"), machine=MACHINE)
