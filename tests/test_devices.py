"""The devices and threads that the processes of a machine get."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pygsage.devices import choose_devices, cores_per_process
from pygsage.errors import EnvironmentLimitError
from pygsage.launched import in_launched_job


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def cuda(*ids: int) -> list[torch.device]:
    return [torch.device("cuda", i) for i in ids]


def cpu(count: int) -> list[torch.device]:
    return [torch.device("cpu")] * count


def test_devices(gpus: Callable[[int], None]) -> None:
    gpus(0)
    assert choose_devices(None, None, {}) == cpu(1)
    assert choose_devices(None, 3, {}) == cpu(3)
    gpus(4)
    assert choose_devices(None, None, {}) == cuda(0, 1, 2, 3)
    assert choose_devices(None, 4, {}) == cuda(0, 1, 2, 3)
    assert choose_devices(2, None, {}) == cuda(0, 1)
    assert choose_devices([2, 0], 2, {}) == cuda(2, 0)
    assert choose_devices(0, None, {}) == cpu(1)
    assert choose_devices(0, 2, {}) == cpu(2)


def test_devices_under_torchrun(gpus: Callable[[int], None]) -> None:
    two = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    assert in_launched_job(two)
    gpus(0)
    assert choose_devices(None, None, two) == cpu(2)
    assert choose_devices(0, 2, two) == cpu(2)
    gpus(4)
    assert choose_devices(None, None, two) == cuda(0, 1)
    assert choose_devices([3, 1], None, two) == cuda(3, 1)
    assert choose_devices(0, None, two) == cpu(2)
    gpus(1)
    with pytest.raises(EnvironmentLimitError, match=r"started 2 processes .* 1 GPU.*--nproc-per-node 1.*--gpus 0"):
        choose_devices(None, None, two)
    with pytest.raises(EnvironmentLimitError, match=r"asked for 3 processes, but .* started 2"):
        choose_devices(0, 3, two)
    gpus(4)
    with pytest.raises(EnvironmentLimitError, match=r"started 2 processes .* 4 GPUs"):
        choose_devices(4, None, two)


@pytest.mark.parametrize(
    ("visible", "asked", "procs", "sentence"),
    [
        (1, 4, None, r"asked for 4 GPUs, found 1 \(id 0\)\. Type --gpus 1, or --gpus 0 --procs 4 for the CPU"),
        (0, 4, None, r"asked for 4 GPUs, found none.*Type --gpus 0 --procs 4 for the CPU"),
        (2, [1, 2], None, r"asked for GPU 1,2, found 2 \(0, 1\)"),
        (0, [0], None, r"asked for GPU 0, found none"),
        (4, 2, 3, r"asked for 3 processes with 2 GPUs.*--gpus 0 --procs 3"),
        (2, None, 1, r"asked for 1 process with 2 GPUs"),
    ],
)
def test_c099_devices_that_are_not_there_are_refused(
    gpus: Callable[[int], None], visible: int, asked: int | list[int] | None, procs: int | None, sentence: str
) -> None:
    gpus(visible)
    with pytest.raises(EnvironmentLimitError, match=sentence) as caught:
        choose_devices(asked, procs, {})
    assert caught.value.exit_status == 2


def test_c115_threads_together_do_not_exceed_the_cores() -> None:
    assert [cores_per_process(cores, ranks) for cores, ranks in ((2, 1), (2, 2), (2, 3), (64, 5))] == [2, 1, 1, 12]
