"""What the NVIDIA GPUs of this machine have free, from the driver's own library (NVML): no torch, no CUDA context."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        name: As its maker calls it.
        total_bytes: Its memory.
        free_bytes: What no process has taken.
    """

    name: str
    total_bytes: int
    free_bytes: int


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def read_gpus(library: Any = None, environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves visible, in its order; none where the driver tells of none.

    Args:
        library: Stands in for the driver's library.
        environ: Stands in for the environment.
    """
    environ = os.environ if environ is None else environ
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1") if library is None else library
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        return _visible(_found(nvml), environ.get("CUDA_VISIBLE_DEVICES"))
    finally:
        nvml.nvmlShutdown()


def _found(nvml: Any) -> list[tuple[str, Gpu]]:
    """Each with its UUID; those that tell no memory are left out, as are all after one that cannot be asked."""
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    found = []
    for number in range(count.value):
        handle, memory = ctypes.c_void_p(), _Memory()
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(handle)) != 0:
            break
        if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
            break
        name, uuid = (ctypes.create_string_buffer(96) for _ in range(2))
        nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(96))
        nvml.nvmlDeviceGetUUID(handle, uuid, ctypes.c_uint(96))
        found.append((uuid.value.decode(), Gpu(name.value.decode(), memory.total, memory.free)))
    return found


def _visible(found: list[tuple[str, Gpu]], told: str | None) -> list[Gpu]:
    """As CUDA reads the variable: numbers or beginnings of UUIDs, up to the first that is neither."""
    if told is None:
        return [gpu for _, gpu in found]
    chosen = []
    for word in (part.strip() for part in told.split(",")):
        if word.isdigit() and int(word) < len(found):
            chosen.append(found[int(word)][1])
            continue
        named = [gpu for uuid, gpu in found if word.startswith("GPU-") and uuid.startswith(word)]
        if len(named) != 1:
            break
        chosen.append(named[0])
    return chosen
