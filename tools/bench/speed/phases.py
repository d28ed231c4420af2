"""CPU time by phase and peak memory of a benchmark's process; standard library only, so that every peer can load it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any


class Phases:
    """`with phases("forward"): …` adds CPU seconds of the whole process to the present batch."""

    def __init__(self) -> None:
        self.batches: list[dict[str, float]] = []

    def start_batch(self) -> None:
        """What follows belongs to a new batch."""
        self.batches.append({})

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        batch = self.batches[-1]
        batch[name] = batch.get(name, 0.0) + time.process_time() - begin

    def medians_ms(self) -> dict[str, float]:
        """The median over the batches of each phase, and of their sum as `total`."""
        names = list(dict.fromkeys(name for batch in self.batches for name in batch))
        medians = {name: statistics.median(batch.get(name, 0.0) for batch in self.batches) for name in names}
        medians["total"] = statistics.median(sum(batch.values()) for batch in self.batches)
        return {name: round(1e3 * value, 2) for name, value in medians.items()}


def measured(work: Callable[[Phases], dict[str, Any]]) -> None:
    """Runs a benchmark and prints one JSON line: what it returns, `cpu_ms` by phase, and `peak_bytes`.

    The peak is RssAnon + RssShmem, looked at every 20 ms.
    """
    peak, done, phases = [0], Event(), Phases()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], _resident_bytes())

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    told = work(phases)
    done.set()
    watcher.join()
    print(json.dumps({**told, "cpu_ms": phases.medians_ms(), "peak_bytes": max(peak[0], _resident_bytes())}))


def _resident_bytes() -> int:
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return sum(1024 * int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem"))
