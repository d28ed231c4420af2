from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    roc_auc_score,
)

from pygsage.config import TrainConfig
from pygsage.data.one_graph.graph import Graph
from pygsage.distributed import World
from pygsage.errors import ConfigError
from pygsage.memory.peak import PeakMemory
from pygsage.sampling.shard import share_of
from pygsage.training.loop import Trainer
from pygsage.training.metrics import (
    ClassificationScores,
    MultilabelScores,
    RegressionScores,
    Scores,
    build_scores,
    choose_metric,
)


class ThreadWorld:
    """One of several ranks that are threads: what one brings, all get, in the order of the ranks."""

    def __init__(self, rank: int, slots: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.slots, self.barrier = rank, slots, barrier

    def _exchange(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self.slots[self.rank] = tensor.clone()
        self.barrier.wait(timeout=20)
        everybody = list(self.slots)
        self.barrier.wait(timeout=20)
        return everybody

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.copy_(torch.stack(self._exchange(tensor)).sum(0).to(tensor.dtype))

    def gather_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat(self._exchange(tensor))


def of_ranks(counters: list[Scores]) -> dict[str, float]:
    """What every rank computes, which has to be the same."""
    slots, barrier = [None] * len(counters), threading.Barrier(len(counters))
    with ThreadPoolExecutor(len(counters)) as threads:
        found = list(
            threads.map(lambda rank: counters[rank].compute(ThreadWorld(rank, slots, barrier)), range(len(counters)))
        )
    for other in found[1:]:
        assert other == pytest.approx(found[0], abs=0.0, nan_ok=True)
    return found[0]


def over_ranks(make: Callable[[], Scores], scores: torch.Tensor, y: torch.Tensor, num_ranks: int) -> dict[str, float]:
    counters = [make() for _ in range(num_ranks)]
    for rank, counter in enumerate(counters):
        mine = share_of(len(y), rank, num_ranks)
        counter.update(scores[mine], y[mine])
    return of_ranks(counters)


def _over_ranks(scores: torch.Tensor, y: torch.Tensor, num_ranks: int) -> dict[str, float]:
    return over_ranks(lambda: ClassificationScores(scores.shape[1]), scores, y, num_ranks)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(2, 7), st.integers(0, 10_000))
def test_classes_equal_scikit_learn_for_any_number_of_ranks(num_nodes: int, num_classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(num_nodes, num_classes, generator=generator)
    y = torch.randint(num_classes, (num_nodes,), generator=generator)
    predicted = scores.argmax(1)
    expected = {
        "accuracy": accuracy_score(y, predicted),
        "f1_micro": f1_score(y, predicted, average="micro"),
        "f1_macro": f1_score(y, predicted, average="macro", zero_division=0.0),
        "loss": log_loss(y, scores.double().softmax(1), labels=np.arange(num_classes)),
        "num_nodes": num_nodes,
    }
    if num_classes == 2:
        expected |= _ranking(y.unsqueeze(1).numpy(), (scores[:, 1] - scores[:, 0]).unsqueeze(1).numpy())
    for num_ranks in (1, 2, 4):
        assert _over_ranks(scores, y, num_ranks) == pytest.approx(expected, abs=1e-6, nan_ok=True)


def _ranking(y: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    found = []
    for column in range(y.shape[1]):
        known = ~np.isnan(y[:, column].astype(float))
        target, score = y[known, column], scores[known, column]
        if 0 < target.sum() < len(target):
            found.append((roc_auc_score(target, score), average_precision_score(target, score)))
    rocauc, ap = np.mean(found, axis=0) if found else (np.nan, np.nan)
    return {"rocauc": float(rocauc), "ap": float(ap)}


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.9]), st.integers(0, 10_000))
def test_several_labels_equal_scikit_learn_for_any_number_of_ranks(
    num_nodes: int, num_labels: int, missing: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Large and tied scores: a sigmoid of them would be 1.0 for many.
    scores = (torch.randn(num_nodes, num_labels, generator=generator) * 3).round() * 30
    y = torch.randint(2, (num_nodes, num_labels), generator=generator).float()
    y[torch.rand(num_nodes, num_labels, generator=generator) < missing] = torch.nan
    known = ~y.isnan()
    flat, predicted = y[known].numpy(), (scores[known] > 0).numpy()
    nothing = bool((flat.sum() + predicted.sum()) == 0)
    expected = _ranking(y.numpy(), scores.numpy())
    expected["f1_micro"] = np.nan if nothing else f1_score(flat, predicted)
    for num_ranks in (1, 3, 4):
        found = over_ranks(lambda: MultilabelScores(num_labels), scores, y, num_ranks)
        assert found["num_nodes"] == num_nodes
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6, nan_ok=True)
        if len(flat):
            loss = torch.nn.functional.softplus(torch.where(y == 1, -scores, scores)[known].double()).mean()
            assert found["loss"] == pytest.approx(float(loss))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 3), st.sampled_from([0.0, 0.6]), st.integers(0, 10_000))
