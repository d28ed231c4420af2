from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pygsage import native

core: Any = native.core
pytestmark = pytest.mark.skipif(core is None, reason="the native core is not built")


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(
    st.integers(1, 50),
    st.sampled_from([0, 1, 7, 300]),
    st.integers(0, 2**32),
    st.sampled_from([None, "int32", "int64", np.int32, np.dtype(np.int64)]),
)
def test_equals_a_stable_sort(num_nodes: int, num_edges: int, seed: int, index_dtype: Any) -> None:
    src, dst = np.random.default_rng(seed).integers(0, num_nodes, (2, num_edges))
    indptr, indices, perm = core.build_csc(src, dst, num_nodes, index_dtype)
    order = np.argsort(dst, kind="stable")
    assert perm.tolist() == order.tolist()
    assert indices.tolist() == src[order].tolist()
    assert np.diff(indptr).tolist() == np.bincount(dst, minlength=num_nodes).tolist()
    assert indptr[0] == 0
    assert (indptr.dtype, perm.dtype) == (np.int64, np.int64)
    assert indices.dtype == np.dtype(index_dtype or np.int32)


def test_empty_graphs() -> None:
    for num_nodes in (0, 3):
        indptr, indices, perm = core.build_csc(ids(), ids(), num_nodes)
        assert indptr.tolist() == [0] * (num_nodes + 1)
        assert len(indices) == len(perm) == 0


@pytest.mark.parametrize(
    ("src", "dst", "named"),
    [
        ([0, 3], [0, 0], "edge 1 is 3 -> 0"),
        ([0, 0], [-1, 3], "edge 0 is 0 -> -1"),
        ([0, 0], [0, 2**40], "edge 1 is 0 -> "),
    ],
)
def test_c034_names_the_first_bad_edge(src: list[int], dst: list[int], named: str) -> None:
    with pytest.raises(ValueError, match=f"{named}.*; expected node ids from 0 to below 3"):
        core.build_csc(ids(*src), ids(*dst), 3)


def test_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="src has 1 elements and dst 2"):
        core.build_csc(ids(0), ids(0, 0), 1)
    with pytest.raises(ValueError, match="num_nodes is -1"):
        core.build_csc(ids(), ids(), -1)
    with pytest.raises(ValueError, match="edge 0 is 0 -> 0; expected node ids from 0 to below 0"):
        core.build_csc(ids(0), ids(0), 0)
    with pytest.raises(ValueError, match="too many for 32-bit indices"):
        core.build_csc(ids(), ids(), 2**31 + 1, "int32")
    with pytest.raises(ValueError, match="index_dtype is float32"):
        core.build_csc(ids(), ids(), 1, "float32")
    with pytest.raises(TypeError):
        core.build_csc(ids(0).astype(np.int32), ids(0), 1)
    with pytest.raises(TypeError):
        core.build_csc(ids(0, 0, 0, 0)[::2], ids(0, 0), 1)


def test_results_outlive_their_call_and_may_be_written() -> None:
    indptr, _, perm = core.build_csc(ids(1, 0), ids(0, 1), 2)
    view = perm[1:]
    del perm
    indptr[0] = 7
    assert view.tolist() == [1]
