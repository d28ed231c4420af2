from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pygsage
from pygsage.cli.main import main
from pygsage.errors import ConfigError

NUMBERS = ["--num-graphs", "1", "--avg-nodes", "1000000", "--avg-edges", "10000000", "--num-features", "128"]
CPU = ["--gpus", "0"]


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    status = main(["estimate-memory", *words, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return status, answer


@pytest.mark.parametrize(
    ("limit", "status", "decision"), [("64GiB", 0, "memory"), ("3GiB", 3, "disk"), ("100MiB", 4, "none")]
)
def test_c011_the_exit_status_says_where_it_fits(
    limit: str, status: int, decision: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    found, answer = _json(capsys, *NUMBERS, *CPU, "--memory-limit", limit)
    assert (found, answer["decision"], answer["exit_status"]) == (status, decision, status)
    assert main(["estimate-memory", *NUMBERS, *CPU, "--memory-limit", limit]) == status
    text = capsys.readouterr().out
    assert "needs" in text
    assert "--memory-limit" in text
    assert "next " in text
    assert not list(tmp_path.iterdir())


def test_the_json_has_phases_places_rows_and_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    _, answer = _json(capsys, "ogbn-arxiv", *CPU)
    assert answer["dataset"]["num_nodes"] == 169_343
    assert answer["training"]["undirected"] is True  # the dataset's own default
    assert set(answer["ways"]) == {"memory", "disk", "pyg"}
    for way in answer["ways"].values():
        assert {"peak_bytes", "need_bytes", "disk_bytes", "gpu_bytes", "phases"} <= set(way)
        for phase in way["phases"].values():
            assert all({"place", "what", "bytes", "formula"} <= set(row) for row in phase["rows"])
            assert phase["ram_bytes"] >= phase["shared_bytes"] + phase["rank_bytes"]
    assert {"read", "process", "train", "evaluate"} <= set(answer["ways"]["memory"]["phases"])
    assert {"memory_available_bytes", "memory_available_source", "disk_free_bytes"} <= set(answer["machine"])
    assert answer["next_command"].startswith("pygsage ")
    assert answer["batch"]["basis"].startswith("bound")


def test_c014_places_are_lines_of_their_own_in_one_unit(capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate-memory", "pyg:Reddit", "--gpus", "1"])
    lines = {line[:16].strip(): line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    for place in ("RAM, shared", "RAM, per rank", "/dev/shm", "disk", "GPU"):
        assert " GiB " in lines[place]
        assert "GB" not in lines[place].replace("GiB", "")


def test_flags_of_train_change_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    def peak(*words: str) -> int:
        return int(_json(capsys, "ogbn-products", *CPU, *words)[1]["ways"]["memory"]["phases"]["train"]["rank_bytes"])

    plain = peak()
    assert peak("--batch-size", "4096") > plain > peak("--fanouts", "5,5")
    assert peak("--hidden", "1024") > plain
    assert peak("--sampler-threads", "8") > plain


def test_c008_c012_a_file_is_known_by_its_headers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zeros.npz"
    edges = np.zeros((2, 1_000), np.int64)
    np.savez_compressed(path, x=np.zeros((200_000, 250), np.float32), edge_index=edges, y=np.zeros(200_000))
    assert path.stat().st_size < 500_000
    _, answer = _json(capsys, str(path), *CPU)
    rows = answer["ways"]["memory"]["phases"]["train"]["rows"]
    assert next(row["bytes"] for row in rows if row["what"] == "features, float32") == 200_000_000


@pytest.mark.parametrize(
    "words",
    [
        [], ["--num-graphs", "5"], ["digits", *NUMBERS], ["nothing-known"], ["digits", "--memory-limit", "much"],
        ["digits", "--fanouts", "0"], ["digits", "--memory-share", "2"], [*NUMBERS, "--batch-size", "0"],
    ],
)  # fmt: skip
def test_mistakes_are_the_users(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate-memory", *words]) == 2
    assert "pygsage estimate-memory: " in capsys.readouterr().err


def test_the_public_function_takes_the_same_options() -> None:
    found = pygsage.estimate_memory("digits", gpus="0", memory_limit="8GiB")
    assert found.decision.storage == "memory"
    assert found.training.batch_size == 128  # the dataset's own default
    assert "In memory" in found.sentence()
    with pytest.raises(ConfigError, match="expected a size"):
        pygsage.estimate_memory("digits", memory_limit="-3")


def test_nothing_heavy_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pygsage.cli.main import main\n"
        "assert main(['estimate-memory', 'ogbn-papers100M', '--gpus', '0', '--memory-limit', '9999GiB']) == 0\n"
        "heavy = {'torch', 'numpy', 'torch_geometric', 'ogb', 'sklearn', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PyG's own" in done.stdout


TOOL = Path(pygsage.__file__).parent.parent / "tools" / "memory-check"


@pytest.mark.skipif(not TOOL.exists(), reason="not a checkout")
def test_memory_check_needs_nothing_but_python(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", str(TOOL), *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    words = ["ogbn-arxiv", "--gpus", "0", "--fanouts", "10,5", "--no-undirected", "--memory-limit", "1GiB", "--json"]
    done = run(*words)
    assert done.stderr == ""
    status, answer = _json(capsys, *words[:-1])
    alone = json.loads(done.stdout)
    assert done.returncode == status == 3
    assert (alone["ways"], alone["decision"]) == (answer["ways"], answer["decision"])
    assert run("--num-graphs", "3").returncode == 2
    assert "--avg-nodes" in run("--help").stdout


def test_the_next_command_has_the_options_that_were_typed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--procs", "2", "--gpus", "0", "--undirected", "--fanouts", "5,5", "--batch-size", "128"]
    assert main(["estimate-memory", "digits", *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["next_command"] == "pygsage train digits --gpus 0 --procs 2 --fanouts 5,5 --undirected"
