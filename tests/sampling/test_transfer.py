"""What is sent arrives as it was, from buffers that are used again and never too early."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from pygsage.errors import EnvironmentLimitError
from pygsage.sampling.transfer import (
    CudaStream,
    ImmediateStream,
    PageableCarrier,
    Parts,
    StagingCarrier,
    Written,
)

CPU = torch.device("cpu")


class LateStream:
    """Makes each copy as late as it is allowed to: when somebody waits for it."""

    device = CPU

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.num_waits = 0
        self.lock = Lock()

    def memory(self, num_bytes: int) -> Tensor:
        with self.lock:
            self.sizes.append(num_bytes)
        return torch.full((num_bytes,), 255, dtype=torch.uint8)

    def copy(self, source: Tensor) -> tuple[Tensor, LateCopy]:
        arrived = torch.empty_like(source)
        return arrived, LateCopy(self, source, arrived)


class LateCopy:
    def __init__(self, stream: LateStream, source: Tensor, arrived: Tensor) -> None:
        self.stream, self.source, self.arrived, self.is_made = stream, source, arrived, False

    def wait(self) -> None:
        self.stream.num_waits += 1
        self._make()

    def precede(self, arrived: Tensor) -> None:
        assert arrived is self.arrived
        self._make()

    def _make(self) -> None:
        with self.stream.lock:
            if not self.is_made:
                self.arrived.copy_(self.source)
            self.is_made = True


def parcel(number: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(number)
    return {
        "x": torch.randn(3 + number % 5, 7, generator=generator),
        "half": torch.randn(number % 4, 3, generator=generator).bfloat16(),
        "ids": torch.randint(1000, (number % 3, 2), generator=generator),
        "short": torch.randint(9, (5,), generator=generator).int().flip(0)[::2],
        "none": torch.empty(0, dtype=torch.int64),
        "flags": torch.tensor([True, False, True]),
        "large": torch.randn(2, 20_000 * (number % 2), generator=generator).bfloat16().t(),
    }


def assert_same(found: dict[str, Tensor], expected: Parts) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert isinstance(tensor, Tensor)
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("num_buffers", [1, 2, 3])
def test_a_buffer_is_not_written_to_before_its_copy_has_ended(num_buffers: int) -> None:
    stream = LateStream()
    carrier = StagingCarrier(stream, num_buffers)
    sent = [carrier.send(parcel(number)) for number in range(12)]
    for number in reversed(range(12)):
        assert_same(sent[number].take(), parcel(number))
    assert num_buffers <= len(stream.sizes) <= 2 * num_buffers  # used again, and made larger once
    assert all(size & (size - 1) == 0 for size in stream.sizes)
    assert stream.num_waits == 12 - num_buffers


def test_threads_send_at_once() -> None:
    carrier = StagingCarrier(LateStream(), 3)
    with ThreadPoolExecutor(4) as threads:
        sent = list(threads.map(lambda number: carrier.send(parcel(number)), range(60)))
    for number, one in enumerate(sent):
        assert_same(one.take(), parcel(number))


def test_a_part_is_written_where_it_is_sent_from_and_a_failure_gives_the_buffer_back() -> None:
    stream = LateStream()
    carrier = StagingCarrier(stream, 1)
    seen: list[Tensor] = []

    def write(out: Tensor) -> None:
        seen.append(out)
        out.copy_(torch.arange(6.0).view(2, 3))

    def fail(out: Tensor) -> None:
        raise ValueError("no rows")

    with pytest.raises(ValueError, match="no rows"):
        carrier.send({"x": Written((2, 3), torch.float32, fail)})
    sent = carrier.send({"ids": torch.arange(3), "x": Written((2, 3), torch.float32, write)})
    assert len(stream.sizes) == 1 or stream.sizes == [256, 512]
    assert_same(sent.take(), {"ids": torch.arange(3), "x": torch.arange(6.0).view(2, 3)})
    (there,) = seen
    assert there.untyped_storage().nbytes() == stream.sizes[-1]
    assert there.data_ptr() % 4 == 0


@pytest.mark.parametrize("carrier", [PageableCarrier(CPU), StagingCarrier(ImmediateStream(CPU), 1)])
def test_other_ways_bring_the_same(carrier: PageableCarrier | StagingCarrier) -> None:
    assert carrier.device == CPU
    for number in range(4):
        parts = {**parcel(number), "made": Written((4,), torch.float32, lambda out: out.fill_(2.5))}
        assert_same(carrier.send(parts).take(), {**parcel(number), "made": torch.full((4,), 2.5)})


class FakeCuda:
    """Records what is asked of CUDA, by device and stream, in place of a GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.device: Any = None
        self.stream: Any = "main"
        log = self.log

        class Event:
            def __init__(self, blocking: bool = False) -> None:
                assert blocking

            def record(self, stream: Any) -> None:
                log.append(("record", stream))

            def synchronize(self) -> None:
                log.append(("synchronize",))

        class Current:
            def wait_event(self, event: Event) -> None:
                log.append(("wait_event", type(event).__name__))

        self.current = Current()
        cuda = torch.cuda
        monkeypatch.setattr(cuda, "Event", Event)
        monkeypatch.setattr(cuda, "Stream", lambda device: f"copies to {device}")
        monkeypatch.setattr(cuda, "device", self._device)
        monkeypatch.setattr(cuda, "stream", self._stream)
        monkeypatch.setattr(cuda, "current_stream", lambda device: self.current)

    @contextmanager
    def _device(self, device: torch.device) -> Iterator[None]:
        self.device, before = device, self.device
        yield
        self.device = before

    @contextmanager
    def _stream(self, stream: Any) -> Iterator[None]:
        self.stream, before = stream, self.stream
        yield
        self.stream = before


def test_cuda_copies_on_a_stream_of_its_own_that_the_step_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch simulates the tensors, and a stand-in notes what is asked of the streams: no GPU has run it."""
    cuda = FakeCuda(monkeypatch)
    device = torch.device("cuda", 1)
    made = torch.empty

    def empty(*args: Any, **options: Any) -> Tensor:
        if options.pop("pin_memory", False):
            cuda.log.append(("pin", cuda.device, args[0]))
        elif "device" in options:
            cuda.log.append(("empty", cuda.stream, options["device"]))
        return made(*args, **options)

    def copy_(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        cuda.log.append(("copy", cuda.stream, non_blocking))
        return self  # a build without CUDA cannot even pretend it

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(Tensor, "copy_", copy_)
    monkeypatch.setattr(Tensor, "record_stream", lambda self, stream: cuda.log.append(("record_stream", stream)))
    stream = CudaStream(device)
    source = stream.memory(512)
    assert cuda.log.pop() == ("pin", device, 512)
    with FakeTensorMode() as mode:
        arrived, copy = stream.copy(mode.from_tensor(source))
        assert arrived.device == device
        own = f"copies to {device}"
        assert cuda.log == [("empty", own, device), ("copy", own, True), ("record", own)]
        del cuda.log[:]
        copy.precede(arrived)
        assert cuda.log == [("wait_event", "Event"), ("record_stream", cuda.current)]
        del cuda.log[:]
        copy.wait()
        assert cuda.log == [("synchronize",)]


def test_memory_that_cannot_be_pinned_is_told_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(monkeypatch)

    def refuse(*args: Any, **options: Any) -> Tensor:
        raise RuntimeError("CUDA error: out of memory\nmore words")

    stream = CudaStream(torch.device("cuda", 0))
    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(EnvironmentLimitError, match=r"8 MiB .* pinned: CUDA error: out of memory\. Type --placement"):
        stream.memory(8 << 20)
