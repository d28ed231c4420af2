"""The layers' kernels, in each set of instructions that this processor has, against the same in NumPy and torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from pygsage import native
from pygsage.nn.dropout import keep_mask, mask_start, threshold
from pygsage.sampling.keys import stream_of

core: Any = native.core
pytestmark = pytest.mark.skipif(core is None, reason="the native core is not built")
ISAS = core.isas() if core is not None else []
AGGRS = ("mean", "sum", "max")
WIDTHS = (1, 4, 17, 64, 100, 300)
STREAM = stream_of(1, 2, 3)

each_isa = pytest.mark.parametrize("isa", ISAS)


def edges(num_rows: int, num_targets: int, seed: int, dtype: type = np.int32) -> tuple[np.ndarray, np.ndarray]:
    """Targets with 0 to 30 neighbours, some of them twice."""
    random = np.random.default_rng(seed)
    degree = random.integers(0, 8, num_targets)
    degree[random.random(num_targets) < 0.05] = 30
    indptr = np.concatenate([[0], degree.cumsum()])
    return indptr, random.integers(0, num_rows, indptr[-1]).astype(dtype)


def aggregated(x: np.ndarray, indptr: np.ndarray, ids: np.ndarray, aggr: str) -> np.ndarray:
    function = {"mean": np.mean, "sum": np.sum, "max": np.max}[aggr]
    out = np.zeros((len(indptr) - 1, x.shape[1]))
    for i, (begin, end) in enumerate(pairwise(indptr)):
        if end > begin:
            out[i] = function(x[ids[begin:end]].astype(np.float64), axis=0)
    return out


def as_bfloat16(x: torch.Tensor) -> np.ndarray:
    return x.bfloat16().view(torch.int16).numpy()


def test_plain_kernels_are_always_there_and_unknown_ones_are_refused() -> None:
    assert ISAS[-1] == "plain"
    out = np.empty((0, 1), dtype=np.float32)
    with pytest.raises(ValueError, match="no kernels for avx9"):
        core.join_features(out, None, np.zeros(1, np.int64), np.zeros(0, np.int32), "sum", out, 1, "avx9")


@each_isa
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("aggr", AGGRS)
def test_features_are_joined(isa: str, width: int, aggr: str) -> None:
    random = np.random.default_rng(width)
    values = random.standard_normal((50, width))
    nodes = random.integers(0, 50, 40)
    for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 1e-5), (np.float64, 1e-13)):
        x = values.astype(dtype)
        for id_dtype in (np.int32, np.int64):
            indptr, ids = edges(50, 40, width, id_dtype)
            out = np.empty((40, 2 * width), dtype=np.float64 if dtype == np.float64 else np.float32)
            core.join_features(x, nodes, indptr, ids, aggr, out, 1, isa)
            assert np.allclose(out[:, :width], aggregated(x, indptr, ids, aggr), rtol=tolerance, atol=tolerance)
            assert np.array_equal(out[:, width:], x[nodes])
            alone = np.empty((40, width), dtype=out.dtype)
            core.join_features(x, None, indptr, ids, aggr, alone, 3, isa)
            assert np.array_equal(alone, out[:, :width])  # on three threads too
            if dtype != np.float64:
                rounded = np.empty(out.shape, dtype=np.int16)
                core.join_features(x, nodes, indptr, ids, aggr, rounded, 1, isa)
                assert np.array_equal(rounded, as_bfloat16(torch.from_numpy(out)))


def test_every_set_of_instructions_gives_the_same_bits() -> None:
    x = np.random.default_rng(0).standard_normal((50, 100), dtype=np.float32)
    indptr, ids = edges(50, 40, 0)
    found = []
    for isa in ISAS:
        out = np.empty((40, 200), dtype=np.float32)
        core.join_features(x, np.arange(40), indptr, ids, "mean", out, 1, isa)
        found.append(out.tobytes())
    assert len(set(found)) == 1


@each_isa
def test_every_half_is_widened_exactly(isa: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 32)
    indptr, ids = np.arange(len(x) + 1), np.arange(len(x), dtype=np.int32)
    out = np.empty(x.shape, dtype=np.float32)
    core.join_features(x, None, indptr, ids, "max", out, 1, isa)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(out, x.astype(np.float32), equal_nan=True)


@each_isa
def test_rounding_to_bfloat16_is_that_of_torch(isa: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    special = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x3F808000, 0x3F818000, 1]
    bits[: len(special)] = special
    x = bits.view(np.float32).reshape(-1, 32)
    out = np.empty(x.shape, dtype=np.int16)
    core.join_features(x, None, np.arange(len(x) + 1), np.arange(len(x)), "max", out, 1, isa)
    found, expected = torch.from_numpy(out).view(torch.bfloat16), torch.from_numpy(x).bfloat16()
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())


@each_isa
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("p", [0.0, 0.5, 1 / 256, 0.3, 0.9, 0.999])
def test_bits_are_the_positive_ones_that_the_mask_keeps(isa: str, width: int, p: float) -> None:
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(60, width, generator=generator)
    x[::7] = 0.0
    x[3::7] = torch.nan
    x[5::7] = -0.0
    n_id = torch.randint(2**62, (60,), generator=generator)
    kept = keep_mask(n_id, width, p, STREAM, 2) if p else torch.ones(60, width, dtype=torch.bool)
    expected = np.packbits((kept & ~(x <= 0)).numpy(), axis=1, bitorder="little")
    for values in (x.numpy(), as_bfloat16(x)):
        bits = np.full((60, -(-width // 64)), 2**64 - 1, dtype=np.uint64)
        core.activation_bits(values, n_id.numpy(), mask_start(STREAM, 2), threshold(p), bits, 2, isa)
        assert np.array_equal(bits.view(np.uint8)[:, : expected.shape[1]], expected)
        assert not bits.view(np.uint8)[:, expected.shape[1] :].any()


def random_bits(rows: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    mask = np.random.default_rng(seed).random((rows, width)) < 0.5
    padded = np.zeros((rows, -(-width // 64) * 64), dtype=bool)
    padded[:, :width] = mask
    return mask, np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


@each_isa
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("aggr", AGGRS)
def test_hidden_rows_are_joined_and_their_gradient_spread(isa: str, width: int, aggr: str) -> None:
    random = np.random.default_rng(width)
    mask, bits = random_bits(50, width, width)
    x = random.standard_normal((50, width), dtype=np.float32) + 3 * mask.astype(
        np.float32
    )  # what counts is positive as a rule
    grad = random.standard_normal((30, 2 * width), dtype=np.float32)
    indptr, ids = edges(50, 30, width)
    leaf = torch.from_numpy(x).double().requires_grad_()
    kept = leaf * torch.from_numpy(mask) * 2.0
    bag = torch.nn.functional.embedding_bag(
        torch.from_numpy(ids).long(), kept, torch.from_numpy(indptr), mode=aggr, include_last_offset=True
    )
    expected = torch.cat([bag, kept[:30]], 1)
    expected.backward(torch.from_numpy(grad).double())
    assert leaf.grad is not None
    for num_threads in (1, 3, 8):
        out, back = np.empty((30, 2 * width), dtype=np.float32), np.empty((50, width), dtype=np.float32)
        chosen = np.empty((30, width), dtype=np.int32) if aggr == "max" else None
        core.join_hidden(x, bits, 2.0, indptr, ids, aggr, out, chosen, num_threads, isa)
        assert np.allclose(out, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
        core.spread_hidden(grad, bits, 2.0, indptr, ids, aggr, back, chosen, num_threads, isa)
        assert np.allclose(back, leaf.grad.numpy(), rtol=1e-5, atol=1e-5)
        if num_threads == 1:
            first = out.tobytes() + back.tobytes()
        assert out.tobytes() + back.tobytes() == first
    # bfloat16 in and out: the same of rounded values, rounded
    near = torch.from_numpy(x).bfloat16().float().numpy()
    core.join_hidden(near, bits, 2.0, indptr, ids, aggr, out, chosen, 1, isa)
    narrow, narrow_back = np.empty(out.shape, dtype=np.int16), np.empty(back.shape, dtype=np.int16)
    core.join_hidden(as_bfloat16(torch.from_numpy(x)), bits, 2.0, indptr, ids, aggr, narrow, chosen, 1, isa)
    assert np.array_equal(narrow, as_bfloat16(torch.from_numpy(out)))
    near = torch.from_numpy(grad).bfloat16().float().numpy()
    core.spread_hidden(near, bits, 2.0, indptr, ids, aggr, back, chosen, 1, isa)
    core.spread_hidden(as_bfloat16(torch.from_numpy(grad)), bits, 2.0, indptr, ids, aggr, narrow_back, chosen, 1, isa)
    assert np.array_equal(narrow_back, as_bfloat16(torch.from_numpy(back)))


@each_isa
@pytest.mark.parametrize(("rows", "m", "k"), [(0, 5, 7), (1, 1, 1), (63, 64, 16), (700, 70, 130), (300, 256, 33)])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_sparse_products(isa: str, rows: int, m: int, k: int, share: float) -> None:
    random = np.random.default_rng(rows)
    grad = random.standard_normal((rows, m), dtype=np.float32) * (random.random((rows, m)) < share)
    grad = grad.astype(np.float32)
    values = random.standard_normal((rows, k), dtype=np.float32)
    weight = random.standard_normal((m, k), dtype=np.float32)
    for narrow in (False, True):
        given = [torch.from_numpy(a).bfloat16() if narrow else torch.from_numpy(a) for a in (grad, values)]
        seen = [a.view(torch.int16).numpy() if narrow else a.numpy() for a in given]
        exact = [a.double() for a in given]
        alone = np.full(m, np.nan, dtype=np.float32)
        core.column_sums(seen[0], alone, isa)
        assert np.allclose(alone, exact[0].sum(0).numpy(), rtol=1e-5, atol=1e-4)
        results = []
        for num_threads in (1, 4, 8):
            out, sums = np.full((m, k), np.nan, dtype=np.float32), np.full(m, np.nan, dtype=np.float32)
            core.sparse_outer_sum(*seen, out, sums, num_threads, isa)
            back = np.full((rows, k), -1, dtype=seen[0].dtype)
            core.sparse_times_weight(seen[0], weight, back, num_threads, isa)
            results.append(out.tobytes() + sums.tobytes() + back.tobytes())
        assert results[0] == results[1] == results[2]
        assert np.allclose(out, (exact[0].T @ exact[1]).numpy(), rtol=1e-5, atol=1e-4)
        assert np.allclose(sums, exact[0].sum(0).numpy(), rtol=1e-5, atol=1e-4)
        wide = torch.from_numpy(back).view(torch.bfloat16).double() if narrow else torch.from_numpy(back).double()
        expected = exact[0] @ torch.from_numpy(weight).double()
        assert torch.allclose(wide, expected, rtol=2**-8 if narrow else 1e-5, atol=1e-4)


def test_the_share_of_zeros() -> None:
    grad = np.zeros((1000, 8), dtype=np.float32)
    grad[:, :2] = 1.0
    assert core.density(grad) == 0.25
    assert core.density(grad[:0]) == 0.0


def test_what_would_read_or_write_elsewhere_is_refused() -> None:
    x, bits = np.zeros((4, 3), dtype=np.float32), np.zeros((4, 1), dtype=np.uint64)
    indptr, ids, out = np.array([0, 1, 2]), np.array([0, 3], dtype=np.int32), np.zeros((2, 6), dtype=np.float32)
    good = (x, bits, 1.0, indptr, ids, "sum", out, None)
    core.join_hidden(*good)
    core.spread_hidden(out, bits, 1.0, indptr, ids, "sum", x, None)
    for place, bad in (
        (1, bits[:3]),
        (3, np.array([0, 1, 3])),
        (3, np.array([0, 2, 1])),
        (3, np.array([-1, 1, 2])),
        (4, np.array([0, 4], dtype=np.int32)),
        (4, np.array([0, -1], dtype=np.int32)),
        (5, "median"),
        (6, out[:1]),
        (7, np.zeros((1, 3), dtype=np.int32)),
    ):
        with pytest.raises(ValueError, match="."):
            core.join_hidden(*good[:place], bad, *good[place + 1 :])
    with pytest.raises(ValueError, match="chosen goes with max"):
        core.spread_hidden(out, bits, 1.0, indptr, ids, "max", x, None)
    with pytest.raises(ValueError, match="ids has an id outside of 0 to below 4"):
        core.join_features(x, None, indptr, np.array([0, 4]), "sum", out[:, :3].copy())
    with pytest.raises(ValueError, match="nodes has an id"):
        core.join_features(x, np.array([0, -1]), indptr, ids, "sum", out)
    with pytest.raises(ValueError, match="dropped"):
        core.activation_bits(x, np.zeros(4, np.int64), 0, 256, bits)
    wide = np.zeros((1, 5000), dtype=np.float32)
    with pytest.raises(ValueError, match="wider than 4096"):
        core.sparse_times_weight(wide, np.zeros((5000, 1), dtype=np.float32), np.zeros((1, 1), dtype=np.float32))
    with pytest.raises(TypeError):
        core.join_features(x.astype(np.int64), None, indptr, ids, "sum", out[:, :3].copy())
