import signal
import subprocess
import sys
from contextlib import suppress

import pytest

import pygsage
from pygsage.cli.main import COMMANDS, main


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert pygsage.__version__ in capsys.readouterr().out


def test_a_command_with_a_slip_is_told_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian", "digits"]) == 2
    assert capsys.readouterr().err == "pygsage: there is no command 'trian'; did you mean train?\n"


@pytest.mark.parametrize("words", [[], ["frobnicate"]])
def test_no_command_or_an_unknown_one_is_the_users_mistake(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    output = capsys.readouterr()
    assert "usage: pygsage" in output.out + output.err


@pytest.mark.parametrize(
    ("number", "status", "says"),
    [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGHUP, 129, "SIGHUP"), (signal.SIGINT, 130, "Ctrl-C (SIGINT)")],
)
def test_a_signal_before_or_outside_training_is_told(
    number: signal.Signals,
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def imports_and_more(argv: object) -> int:
        with suppress(Exception):  # as a package does around what it imports
            signal.raise_signal(number)
        return 0

    monkeypatch.setattr("pygsage.cli.doctor.run", imports_and_more)
    before = signal.getsignal(number)
    assert main(["doctor"]) == status
    assert capsys.readouterr().err == f"pygsage doctor: Stopped by {says}.\n"
    assert signal.getsignal(number) is before


HELP_LOADS = """
import sys, threading
from pygsage.cli.main import main
for words in (["--help"], {words}):
    try:
        main(words)
    except SystemExit as end:
        assert not end.code, end.code
heavy = [m for m in ("torch", "torch_geometric", "numpy", "ogb", "sklearn", "pandas", "outdated") if m in sys.modules]
assert not heavy, heavy
assert threading.active_count() == 1
"""


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_c133_help_loads_no_torch_and_starts_no_thread(command: str) -> None:
    code = HELP_LOADS.format(words=[command, "--help"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"usage: pygsage {command}" in done.stdout


@pytest.mark.parametrize("words", ["--help", "train --help"])
def test_a_reader_that_leaves_early_is_no_error(words: str) -> None:
    command = f"{sys.executable} -m pygsage {words} | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""
