"""Whether a job that torchrun has started again goes on with its run, as all of its machines see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pygsage.config import TrainConfig
from pygsage.distributed import World
from pygsage.errors import RunError
from pygsage.training.elastic import LOCK, after_restart

OWNERS = ["of machine a", "of machine b"]


class _Two(World):
    """Rank 0, and what rank 1 would tell."""

    def gather(self, value: Any) -> list[Any]:
        return [value, other(value)]


def other(_: Any) -> list[Any]:
    raise NotImplementedError


@pytest.fixture
def decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whether it goes on: by the restarts that each machine counts, and by whose run each sees."""

    def run(counts: tuple[int, int], here: list[str], there: list[str]) -> bool:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(counts[0]))
        monkeypatch.setattr(f"{__name__}.other", lambda _: [counts[1], there, "b"])
        monkeypatch.setattr("socket.gethostname", lambda: "a")
        (tmp_path / LOCK).write_text(json.dumps(here))
        return after_restart(TrainConfig(run_dir=str(tmp_path)), _Two(size=2), OWNERS).resume

    return run


@pytest.mark.parametrize(
    ("counts", "here", "there", "goes_on"),
    [
        ((0, 0), [], [], False),  # the first attempt
        ((1, 1), OWNERS, OWNERS, True),
        ((0, 1), OWNERS, [], True),  # rank 1's machine has a disk of its own, and only its launcher counts
        ((0, 0), OWNERS, OWNERS, False),  # a script that trains twice
        ((0, 0), ["of machine a", "of one that was replaced"], [], True),
        ((1, 0), ["of another job"], [], False),
        ((1, 0), [], [], False),
    ],
)
def test_it_goes_on_with_a_run_of_its_own(
    decide: Any, counts: tuple[int, int], here: list[str], there: list[str], goes_on: bool
) -> None:
    assert decide(counts, here, there) is goes_on


def test_checkpoints_on_the_disk_of_another_machine_are_not_trained_over(decide: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"are on b \(rank 1\).*rank 0 is now on a.*Put --run-dir on a disk"):
        decide((1, 0), [], OWNERS)
