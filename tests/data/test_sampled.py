"""Recipes of many graphs: their size from the first ones, and what a run does with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pygsage.config import TrainConfig
from pygsage.data.memory import estimate_memory
from pygsage.data.names import parse_reference
from pygsage.data.sampled import shape_of_recipe
from pygsage.data.storage import choose_storage
from pygsage.errors import DatasetError, EnvironmentLimitError


def test_c011_a_recipe_is_estimated_from_its_first_graphs(recipe_of_graphs: str) -> None:
    shape = shape_of_recipe(parse_reference(recipe_of_graphs), None)
    assert (shape.num_graphs, shape.num_features, shape.num_classes, shape.made) == (80, 5, 3, "graphs")
    assert shape.num_nodes == 80 * 4.5
    assert "64 of its 80 graphs" in shape.source
    found = estimate_memory(recipe_of_graphs, gpus="0", batch_size=8)
    assert {"read", "process", "train", "evaluate"} <= set(found.memory.phases())
    Path(recipe_of_graphs).write_text(
        Path(recipe_of_graphs).read_text().replace("num_graphs = 80", "num_graphs = None")
    )
    with pytest.raises(DatasetError, match="does not say how many graphs it has"):
        estimate_memory(recipe_of_graphs)


def test_what_does_not_fit_is_refused_before_anything_is_made(recipe_of_graphs: str, tmp_path: Path) -> None:
    config = TrainConfig(recipe_of_graphs, gpus="0", batch_size=8, memory_limit="1MiB")
    with pytest.raises(EnvironmentLimitError, match="does not fit in memory"):
        choose_storage(config, 1)
    assert not (tmp_path / "cache").exists()
