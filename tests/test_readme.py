"""Every command and every Python example of the README is run, in order, in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pygsage.config import ConvertConfig, InfoConfig, PredictConfig, TrainConfig
from pygsage.memory.options import EstimateConfig
from pygsage.memory.partition import PartitionConfig
from pygsage.spelling import flag

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CORA = ROOT.parent / "shared" / "data" / "planetoid" / "Cora"


def _blocks() -> list[tuple[str, str]]:
    return re.findall(r"```(sh|python)\n(.*?)```", README, re.DOTALL)


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=200)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which a reader would type: the clone's datasets/, and Cora where it is at hand."""
    (tmp_path / "datasets").symlink_to(ROOT / "datasets")
    if CORA.is_dir():
        (tmp_path / "planetoid" / "Cora").mkdir(parents=True)
        (tmp_path / "planetoid" / "Cora" / "raw").symlink_to(CORA / "raw")
    return tmp_path


@pytest.mark.timeout(400)
def test_every_command_and_example_works(folder: Path) -> None:
    waiting = ""
    for kind, text in _blocks():
        if kind == "python":
            (folder / "example.py").write_text(text)
            commands = ["python example.py"]
        else:
            commands = text.strip().splitlines()
        for command in commands:
            if command.startswith(("./tools/", ". .venv/")) or (" --root planetoid " in command and not CORA.is_dir()):
                continue  # the tools have a test of their own below
            if "--node-rank 0" in command:
                waiting = f"{command} & "
                continue
            done = _run(waiting + command + (" && wait %1" if waiting else ""), folder)
            waiting = ""
            wants_gpus = re.search(r"--gpus (0,|[1-9])", command)
            if wants_gpus and done.returncode == 2:
                assert "GPU" in done.stderr
                assert "--gpus 0" in done.stderr  # what to type instead
                continue
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert (folder / "scores.npy").exists()
    assert (folder / "embeddings.npy").exists()


@pytest.mark.timeout(400)
@pytest.mark.skipif(not (ROOT / ".venv" / "pygsage-installed").exists(), reason="./tools/test has not installed here")
def test_the_demo_trains_from_any_folder(folder: Path) -> None:
    done = _run(f"{ROOT}/tools/demo --epochs 2 --seed 3", folder)
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    assert (folder / "runs").is_dir()


def test_ci_runs_what_the_readme_says() -> None:
    assert "./tools/test" in README
    assert "tools/test" in (ROOT / ".ci" / "run").read_text()


def test_every_option_that_is_mentioned_exists() -> None:
    commands = (TrainConfig, PredictConfig, InfoConfig, ConvertConfig, EstimateConfig, PartitionConfig)
    ours = {flag(f) for options in commands for f in options.__dataclass_fields__} | {"--help", "--config"}
    ours |= {"--seeds", "--split-ids", "--varied", "--convert", "--kills", "--faults", "--memory"}  # of the tools
    ours |= {"--dgl", "--pyg", "--what", "--cap", "--set", "--phases", "--metis-memory"}
    ours |= {"--nodes", "--reads", "--steps", "--no-warm"}
    of_dgl = {"--gpu", "--mode", "--num_epochs", "--batch_size", "--fanout"}
    of_torchrun = {"--standalone", "--nproc-per-node", "--nnodes", "--node-rank", "--master-addr", "--master-port"}
    of_torchrun |= {"--max-restarts", "--rdzv-backend", "--rdzv-endpoint"}
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z_-]+", README))
    assert not mentioned - ours - of_dgl - of_torchrun
