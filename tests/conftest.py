"""What all tests share: little."""

from __future__ import annotations

import os

from hypothesis import settings

# The same examples in every run: a failure is never a matter of luck.
settings.register_profile("pygsage", derandomize=True, deadline=None, database=None, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "pygsage"))
