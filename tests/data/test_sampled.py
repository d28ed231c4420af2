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

RECIPE = """
import torch
from torch_geometric.data import Data
from pygsage import Recipe

class Mine(Recipe):
    num_graphs = {num_graphs}

    def graphs(self):
        for number in range(80):
            n = 3 + number % 4
            edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
            yield Data(x=torch.randn(n, 5), edge_index=edges, y=torch.tensor([number % 3]))
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "code").mkdir()
    path = tmp_path / "code" / "mine.py"
    path.write_text(RECIPE.format(num_graphs=80))
    return str(path)


def test_c011_a_recipe_is_estimated_from_its_first_graphs(recipe: str) -> None:
    shape = shape_of_recipe(parse_reference(recipe), None)
    assert (shape.num_graphs, shape.num_features, shape.num_classes, shape.made) == (80, 5, 3, "graphs")
    assert shape.num_nodes == 80 * 4.5
    assert "64 of its 80 graphs" in shape.source
    found = estimate_memory(recipe, gpus="0", batch_size=8)
    assert {"read", "process", "train", "evaluate"} <= set(found.memory.phases())
    Path(recipe).write_text(RECIPE.format(num_graphs=None))
    with pytest.raises(DatasetError, match="does not say how many graphs it has"):
        estimate_memory(recipe)


def test_what_does_not_fit_is_refused_before_anything_is_made(recipe: str, tmp_path: Path) -> None:
    config = TrainConfig(recipe, gpus="0", batch_size=8, memory_limit="1MiB")
    with pytest.raises(EnvironmentLimitError, match="does not fit in memory"):
        choose_storage(config, 1)
    assert not (tmp_path / "cache").exists()
