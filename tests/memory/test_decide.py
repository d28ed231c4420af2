from __future__ import annotations

from dataclasses import replace

import pytest

from pygsage.memory.decide import decide, size_text
from pygsage.memory.estimate import Estimate
from pygsage.memory.machine import Machine, read_machine
from pygsage.memory.rows import Row

MIB = 1 << 20
MACHINE = replace(
    read_machine(), memory_available_bytes=1_000 * MIB, memory_available_source="a cgroup", disk_free_bytes=5_000 * MIB
)


def _need(ram: int, disk: int = 0) -> Estimate:
    rows = (Row("train", "rank", "all", ram * MIB, "-"), Row("save", "disk", "files", disk * MIB, "-", kind="held"))
    return Estimate("memory", rows, 1)


@pytest.mark.parametrize(
    ("in_memory", "on_disk", "storage", "status"),
    [(500, 100, "memory", 0), (501, 100, "disk", 3), (5_000, 900, "disk", 3), (5_000, 901, "none", 4)],
)
def test_half_of_what_is_available_decides(in_memory: int, on_disk: int, storage: str, status: int) -> None:
    found = decide(_need(in_memory), _need(on_disk), MACHINE)
    assert (found.storage, found.exit_status) == (storage, status)
    assert found.available_source == "a cgroup"
    assert "a cgroup" in found.reason


def test_c006_the_margin_covers_two_phases_that_do_not_give_memory_back() -> None:
    """300 MiB twice, under 500 MiB: in memory only where the margin is given up on purpose."""
    machine = replace(MACHINE, memory_available_bytes=500 * MIB)
    assert decide(_need(300), _need(100), machine).storage == "disk"
    assert decide(_need(300), _need(100), machine, share=0.7).storage == "memory"


def test_a_limit_counts_in_place_of_what_is_available() -> None:
    assert decide(_need(400), _need(100), MACHINE, limit_bytes=700 * MIB).storage == "disk"
    found = decide(_need(2_000), _need(100), MACHINE, limit_bytes=8_000 * MIB)
    assert (found.storage, found.available_source) == ("memory", "--memory-limit")


def test_a_disk_that_is_too_small_is_no_way_out() -> None:
    found = decide(_need(900), _need(100, disk=5_001), MACHINE)
    assert found.exit_status == 4
    assert "--disk" in found.reason
    assert decide(_need(900), _need(100, disk=5_001), replace(MACHINE, disk_free_bytes=None)).exit_status == 3


def test_a_machine_that_does_not_tell_is_trusted() -> None:
    machine: Machine = replace(MACHINE, memory_available_bytes=None)
    assert decide(_need(10_000), _need(1), machine).storage == "memory"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (2048, "2.0 KiB"), (5 * MIB, "5.0 MiB"), (1536 * MIB, "1.50 GiB")]
)
def test_sizes_are_in_units_of_1024(size: int, text: str) -> None:
    assert size_text(size) == text