def test_measurements_equal_scikit_learn_for_any_number_of_ranks(
    num_nodes: int, num_targets: int, missing: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores, y = torch.randn(2, num_nodes, num_targets, generator=generator) * 100
    y[torch.rand(num_nodes, num_targets, generator=generator) < missing] = torch.nan
    known = ~y.isnan()
    expected = {"mae": np.nan, "rmse": np.nan, "loss": np.nan, "num_nodes": num_nodes}
    if known.any():
        target, predicted = y[known].double().numpy(), scores[known].double().numpy()
        mse = mean_squared_error(target, predicted)
        expected |= {"mae": mean_absolute_error(target, predicted), "rmse": mse**0.5, "loss": mse}
    for num_ranks in (1, 2, 4):
        found = over_ranks(RegressionScores, scores, y, num_ranks)
        assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_c116_five_nodes_on_four_ranks_are_five_nodes() -> None:
    scores = torch.eye(5)
    y = torch.tensor([1, 1, 2, 3, 4])  # node 0 is wrong
    assert _over_ranks(scores, y, 4)["accuracy"] == pytest.approx(0.8)


def test_c117_pooled_not_averaged_and_a_rank_may_have_nothing() -> None:
    right, wrong, idle = (ClassificationScores(2) for _ in range(3))
    right.update(torch.tensor([[1.0, 0.0]] * 3), torch.zeros(3, dtype=torch.int64))
    wrong.update(torch.tensor([[1.0, 0.0]]), torch.ones(1, dtype=torch.int64))
    idle.update(torch.empty(0, 2), torch.empty(0, dtype=torch.int64))
    assert of_ranks([idle, right, wrong, ClassificationScores(2)])["accuracy"] == pytest.approx(0.75)


def test_c127_macro_f1_with_a_class_on_one_rank_only() -> None:
    scores = torch.tensor([[2.0, 1, 0], [2, 1, 0], [0, 2, 1], [0, 1, 2]])
    y = torch.tensor([0, 1, 1, 2])
    expected = f1_score(y, scores.argmax(1), average="macro")
    assert _over_ranks(scores, y, 4)["f1_macro"] == pytest.approx(expected)


def test_c127_average_precision_of_all_ranks_is_no_mean_of_theirs() -> None:
    scores, y = torch.tensor([[0.9], [0.8], [0.75], [0.7]]), torch.tensor([[1.0], [0.0], [1.0], [0.0]])
    found = over_ranks(lambda: MultilabelScores(1), scores, y, 2)
    assert found["ap"] == pytest.approx(average_precision_score(y, scores))
    halves = [average_precision_score(y[part], scores[part]) for part in (slice(0, 2), slice(2, 4))]
    assert found["ap"] != pytest.approx(np.mean(halves))


def test_no_nodes_at_all_is_nan_not_an_error() -> None:
    for make in (lambda: ClassificationScores(3), lambda: MultilabelScores(3), RegressionScores):
        scores = of_ranks([make(), make()])
        assert scores.pop("num_nodes") == 0
        assert np.isnan(list(scores.values())).all()


def test_one_class_is_always_right() -> None:
    counter = ClassificationScores(1)
    counter.update(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64))
    assert counter.compute()["accuracy"] == 1.0


def test_asking_twice_gives_the_same() -> None:
    counter = RegressionScores()
    counter.update(torch.ones(2, 1), torch.zeros(2, 1))
    assert of_ranks([counter, RegressionScores()]) == of_ranks([counter, RegressionScores()])


