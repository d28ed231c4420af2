"""Peak memory of this process that cannot be dropped: RssAnon + RssShmem, sampled. Standard library only."""

from __future__ import annotations

import threading
from types import TracebackType


class PeakMemory:
    """Samples this process's anonymous and shared memory in a thread while the block runs.

    `peak_bytes` is the highest sum seen; 0 where /proc does not tell. Mapped file pages are not counted: the
    kernel drops them when it must.

    Args:
        interval_s: Seconds between samples; each costs some 50 microseconds.
    """

    def __init__(self, interval_s: float = 0.1) -> None:
        self.peak_bytes = 0
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

    def sample(self) -> int:
        """Takes one sample now and returns the peak so far, in bytes."""
        self.peak_bytes = max(self.peak_bytes, undroppable_bytes())
        return self.peak_bytes

    def _watch(self) -> None:
        while not self._done.wait(self._interval_s):
            self.sample()


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
