"""Whole runs: what they leave behind, how they end, and how they go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch_geometric.nn import GraphSAGE

from pygsage import ConfigError, DatasetError, EnvironmentLimitError, RunError, Stopped, TrainingError, predict, train
from pygsage.config import TrainConfig
from pygsage.data.open import open_graph
from pygsage.distributed import World
from pygsage.memory.machine import read_machine
from pygsage.training import checkpoint, loop, rank
from pygsage.training.checkpoint import load_checkpoint
from pygsage.training.launch import dry_run

SMALL: dict[str, Any] = {
    "hidden": 16, "fanouts": (4, 3), "batch_size": 40, "epochs": 3, "lr": 0.01, "gpus": "0", "quiet": True
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """300 nodes in three groups that features and edges both tell apart, with noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    source = rng.integers(0, 300, 3000)
    same = np.array([rng.choice(np.flatnonzero(y == y[s])) for s in source])
    target = np.where(rng.random(3000) < 0.7, same, rng.integers(0, 300, 3000))
    path = tmp_path_factory.mktemp("data") / "small.npz"
    split = rng.permutation(300)
    np.savez(
        path,
        x=(np.eye(3)[y] + rng.normal(0, 1.0, (300, 3))).astype(np.float32),
        edge_index=np.stack([source, target]),
        y=y,
        train_idx=split[:180],
        val_idx=split[180:240],
        test_idx=split[240:],
    )
    return str(path)


def _events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