def test_c128_counters_do_not_grow_with_the_number_of_nodes() -> None:
    counter = ClassificationScores(3)
    for _ in range(3):
        counter.update(torch.tensor([[1.0, 0.0, 0.0]]).expand(70_000, 3), torch.zeros(70_000, dtype=torch.int64))
    assert counter.compute()["num_nodes"] == 210_000
    assert counter._counts.numel() == 15


@pytest.mark.parametrize("task", ["classes", "multilabel", "regression"])
@pytest.mark.parametrize("num_outputs", [1, 2, 5])
def test_how_much_is_scored_at_once_changes_nothing(
    task: str, num_outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(100, num_outputs, generator=generator)
    y = torch.randint(0, 2 if task == "multilabel" else num_outputs, (100, num_outputs), generator=generator)
    labels = (
        y[:, 0]
        if task == "classes"
        else y.float().masked_fill(torch.rand(y.shape, generator=generator) < 0.2, torch.nan)
    )
    found = []
    for values in (1 << 20, 7, 1):
        monkeypatch.setattr("pygsage.training.metrics._SCORED_VALUES", values)
        count = build_scores(SimpleNamespace(task=task, num_classes=num_outputs, num_outputs=num_outputs))
        count.update(scores, labels)
        found.append(count.compute())
        assert count.compute() == pytest.approx(found[-1], nan_ok=True)  # it may be asked again
    assert found[0] == pytest.approx(found[1], nan_ok=True)
    assert found[0] == pytest.approx(found[2], nan_ok=True)


def test_c128_a_million_predictions_are_scored_under_a_cap() -> None:
    """Of 16 classes: 61 MiB of scores in all, and never 50 MiB at a time."""
    num = 1_000_000
    y = torch.arange(num, dtype=torch.int32).long() % 16
    data = SimpleNamespace(
        name="g", task="classes", num_classes=16, num_outputs=16, y=y, splits={"test": torch.arange(num)}
    )
    problem = SimpleNamespace(data=data, unit="node")
    memory = PeakMemory(interval_s=60)

    def predict(nodes: torch.Tensor) -> torch.Tensor:
        scores = torch.nn.functional.one_hot(y[nodes], 16).float()
        scores[nodes < num // 4] = 0.0
        memory.sample()  # beside what is held of the pieces before
        return scores

    problem.predictor = lambda *args, **options: predict
    trainer = SimpleNamespace(problem=problem, world=World(), model=None, scratch=None)
    with memory:
        before = memory.sample()
        found = Trainer._evaluate(trainer, ("test",))["test"]  # type: ignore[arg-type]
    assert found["accuracy"] == pytest.approx(0.75 + 0.25 / 16)
    assert found["num_nodes"] == num
    assert memory.peak_bytes - before < 50 << 20


def _graph(task: str, num_outputs: int) -> Graph:
    none = torch.zeros(0, dtype=torch.int64)
    y = none if task == "classes" else torch.zeros(0, num_outputs)
    num_classes = num_outputs if task == "classes" else 0
    return Graph("g", torch.zeros(1, dtype=torch.int64), none, none, torch.zeros(0, 1), y, {}, num_classes, (), task)


@pytest.mark.parametrize(
    ("task", "num_outputs", "metric"),
    [("classes", 3, "accuracy"), ("multilabel", 2, "rocauc"), ("regression", 1, "rmse")],
)
def test_the_score_that_chooses_is_one_that_is_computed(task: str, num_outputs: int, metric: str) -> None:
    graph = _graph(task, num_outputs)
    assert choose_metric(TrainConfig(), graph) == metric
    assert metric in build_scores(graph).compute()
    assert choose_metric(TrainConfig(), graph, "ogb_acc") == "ogb_acc"
    assert choose_metric(TrainConfig(metric="loss"), graph, "ogb_acc") == "loss"
    with pytest.raises(ConfigError, match=f"expected one of {metric}"):
        choose_metric(TrainConfig(metric="mae" if task == "classes" else "accuracy"), graph)


def test_two_classes_have_a_ranking_and_more_have_none() -> None:
    assert choose_metric(TrainConfig(metric="rocauc"), _graph("classes", 2)) == "rocauc"
    with pytest.raises(ConfigError, match="has 3 classes; expected one of accuracy"):
        choose_metric(TrainConfig(metric="rocauc"), _graph("classes", 3))
