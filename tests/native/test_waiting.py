from __future__ import annotations

import os
import sys

import pytest

from pygsage.cli.main import main
from pygsage.native.waiting import sleep_between_passes


def test_threads_are_to_sleep_unless_the_user_said_how_they_wait() -> None:
    environment: dict[str, str] = {}
    sleep_between_passes(environment)
    assert environment == {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "2000"}
    for name, value in (("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", "0")):
        environment = {name: value}
        sleep_between_passes(environment)
        assert environment == {name: value}


def test_the_command_line_says_so_before_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "unset")  # so that what main sets is undone
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
