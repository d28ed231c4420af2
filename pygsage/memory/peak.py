"""Peak memory of this process that cannot be dropped: RssAnon + RssShmem, sampled. Standard library only."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import TracebackType


class PeakMemory:
    """Samples this process's anonymous and shared memory in a thread while the block runs.

    `peak_bytes` is the highest sum seen; 0 where /proc does not tell. `phase_bytes` has the highest of each named
    phase. Mapped file pages are not counted: the kernel drops them when it must.

    Args:
        interval_s: Seconds between samples; each costs some 50 microseconds.
    """

    def __init__(self, interval_s: float = 0.02) -> None:
        self.peak_bytes = 0
        self.phase_bytes: dict[str, int] = {}
        self._phase = ""
        self._interval_s = interval_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pygsage-peak-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self.sample()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts samples inside the block for a phase as well; blocks of one name add up to one maximum.

        A block inside another counts for the inner name alone. At the end free memory goes back to the kernel: what
        one phase leaves with the allocator would else be the next one's, as chance has it.
        """
        self.sample()
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self.sample()
            release_free_memory()
            self._phase = before

    def turn_to(self, name: str) -> None:
        """From here to the end of the block that it is in, samples count for another phase; free memory goes back."""
        self.sample()
        release_free_memory()
        self._phase = name

    def sample(self) -> int:
        """Takes one sample now and returns the peak so far, in bytes."""
        phase, now = self._phase, undroppable_bytes()
        self.peak_bytes = max(self.peak_bytes, now)
        if phase:
            self.phase_bytes[phase] = max(self.phase_bytes.get(phase, 0), now)
        return self.peak_bytes

    def _watch(self) -> None:
        while not self._done.wait(self._interval_s):
            self.sample()


def release_free_memory() -> None:
    """Gives memory that was freed back to the kernel, where the C library can (glibc); takes milliseconds.

    The allocator keeps freed blocks of up to 32 MiB, tens to hundreds of MiB in all (mallopt(3), malloc_trim(3)).
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """The C library's; looked up once, because each CDLL makes classes that stay until they are collected."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return None
    return found


def undroppable_bytes(status: str = "/proc/self/status") -> int:
    """RssAnon + RssShmem of a process in bytes, from its /proc status file; 0 where it does not tell."""
    total = 0
    try:
        with open(status, encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) * 1024
    except OSError:
        return 0
    return total
