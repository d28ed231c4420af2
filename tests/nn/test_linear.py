from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from pygsage.nn import kernels
from pygsage.nn.linear import linear, linear_bf16


def test_value_and_gradients_are_those_of_torch() -> None:
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        for rows in (0, 1, 5000):
            found, expected = [], []
            for function, results in ((linear, found), (F.linear, expected)):
                generator = torch.Generator().manual_seed(0)
                tensors = [
                    torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
                    for shape in ((rows, 30), (20, 30), (20,))
                ]
                out = function(*tensors)
                out.square().mean(0).sum().backward() if rows else out.sum().backward()
                results += [out.detach(), *(t.grad for t in tensors)]
            for a, b in zip(found, expected, strict=True):
                assert torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def test_without_bias_or_gradient_of_the_input() -> None:
    weight = torch.randn(4, 3, requires_grad=True)
    linear(torch.ones(2, 3), weight).sum().backward()
    assert torch.equal(weight.grad, torch.full((4, 3), 2.0))


def test_the_weight_gradient_does_not_depend_on_where_the_rows_are_cut() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(20_000, 64, generator=generator)  # positive, as after ReLU
    grad = torch.randn(20_000, 10, generator=generator)
    grad -= grad.mean(0)  # so that the sum nearly cancels, as after a softmax
    weight = torch.zeros(10, 64, requires_grad=True)

    def gradient(pieces: int) -> torch.Tensor:
        total = torch.zeros_like(weight)
        for some, some_grad in zip(x.tensor_split(pieces), grad.tensor_split(pieces), strict=True):
            total += torch.autograd.grad(linear(some, weight), weight, some_grad)[0]
        return total

    assert (gradient(3) - gradient(1)).norm() / gradient(1).norm() < 3e-7


def test_autocast_gives_bfloat16_and_has_a_gradient() -> None:
    weight = torch.randn(4, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = linear(torch.ones(2, 3), weight)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert weight.grad is not None


def test_bf16_products_have_float32_sums() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((5000, 30), (20, 30), (20,))
    x, weight, bias = (torch.rand(shape, generator=generator).requires_grad_() for shape in shapes)
    out = linear_bf16(x, weight, bias)
    assert out.dtype == torch.float32
    assert torch.allclose(out, F.linear(x, weight, bias), rtol=2**-7)
    out.sum().backward()
    for tensor, expected in ((x, weight.sum(0).expand(5000, 30)), (weight, x.sum(0).expand(20, 30))):
        assert tensor.grad is not None
        assert tensor.grad.dtype == torch.float32
        assert torch.allclose(tensor.grad, expected, rtol=2**-7)
    # Of values that bfloat16 holds exactly, the sum over the rows is exact too, which no bfloat16 sum would be.
    for rows, width in ((5001, 1), (50_001, 1), (5001, 70)):
        ones, weight = torch.ones(rows, 1), torch.zeros(width, 1, requires_grad=True)
        linear_bf16(ones, weight).sum().backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [[float(rows)]] * width
    linear_bf16(torch.ones(0, 1), weight).sum().backward()
    assert weight.grad.tolist() == [[5001.0]] * 70
    # Where most of the gradient is zero, too.
    some, weight = torch.zeros(5001, 70), torch.zeros(70, 1, requires_grad=True)
    some[::4] = 1.0
    linear_bf16(torch.ones(5001, 1), weight).backward(some)
    assert weight.grad is not None
    assert weight.grad.tolist() == [[1251.0]] * 70


@pytest.mark.parametrize("function", [linear, linear_bf16])
@pytest.mark.parametrize("rows", [70, 1500])
def test_a_gradient_of_many_zeros_gives_the_same_by_way_of_the_sparse_products(
    function: Callable[..., torch.Tensor], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator) for shape in ((rows, 30), (70, 30), (70,))]
    grad = torch.randn(rows, 70, generator=generator) * (torch.rand(rows, 70, generator=generator) < 0.25)
    results = []
    for share in (0.6, -1.0):
        monkeypatch.setattr(kernels, "SPARSE", share)
        leaves = [t.clone().requires_grad_() for t in tensors]
        function(*leaves).backward(grad)
        results.append([t.grad for t in leaves])
    for sparse, dense in zip(*results, strict=True):
        assert (sparse - dense).norm() < (1e-2 if function is linear_bf16 else 1e-6) * dense.norm()


def test_bfloat16_in_is_bfloat16_out_and_gradients_of_weights_are_float32() -> None:
    x = torch.ones(3, 4, dtype=torch.bfloat16, requires_grad=True)
    weight, bias = torch.ones(2, 4, requires_grad=True), torch.ones(2, requires_grad=True)
    out = linear_bf16(x, weight, bias)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert x.grad is not None
    assert weight.grad is not None
    assert x.grad.dtype == torch.bfloat16
    assert weight.grad.dtype == torch.float32
    assert weight.grad.tolist() == [[3.0] * 4] * 2


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 4095, 4097, 9001])
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_of_bfloat16_in_pieces_are_those_at_once(rows: int, with_bias: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((rows, 24), (40, 24), (40,)))
    expected = F.linear(x.bfloat16(), weight.bfloat16(), bias.bfloat16() if with_bias else None)
    found = linear_bf16(x.bfloat16(), weight, bias if with_bias else None)
    assert torch.allclose(found.float(), expected.float(), rtol=1e-2, atol=1e-2)
    assert found.shape == (rows, 40)


def test_batches_of_any_size_are_few_shapes_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps a program of 0.7 MB for each that it meets in bfloat16."""
    met: set[tuple[int, ...]] = set()
    for name in ("mm", "addmm"):
        plain = getattr(torch, name)

        def noting(*args: torch.Tensor, plain: Callable[..., torch.Tensor] = plain, **options: torch.Tensor) -> object:
            if args[-2].dtype == torch.bfloat16:
                met.add(tuple(args[-2].shape))
            return plain(*args, **options)

        monkeypatch.setattr(torch, name, noting)
    weight, bias = torch.randn(6, 4, requires_grad=True), torch.zeros(6, requires_grad=True)
    for rows in range(0, 10_000, 83):
        linear_bf16(torch.ones(rows, 4, dtype=torch.bfloat16, requires_grad=True), weight, bias).sum().backward()
    assert {shape[0] for shape in met} == {64, 128, 256, 512, 1024, 2048, 4096}
    assert len(met) == 14  # there and back
