"""Graphs that are like the one before are taken without a look at each rule, and with the same outcome."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from pygsage.data.store.intake import Intake
from pygsage.data.store.layout import Layout
from pygsage.errors import DatasetError

SIZES = st.integers(0, 3)


@st.composite
def graphs(draw: st.DrawFn) -> Data:
    n, e = draw(SIZES), draw(SIZES)
    values: dict[str, Any] = {"x": torch.zeros(n, 2), "edge_index": torch.zeros(2, e, dtype=torch.int64)}
    values["y"] = torch.zeros(draw(st.sampled_from([1, 1, 1, n, e, 5])))
    odd = draw(st.sampled_from(["", "", "", "", "none", "late", "dtype", "shape", "order", "count", "list", "class"]))
    if odd == "none":
        values["x"] = None
    elif odd == "late":
        values["z"] = torch.ones(n)
    elif odd == "dtype":
        values["edge_index"] = values["edge_index"].int()
    elif odd == "shape":
        values["x"] = torch.zeros(n, 3)
    elif odd == "order":
        values = dict(reversed(values.items()))
    elif odd == "count":
        values["num_nodes"] = draw(st.integers(-1, 3))
    elif odd == "list":
        values["y"] = [1]
    return (Mine if odd == "class" else Data)(**values)


class Mine(Data):  # type: ignore[misc]
    """A class of a user's own."""


def outcome(stream: list[Data], missing: Any, most: int) -> list[Any]:
    told: list[Any] = []
    intake = Intake(missing)
    with patch.object(Layout, "most", most):
        for data in stream:
            try:
                taken = intake.take(data, len(told))
                told.append(([(c.name, content, rows) for c, content, rows in taken.values], taken.counts))
            except DatasetError as error:
                told.append(str(error))
    state = intake.state()
    return [*told, state, intake.finish() if intake.num_graphs else None, Intake(missing, state).state()]


@given(st.lists(graphs(), min_size=1, max_size=9), st.sampled_from(["refuse", "keep"]), st.sampled_from([2, 4096]))
def test_the_outcome_is_the_same_as_without(stream: list[Data], missing: str, most: int) -> None:
    found = outcome(stream, missing, most)
    with patch.object(Layout, "of", lambda data, columns: None):
        expected = outcome(stream, missing, most)
    assert found == expected


def test_most_graphs_are_taken_so() -> None:
    intake = Intake()
    for n in range(1, 9):
        intake.take(Data(x=torch.zeros(n, 2), y=torch.tensor([n])))
    assert intake._layout is not None
    assert intake._layout.counts == list(range(2, 9))
    assert intake.finish().columns[0].rows == "nodes.slices"
    assert intake._layout is None
