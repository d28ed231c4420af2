"""What all tests share: little."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples in every run: a failure is never a matter of luck.
settings.register_profile("pygsage", derandomize=True, deadline=None, database=None, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "pygsage"))


@pytest.fixture(scope="session", autouse=True)
def heeded_signals() -> Iterator[None]:
    """A run in the background of a shell, or under nohup, inherits signals that are ignored; the tests send them."""
    ignored = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session")
def parsed() -> dict[Any, Any]:
    """What the command-line parser made of words and defaults: it takes longer than all of the rest."""
    return {}


@pytest.fixture
def refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], parsed: dict[Any, Any]
) -> Callable[..., str]:
    """Runs `pygsage train WORDS` in the test's folder, and returns the one sentence that it refuses them with.

    Nothing may be written, and the exit status has to be 2.
    """

    from pygsage.cli.main import main
    from pygsage.cli.parser import parse

    def parse_once(options: Any, argv: Any, command: str, defaults: dict[str, Any]) -> dict[str, Any]:
        key = (options, tuple(argv), command, repr(defaults))
        if key not in parsed:
            parsed[key] = parse(options, argv, command, defaults)
        return dict(parsed[key])

    def run(*words: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("pygsage.cli.train.parse", parse_once)
        before = listing(tmp_path)
        capsys.readouterr()
        status = main(["train", "--gpus", "0", "--epochs", "1", "--hidden", "4", "--offline", *words])
        output = capsys.readouterr()
        assert listing(tmp_path) == before
        assert (status, output.out) == (2, ""), output
        assert re.fullmatch(r"pygsage train: [^\n]+[.?)A-Z/\w]\n", output.err), output.err
        assert "Traceback" not in output.err
        assert not re.match(r"pygsage train: \w+(Error|Exception)\b", output.err)
        return output.err

    return run


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every file and folder below, with what changes when it is written to."""
    found = [folder, *folder.rglob("*")]
    return {str(p): (p.lstat().st_size, p.lstat().st_mtime_ns, p.lstat().st_mode) for p in found}


_RECIPE = """
import torch
from torch_geometric.data import Data
from pygsage import Recipe

class Mine(Recipe):
    num_graphs = 80

    def graphs(self):
        for number in range(80):
            n = 3 + number % 4
            edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
            yield Data(x=torch.randn(n, 5), edge_index=edges, y=torch.tensor([number % 3]))
"""


@pytest.fixture
def recipe_of_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a recipe of 80 small graphs of three classes; what is made of it goes to the test's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "code").mkdir()
    path = tmp_path / "code" / "mine.py"
    path.write_text(_RECIPE)
    return str(path)
