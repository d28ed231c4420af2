"""Which rank the others wait for: two ranks without torch, one of them stopped by SIGSTOP or simply late."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

import pygsage
from pygsage import awaited
from pygsage.awaited import Awaited, ToldPlaces, saying_who_is_awaited
from pygsage.launched import Place, Places, awaited_among
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


class _Store:
    """What torch's store can do, in this process."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value

    def get(self, key: str) -> bytes:
        return self.kept[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.kept for key in keys)


def test_ranks_of_torchrun_tell_each_other_where_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(pygsage.launched.LAUNCHER, raising=False)
    store, places = _Store(), [Place(rank) for rank in range(3)]
    told = [ToldPlaces(store, place, rank, 3) for rank, place in enumerate(places)]
    watches = [Awaited(each, speaker=rank) for rank, each in enumerate(told)]
    homes = {0: "a", 1: "b", 2: "b"}

    def said(now: float) -> list[str]:
        lines = []
        for watch in watches:
            watch.look({}, now, homes)
            lines.append(capsys.readouterr().err)
        return lines

    assert [told[0].homes()[rank][0] for rank in range(3)] == [os.getpid()] * 3
    nothing = ["", "", ""]
    for place in places:
        with place.waiting():
            pass
    assert said(0.0) == nothing
    with places[1].waiting(), places[2].waiting():
        assert said(100.0) == said(101.0) == said(130.9) == nothing
        assert said(131.1) == ["", "note: ranks 1 (on b), 2 (on b) have waited 30 s for rank 0 (on a)\n", ""]
        assert said(132.0) == nothing
        with places[0].waiting():
            assert said(133.0) == said(300.0) == nothing  # all have come


def test_a_rank_that_waits_for_those_that_never_came_says_so() -> None:
    come = threading.Event()

    class Seen:
        text = ""

        def write(self, text: str) -> None:
            Seen.text += text
            come.set()

        def flush(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(awaited, "WAITED_S", 0.01)
        patch.setattr(sys, "stderr", Seen())
        with saying_who_is_awaited("rank 0 has waited {} for rank 1"):
            assert come.wait(60)
    assert Seen.text.startswith("note: rank 0 has waited 0 s for rank 1")


def test_ranks_that_meet_on_their_machine_alone_are_not_taken_for_late_ones() -> None:
    places = [Place(rank) for rank in range(4)]
    for number in (0, 2):  # the first ranks of two machines hand each other rows
        for _ in range(10):
            with places[number].waiting(of_all=False):
                pass
    with places[0].waiting(), places[1].waiting(), places[2].waiting(of_all=False):  # for rank 3, on their machine
        assert awaited_among([place.now() for place in places]) == ([0, 1], [3], False)
    with places[0].waiting(), places[1].waiting(), places[2].waiting():
        assert awaited_among([place.now() for place in places])[1] == [3]
