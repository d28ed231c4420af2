"""SIGTERM, SIGINT and SIGHUP as a request to finish the step, save and stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """Remembers the first stop signal; the loop asks between steps."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def code(self) -> int:
        """The signal's number, 0 when none came. Ranks agree by the largest."""
        return self.signal or 0


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Catches stop signals while the block runs; a second one of the same kind ends the process at once.

    Outside the main thread, where Python allows no handlers, signals keep their meaning.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal == number:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        request.signal = request.signal or number

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number in STOPPING:
        if before[number] is not signal.SIG_IGN:  # nohup asks that SIGHUP be ignored
            signal.signal(number, handle)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
