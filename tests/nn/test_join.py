from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pygsage import native
from pygsage.nn.dropout import activation_dropout
from pygsage.nn.join import activated_join, aggregate, join
from pygsage.sampling.keys import stream_of
from pygsage.sampling.sample import Block

STREAM = stream_of(0, 3, 7)
AGGRS = ("mean", "sum", "max")


def random_block(num_rows: int, num_targets: int, dtype: torch.dtype = torch.int32) -> Block:
    generator = torch.Generator().manual_seed(num_rows)
    degree = torch.randint(0, 6, (num_targets,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return Block(indptr, torch.randint(num_rows, (int(indptr[-1]),), generator=generator).to(dtype))


def test_neighbours_first_then_the_own_row() -> None:
    x = torch.tensor([[1.0, -5.0], [3.0, -1.0], [7.0, 0.25]])
    block = Block(torch.tensor([0, 2, 2]), torch.tensor([1, 2], dtype=torch.int32))
    assert join(x, block, "mean").tolist() == [[5.0, -0.375, 1.0, -5.0], [0.0, 0.0, 3.0, -1.0]]


@pytest.mark.parametrize("aggr", AGGRS)
@pytest.mark.parametrize("p", [0.0, 0.5, 0.3])
@pytest.mark.parametrize("stream", [None, STREAM])
@pytest.mark.parametrize("width", [5, 64, 100])
def test_the_native_pass_is_activation_dropout_and_join(
    aggr: str, p: float, stream: int | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(80, width, generator=generator)
    n_id, grad = torch.randperm(1000, generator=generator)[:80], torch.randn(30, 2 * width, generator=generator)
    block = random_block(80, 30, torch.int64)
    results = []
    for core, dtype in ((native.core, torch.float32), (None, torch.float32), (None, torch.float64)):
        monkeypatch.setattr(native, "core", core)
        x = values.to(dtype, copy=True).requires_grad_()
        out = activated_join(x, p, stream, 1, n_id, block, aggr)
        out.backward(grad.to(dtype))
        assert x.grad is not None
        results.append((out.detach().double(), x.grad.double()))
    for found in results[:2]:
        for ours, expected in zip(found, results[2], strict=True):
            assert torch.allclose(ours, expected, rtol=1e-5, atol=1e-6)
    x = values.double()
    dropped = activation_dropout(x, p, stream, 1, n_id)
    assert torch.allclose(results[0][0][:, width:], dropped[:30], rtol=1e-6)
    assert torch.allclose(results[0][0][:, :width], aggregate(dropped, block.indptr, block.indices, aggr), rtol=1e-5)


@pytest.mark.parametrize("aggr", AGGRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_do_not_change_a_bit(aggr: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    values, n_id, block = torch.randn(500, 70, generator=generator), torch.arange(500), random_block(500, 200)
    threads, found = torch.get_num_threads(), []
    try:
        for num_threads in (1, 2, 5, 8):
            torch.set_num_threads(num_threads)
            x = values.to(dtype, copy=True).requires_grad_()
            out = activated_join(x, 0.5, STREAM, 0, n_id, block, aggr)
            out.sum().backward()
            assert x.grad is not None
            assert out.dtype == x.grad.dtype == dtype
            found.append((out.detach(), x.grad))
    finally:
        torch.set_num_threads(threads)
    for out, grad in found[1:]:
        assert torch.equal(out, found[0][0])
        assert torch.equal(grad, found[0][1])


@pytest.mark.parametrize("aggr", AGGRS)
def test_of_equal_maxima_the_first_edge_has_the_gradient(aggr: str) -> None:
    x = torch.ones(3, 2, requires_grad=True)
    block = Block(torch.tensor([0, 3]), torch.tensor([2, 1, 2], dtype=torch.int32))
    out = activated_join(x, 0.0, None, 0, torch.arange(3), block, aggr)
    out[:, :2].sum().backward()
    expected = {"mean": [0.0, 1 / 3, 2 / 3], "sum": [0.0, 1.0, 2.0], "max": [0.0, 0.0, 1.0]}[aggr]
    assert x.grad is not None
    assert torch.allclose(x.grad[:, 0], torch.tensor(expected))


@pytest.mark.parametrize("aggr", AGGRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_no_rows_no_targets_no_edges(aggr: str, dtype: torch.dtype) -> None:
    for num_rows, num_targets in ((0, 0), (3, 0), (3, 2)):
        x = torch.ones(num_rows, 5, dtype=dtype, requires_grad=True)
        block = Block(torch.zeros(num_targets + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32))
        out = activated_join(x, 0.0, None, 0, torch.arange(num_rows), block, aggr)
        out.sum().backward()
        assert out.shape == (num_targets, 10)
        assert not out[:, :5].any()
        assert x.grad is not None
        assert x.grad.sum() == 5 * num_targets


def test_nan_is_not_hidden() -> None:
    x = torch.full((4, 64), float("nan"))
    block = Block(torch.tensor([0, 2]), torch.tensor([1, 2], dtype=torch.int32))
    for aggr in AGGRS:
        out = activated_join(x, 0.0, None, 0, torch.arange(4), block, aggr)
        assert torch.isnan(out).all(), aggr


def test_without_a_gradient_nothing_is_kept() -> None:
    x: Tensor = torch.randn(10, 8)
    with torch.no_grad():
        out = activated_join(x, 0.0, None, 0, torch.arange(10), random_block(10, 4), "max")
    assert not out.requires_grad
