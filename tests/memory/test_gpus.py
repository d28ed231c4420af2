"""What the driver's library tells, from a stand-in for it."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from pygsage.memory.gpus import Gpu, read_gpus


class Nvml:
    """The calls of libnvidia-ml that are made, for three GPUs."""

    def __init__(self, failing: str = "") -> None:
        self.failing, self.is_open = failing, False

    def _status(self, call: str) -> int:
        return 999 if call == self.failing else 0

    def nvmlInit_v2(self) -> int:
        self.is_open = not self._status("init")
        return self._status("init")

    def nvmlShutdown(self) -> int:
        self.is_open = False
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 3
        return self._status("count")

    def nvmlDeviceGetHandleByIndex_v2(self, number: Any, handle: Any) -> int:
        handle._obj.value = 1000 + number.value
        return self._status("handle")

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        number = handle.value - 1000
        memory._obj.total, memory._obj.free, memory._obj.used = 80 << 30, (70 - number) << 30, 0
        return self._status("memory")

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: ctypes.c_uint) -> int:
        text.value = b"NVIDIA H200"
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, size: ctypes.c_uint) -> int:
        text.value = b"GPU-%da" % (handle.value - 1000)
        return 0


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, [70, 69, 68]),
        ("", []),
        ("2,0", [68, 70]),
        ("1,9,0", [69]),
        ("GPU-2a,GPU-0", [68, 70]),
        ("GPU-", []),
        ("-1", []),
    ],
)
def test_the_visible_ones_and_what_they_have_free(told: str | None, expected: list[int]) -> None:
    nvml = Nvml()
    found = read_gpus(nvml, {} if told is None else {"CUDA_VISIBLE_DEVICES": told})
    assert found == [Gpu("NVIDIA H200", 80 << 30, gib << 30) for gib in expected]
    assert not nvml.is_open


@pytest.mark.parametrize("failing", ["init", "count", "handle", "memory"])
def test_a_driver_that_does_not_answer_has_none(failing: str) -> None:
    nvml = Nvml(failing)
    assert read_gpus(nvml, {}) == []
    assert not nvml.is_open


def test_no_driver_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert read_gpus() == []
