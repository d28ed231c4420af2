from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pygsage.cli.main import main
from pygsage.config import TrainConfig
from pygsage.errors import RunError
from pygsage.training.run import Run
from pygsage.training.run_folder import saved_config


def test_a_run_directory_in_use_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loaded(config: Any) -> None:
        raise AssertionError("the run directory was to be looked at first")

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("pygsage.training.launch.train", loaded)
    run, words = tmp_path / "run", ["train", "digits", "--run-dir", str(tmp_path / "run")]
    first = Run.open(TrainConfig(run_dir=str(run)))
    try:
        for more in ([], ["--resume"]):
            assert main([*words, *more]) == 2
            assert f"Another job is writing to the run '{run}'." in capsys.readouterr().err
    finally:
        first.close()
    assert main(words) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main([*words, "--resume", "--hidden", "7"]) == 2
    assert "was made with --hidden 256, not 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"epochs: [", r"config.yaml' is damaged: it cannot be understood on line 1, column \d+ \(.*\); expected"),
        (b"\xff\xfe", r"is damaged: it is not text in UTF-8 \(byte 0\)"),
        (b"\0\0", "is damaged: it holds characters that no text has"),
        (b"- 3", "holds no options"),
    ],
)
def test_a_config_that_cannot_be_read_is_told_plainly(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(RunError, match=says):
        saved_config(tmp_path)
