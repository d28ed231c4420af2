"""The class that users derive from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_geometric.data import Data

from pygsage import Recipe


class Mine(Recipe):
    def graphs(self) -> Iterator[Data]:
        yield Data()


def test_the_root_is_the_folder_of_the_file_or_what_is_told() -> None:
    assert Mine().root == Path(__file__).parent
    assert Mine("somewhere").root == Path("somewhere")
    assert len(list(Mine().graphs())) == 1
    assert Mine.num_graphs is None


def test_a_recipe_without_graphs_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Recipe has no method graphs"):
        Recipe().graphs()


def test_the_contract_is_documented() -> None:
    for word in ("x", "edge_index", "y", "train_mask", "train_idx", "node_id", "num_graphs", "--split-id", "root"):
        assert word in (Recipe.__doc__ or ""), word
