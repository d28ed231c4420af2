"""How OpenMP's threads, which are torch's, wait for the next piece of work."""

from __future__ import annotations

from collections.abc import MutableMapping


def sleep_between_passes(environment: MutableMapping[str, str]) -> None:
    """Asks OpenMP's threads to sleep after some 50 us without work, unless the user said how they are to wait.

    By itself GCC's OpenMP spins for milliseconds after each operation: with two threads a step then costs twice the
    processor time, all of it taken from the threads that prepare batches and run our own kernels. Has to be in the
    environment before torch is loaded.
    """
    if "OMP_WAIT_POLICY" in environment or "GOMP_SPINCOUNT" in environment:
        return
    environment["OMP_WAIT_POLICY"] = "passive"
    environment["GOMP_SPINCOUNT"] = "2000"
