import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, log_loss

from pygsage.sampling.shard import share_of
from pygsage.training.metrics import ClassificationScores


class SummedWorld:
    """Adds up what several ranks would have added up, given their counters."""

    def __init__(self, others: list[ClassificationScores]) -> None:
        self.others = others

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        name = "_counts" if tensor.dtype == torch.int64 else "_loss_sum"
        for other in self.others:
            tensor += getattr(other, name)
        return tensor


def _over_ranks(scores: torch.Tensor, y: torch.Tensor, num_ranks: int) -> dict[str, float]:
    counters = []
    for rank in range(num_ranks):
        counter = ClassificationScores(scores.shape[1])
        mine = share_of(len(y), rank, num_ranks)
        counter.update(scores[mine], y[mine])
        counters.append(counter)
    return counters[0].compute(SummedWorld(counters[1:]))


@settings(max_examples=50)
@given(st.integers(1, 60), st.integers(2, 7), st.integers(0, 10_000))
def test_equals_scikit_learn_for_any_number_of_ranks(num_nodes: int, num_classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(num_nodes, num_classes, generator=generator)
    y = torch.randint(num_classes, (num_nodes,), generator=generator)
    predicted = scores.argmax(1)
    expected = {
        "accuracy": accuracy_score(y, predicted),
        "f1_macro": f1_score(y, predicted, average="macro", zero_division=0.0),
        "loss": log_loss(y, scores.double().softmax(1), labels=np.arange(num_classes)),
        "num_nodes": num_nodes,
    }
    for num_ranks in (1, 2, 4):
        assert _over_ranks(scores, y, num_ranks) == pytest.approx(expected, abs=1e-9)


def test_c116_five_nodes_on_four_ranks_are_five_nodes() -> None:
    scores = torch.eye(5)
    y = torch.tensor([1, 1, 2, 3, 4])  # node 0 is wrong
    assert _over_ranks(scores, y, 4)["accuracy"] == pytest.approx(0.8)


def test_c117_pooled_not_averaged_and_a_rank_may_have_nothing() -> None:
    right, wrong, idle = (ClassificationScores(2) for _ in range(3))
    right.update(torch.tensor([[1.0, 0.0]] * 3), torch.zeros(3, dtype=torch.int64))
    wrong.update(torch.tensor([[1.0, 0.0]]), torch.ones(1, dtype=torch.int64))
    idle.update(torch.empty(0, 2), torch.empty(0, dtype=torch.int64))
    assert idle.compute(SummedWorld([right, wrong]))["accuracy"] == pytest.approx(0.75)


def test_c127_macro_f1_with_a_class_on_one_rank_only() -> None:
    scores = torch.tensor([[2.0, 1, 0], [2, 1, 0], [0, 2, 1], [0, 1, 2]])
    y = torch.tensor([0, 1, 1, 2])
    expected = f1_score(y, scores.argmax(1), average="macro")
    assert _over_ranks(scores, y, 4)["f1_macro"] == pytest.approx(expected)


def test_no_nodes_at_all_is_nan_not_an_error() -> None:
    scores = ClassificationScores(3).compute()
    assert np.isnan(scores["accuracy"])
    assert scores["num_nodes"] == 0


def test_one_class_is_always_right() -> None:
    counter = ClassificationScores(1)
    counter.update(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64))
    assert counter.compute()["accuracy"] == 1.0


def test_c128_counters_do_not_grow_with_the_number_of_nodes() -> None:
    counter = ClassificationScores(2)
    for _ in range(3):
        counter.update(torch.tensor([[1.0, 0.0]]).expand(200_000, 2), torch.zeros(200_000, dtype=torch.int64))
    assert counter.compute()["num_nodes"] == 600_000
    assert counter._counts.numel() == 10
