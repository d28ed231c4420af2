"""Rows joined from pieces: the native copy against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pygsage.data.files import ragged
from pygsage.data.files.ragged import Rows, gather, gather_columns, gather_columns_plain, gather_plain, pointers
from pygsage.native import core

needs_core = pytest.mark.skipif(core is None, reason="the native core was not built")
LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=12)
DTYPES = ("bool", "uint8", "int16", "int32", "int64", "uint16", "float16", "float64", "complex128")


def pieces(lengths: list[int], data: st.DataObject) -> tuple[Rows, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rows = Rows(pointers(np.array(lengths)), len(lengths))
    ids = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=9)), dtype=np.int64)
    return rows, rows.pieces(ids)


@given(LENGTHS, st.sampled_from(DTYPES), st.sampled_from([(), (3,), (0,), (2, 2)]), st.data())
def test_gather_joins_rows_of_every_dtype_and_shape(
    lengths: list[int], dtype: str, shape: tuple[int, ...], data: st.DataObject
) -> None:
    rows, (begins, sizes, pointer) = pieces(lengths, data)
    array = np.arange(rows.total * int(np.prod(shape))).reshape(rows.total, *shape).astype(dtype)
    expected = np.concatenate([array[:0], *(array[b : b + n] for b, n in zip(begins, sizes, strict=True))])
    for found in (gather(array, begins, sizes, int(pointer[-1])), gather_plain(array, begins, sizes)):
        assert found.dtype == array.dtype
        assert np.array_equal(found, expected)
        assert found.base is None or not np.shares_memory(found, array)


@given(LENGTHS, st.sampled_from(["int32", "int64"]), st.integers(1, 3), st.booleans(), st.data())
def test_gather_columns_turns_and_shifts(
    lengths: list[int], dtype: str, num_columns: int, shifted: bool, data: st.DataObject
) -> None:
    rows, (begins, sizes, pointer) = pieces(lengths, data)
    array = np.arange(rows.total * num_columns, dtype=dtype).reshape(rows.total, num_columns)
    shifts = [np.arange(len(begins)) * 10 + c for c in range(num_columns)] if shifted else []
    expected = np.empty((num_columns, int(pointer[-1])), dtype)
    for c in range(num_columns):
        for j, (b, n) in enumerate(zip(begins, sizes, strict=True)):
            expected[c, pointer[j] : pointer[j + 1]] = array[b : b + n, c] + (shifts[c][j] if shifted else 0)
    for found in (
        gather_columns(array, begins, sizes, int(pointer[-1]), shifts),
        gather_columns_plain(array, begins, sizes, shifts),
    ):
        assert found.dtype == array.dtype
        assert np.array_equal(found, expected)


def test_without_the_core_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    array, begins, sizes = np.arange(40).reshape(20, 2), np.array([3, 0, 15]), np.array([200 % 7, 1, 5])
    native = gather(array, begins, sizes), gather_columns(array, begins, sizes, 10, [begins, sizes])
    monkeypatch.setattr(ragged, "core", None)
    plain = gather(array, begins, sizes), gather_columns(array, begins, sizes, 10, [begins, sizes])
    assert all(np.array_equal(a, b) for a, b in zip(native, plain, strict=True))
    assert np.array_equal(gather(array.repeat(20, 0), begins, sizes * 50)[-1], array.repeat(20, 0)[264])


def test_an_array_that_is_not_contiguous_is_joined_as_well() -> None:
    array = np.arange(40).reshape(20, 2)[::2]
    assert gather(array, np.array([1]), np.array([2])).tolist() == [[4, 5], [8, 9]]
    assert gather_columns(array, np.array([1]), np.array([2]), 2).tolist() == [[4, 8], [5, 9]]


@needs_core
@pytest.mark.parametrize(("begin", "length"), [(-1, 1), (0, 21), (20, 1), (3, -1), (2**62, 2**62)])
def test_a_piece_out_of_range_is_refused(begin: int, length: int) -> None:
    assert core is not None
    array, begins, sizes = np.zeros((20, 2), np.int64), np.array([begin]), np.array([length])
    with pytest.raises(ValueError, match="piece 0 is rows"):
        core.gather_rows(array, begins, sizes, np.empty((1, 2), np.int64))
    with pytest.raises(ValueError, match="piece 0 is rows"):
        core.gather_columns(array, begins, sizes, np.empty((2, 1), np.int64), [])


@needs_core
def test_an_output_that_does_not_fit_is_refused() -> None:
    assert core is not None
    array, begins, sizes = np.zeros((20, 2), np.int64), np.array([0, 5]), np.array([2, 3])
    for out in (np.empty((4, 2), np.int64), np.empty((5, 3), np.int64), np.empty((5, 2), np.int32), np.empty(10)):
        with pytest.raises(ValueError, match="out"):
            core.gather_rows(array, begins, sizes, out)
    for shape in ((2, 4), (3, 5)):
        with pytest.raises(ValueError, match="out"):
            core.gather_columns(array, begins, sizes, np.empty(shape, np.int64), [])
    for shifts in ([begins], [begins, begins[:1]]):
        with pytest.raises(ValueError, match="shift"):
            core.gather_columns(array, begins, sizes, np.empty((2, 5), np.int64), shifts)
    with pytest.raises(ValueError, match="differ in number"):
        core.gather_rows(array, begins, sizes[:1], np.empty((5, 2), np.int64))
