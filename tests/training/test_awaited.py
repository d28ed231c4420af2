"""Which rank the others wait for: two ranks without torch, one of them stopped by SIGSTOP or simply late."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

import pygsage
from pygsage.launched import Place, Places
from pygsage.training import awaited
from pygsage.training.awaited import Awaited
from pygsage.training.processes import run_ranks

RANK = """
import os, pathlib, signal, sys, time
from pygsage.launched import Place
from pygsage.training.processes import tie_to_launcher
tie_to_launcher()
folder, rank, pause = pathlib.Path(sys.argv[1]), int(os.environ["RANK"]), sys.argv[2] == "pause"
place = Place(rank)
with place.waiting():
    pass
if rank == 1:
    (folder / "pid").write_text(str(os.getpid()))
    if pause:
        os.kill(os.getpid(), signal.SIGSTOP)
    while not (folder / "go").exists():
        time.sleep(0.01)
with place.waiting(patient=True):
    while rank == 0 and not (folder / "go").exists():
        time.sleep(0.01)
"""


class _Seen:
    """Standard error, in whose place a rank is let go on as soon as there is a line about it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.text = folder, ""

    def write(self, text: str) -> None:
        self.text += text
        (self.folder / "go").touch()
        os.kill(int((self.folder / "pid").read_text()), signal.SIGCONT)

    def flush(self) -> None:
        pass


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memfd_create is Linux's")
def test_a_rank_stopped_by_sigstop_is_named_with_what_lets_it_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited, "PAUSED_S", 0.2)
    monkeypatch.setattr(sys, "stderr", _Seen(tmp_path))
    home = str(Path(pygsage.__file__).parents[1])
    argv = [sys.executable, "-c", RANK, str(tmp_path), "pause"]
    assert run_ranks(argv, 2, env={"PYTHONPATH": home}).status == 0
    pid = (tmp_path / "pid").read_text()
    assert "note: rank 0 has waited" in sys.stderr.text  # type: ignore[attr-defined]
    assert f"for rank 1, stopped by a signal: `kill -CONT {pid}`" in sys.stderr.text  # type: ignore[attr-defined]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memfd_create is Linux's")
def test_a_rank_that_does_not_come_is_named_after_half_a_minute_and_then_seldom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places, ranks = Places(3), {0: os.getpid(), 1: os.getpid(), 2: os.getpid()}
    for name, value in (("PIPE", "0"), ("PLACES", str(places.fd)), ("LAUNCHER", str(os.getppid()))):
        monkeypatch.setenv(getattr(pygsage.launched, name), value)
    monkeypatch.setenv("WORLD_SIZE", "3")
    zero, one, two = (Place(rank) for rank in range(3))
    watch = Awaited(places)

    def said(now: float) -> str:
        watch.look(ranks, now)
        return capsys.readouterr().err

    with zero.waiting(), two.waiting():
        assert said(100.0) == said(106.0) == said(129.9) == ""
        assert said(130.1) == "note: ranks 0, 2 have waited 30 s for rank 1\n"
        assert said(131.0) == said(219.0) == ""
        assert said(221.0) == "note: ranks 0, 2 have waited 121 s for rank 1\n"
        with one.waiting():
            assert said(1000.0) == said(2000.0) == ""  # all have come
    with one.waiting(patient=True):  # rank 0 reads a large dataset
        assert said(3000.0) == said(3100.0) == ""
    places.close()
