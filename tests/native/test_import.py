from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pytest

from pygsage import native


class Failing(MetaPathFinder):
    """Finds the extension module, and cannot load it."""

    def __init__(self, error: ImportError) -> None:
        self.error = error

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "pygsage.native._core":
            raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("No module named 'pygsage.native._core'", name="pygsage.native._core"), "was not built"),
        (ImportError("undefined symbol: PyFoo"), "undefined symbol: PyFoo"),
    ],
)
def test_c131_says_why_the_core_is_not_there(monkeypatch: pytest.MonkeyPatch, error: ImportError, said: str) -> None:
    monkeypatch.delitem(sys.modules, "pygsage.native._core", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Failing(error), *sys.meta_path])
    try:
        importlib.reload(native)
        assert native.core is None
        assert said in (native.load_error or "")
    finally:
        monkeypatch.undo()
        importlib.reload(native)


def test_core_and_load_error_exclude_each_other() -> None:
    assert (native.core is None) == (native.load_error is not None)
