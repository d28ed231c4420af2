"""Training on a graph in parts: the result of the whole graph's, to the last bit in one process."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pygsage
from pygsage.cli.main import main
from pygsage.data.one_graph.graph import Graph
from pygsage.errors import ConfigError, DatasetError, EnvironmentLimitError
from pygsage.memory.answer import answer
from pygsage.training.checkpoint import load_checkpoint
from pygsage.training.content import content_of
from pygsage.training.launch import train

OPTIONS: dict[str, Any] = {
    "gpus": "0", "fanouts": (3, 2), "hidden": 8, "batch_size": 16, "epochs": 2, "quiet": True,
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    x = np.eye(3, dtype=np.float16)[y] + rng.normal(0, 1, (120, 3)).astype(np.float16)
    order = rng.permutation(120)
    splits = {"train_idx": order[:60], "val_idx": order[60:90], "test_idx": order[90:]}
    np.savez(tmp_path / "graph.npz", x=x, edge_index=rng.integers(0, 120, (2, 500)), y=y, **splits)
    assert main(["convert", str(tmp_path / "graph.npz"), str(tmp_path / "store"), "--quiet"]) == 0
    return str(tmp_path / "store")


@pytest.fixture
def parts(store: str, tmp_path: Path) -> str:
    assert main(["partition", store, str(tmp_path / "split"), "--parts", "3", "--quiet"]) == 0
    return str(tmp_path / "split")


def test_the_command_and_info_say_what_the_parts_are(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["partition", store, str(out), "--parts", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["partition"]["method"] == "metis"
    assert sum(part["nodes"] for part in told["parts"]) == 120
    assert sum(part["train"] for part in told["parts"]) == 60
    assert main(["partition", store, str(tmp_path / "range"), "--method", "range"]) == 0
    assert "parts        2 (range), " in capsys.readouterr().out
    shutil.rmtree(out / "part-1")
    assert main(["info", str(out), "--verify"]) == 0
    shown = capsys.readouterr().out
    assert "part-0     " in shown
    assert " to train, 0.0 MiB, not here\n" in shown
    assert "every byte that is here is as it was written" in shown
    assert main(["info", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"][1]["here"] is False
    assert main(["partition", str(tmp_path / "graph.npz"), str(tmp_path / "more")]) == 2
    assert "is not the folder of one graph" in capsys.readouterr().err
    assert main(["partition", store, str(out)]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("split", ["public", "random:.6/.2/.2"])
def test_one_process_has_the_result_of_the_whole_graph(store: str, parts: str, tmp_path: Path, split: str) -> None:
    results = {}
    for name, dataset in (("whole", store), ("parts", parts)):
        results[name] = train(dataset, run_dir=str(tmp_path / name), split=split, **OPTIONS)
    for run in ("best.pt", "last.pt"):
        models = [load_checkpoint(tmp_path / name / run)["model"] for name in results]
        for key, tensor in models[0].items():
            assert tensor.equal(models[1][key]), key
    assert results["whole"].val == results["parts"].val
    assert results["whole"].test == results["parts"].test
    for which in ("test", "all"):
        found = [pygsage.predict(tmp_path / name, which) for name in results]  # type: ignore[arg-type]
        np.testing.assert_array_equal(found[0], found[1])
    assert "remote" not in (tmp_path / "parts" / "metrics.jsonl").read_text()


@pytest.mark.parametrize("harm", ["parts exchanged", "another place"])
def test_what_is_another_parts_is_not_taken_for_it(parts: str, tmp_path: Path, harm: str) -> None:
    folder = Path(parts)
    if harm == "parts exchanged":  # of one size, as far as a manifest tells
        rows = [np.load(folder / f"part-{number}" / "x.npy") for number in (0, 1)]
        size = min(len(each) for each in rows)
        rows[0][:size] = rows[1][:size]
        np.save(folder / "part-0" / "x.npy", rows[0])
    else:
        np.save(folder / "place.npy", np.load(folder / "place.npy")[::-1].copy())
    said = r"part-0 is damaged, or another part" if harm == "parts exchanged" else r"place\.npy is not the one"
    with pytest.raises(DatasetError, match=said):
        train(parts, run_dir=str(tmp_path / "run"), **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_too_many_parts_for_the_limit_of_open_files(parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    graph = Graph.open(parts)
    assert graph.parts is not None
    monkeypatch.setattr("pygsage.data.files.arrays.map_pages", full)
    with pytest.raises(EnvironmentLimitError, match=r"too many files are open\. .*ulimit -n"):
        graph.parts.open(0)


def test_embeddings_of_a_single_layer_are_the_features(store: str, parts: str, tmp_path: Path) -> None:
    for name, dataset in (("whole", store), ("parts", parts)):
        train(dataset, run_dir=str(tmp_path / name), **{**OPTIONS, "fanouts": (3,)})
    found = [pygsage.predict(tmp_path / name, "test", embeddings=True) for name in ("whole", "parts")]
    np.testing.assert_array_equal(found[0], found[1])


def test_what_a_run_notes_of_its_dataset_is_the_same(store: str, parts: str) -> None:
    whole = content_of(Graph.open(store))
    assert content_of(Graph.open(parts)) == whole
    shutil.rmtree(Path(parts) / "part-2")  # which is elsewhere
    assert content_of(Graph.open(parts)) == whole


def test_what_is_refused_leaves_nothing(parts: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is in parts, which are trained on as they are"):
        train(parts, run_dir=str(tmp_path / "run"), undirected=True, **OPTIONS)
    shutil.rmtree(Path(parts) / "part-1")
    with pytest.raises(DatasetError, match=r"has no part-1, which the only machine trains on; expected it there\."):
        train(parts, run_dir=str(tmp_path / "run"), **OPTIONS)
    assert not (tmp_path / "run").exists()
    for wrong in ("half", "150%", "-1"):
        with pytest.raises(ConfigError, match="--remote-cache is '.*'; expected a share such as 15%"):
            pygsage.TrainConfig(remote_cache=wrong)


def test_the_estimate_counts_rows_of_others_on_several_machines(parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(cache: str) -> int:
        return answer(pygsage.TrainConfig(dataset=parts, remote_cache=cache, memory_limit="4GiB")).hot_rows

    assert rows("15%") == 0
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert (rows("15%"), rows("0.06KiB"), rows("0")) == (18, 10, 0)  # of 120 nodes with 6 bytes each
    told = answer(pygsage.TrainConfig(dataset=parts), num_ranks=2).memory
    assert any("rows" in row.what for row in told.rows if row.phase == "train")
