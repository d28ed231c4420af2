from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pygsage import native
from pygsage.native.memory import LEAST_BYTES, empty, prefer_huge_pages, release_buffers

core: Any = native.core
needs_buffers = pytest.mark.skipif(not hasattr(core, "buffer"), reason="there are no buffers on this system")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    release_buffers()
    yield
    release_buffers()


@needs_buffers
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int64])
def test_what_is_freed_is_used_again(dtype: torch.dtype) -> None:
    first = empty((3000, 1000), dtype)
    assert (first.shape, first.dtype, first.is_contiguous()) == ((3000, 1000), dtype, True)
    address = first.data_ptr()
    second = empty((3000, 1000), dtype)
    assert second.data_ptr() != address  # both are in use
    view = first[5:].fill_(3)
    del first
    third = empty((3000, 1000), dtype)
    assert third.data_ptr() not in (address, second.data_ptr())  # the view still needs it
    third.zero_()
    assert (view == 3).all()
    del view
    fourth = empty((2990, 1000), dtype)  # nearly as large
    assert fourth.data_ptr() == address
    small = empty((400, 1000), dtype)
    assert small.data_ptr() != address


@needs_buffers
def test_few_unused_buffers_are_kept_and_none_after_their_release() -> None:
    tensors = [empty((1 << 20,), torch.float32) for _ in range(12)]
    each = tensors[0].untyped_storage().nbytes()
    del tensors
    assert core.free_buffer_bytes() == 8 * each
    release_buffers()
    assert core.free_buffer_bytes() == 0


@needs_buffers
def test_buffers_that_fit_nothing_go_before_memory_grows() -> None:
    for megabytes in range(4, 64, 6):  # each too large for those before
        empty((megabytes << 20,), torch.uint8).zero_()
        assert core.free_buffer_bytes() <= (megabytes << 20) * 1.5
    together = [empty((40 << 20,), torch.uint8) for _ in range(3)]
    each = together[0].untyped_storage().nbytes()
    del together
    assert core.free_buffer_bytes() >= 3 * each  # as much as was in use at once is kept


def test_small_tensors_and_a_missing_core_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert empty((0, 5), torch.float32).shape == (0, 5)
    assert empty((LEAST_BYTES // 8 - 1,), torch.int64).numel() == LEAST_BYTES // 8 - 1
    monkeypatch.setattr(native, "core", None)
    assert empty((1 << 20, 2), torch.float32).shape == (1 << 20, 2)
    release_buffers()
    prefer_huge_pages(torch.zeros(10))


def test_huge_pages_change_no_content() -> None:
    tensor = torch.arange(3_000_000)
    prefer_huge_pages(tensor)
    prefer_huge_pages(tensor[:0])
    prefer_huge_pages(tensor[1_000_000:].view(2, -1))
    assert torch.equal(tensor, torch.arange(3_000_000))
