"""Recipes of many graphs: their size from the first ones, and what a run does with it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from pygsage import to_on_disk_dataset, train
from pygsage.config import TrainConfig
from pygsage.data import sampled
from pygsage.data.memory import estimate_memory
from pygsage.data.names import parse_reference
from pygsage.data.open_many import open_data
from pygsage.data.sampled import shape_of_recipe
from pygsage.data.storage import choose_storage
from pygsage.errors import DatasetError, EnvironmentLimitError


def test_c011_a_recipe_is_estimated_from_its_first_graphs(
    recipe_of_graphs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = shape_of_recipe(parse_reference(recipe_of_graphs), None)
    assert (shape.num_graphs, shape.num_features, shape.num_classes, shape.made) == (80, 5, 3, "graphs")
    assert shape.num_nodes == 80 * 4.5
    assert "64 of its 80 graphs" in shape.source
    found = estimate_memory(recipe_of_graphs, gpus="0", batch_size=8)
    assert {"read", "process", "train", "evaluate"} <= set(found.memory.phases())
    Path(recipe_of_graphs).write_text(
        Path(recipe_of_graphs).read_text().replace("num_graphs = 80", "num_graphs = None")
    )
    counted = shape_of_recipe(parse_reference(recipe_of_graphs), None)
    assert counted.source == "all of its 80 graphs, which were made to count them"
    assert (counted.num_graphs, counted.num_nodes, counted.num_edges) == (80, shape.num_nodes, shape.num_edges)
    monkeypatch.setattr(sampled, "_COUNTED_VALUES", 1_000)
    with pytest.raises(DatasetError, match=r"how many graphs it has; it has more than \d\d, which were made"):
        estimate_memory(recipe_of_graphs)


def test_a_recipe_without_a_number_is_estimated_once_its_store_is_there(recipe_of_graphs: str, tmp_path: Path) -> None:
    text = Path(recipe_of_graphs).read_text()
    Path(recipe_of_graphs).write_text(text.replace("num_graphs = 80", "num_graphs = None"))
    config = TrainConfig(recipe_of_graphs, gpus="0", batch_size=8, split="random:.6/.2/.2", fanouts=(2,), hidden=4)
    assert choose_storage(config, 1).told is None
    with ExitStack() as stack:
        _, held = open_data(config, stack, storage=choose_storage(config, 1))
    assert held is not None
    assert held.told is not None
    assert (held.told.shape.num_graphs, held.is_of_graphs) == (80, True)
    Path(recipe_of_graphs).write_text(f"{Path(recipe_of_graphs).read_text()}\n")  # another recipe
    tight = replace(config, memory_limit="1MiB")
    with ExitStack() as stack, pytest.raises(EnvironmentLimitError, match="does not fit"):
        open_data(tight, stack, storage=choose_storage(tight, 1))


def test_datasets_in_python_are_estimated_too(tmp_path: Path) -> None:
    ring = Data(x=torch.ones(9, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.arange(9) % 3)
    one = estimate_memory(ring, gpus="0")
    assert (one.shape.num_graphs, one.shape.num_nodes, one.shape.num_classes) == (1, 9, 3)
    assert one.next_command() == "pygsage.train(dataset)"
    graph = Data(x=torch.ones(9, 4), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([2]))
    many = estimate_memory([graph] * 700, gpus="0")
    assert (many.shape.num_graphs, many.shape.num_nodes, many.training.batch_size) == (700, 6_300, 64)
    assert many.shape.source == "234 of its 700 graphs"
    store = to_on_disk_dataset([graph] * 7, tmp_path / "store")
    assert estimate_memory(store).shape.made == "store"
    with pytest.raises(DatasetError, match="is of type int"):
        estimate_memory(3)  # type: ignore[arg-type]
    told = {"fanouts": (2,), "hidden": 4, "batch_size": 4, "epochs": 1, "gpus": "0", "quiet": True}
    with pytest.raises(EnvironmentLimitError, match="does not fit"):
        train([graph] * 20, split="random:.6/.2/.2", memory_limit="1MiB", run_dir=str(tmp_path / "no"), **told)
    assert not (tmp_path / "no").exists()
    found = [
        train(ring, split="random:.6/.2/.2", storage=storage, run_dir=str(tmp_path / storage), **told)
        for storage in ("memory", "disk")
    ]
    assert all(result.estimated_peak_bytes for result in found)
    weights = [(tmp_path / storage / "model.safetensors").read_bytes() for storage in ("memory", "disk")]
    assert weights[0] == weights[1]


def test_what_does_not_fit_is_refused_before_anything_is_made(recipe_of_graphs: str, tmp_path: Path) -> None:
    config = TrainConfig(recipe_of_graphs, gpus="0", batch_size=8, memory_limit="1MiB")
    with pytest.raises(EnvironmentLimitError, match="does not fit in memory"):
        choose_storage(config, 1)
    assert not (tmp_path / "cache").exists()
