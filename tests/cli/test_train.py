"""`pygsage train` as a user types it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from pygsage import ConfigError, RunError
from pygsage.cli.main import main
from pygsage.cli.train import resolve

SMALL = ["--gpus", "0", "--epochs", "5", "--hidden", "32", "--fanouts", "5,5", "--seed", "1"]


def test_flags_win_over_file_over_dataset_over_globals(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("batch-size: 64\nhidden: 99\nfanouts: '7,8'\nundirected: true\n")
    config = resolve(["digits", "--config", str(file), "--hidden", "5", "--no-undirected"])
    assert config.hidden == 5  # flag
    assert config.undirected is False  # flag
    assert config.batch_size == 64  # file
    assert config.fanouts == (7, 8)  # file
    assert config.epochs == 30  # the dataset's own default
    assert config.lr == 0.001  # global default


def test_the_file_may_name_the_dataset_and_flags_another(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("dataset: pyg:Planetoid/Cora\n")
    assert resolve(["--config", str(file)]).dataset == "pyg:Planetoid/Cora"
    assert resolve(["digits", "--config", str(file)]).dataset == "digits"
    assert resolve([]).dataset == "digits"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("epoch: 3", "sets 'epoch'"),
        ("epochs: many", "--epochs is 'many'"),
        ("epochs: 0", "--epochs is 0"),
        ("- 1", "holds a list"),
        ("a: [", "is not YAML"),
        ("fanouts: [3, x]", "--fanouts"),
        ("dropout: 1.5", "--dropout is 1.5"),
        ("norm: batches", "--norm is 'batches'"),
    ],
)
def test_mistakes_in_the_file_are_sentences(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        resolve(["--config", str(file)])


@pytest.mark.parametrize(
    "words",
    [
        ["--epochs", "0"],
        ["--epochs", "x"],
        ["--fanouts", "5,0"],
        ["--fanouts", "a"],
        ["--dropout", "1"],
        ["--lr", "nan"],
        ["--gpus", "0,0"],
        ["--gpus", "many"],
        ["--gpus", "99"],
        ["--procs", "0"],
        ["--split", "random:.9/.9/.9"],
        ["--resume"],
        ["--config", "missing.yaml"],
        ["--run-dir", "nothing-here", "--resume"],
        ["missing.npz"],
        ["--no-such-flag"],
        ["--aggr", "median"],
    ],
)
def test_mistakes_exit_with_2_a_sentence_and_nothing_written(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["train", *words])
    except SystemExit as end:  # words that the parser itself does not understand
        status = int(end.code or 0)
    output = capsys.readouterr()
    assert status == 2
    assert output.err.strip()
    assert "Traceback" not in output.err
    assert not any(tmp_path.iterdir())


def test_dry_run_says_the_plan_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--dry-run", "--gpus", "0"]) == 0
    text = capsys.readouterr().out
    assert "digits: 1,797 nodes" in text
    assert "30 epochs of 9 steps" in text
    assert "nothing was trained" in text
    assert not any(tmp_path.iterdir())


def test_json_is_the_last_line_of_standard_output_and_the_rest_goes_to_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *SMALL, "--json", "--run-dir", str(tmp_path / "run")]) == 0
    output = capsys.readouterr()
    (line,) = output.out.splitlines()
    result = json.loads(line)
    assert {
        "run_dir", "epochs", "best_epoch", "val", "test", "seconds", "peak_bytes", "estimated_peak_bytes", "num_procs"
    } <= set(result)  # fmt: skip
    assert result["test"]["accuracy"] > 0.6
    assert "epoch   1" in output.err
    assert main(["predict", str(tmp_path / "run"), "-o", str(tmp_path / "scores.npy")]) == 0
    assert main(["info", str(tmp_path / "run")]) == 0


def test_quiet_prints_the_result_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SMALL, "--epochs", "1", "--quiet", "--run-dir", str(tmp_path / "run")]) == 0
    output = capsys.readouterr()
    (line,) = output.out.splitlines()
    assert line.startswith("test accuracy 0.")
    assert line.endswith(str(tmp_path / "run"))
    assert output.err == ""


def test_resume_takes_the_runs_own_options(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    assert main(["train", *SMALL, "--epochs", "1", "--quiet", "--run-dir", run]) == 0
    config = resolve(["--run-dir", run, "--resume", "--epochs", "2"])
    assert (config.hidden, config.epochs, config.seed) == (32, 2, 1)
    assert main(["train", "--run-dir", run, "--resume", "--epochs", "2", "--quiet", "--gpus", "0"]) == 0
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["epochs"] == 2
    with pytest.raises(RunError, match="There is no run"):
        resolve(["--run-dir", str(tmp_path / "typo"), "--resume"])
    # With the dataset named the same command can be repeated by a scheduler, the first time too.
    assert resolve(["digits", "--run-dir", str(tmp_path / "new"), "--resume"]).dataset == "digits"


@contextmanager
def _occupied(*ports: int) -> Iterator[None]:
    with ExitStack() as stack:
        for port in ports:
            holder = stack.enter_context(socket.socket())
            try:
                holder.bind(("127.0.0.1", port))
                holder.listen()
            except OSError:  # somebody else holds it, which serves as well
                pass
        yield


def _losses(run: Path) -> list[float]:
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [event["loss"] for event in events if event["event"] == "epoch"]


@pytest.fixture(scope="module")
def digits_alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    run = tmp_path_factory.mktemp("alone") / "run"
    assert main(["train", *SMALL, "--batch-size", "120", "--quiet", "--run-dir", str(run)]) == 0
    return _losses(run)


@pytest.mark.parametrize("num_procs", [2, 3, 4])
def test_c098_digits_on_several_processes_has_the_losses_of_one(
    num_procs: int, digits_alone: list[float], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--procs", str(num_procs), "--batch-size", str(120 // num_procs), "--run-dir", str(tmp_path / "run")]
    with _occupied(12355, 29500):
        assert main(["train", *SMALL, *words]) == 0
    assert _losses(tmp_path / "run") == pytest.approx(digits_alone, rel=1e-3)
    assert f"over {num_procs} processes" in capfd.readouterr().out


def _torchrun(*words: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", *words]
    return [*launcher, "-m", "pygsage", "train", *SMALL, "--batch-size", "60"]


def test_two_launchers_of_torchrun_on_loopback_are_two_machines(digits_alone: list[float], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    common = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    launchers = [
        subprocess.Popen(
            [*_torchrun(*common, "--node-rank", str(rank)), "--run-dir", str(tmp_path / "run")],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [launcher.communicate(timeout=100)[0] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], outputs
    assert sum("test accuracy" in output for output in outputs) == 1
    assert _losses(tmp_path / "run") == pytest.approx(digits_alone, rel=1e-3)


def test_under_torchrun_rank_0_prints_the_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [*_torchrun("--standalone", "--nproc-per-node", "2"), "missing.npz"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    assert "pygsage train: " in done.stderr
    assert "missing.npz" in done.stderr
    assert not any(tmp_path.iterdir())


def test_sigterm_to_the_launcher_saves_and_exits_with_143(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "pygsage", "train", *SMALL, "--epochs", "100000", "--procs", "2"]
    job = subprocess.Popen([*command, "--run-dir", str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stdout is not None
    for line in job.stdout:
        if line.startswith("epoch   2"):
            break
    job.send_signal(signal.SIGTERM)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 143, errors
    assert "the checkpoint is saved" in errors
    assert "--resume" in errors
    assert (run / "last.pt").exists()
