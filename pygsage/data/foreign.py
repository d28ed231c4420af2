"""Running code that is not ours, a dataset class or a recipe, so that it leaves nothing changed but its own files."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import warnings
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def quiet(*, show_warnings: bool = False) -> Iterator[None]:
    """Standard output stays ours, no question waits on standard input; others' warnings stay theirs unless asked."""
    before = sys.stdin
    with contextlib.redirect_stdout(sys.stderr), open(os.devnull) as nothing, warnings.catch_warnings():
        if not show_warnings:
            warnings.simplefilter("ignore")
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before


@contextlib.contextmanager
def fixed_seed() -> Iterator[None]:
    """Code that draws its graph draws the same one in every process; the generators are left as they were."""
    python, old_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(old_numpy)  # noqa: NPY002


def sentence(error: BaseException) -> str:
    """An error of others' code in one line: its kind and the first 300 letters of what it says."""
    text = " ".join(str(error).split())[:300].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
