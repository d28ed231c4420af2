"""The native core, where it was built: `core` is the extension module or None, `load_error` says why it is None."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

core: ModuleType | None = None
load_error: str | None = None

try:
    core = import_module("pygsage.native._core")
except ModuleNotFoundError as error:
    if error.name != "pygsage.native._core":
        raise
    load_error = "it was not built when pygsage was installed, for want of a C++17 compiler as a rule"
except ImportError as error:  # built for another machine or Python, or damaged
    load_error = str(error)

__all__ = ["core", "load_error"]
