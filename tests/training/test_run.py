import json
from pathlib import Path

import pytest
import yaml

from pygsage import RunError, TrainConfig
from pygsage.training.checkpoint import save_checkpoint
from pygsage.training.run import Run, fresh_scratch
from pygsage.training.run_folder import saved_config


def _config(path: Path, **options: object) -> TrainConfig:
    return TrainConfig(run_dir=str(path), **options)


def _events(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_new_run_holds_the_resolved_config(tmp_path: Path) -> None:
    run = Run.open(_config(tmp_path / "a" / "run", epochs=3, fanouts=(4, 5)))
    run.append({"event": "epoch", "loss": float("nan")})
    run.close()
    config = yaml.safe_load((tmp_path / "a" / "run" / "config.yaml").read_text())
    assert config["epochs"] == 3
    assert config["fanouts"] == [4, 5]
    assert not {"run_dir", "resume", "json", "gpus"} & set(config)
    assert len(_events(tmp_path / "a" / "run")) == 1


def test_default_folders_are_named_by_dataset_and_never_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [Run.open(TrainConfig()) for _ in range(3)]
    assert len({run.path for run in runs}) == 3
    assert all(run.path.parent.name == "runs" and run.path.name.startswith("digits-") for run in runs)
    for run in runs:
        run.close()


def test_a_run_is_not_written_over(tmp_path: Path) -> None:
    Run.open(_config(tmp_path / "run")).close()
    with pytest.raises(RunError, match="already holds a run") as error:
        Run.open(_config(tmp_path / "run"))
    assert "--resume" in error.value.advice


def test_a_foreign_folder_or_file_is_not_taken_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    for path in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(RunError, match="no run directory"):
            Run.open(_config(path))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_second_job_on_the_same_run_is_refused(tmp_path: Path) -> None:
    first = Run.open(_config(tmp_path / "run"))
    with pytest.raises(RunError, match="Another job"):
        Run.open(_config(tmp_path / "run", resume=True))
    first.close()
    Run.open(_config(tmp_path / "run", resume=True)).close()


def test_resume_refuses_another_run_and_says_which_option(tmp_path: Path) -> None:
    Run.open(_config(tmp_path / "run", lr=0.01)).close()
    with pytest.raises(RunError, match=r"--lr 0\.01, not 0\.02"):
        Run.open(_config(tmp_path / "run", lr=0.02, resume=True))
    Run.open(_config(tmp_path / "run", lr=0.01, epochs=99, resume=True)).close()


def test_a_batch_size_that_was_left_out_is_kept_as_it_was_in_force(tmp_path: Path) -> None:
    config = _config(tmp_path / "run")
    Run.open(config.for_unit("graph")).close()
    assert (saved_config(tmp_path / "run") or {})["batch_size"] == 64
    Run.check(_config(tmp_path / "run", resume=True))
    with pytest.raises(RunError, match=r"--batch-size 64, not 32"):
        Run.check(_config(tmp_path / "run", resume=True, batch_size=32))


def test_resume_cuts_the_metrics_back_to_the_checkpoint(tmp_path: Path) -> None:
    run = Run.open(_config(tmp_path / "run"))
    run.append({"event": "epoch", "epoch": 1})
    save_checkpoint(
        tmp_path / "run" / "last.pt",
        {"metrics_bytes": run.metrics_bytes, **dict.fromkeys(("progress", "model", "optimizer", "scheduler"))},
    )
    run.append({"event": "epoch", "epoch": 2})
    run.close()
    run = Run.open(_config(tmp_path / "run", resume=True))
    assert run.last is not None
    run.append({"event": "epoch", "epoch": 2, "again": True})
    run.close()
    assert [event.get("again") for event in _events(tmp_path / "run")] == [None, True]


def test_resume_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    run = Run.open(_config(tmp_path / "run"))
    run.append({"event": "epoch"})
    run.close()
    run = Run.open(_config(tmp_path / "run", resume=True))
    assert run.last is None
    assert run.metrics_bytes == 0
    run.close()


def test_metrics_that_were_shortened_by_hand_are_not_padded(tmp_path: Path) -> None:
    run = Run.open(_config(tmp_path / "run"))
    run.append({"event": "epoch"})
    save_checkpoint(
        tmp_path / "run" / "last.pt",
        {"metrics_bytes": run.metrics_bytes, **dict.fromkeys(("progress", "model", "optimizer", "scheduler"))},
    )
    run.close()
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    run = Run.open(_config(tmp_path / "run", resume=True))
    run.append({"event": "epoch"})
    run.close()
    assert len(_events(tmp_path / "run")) == 1


def test_damaged_files_of_a_run_are_named(tmp_path: Path) -> None:
    Run.open(_config(tmp_path / "run")).close()
    (tmp_path / "run" / "last.pt").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(RunError, match=r"last\.pt"):
        Run.open(_config(tmp_path / "run", resume=True))
    (tmp_path / "run" / "config.yaml").write_text("a: [")
    with pytest.raises(RunError, match=r"config\.yaml"):
        Run.open(_config(tmp_path / "run", resume=True))


def test_scratch_of_a_killed_job_is_removed(tmp_path: Path) -> None:
    fresh_scratch(tmp_path / ".scratch-0")
    (tmp_path / ".scratch-0" / "x.npy").write_bytes(b"1")
    fresh_scratch(tmp_path / ".scratch-0")
    assert not any((tmp_path / ".scratch-0").iterdir())


def test_a_wrong_run_directory_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    Run.open(_config(tmp_path / "run")).close()
    before = sorted(p.name for p in (tmp_path / "run").iterdir())
    with pytest.raises(RunError, match="already holds a run"):
        Run.check(_config(tmp_path / "run"))
    save_checkpoint(tmp_path / "run" / "last.pt", {"model": {}})
    with pytest.raises(RunError, match="has no optimizer"):
        Run.check(_config(tmp_path / "run", resume=True))
    Run.check(_config(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == sorted([*before, "last.pt"])
