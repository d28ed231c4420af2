"""How a process knows that it is a rank, and what one that our launcher started shares with it: a pipe for its last
words, and a page that says where it is.

Both are descriptors that the rank inherits, not files: a full disk cannot lose a message, and a launcher that is
killed leaves nothing behind.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pygsage.errors import EnvironmentLimitError

PIPE = "PYGSAGE_PIPE_FD"
PLACES = "PYGSAGE_PLACES_FD"
LAUNCHER = "PYGSAGE_LAUNCHER_PID"
PLACE_BYTES = 8  # of each rank on the page

_ONE_AT_A_TIME = threading.Lock()


def in_launched_job(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process was started as a rank, by torchrun or by our launcher."""
    return "RANK" in (os.environ if environ is None else environ)


def number_of(name: str, default: int | None = None, environ: Mapping[str, str] | None = None) -> int:
    """The whole number that a variable of the environment holds.

    Raises:
        EnvironmentLimitError: when it holds none, or there is none and no default.
    """
    text = (os.environ if environ is None else environ).get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise EnvironmentLimitError(
            f"RANK is set, but {name} is {text!r}; expected an integer.",
            "Start the ranks with torchrun, or unset RANK and WORLD_SIZE.",
        ) from None


def has_launcher() -> bool:
    """Whether a launcher of ours listens to this process; not so under torchrun, nor in a rank's own children."""
    return os.environ.get(LAUNCHER) == str(os.getppid()) and PIPE in os.environ


def tell_launcher(message: dict[str, Any]) -> bool:
    """Sends the launcher what JSON can hold; returns when it is in the pipe. False when nobody listens."""
    if not has_launcher():
        return False
    content = memoryview(json.dumps(message).encode() + b"\n")
    try:
        with _ONE_AT_A_TIME:
            while content:  # a pipe takes 64 KiB at a time, and more once the launcher has read
                content = content[os.write(int(os.environ[PIPE]), content) :]
    except OSError:
        return False
    return True


class Inbox:
    """The launcher's end of a rank's pipe; reading never waits."""

    def __init__(self) -> None:
        self._end, self.fd = os.pipe()  # both are closed in other children by Python's default
        os.set_blocking(self._end, False)
        self._rest = b""
        self.messages: list[dict[str, Any]] = []

    def receive(self) -> None:
        """Takes what has come; a message that a killed rank has left half written is dropped."""
        while self._end >= 0:
            try:
                content = os.read(self._end, 1 << 20)
            except BlockingIOError:
                return
            if not content:
                self.close()
                return
            *lines, self._rest = (self._rest + content).split(b"\n")
            self.messages += [json.loads(line) for line in lines]

    def close_senders_end(self) -> None:
        """Once the rank has its own copy."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Lets go of both ends."""
        self.close_senders_end()
        if self._end >= 0:
            os.close(self._end)
            self._end = -1


def awaited_among(places: Sequence[int]) -> tuple[list[int], list[int], bool]:
    """Ranks that wait in the furthest collective, ranks that have not come to it, and whether that is patience."""
    furthest = max((place // 4 for place in places), default=0)
    waiting = [rank for rank, place in enumerate(places) if place // 4 == furthest and place % 2]
    # One that waits among the ranks of its machine is not the one that is awaited.
    late = [rank for rank, place in enumerate(places) if place // 4 < furthest and not place % 2]
    return waiting, late, any(places[rank] % 4 == 3 for rank in waiting)


class Place:
    """Where a rank is among its collectives: their number so far, and whether it waits in the last one.

    It stands in a page of memory that ranks and launcher share, so that the launcher can say who is awaited; without
    such a launcher in one of the rank's own. Costs a microsecond a collective.
    """

    def __init__(self, rank: int) -> None:
        self._number = 0
        self._page, self._rank = memoryview(bytearray(PLACE_BYTES)).cast("q"), 0
        if has_launcher() and PLACES in os.environ:
            size = PLACE_BYTES * int(os.environ["WORLD_SIZE"])
            self._page, self._rank = memoryview(mmap.mmap(int(os.environ[PLACES]), size)).cast("q"), rank

    def now(self) -> int:
        """The place, as in the page."""
        return self._page[self._rank]

    @contextmanager
    def waiting(self, patient: bool = False, *, of_all: bool = True) -> Iterator[None]:
        """Around a collective; `patient` where a long wait is no surprise, as while rank 0 reads the dataset.

        Those of some ranks only, not `of_all`, are not counted: the numbers are compared between all ranks.
        """
        self._number += of_all
        self._page[self._rank] = 4 * self._number + 2 * patient + 1
        try:
            yield
        finally:
            self._page[self._rank] = 4 * self._number


class Places:
    """The launcher's view of that page: says which ranks wait for which."""

    def __init__(self, num_ranks: int) -> None:
        self.fd = -1
        self._page: memoryview | None = None
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("pygsage-places")
            os.ftruncate(self.fd, PLACE_BYTES * num_ranks)
            self._page = memoryview(mmap.mmap(self.fd, PLACE_BYTES * num_ranks)).cast("q")

    def now(self) -> tuple[int, ...]:
        """All places; a job that goes on changes them all the time."""
        return tuple(self._page) if self._page is not None else ()

    def close(self) -> None:
        """Lets go of the descriptor; the ranks have their own."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
