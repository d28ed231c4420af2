from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from pygsage.data.one_graph.feature_rows import ColdRows
from pygsage.distributed import World
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.nn.inference import layerwise_inference
from pygsage.nn.sage import GraphSAGE


@dataclass
class FakeWorld:
    """Ranks that are threads: inference asks no more of its world than this."""

    local_rank: int
    local_size: int
    waiting: threading.Barrier

    def local_barrier(self) -> None:
        self.waiting.wait(timeout=30)


def infer_on_ranks(
    model: GraphSAGE, x: Tensor, indptr: Tensor, indices: Tensor, scratch: Path, num_ranks: int, **options: object
) -> list[Tensor]:
    waiting = threading.Barrier(num_ranks)
    models = [GraphSAGE.__new__(GraphSAGE) for _ in range(num_ranks)]
    for each in models:  # the mode is restored on each, so they must not be one object
        each.__dict__ = {**model.__dict__}

    def rank(number: int) -> Tensor:
        world = cast(World, FakeWorld(number, num_ranks, waiting))
        return layerwise_inference(models[number], x, indptr, indices, world=world, scratch=scratch, **options)

    with ThreadPoolExecutor(num_ranks) as pool:
        return list(pool.map(rank, range(num_ranks)))


def random_graph(num_nodes: int, most: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    degree = torch.randint(0, most + 1, (num_nodes,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return indptr, torch.randint(0, max(1, num_nodes), (int(indptr[-1]),), generator=generator, dtype=torch.int32)


def full_batch(model: GraphSAGE, x: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    targets = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    mode = model.training
    with torch.no_grad():
        out = model.eval()(x, torch.stack([indices.long(), targets]))
    model.train(mode)
    return cast(Tensor, out)


@settings(max_examples=60, deadline=None)
@given(
    num_nodes=st.integers(0, 40),
    most=st.integers(0, 12),
    aggr=st.sampled_from(["mean", "sum", "max"]),
    norm=st.sampled_from(["none", "layer"]),
    num_layers=st.integers(1, 4),
    edge_budget=st.sampled_from([1, 3, 10, 1000]),
    double=st.booleans(),
    cold=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_c124_equals_the_full_batch_forward(
    tmp_path_factory: pytest.TempPathFactory,
    num_nodes: int,
    most: int,
    aggr: str,
    norm: str,
    num_layers: int,
    edge_budget: int,
    double: bool,
    cold: bool,
    seed: int,
) -> None:
    dtype, tolerance = (torch.float64, 1e-12) if double else (torch.float32, 1e-5)
    torch.manual_seed(seed)
    indptr, indices = random_graph(num_nodes, most, seed)
    model = GraphSAGE(5, 8, num_layers, 3, aggr=aggr, norm=norm).to(dtype)
    x = torch.randn(num_nodes, 5, dtype=dtype)
    on_disk = {"features": ColdRows(x), "scratch": tmp_path_factory.mktemp("scratch")} if cold else {}
    found = layerwise_inference(model, x, indptr, indices, edge_budget=edge_budget, **on_disk)
    expected = full_batch(model, x, indptr, indices)
    assert found.dtype == dtype
    assert found.shape == (num_nodes, 3)
    # Sums of many neighbours grow from layer to layer: the bar is relative to what they have become.
    scale = max(1.0, float(expected.abs().max())) if num_nodes else 1.0
    assert torch.allclose(found, expected, rtol=0, atol=tolerance * scale)


def test_c120_rows_are_in_the_order_of_node_ids() -> None:
    x = torch.arange(10.0).unsqueeze(1)
    model = GraphSAGE(1, 1, 1, 1)
    with torch.no_grad():
        model.convs[0].lin_r.weight.fill_(1.0)
        model.convs[0].lin_l.weight.zero_()
        model.convs[0].lin_l.bias.zero_()
    indptr, indices = random_graph(10, 4, 0)
    assert torch.equal(layerwise_inference(model, x, indptr, indices, edge_budget=2), x)


@pytest.mark.parametrize("aggr", ["mean", "sum", "max"])
def test_c125_a_star_is_aggregated_within_the_budget(aggr: str, monkeypatch: pytest.MonkeyPatch) -> None:
    num_leaves, budget = 100_000, 10_000
    indptr = torch.zeros(num_leaves + 2, dtype=torch.int64)
    indptr[1:] = num_leaves  # node 0 is the hub
    indices = torch.arange(1, num_leaves + 1, dtype=torch.int32)
    torch.manual_seed(0)
    model, x = GraphSAGE(4, 8, 2, 3, aggr=aggr), torch.randn(num_leaves + 1, 4)
    seen = []
    from pygsage.nn import gather

    sum_up = gather.sum_up

    def watched(x: Tensor, indptr: Tensor, indices: Tensor, aggr: str, width: int) -> Tensor:
        seen.append((len(indices), len(indptr) - 1))
        return sum_up(x, indptr, indices, aggr, width)

    monkeypatch.setattr(gather, "sum_up", watched)
    found = layerwise_inference(model, x, indptr, indices, edge_budget=budget)
    assert max(edges for edges, _ in seen) == budget
    assert max(rows for _, rows in seen) <= 1 << 16
    expected = full_batch(model.double(), x.double(), indptr, indices)
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_c015_no_message_per_edge_is_held() -> None:
    num_nodes, degree, hidden = 20_000, 50, 64
    indptr = torch.arange(num_nodes + 1) * degree
    indices = torch.randint(0, num_nodes, (num_nodes * degree,), dtype=torch.int32)
    model, x = GraphSAGE(16, hidden, 2, 4), torch.randn(num_nodes, 16)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        layerwise_inference(model, x, indptr, indices)
    largest = max(event.cpu_memory_usage for event in profiled.events())
    assert 0 < largest <= num_nodes * hidden * 4 * 2  # of E x hidden x 4 bytes this is a 25th


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_ranks_of_a_machine_share_the_work_and_the_result(num_ranks: int, num_layers: int, tmp_path: Path) -> None:
    indptr, indices = random_graph(50, 8, 1)
    torch.manual_seed(0)
    model, x = GraphSAGE(5, 8, num_layers, 3, norm="layer"), torch.randn(50, 5)
    alone = layerwise_inference(model, x, indptr, indices)
    scratch = tmp_path / "there"
    together = infer_on_ranks(model, x, indptr, indices, scratch, num_ranks, edge_budget=7)
    for result in together:
        assert torch.allclose(result, alone, atol=1e-6)
    assert os.listdir(scratch) == []
    together[0].zero_()  # each rank may do what it likes with its own
    assert torch.allclose(together[1], alone, atol=1e-6)


@dataclass
class FakeMachines:
    """Two machines of as many ranks as threads; the first of each hands rows to the other's."""

    rank: int
    size: int
    waiting: list[threading.Barrier]
    between: threading.Barrier
    sent: list[Tensor]

    @property
    def local_size(self) -> int:
        return self.size // 2

    @property
    def local_rank(self) -> int:
        return self.rank % self.local_size

    @property
    def machines(self) -> list[list[int]]:
        return [list(range(self.local_size)), list(range(self.local_size, self.size))]

    def local_barrier(self) -> None:
        self.waiting[self.rank // self.local_size].wait(timeout=30)

    def between_machines_(self, tensor: Tensor, source: int) -> None:
        assert self.local_rank == 0
        assert tensor.is_contiguous()
        self.between.wait(timeout=30)
        if self.rank == source:
            self.sent[0] = tensor
        self.between.wait(timeout=30)
        assert self.sent[0].shape == tensor.shape
        tensor.copy_(self.sent[0])
        self.between.wait(timeout=30)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("aggr", ["mean", "max"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_machines_share_the_work_and_the_result(num_ranks: int, aggr: str, num_layers: int, tmp_path: Path) -> None:
    indptr, indices = random_graph(90, 6, 1)
    torch.manual_seed(0)
    model, x = GraphSAGE(5, 8, num_layers, 3, norm="layer", aggr=aggr), torch.randn(90, 5)
    wanted = torch.arange(7, 40, 3)
    for some in (None, wanted):
        alone = layerwise_inference(model, x, indptr, indices, wanted=some)
        local, done = num_ranks // 2, [0] * num_ranks
        waiting, between, sent = [threading.Barrier(local) for _ in range(2)], threading.Barrier(2), [x]

        def rank(
            number: int,
            some: Tensor | None = some,
            done: list[int] = done,
            shared: tuple[Any, ...] = (waiting, between, sent),
        ) -> Tensor:
            own = GraphSAGE.__new__(GraphSAGE)
            own.__dict__ = {**model.__dict__}

            def counted(layer: int, joined: Tensor) -> Tensor:
                done[number] += len(joined)
                return model.combine(layer, joined)

            own.__dict__["combine"] = counted
            scratch = tmp_path / str(number // (num_ranks // 2)) if num_ranks > 2 else None  # files, or RAM
            world = cast(World, FakeMachines(number, num_ranks, *shared))
            how: dict[str, Any] = {"scratch": scratch, "wanted": some, "edge_budget": 9, "on_all_machines": True}
            return layerwise_inference(own, x, indptr, indices, world=world, **how)

        with ThreadPoolExecutor(num_ranks) as pool:
            together = list(pool.map(rank, range(num_ranks)))
        for result in together:
            assert torch.allclose(result[wanted], alone[wanted], atol=1e-6)
            assert some is not None or torch.allclose(result, alone, atol=1e-6)
        assert max(done) < 1.5 * sum(done) / num_ranks


def test_more_ranks_than_nodes_and_no_nodes(tmp_path: Path) -> None:
    model = GraphSAGE(5, 8, 2, 3)
    for num_nodes in (0, 2):
        indptr, indices = random_graph(num_nodes, 3, 0)
        x = torch.randn(num_nodes, 5)
        expected = full_batch(model, x, indptr, indices)
        for result in infer_on_ranks(model, x, indptr, indices, tmp_path, 3):
            assert torch.allclose(result, expected, atol=1e-6)


def test_a_file_left_by_a_killed_run_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "layer-0.npy").write_bytes(b"half written")
    indptr, indices = random_graph(9, 3, 0)
    model, x = GraphSAGE(5, 8, 1, 3), torch.randn(9, 5)
    expected = full_batch(model, x, indptr, indices)
    for result in infer_on_ranks(model, x, indptr, indices, tmp_path, 2):
        assert torch.allclose(result, expected, atol=1e-6)


def test_a_full_disk_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    world = cast(World, FakeWorld(0, 2, threading.Barrier(2)))
    indptr, indices = random_graph(9, 3, 0)
    with pytest.raises(EnvironmentLimitError, match="No space left"):
        layerwise_inference(GraphSAGE(5, 8, 1, 3), torch.zeros(9, 5), indptr, indices, world=world, scratch=tmp_path)
    assert os.listdir(tmp_path) == []


def test_mapped_features_and_the_last_hidden_layer(tmp_path: Path) -> None:
    indptr, indices = random_graph(30, 5, 2)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((30, 5)).astype(np.float32))
    x = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="c"))
    model = GraphSAGE(5, 8, 2, 3)
    hidden = layerwise_inference(model, x, indptr, indices, last_hidden=True)
    targets = torch.repeat_interleave(torch.arange(30), indptr.diff())
    expected = model.convs[0](x, torch.stack([indices.long(), targets])).relu()
    assert torch.allclose(hidden, expected, atol=1e-5)
    assert torch.equal(layerwise_inference(GraphSAGE(5, 8, 1, 3), x, indptr, indices, last_hidden=True), x)


def test_the_mode_is_restored_and_the_result_can_be_trained_on() -> None:
    indptr, indices = random_graph(9, 3, 0)
    model = GraphSAGE(5, 8, 2, 3, dropout=0.5)
    for mode in (True, False):
        model.train(mode)
        out = layerwise_inference(model, torch.randn(9, 5), indptr, indices)
        assert model.training == mode
    weight = torch.ones(3, requires_grad=True)
    (out * weight).sum().backward()
    assert weight.grad is not None


def test_c126_a_wrapped_model_is_called_without_its_wrapper() -> None:
    class Wrapper(torch.nn.Module):
        def __init__(self, module: torch.nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, *_: object) -> None:
            raise AssertionError("a wrapper's forward talks to the other ranks")

    indptr, indices = random_graph(9, 3, 0)
    model, x = GraphSAGE(5, 8, 2, 3), torch.randn(9, 5)
    assert torch.equal(
        layerwise_inference(Wrapper(model), x, indptr, indices), layerwise_inference(model, x, indptr, indices)
    )


def test_c123_every_precondition_has_a_message() -> None:
    model = GraphSAGE(5, 8, 2, 3)
    indptr, indices = random_graph(9, 3, 0)
    x = torch.zeros(9, 5)
    world = cast(World, FakeWorld(0, 2, threading.Barrier(2)))
    for arguments, options, message in (
        ((torch.nn.Linear(5, 3), x, indptr, indices), {}, "got a Linear; expected a pygsage.GraphSAGE"),
        ((model, x[:, :4], indptr, indices), {}, r"x has shape \(9, 4\); expected \[N, 5\]"),
        ((model, x, indptr[:-1], indices), {}, r"indptr has shape \(9,\); expected \[10\]"),
        ((model, x, indptr, indices[:-1]), {}, "expected 0 to"),
        ((model, x, indptr, indices), {"edge_budget": 0}, "edge_budget is 0"),
        ((model, x, indptr, indices), {"world": world}, "expected a scratch folder"),
    ):
        with pytest.raises(DatasetError, match=message):
            layerwise_inference(*arguments, **options)
