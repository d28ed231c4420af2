from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from pygsage.nn.dropout import activation_dropout, keep_mask, threshold
from pygsage.sampling.keys import GOLDEN, MASK, mix64, stream_of

STREAM = stream_of(0, 3, 7)


def plain_mask(node: int, num_columns: int, p: float, stream: int, layer: int) -> list[bool]:
    """The definition, in integers."""
    row = mix64(mix64(mix64(stream ^ 0xD509D509D509D509) ^ layer) ^ node)
    dropped = min(int(p * 256 + 0.5), 255)
    if dropped == 128:
        return [mix64((row + c // 64 * GOLDEN) & MASK) >> (c % 64) & 1 == 1 for c in range(num_columns)]
    return [mix64((row + c // 8 * GOLDEN) & MASK) >> (c % 8 * 8) & 255 >= dropped for c in range(num_columns)]


@pytest.mark.parametrize("width", [1, 63, 64, 65, 100])
@pytest.mark.parametrize("p", [0.5, 0.1, 0.25, 0.9])
def test_the_mask_is_the_one_defined(width: int, p: float) -> None:
    n_id = torch.tensor([0, 1, 5, 2**40, 2**62])
    found = keep_mask(n_id, width, p, STREAM, 2)
    assert found.dtype == torch.bool
    assert found.tolist() == [plain_mask(v, width, p, STREAM, 2) for v in n_id.tolist()]


def test_a_large_stream_is_64_bits_not_an_error() -> None:
    mask = keep_mask(torch.arange(3), 10, 0.5, MASK, 0)
    assert mask.tolist() == [plain_mask(v, 10, 0.5, MASK, 0) for v in range(3)]


@pytest.mark.parametrize("p", [0.5, 0.3])
def test_a_row_has_the_same_mask_in_every_batch(p: float) -> None:
    x = torch.rand(200, 65) + 1
    n_id = torch.randperm(10_000)[:200]
    whole = activation_dropout(x, p, STREAM, 1, n_id)
    some = torch.tensor([7, 150, 3, 7])
    assert torch.equal(activation_dropout(x[some], p, STREAM, 1, n_id[some]), whole[some])


@pytest.mark.parametrize("p", [1 / 256, 0.1, 0.25, 0.5, 0.75, 0.9])
def test_the_share_that_is_dropped(p: float) -> None:
    mask = keep_mask(torch.arange(4000), 100, p, STREAM, 0)
    dropped = threshold(p) / 256
    assert abs(dropped - p) <= 1 / 512
    for counts, each in ((mask.sum(0), 4000), (mask.sum(1), 100)):  # by column, by node
        zeros = each - counts.numpy()
        found = ((zeros - each * dropped) ** 2 / (each * dropped * (1 - dropped))).sum()
        assert 1e-4 < stats.chi2.sf(found, len(zeros)) < 1 - 1e-4


def joint_p_value(a: torch.Tensor, b: torch.Tensor) -> float:
    table = np.bincount((2 * a.int() + b.int()).flatten().numpy(), minlength=4).reshape(2, 2)
    return float(stats.chi2_contingency(table).pvalue)


@pytest.mark.parametrize("p", [0.5, 0.3])
def test_masks_of_layers_nodes_columns_and_steps_are_independent(p: float) -> None:
    n_id = torch.arange(3000)
    mask = keep_mask(n_id, 130, p, STREAM, 0)
    others = {
        "next layer": (mask, keep_mask(n_id, 130, p, STREAM, 1)),
        "next step": (mask, keep_mask(n_id, 130, p, stream_of(0, 3, 8), 0)),
        "next epoch": (mask, keep_mask(n_id, 130, p, stream_of(0, 4, 7), 0)),
        "next node": (mask[1:], mask[:-1]),
        "node 2**32 away": (mask, keep_mask(n_id + 2**32, 130, p, STREAM, 0)),
        "next column": (mask[:, 1:], mask[:, :-1]),
        "next byte": (mask[:, 8:], mask[:, :-8]),
        "next word": (mask[:, 64:], mask[:, :-64]),
    }
    for a, b in others.values():
        assert joint_p_value(a, b) > 1e-4


def test_value_and_gradient() -> None:
    x = torch.randn(5, 33, dtype=torch.float64)
    x = (x.sign() * (x.abs() + 0.1)).requires_grad_()
    n_id = torch.arange(5) * 3
    for p in (0.5, 0.3, 0.0):
        out = activation_dropout(x, p, STREAM, 0, n_id)
        kept = keep_mask(n_id, 33, p, STREAM, 0) if p else torch.ones(5, 33, dtype=torch.bool)
        assert torch.allclose(out, x.relu() * kept * 256 / (256 - threshold(p)), rtol=1e-15)
        assert torch.autograd.gradcheck(lambda z, p=p: activation_dropout(z, p, STREAM, 0, n_id), (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_no_rows_and_every_dtype(dtype: torch.dtype) -> None:
    for rows in (0, 3):
        x = torch.ones(rows, 5, dtype=dtype, requires_grad=True)
        out = activation_dropout(x, 0.5, STREAM, 0, torch.arange(rows))
        assert out.dtype == dtype
        assert out.shape == (rows, 5)
        out.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, out.detach())


def test_no_dropout_and_almost_all() -> None:
    x = torch.randn(50, 64)
    assert torch.equal(activation_dropout(x, 0.0, STREAM, 0, torch.arange(50)), x.relu())
    assert torch.equal(activation_dropout(x, 0.001, STREAM, 0, torch.arange(50)), x.relu())
    assert torch.isfinite(activation_dropout(x, 0.9999, STREAM, 0, torch.arange(50))).all()


def test_nan_is_not_hidden() -> None:
    x = torch.full((4, 64), float("nan"))
    assert torch.isnan(activation_dropout(x, 0.5, STREAM, 0, torch.arange(4))).all()