def _weights(run: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(run / "last.pt")["model"]


def _assert_same_weights(run: Path, expected: Path) -> None:
    ours, theirs = _weights(run), _weights(expected)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.fixture(scope="module")
def unbroken(small: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "unbroken"
    train(small, run_dir=str(run), **SMALL)
    return run


def test_a_run_leaves_all_that_is_promised(small: str, unbroken: Path) -> None:
    assert sorted(p.name for p in unbroken.iterdir() if p.name != ".lock") == [
        "best.pt",
        "config.yaml",
        "dataset.json",
        "last.pt",
        "memory.json",
        "metrics.jsonl",
        "model.safetensors",
    ]
    assert yaml.safe_load((unbroken / "config.yaml").read_text())["hidden"] == 16
    assert [e["epoch"] for e in _events(unbroken, "epoch")] == [1, 2, 3]
    assert {"loss", "seconds", "sample", "gather", "wait", "forward", "backward", "step"} <= set(
        _events(unbroken, "epoch")[0]
    )
    assert [e["num_nodes"] for e in _events(unbroken, "val")] == [60, 60, 60]
    (test,) = _events(unbroken, "test")
    assert test["num_nodes"] == 60
    assert test["accuracy"] > 0.5
    last = load_checkpoint(unbroken / "last.pt")
    assert (last["progress"]["epoch"], last["progress"]["step"]) == (3, 0)


def test_the_result_is_that_of_the_best_weights_on_the_test_nodes(small: str, tmp_path: Path) -> None:
    result = train(small, run_dir=str(tmp_path / "run"), **SMALL)
    graph = open_graph(TrainConfig(dataset=small))
    scores = predict(tmp_path / "run", "test")
    accuracy = float((scores.argmax(1) == graph.y[graph.splits["test"]].numpy()).mean())
    assert result.test["accuracy"] == pytest.approx(accuracy)
    best = max(_events(tmp_path / "run", "val"), key=lambda e: e["accuracy"])
    assert result.val["accuracy"] == best["accuracy"]
    assert result.best_epoch == best["epoch"]
    assert (result.num_procs, result.epochs) == (1, 3)
    assert result.peak_bytes > 50 << 20


def test_c118_val_and_test_are_scored_on_their_own_nodes(tmp_path: Path) -> None:
    y = np.array([0, 1] * 20)
    x = np.eye(2, dtype=np.float32)[y]
    x[30:] = x[30:][:, ::-1]  # the test nodes look like the other class
    np.savez(
        tmp_path / "g.npz",
        x=x,
        y=y,
        edge_index=np.empty((2, 0), dtype=np.int64),
        train_idx=np.arange(20),
        val_idx=np.arange(20, 30),
        test_idx=np.arange(30, 40),
    )
    result = train(
        str(tmp_path / "g.npz"), run_dir=str(tmp_path / "r"), **{**SMALL, "epochs": 30, "batch_size": 7, "dropout": 0.0}
    )
    assert result.val["accuracy"] == 1.0
    assert result.test["accuracy"] == 0.0
    assert result.test["num_nodes"] == 10


def test_saved_weights_give_the_same_output_in_pygs_graphsage(small: str, unbroken: Path) -> None:
    graph = open_graph(TrainConfig(dataset=small))
    model = GraphSAGE(3, 16, 2, 3)
    model.load_state_dict(load_file(unbroken / "model.safetensors"))
    target = torch.repeat_interleave(torch.arange(300), graph.indptr.diff())
    whole = model.eval()(graph.x, torch.stack([graph.indices.long(), target]))
    np.testing.assert_allclose(predict(unbroken, "all"), whole.detach().numpy(), atol=1e-5)


def test_same_seed_same_run_other_seed_other_run(small: str, unbroken: Path, tmp_path: Path) -> None:
    train(small, run_dir=str(tmp_path / "again"), **SMALL)
    train(small, run_dir=str(tmp_path / "threads"), sampler_threads=4, **SMALL)
    train(small, run_dir=str(tmp_path / "reference"), sampler="reference", **SMALL)
    train(small, run_dir=str(tmp_path / "other"), seed=1, **SMALL)
    for name in ("again", "threads", "reference"):
        _assert_same_weights(tmp_path / name, unbroken)
    name = "convs.0.lin_l.weight"
    assert not torch.equal(_weights(tmp_path / "other")[name], _weights(unbroken)[name])


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it runs that a finally block would not run."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_c110_killed_at_any_write_and_resumed_the_weights_are_the_same(
    small: str, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    rename = os.replace
    options = {**SMALL, "checkpoint_every_s": 0.0}  # a checkpoint after every step

    def run_until_killed(path: Path, deadline: int) -> bool:
        writes = 0

        def replace(source: Any, target: Any) -> None:
            nonlocal writes
            writes += 1
            if writes == deadline and moment == "before":
                raise Killed
            rename(source, target)
            if writes == deadline:
                raise Killed

        monkeypatch.setattr(checkpoint.os, "replace", replace)
        try:
            train(small, run_dir=str(path), **options)
        except Killed:
            return True
        finally:
            monkeypatch.setattr(checkpoint.os, "replace", rename)
        return False

    deadline = 1
    while run_until_killed(tmp_path / str(deadline), deadline):
        run = tmp_path / str(deadline)
        train(small, run_dir=str(run), resume=True, **options)
        _assert_same_weights(run, unbroken)
        assert [e["epoch"] for e in _events(run, "epoch")] == [1, 2, 3]
        assert [e["loss"] for e in _events(run, "epoch")] == [e["loss"] for e in _events(unbroken, "epoch")]
        deadline += 2
    assert deadline > 15


def test_c109_resume_to_more_epochs_equals_a_longer_run(small: str, tmp_path: Path) -> None:
    train(small, run_dir=str(tmp_path / "four"), **{**SMALL, "epochs": 4})
    train(small, run_dir=str(tmp_path / "two"), **{**SMALL, "epochs": 2})
    train(small, run_dir=str(tmp_path / "two"), resume=True, **{**SMALL, "epochs": 4})
    _assert_same_weights(tmp_path / "two", tmp_path / "four")


def _told(run: Path) -> list[dict[str, Any]]:
    """All of `metrics.jsonl` that is the same in every run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = {"seconds", "sample", "gather", "wait", "forward", "backward", "reduce", "step"}
    return [{name: value for name, value in line.items() if name not in timed} for line in lines]


@pytest.mark.parametrize("steps", [[3], [7], [10], [2, 4, 13]], ids=str)
def test_a_run_that_max_steps_has_ended_goes_on_as_if_unbroken(small: str, tmp_path: Path, steps: list[int]) -> None:
    """An epoch of which a part was trained is scored for the report alone: no part in best, patience and plateau."""
    options = {**SMALL, "epochs": 4, "scheduler": "plateau", "patience": 2, "lr": 0.05, "eval_every": 2}
    train(small, run_dir=str(tmp_path / "whole"), **options)
    run = tmp_path / "run"
    for limit in steps:  # five steps an epoch
        result = train(small, run_dir=str(run), max_steps=limit, resume=True, **options)
        progress = load_checkpoint(run / "last.pt")["progress"]
        assert (progress["total_steps"], progress["step"]) == (limit, limit % 5)
        assert result.epochs == limit // 5
        assert result.best_epoch == (2 if limit >= 10 else None)
        assert result.val
        assert result.test
        if limit < 5:
            assert " with the last weights (validation: " in result.sentence()
        partial = [line for line in _told(run) if line.get("partial")]
        assert [line["event"] for line in partial] == (["epoch", "val"] if limit % 5 else [])
        assert [line["epoch"] for line in partial] == [limit // 5 + 1] * len(partial)
        # Once more, and the same is said.
        said = _told(run)
        assert train(small, run_dir=str(run), max_steps=limit, resume=True, **options).test == result.test
        assert _told(run) == said
    train(small, run_dir=str(run), max_steps=1000, resume=True, **options)
    _assert_same_weights(run, tmp_path / "whole")
    assert _told(run) == _told(tmp_path / "whole")
    ours, theirs = (load_checkpoint(path / "best.pt") for path in (run, tmp_path / "whole"))
    assert ours["epoch"] == theirs["epoch"]
    assert all(torch.equal(ours["model"][name], theirs["model"][name]) for name in theirs["model"])
    ours, theirs = (load_checkpoint(path / "last.pt") for path in (run, tmp_path / "whole"))
    assert ours["progress"] == theirs["progress"]
    assert ours["scheduler"] == theirs["scheduler"]


def test_in_python_too_a_resumed_run_need_not_be_told_its_options(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    train(small, run_dir=run, **{**SMALL, "epochs": 2})
    result = train(run_dir=run, resume=True, gpus="0")
    assert result.epochs == 2
    assert "note: the run has had 2 epochs, its --epochs: nothing is left to train" in capsys.readouterr().out
    assert train(small, run_dir=run, resume=True, epochs=3, gpus="0", quiet=True).epochs == 3
    assert train(run_dir=run, resume=True, max_steps=3, gpus="0").epochs == 3
    assert "note: the run has taken 3 steps, its --max-steps" in capsys.readouterr().out


def test_resume_of_a_finished_run_tells_its_result_again(small: str, unbroken: Path) -> None:
    before = _weights(unbroken)
    result = train(small, run_dir=str(unbroken), resume=True, **SMALL)
    assert result.test["accuracy"] == _events(unbroken, "test")[-1]["accuracy"]
    assert len(_events(unbroken, "test")) == 1
    assert torch.equal(_weights(unbroken)["convs.0.lin_l.weight"], before["convs.0.lin_l.weight"])


def test_patience_and_eval_every(small: str, tmp_path: Path) -> None:
    result = train(small, run_dir=str(tmp_path / "a"), **{**SMALL, "epochs": 200, "patience": 2, "lr": 0.0})
    assert result.epochs == 3  # nothing is learned: the first evaluation stays the best
    assert result.best_epoch == 1
    train(small, run_dir=str(tmp_path / "b"), **{**SMALL, "epochs": 5, "eval_every": 2})
    assert [e["epoch"] for e in _events(tmp_path / "b", "val")] == [2, 4, 5]


def test_without_val_or_test_nodes_the_last_weights_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(
        tmp_path / "g.npz",
        x=np.ones((8, 2), np.float32),
        y=np.arange(8) % 2,
        edge_index=np.array([[0, 1], [1, 0]]),
        train_idx=np.arange(8),
    )
    result = train(str(tmp_path / "g.npz"), run_dir=str(tmp_path / "r"), **{**SMALL, "epochs": 2, "quiet": False})
    assert (result.val, result.test, result.best_epoch) == ({}, {}, None)
    assert "nothing is validated: the last weights are kept" in capsys.readouterr().out
    best = load_checkpoint(tmp_path / "r" / "best.pt")
    assert best["epoch"] == 2
    assert torch.equal(best["model"]["convs.0.lin_l.bias"], _weights(tmp_path / "r")["convs.0.lin_l.bias"])


def test_a_loss_that_is_not_finite_stops_before_the_weights_take_harm(small: str, tmp_path: Path) -> None:
    options = {**SMALL, "epochs": 100, "lr": 1e30, "checkpoint_every_s": 0.0}
    with pytest.raises(TrainingError, match="The loss is") as error:
        train(small, run_dir=str(tmp_path / "run"), **options)
    assert "--lr" in error.value.advice
    assert all(torch.isfinite(w).all() for w in _weights(tmp_path / "run").values())


def test_an_error_in_a_sampler_thread_is_the_error_of_the_run(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("a thread broke")

    monkeypatch.setattr("pygsage.sampling.sampler.NeighborSampler.sample_layers", broken)
    with pytest.raises(RuntimeError, match="a thread broke"):
        train(small, run_dir=str(tmp_path / "run"), **SMALL)
    assert not [t for t in threading.enumerate() if t.name.startswith("pygsage")]


def test_sigterm_finishes_the_step_saves_and_resumes_to_the_same_weights(
    small: str, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loop.Trainer._sum_over_ranks
    steps = 0

    def signalled(self: loop.Trainer, loss: torch.Tensor) -> tuple[float, int]:
        nonlocal steps
        steps += 1
        if steps == 8:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, loss)

    monkeypatch.setattr(loop.Trainer, "_sum_over_ranks", signalled)
    with pytest.raises(Stopped, match="after step 3 of epoch 2") as stopped:
        train(small, run_dir=str(tmp_path / "run"), **SMALL)
    assert stopped.value.exit_status == 143
    assert "--resume" in stopped.value.advice
    train(small, run_dir=str(tmp_path / "run"), resume=True, **SMALL)
    _assert_same_weights(tmp_path / "run", unbroken)


def test_several_processes_give_the_result_of_one(small: str, unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train(small, run_dir=str(run), procs=2, **{**SMALL, "batch_size": 20})
    assert result.num_procs == 2
    for ours, alone in zip(_events(run, "epoch"), _events(unbroken, "epoch"), strict=True):
        assert ours["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert [e["num_nodes"] for e in _events(run, "val")] == [60, 60, 60]
    assert sorted(p.name for p in run.iterdir()) == sorted(p.name for p in unbroken.iterdir())  # no scratch is left
    # C109: a run of two processes goes on with one, at the same global batch.
    longer = train(small, run_dir=str(run), resume=True, **{**SMALL, "batch_size": 20, "epochs": 4})
    assert longer.epochs == 4
    assert load_checkpoint(run / "last.pt")["progress"]["global_batch_size"] == 40


def test_c095_the_effective_batch_and_short_epochs_are_said(small: str) -> None:
    config = TrainConfig(dataset=small, gpus="0", procs=3, batch_size=100)
    text = "\n".join(dry_run(config))
    assert "300 seeds a step over 3 processes" in text
    assert "warning: only 1 step an epoch" in text


def test_mistakes_leave_nothing_behind(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError):
        train("missing.npz")
    with pytest.raises(ConfigError, match="train\\(\\) sets 'epoch'"):
        train(small, epoch=3)
    with pytest.raises(EnvironmentLimitError, match="asked for 99 GPUs"):
        train(small, gpus="99")
    with pytest.raises(DatasetError):
        train("missing.npz", procs=2, gpus="0")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "found"),
    [(None, "None"), ([], "an empty list"), (3, "of type int"), ({}, "of type dict"), ([1], "a list with a int")],
)
def test_what_is_no_dataset_is_refused_with_what_is_one(given: Any, found: str) -> None:
    with pytest.raises(DatasetError, match=f"given is {found}; expected a name .*, a torch_geometric Data, a Dataset"):
        train(given)


def test_a_path_names_a_dataset(small: str, tmp_path: Path) -> None:
    assert train(Path(small), run_dir=str(tmp_path / "run"), **{**SMALL, "epochs": 1}).epochs == 1


def test_c100_a_rank_that_fails_ends_the_job_with_its_traceback(small: str, tmp_path: Path) -> None:
    """The dataset vanishes under rank 1 only: it cannot open the shared copy."""
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import os\n"
        "if os.environ.get('RANK') == '1':\n"
        "    import pygsage.training.loop as loop\n"
        "    def fail(self, loss): raise ValueError('rank one is unwell')\n"
        "    loop.Trainer._sum_over_ranks = fail\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pygsage", "train", small, "--gpus", "0", "--procs", "2", "--quiet"]
    done = subprocess.run(
        [*command, "--run-dir", str(tmp_path / "run")], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "rank 1 failed: ValueError: rank one is unwell" in done.stderr
    assert "in fail" in done.stderr


def test_predict_orders_by_split_and_gives_embeddings(small: str, unbroken: Path) -> None:
    graph = open_graph(TrainConfig(dataset=small))
    everything = predict(unbroken, "all")
    assert everything.shape == (300, 3)
    assert everything.dtype == np.float32
    for split, nodes in graph.splits.items():
        np.testing.assert_array_equal(predict(unbroken, split), everything[nodes.numpy()])
    hidden = predict(unbroken, "val", embeddings=True)
    assert hidden.shape == (60, 16)
    assert (hidden >= 0).all()  # after the activation


def test_predict_refuses_what_is_no_run(small: str, unbroken: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run directory"):
        predict(tmp_path)
    (tmp_path / "config.yaml").write_text((unbroken / "config.yaml").read_text())
    with pytest.raises(RunError, match=r"has no weights yet: .* --resume"):
        predict(tmp_path)


def test_relabelled_ids_are_kept_with_the_run(tmp_path: Path) -> None:
    ids = np.array([30, 7, 12, 90])
    np.savez(
        tmp_path / "g.npz",
        x=np.eye(4, dtype=np.float32),
        y=np.array([0, 1, 0, 1]),
        edge_index=np.array([[30, 7, 12], [90, 12, 30]]),
        node_id=ids,
        train_idx=ids[:2],
        test_idx=ids[2:],
    )
    train(str(tmp_path / "g.npz"), run_dir=str(tmp_path / "r"), relabel=True, **{**SMALL, "epochs": 1})
    np.testing.assert_array_equal(np.load(tmp_path / "r" / "node_id.npy"), ids)


def test_without_the_native_core_training_says_that_it_is_slow(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pygsage.native.core", None)
    monkeypatch.setattr("pygsage.native.load_error", "it was not built")
    text = "\n".join(dry_run(TrainConfig(dataset=small, gpus="0")))
    assert "sampler reference" in text
    assert "without the native sampler (it was not built)" in text


def test_c101_the_decision_is_rank_0s(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank whose own score lies on the other side of the best one follows rank 0."""

    def of_rank_0(self: World, value: Any) -> Any:
        return {**value, "accuracy": 0.25} if isinstance(value, dict) and "accuracy" in value else value

    monkeypatch.setattr(World, "broadcast", of_rank_0)
    result = train(small, run_dir=str(tmp_path / "run"), **{**SMALL, "epochs": 50, "patience": 2})
    assert result.epochs == 3
    assert result.val["accuracy"] == 0.25


@pytest.mark.parametrize(("variables", "expected"), [({"OMP_NUM_THREADS": "3"}, 3), ({"OMP_NUM_THREADS": "x"}, 5)])
def test_c115_threads_are_as_the_user_said_else_the_share_of_the_cores(
    variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ten_cores = replace(read_machine(), num_cores=10)
    monkeypatch.setattr(rank, "read_machine", lambda: ten_cores)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank._threads_of(World(size=2, local_size=2)) == expected
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun's own 1 says nothing
    assert rank._threads_of(World(size=2, local_size=2)) == 5


def test_a_run_directory_that_is_removed_is_an_error_and_stays_removed(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loop.Trainer._sum_over_ranks

    def removing(self: loop.Trainer, loss: torch.Tensor) -> tuple[float, int]:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return step(self, loss)

    monkeypatch.setattr(loop.Trainer, "_sum_over_ranks", removing)
    with pytest.raises(RunError, match="its folder was removed"):
        train(small, run_dir=str(tmp_path / "run"), **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backward = torch.Tensor.backward

    def overflow(self: torch.Tensor, *arguments: Any, **options: Any) -> None:
        backward(self * 1e38 * 1e38, *arguments, **options)

    monkeypatch.setattr(torch.Tensor, "backward", overflow)
    with pytest.raises(TrainingError, match="its gradient is not finite"):
        train(small, run_dir=str(tmp_path / "run"), **SMALL)


def test_weights_of_another_model_are_refused_in_a_sentence(small: str, tmp_path: Path) -> None:
    train(small, run_dir=str(tmp_path / "run"), **{**SMALL, "epochs": 1})
    config = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(config.replace("hidden: 16", "hidden: 8"))
    with pytest.raises(RunError, match="do not fit the model"):
        predict(tmp_path / "run")
    with pytest.raises(RunError, match="do not fit the model"):
        train(small, run_dir=str(tmp_path / "run"), resume=True, **{**SMALL, "epochs": 2, "hidden": 8})


def test_nothing_is_evaluated_where_nobody_asks(small: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--patience follows the validation score, and --eval-every is 0"):
        train(small, run_dir=str(tmp_path / "no"), **{**SMALL, "eval_every": 0, "patience": 2})
    assert not (tmp_path / "no").exists()
    result = train(small, run_dir=str(tmp_path / "run"), **{**SMALL, "epochs": 2, "eval_every": 0})
    assert (result.val, result.test, result.best_epoch) == ({}, {}, None)
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert [json.loads(line)["event"] for line in text.splitlines()] == ["epoch", "epoch"]
    assert (
        "evaluate" not in json.loads((tmp_path / "run" / "memory.json").read_text())["of_first_rank"]["measured_bytes"]
    )
    assert predict(tmp_path / "run", "test").shape[1] > 1
