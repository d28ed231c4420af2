"""Steps that are played out."""

from __future__ import annotations

from pygsage.memory.step import HUGE_PAGE, Arrays, graph_forward_bytes, graph_step_bytes, node_step_bytes, rounded

MIB = 1 << 20
LAYERS = [(64, 128), (128, 128)]


def test_arrays_that_are_dropped_serve_the_next_of_their_size() -> None:
    arrays = Arrays()
    first = arrays.take(10 * MIB)
    arrays.give(first)
    arrays.give(arrays.take(9 * MIB))
    assert arrays.peak_bytes == 10 * MIB
    arrays.take(20 * MIB)  # for this the one that is kept is too small, and goes
    assert arrays.peak_bytes == 20 * MIB


def test_what_is_kept_stays_near_what_was_in_use() -> None:
    arrays = Arrays()
    for size in range(2, 42, 2):  # each too large for the one before
        arrays.give(arrays.take(size * MIB))
    assert 40 * MIB <= arrays.peak_bytes <= 50 * MIB
    several = [arrays.take(size * MIB) for size in (40, 40, 40)]
    arrays.give(*several)
    arrays.take(10 * MIB)  # beside those, as little more is within a quarter
    assert arrays.peak_bytes == 130 * MIB


def test_at_most_eight_are_kept() -> None:
    arrays = Arrays()
    arrays.give(*[arrays.take(2 * MIB) for _ in range(12)])
    arrays.take(11 * MIB, kept=False)
    assert arrays.peak_bytes == (8 * 2 + 11) * MIB


def test_small_ones_and_those_of_torch_go_back() -> None:
    for kept, size in ((True, MIB // 2), (False, 10 * MIB)):
        arrays = Arrays()
        for _ in range(3):
            arrays.give(arrays.take(size, kept=kept))
        assert arrays.peak_bytes == size
    arrays = Arrays(keeps=False)
    arrays.give(arrays.take(10 * MIB))
    arrays.take(20 * MIB)
    assert arrays.peak_bytes == 20 * MIB


def test_sizes_are_those_of_the_native_core() -> None:
    """native/buffers.h: steps of a sixteenth to an eighth, whole huge pages."""
    assert rounded(1) == HUGE_PAGE
    assert rounded(33 * MIB) == 36 * MIB
    assert all(size <= rounded(size) <= max(HUGE_PAGE, size * 9 // 8) for size in range(17 * MIB, 300 * MIB, 7 * MIB))


def test_a_step_holds_what_it_saves_and_its_batches() -> None:
    one = node_step_bytes(LAYERS, [40_000, 4_000], "none", False, held=1)
    assert one >= 8 * 40_000 * 64 + 4 * 40_000 * 128
    assert node_step_bytes(LAYERS, [40_000, 4_000], "none", False, held=3) - one == 2 * rounded(8 * 40_000 * 64)
    assert node_step_bytes(LAYERS, [40_000, 4_000], "layer", False, held=1) > one
    assert node_step_bytes(LAYERS, [40_000, 4_000], "none", True, held=1) < one


def test_unequal_batches_leave_arrays_that_do_not_fit() -> None:
    equal = graph_step_bytes(LAYERS, 30_000, 0.0, 30_000, "none", False, False)
    assert graph_step_bytes(LAYERS, 30_000, 3_000, 40_000, "none", False, False) > 1.2 * equal
    assert equal >= 4 * 30_000 * (2 * 64 + 2 * 128)
    assert graph_step_bytes(LAYERS, 30_000, 0.0, 30_000, "none", False, True) > equal
    assert graph_forward_bytes(LAYERS, 30_000, 0.0, 30_000, "none") < equal
