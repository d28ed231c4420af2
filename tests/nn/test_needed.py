"""An evaluation of some nodes: the same outputs for them, and no more rows than they need."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from pygsage.data.one_graph.feature_rows import ColdRows
from pygsage.nn.inference import layerwise_inference
from pygsage.nn.needed import needed_rows
from pygsage.nn.sage import GraphSAGE


def random_graph(num_nodes: int, num_edges: int, seed: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    degrees = np.bincount(rng.integers(0, num_nodes, num_edges), minlength=num_nodes)
    indptr = torch.from_numpy(np.concatenate([[0], degrees.cumsum()]))
    return indptr, torch.from_numpy(rng.integers(0, num_nodes, num_edges).astype(np.int32))


def test_rows_of_each_layer_are_the_wanted_ones_and_their_neighbours() -> None:
    # 0 -> 1 -> 2 -> 3, and four nodes alone
    indptr, indices = torch.tensor([0, 0, 1, 2, 3, 3, 3, 3, 3]), torch.tensor([0, 1, 2], dtype=torch.int32)
    rows = needed_rows(indptr, indices, torch.tensor([3]), 3)
    assert [each.tolist() for each in rows if each is not None] == [[1, 2, 3], [2, 3], [3]]
    assert needed_rows(indptr, indices, None, 2) == [None, None]
    last = needed_rows(indptr, indices, torch.tensor([0, 1, 2, 3, 4]), 2)
    assert last == [None, None]  # more than half


@settings(max_examples=40, deadline=None)
@given(
    num_wanted=st.integers(0, 12),
    aggr=st.sampled_from(["mean", "sum", "max"]),
    num_layers=st.integers(1, 3),
    edge_budget=st.sampled_from([1, 7, 1000]),
    half=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_outputs_of_wanted_nodes_are_those_of_a_whole_evaluation(
    num_wanted: int, aggr: str, num_layers: int, edge_budget: int, half: bool, seed: int
) -> None:
    indptr, indices = random_graph(60, 90, seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(60, 5, generator=generator)
    model = GraphSAGE(5, 6, num_layers, 4, aggr=aggr)
    wanted = torch.randperm(60, generator=generator)[:num_wanted]
    x = x.half() if half else x
    whole = layerwise_inference(model, x.float(), indptr, indices)
    found = layerwise_inference(model, x, indptr, indices, wanted=wanted, edge_budget=edge_budget)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found[wanted], whole[wanted], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wanted", [None, torch.tensor([5, 3, 40])])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("out_channels", [4, 3])  # 3: the last layer is so narrow that its linear map comes first
def test_c124_a_cold_file_gives_the_same_bits(
    out_channels: int, dtype: type, wanted: Tensor | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indptr, indices = random_graph(300, 900, 0)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300, 8)).astype(dtype))
    x = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    model = GraphSAGE(8, 6, 2, out_channels)
    warm = layerwise_inference(model, x.float(), indptr, indices, wanted=wanted)
    monkeypatch.setattr("pygsage.nn.gather._GATHERED_VALUES", 64)
    (tmp_path / "scratch").mkdir()
    cold = layerwise_inference(
        model, x, indptr, indices, wanted=wanted, features=ColdRows(x), scratch=tmp_path / "scratch"
    )
    rows = slice(None) if wanted is None else wanted
    assert torch.equal(warm[rows], cold[rows])
    assert list((tmp_path / "scratch").iterdir()) == []  # the files have no name any more
