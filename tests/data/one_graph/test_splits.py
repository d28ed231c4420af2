"""Splits: the source's own, and new ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.splits import (
    check_splits,
    count_public_splits,
    fold_splits,
    per_class_splits,
    public_splits,
    random_splits,
)
from pygsage.errors import ConfigError, DatasetError

Raw = Callable[..., RawGraph]


def mask(*ids: int, size: int = 6) -> Tensor:
    chosen = torch.zeros(size, dtype=torch.bool)
    chosen[list(ids)] = True
    return chosen


def refused(graph: RawGraph, said: str, **options: Any) -> None:
    with pytest.raises((DatasetError, ConfigError), match=re.escape(said)):
        public_splits(graph, graph.y, **options)


# The source's own


def test_masks_give_ids_in_ascending_order(raw: Raw) -> None:
    graph = raw()
    splits = public_splits(graph, graph.y)
    assert {name: ids.tolist() for name, ids in splits.items()} == {"train": [0, 1, 2], "val": [3], "test": [4, 5]}
    assert list(splits) == ["train", "val", "test"]
    assert graph.notes == []


def test_index_arrays_keep_their_order(raw: Raw) -> None:
    ids = {"test_idx": torch.tensor([5, 3], dtype=torch.int32), "train_idx": torch.tensor([[4], [0]])}
    splits = public_splits(raw(splits=ids), raw().y)
    assert {name: ids.tolist() for name, ids in splits.items()} == {"train": [4, 0], "test": [5, 3]}
    assert all(ids.dtype == torch.int64 for ids in splits.values())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_masks_of_zeros_and_ones_are_taken(raw: Raw, dtype: torch.dtype) -> None:
    graph = raw(splits={"train_mask": mask(1, 2).to(dtype)})
    assert public_splits(graph, graph.y)["train"].tolist() == [1, 2]


def test_c076_a_mask_as_a_column_is_squeezed(raw: Raw) -> None:
    graph = raw(splits={"train_mask": mask(1, 2).reshape(6, 1)})
    assert count_public_splits(graph, 6) == 1
    assert public_splits(graph, graph.y)["train"].tolist() == [1, 2]


@pytest.mark.parametrize("length", [0, 3, 5, 7])
def test_c076_a_mask_of_another_length_is_refused(raw: Raw, length: int) -> None:
    graph = raw(splits={"train_mask": torch.ones(length, dtype=torch.bool)})
    refused(graph, f"train_mask is [{length}] and x has 6 rows; expected [6]")


def test_c076_ten_splits_need_a_choice(raw: Raw) -> None:
    table = torch.stack([mask(i % 6) for i in range(10)], dim=1)
    graph = raw(splits={"train_mask": table, "test_mask": ~table})
    assert count_public_splits(graph, 6) == 10
    refused(graph, "--split-id is missing, and ring has 10 splits; expected a number from 0 to 9. Type for example")
    refused(graph, "--split-id is 10, and ring has 10 splits", split_id=10)
    splits = public_splits(graph, graph.y, 4)
    assert splits["train"].tolist() == [4]
    assert splits["test"].tolist() == [0, 1, 2, 3, 5]


def test_c076_a_mask_shared_by_all_splits_may_be_flat(raw: Raw) -> None:
    table = torch.stack([mask(0), mask(1), mask(2)], dim=1)
    graph = raw(splits={"train_mask": table, "test_mask": mask(5)})
    splits = public_splits(graph, graph.y, 1)
    assert splits["train"].tolist() == [1]
    assert splits["test"].tolist() == [5]


def test_c076_tables_of_different_width_are_refused(raw: Raw) -> None:
    graph = raw(splits={"train_mask": torch.ones(6, 10, dtype=torch.bool), "val_mask": torch.zeros(6, 3).bool()})
    refused(graph, "val_mask has 3 columns", split_id=5)


def test_c076_a_transposed_table_is_recognised(raw: Raw) -> None:
    graph = raw(splits={"train_mask": torch.zeros(10, 6, dtype=torch.bool)})
    refused(graph, "Is it transposed? Store train_mask.T.", split_id=0)


def test_a_choice_among_one_is_refused(raw: Raw) -> None:
    graph = raw()
    assert public_splits(graph, graph.y, 0)["train"].tolist() == [0, 1, 2]
    refused(graph, "--split-id is 1, and ring has a single split", split_id=1)


@pytest.mark.parametrize("values", [torch.tensor([0, 1, 2, 0, 0, 0]), mask(1).float()])
def test_a_mask_that_is_none_is_refused(raw: Raw, values: Tensor) -> None:
    refused(raw(splits={"train_mask": values}), "expected true or false a node. Node ids belong in train_idx")


def test_ids_are_checked(raw: Raw) -> None:
    refused(raw(splits={"train_idx": torch.tensor([0, 6])}), "train_idx holds 6 (1 ids out of range), and x has 6 rows")
    refused(raw(splits={"train_idx": torch.tensor([0, -1])}), "train_idx holds -1")
    refused(raw(splits={"train_idx": torch.tensor([0, 3, 3, 3])}), "holds node 3 more than once (2 repeats)")
    refused(raw(splits={"train_idx": torch.tensor([0.0, 1.0])}), "float32 [2]; expected a list of integer ids")
    refused(raw(splits={"train_idx": mask(1)}), "Masks belong in train_mask")
    refused(raw(splits={"train_idx": torch.zeros(2, 2, dtype=torch.int64)}), "expected a list of integer ids")
    refused(raw(splits={"train_idx": [0, 1]}), "train_idx is of type list")


def test_a_mask_and_ids_for_one_split_are_refused(raw: Raw) -> None:
    refused(raw(splits={"train_mask": mask(1), "train_idx": torch.tensor([1])}), "both train_mask and train_idx")


def test_no_training_split_is_refused_with_what_to_type(raw: Raw) -> None:
    graph = raw(splits={"test_mask": mask(1)})
    assert count_public_splits(graph, 6) == 0
    refused(graph, "ring has no training split (masks found: test_mask); expected train_mask or train_idx. Type")
    refused(raw(splits={}), "masks found: none")


def test_an_empty_training_split_is_refused(raw: Raw) -> None:
    refused(raw(splits={"train_mask": mask()}), "the training split is empty")
    refused(raw(splits={"train_idx": torch.empty(0)}), "the training split is empty")


def test_missing_and_empty_other_splits_are_noted_and_left_out(raw: Raw) -> None:
    graph = raw(splits={"train_mask": mask(0), "val_mask": mask()})
    assert list(public_splits(graph, graph.y)) == ["train"]
    assert graph.notes == ["There are no val nodes.", "There are no test nodes."]


@pytest.mark.parametrize(("first", "second"), [("train", "val"), ("train", "test"), ("val", "test")])
def test_c035_overlapping_splits_are_refused(raw: Raw, first: str, second: str) -> None:
    splits = {"train_mask": mask(5), f"{first}_mask": mask(0, 2, 4), f"{second}_mask": mask(1, 2, 3, 4)}
    refused(
        raw(splits=splits), f"the {second} split shares nodes with other splits (2 in all, such as node 2 with {first})"
    )


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_c103_c105_unlabelled_nodes_in_a_split_are_refused(raw: Raw, split: str) -> None:
    graph = raw(y=torch.tensor([0, -1, 1, 1, 0, 1]), splits={"train_mask": mask(0), f"{split}_mask": mask(1, 2)})
    refused(graph, f"the {split} split has nodes without a label (1 in all, such as node 1); expected a class from 0")


def test_c103_c105_unlabelled_nodes_elsewhere_are_fine(raw: Raw) -> None:
    graph = raw(y=torch.tensor([0, -1, 1, 1, 0, 1]), splits={"train_mask": mask(0, 2)})
    assert public_splits(graph, graph.y)["train"].tolist() == [0, 2]


# New ones


labels = st.lists(st.integers(-1, 3), min_size=1, max_size=60).map(torch.tensor)
shares = st.tuples(*[st.integers(1, 5)] * 3, st.integers(0, 3)).map(lambda n: tuple(k / sum(n) for k in n[:3]))


@given(labels, shares, st.integers(0, 2**63 - 1))
def test_random_splits_share_out_the_labelled_nodes(y: Tensor, parts: tuple[float, ...], seed: int) -> None:
    splits = random_splits(y, parts, seed)
    labelled = (y >= 0).nonzero().flatten()
    together = torch.cat(list(splits.values()))
    assert len(together.unique()) == len(together)
    assert set(together.tolist()) <= set(labelled.tolist())
    for name, share in zip(("train", "val", "test"), parts, strict=True):
        assert abs(len(splits[name]) - share * len(labelled)) <= 1
        assert torch.equal(splits[name], splits[name].sort().values)
    if sum(parts) > 1 - 1e-9:
        assert len(together) == len(labelled)
    again = random_splits(y, parts, seed)
    assert all(torch.equal(splits[name], again[name]) for name in splits)


def test_random_splits_depend_on_the_seed() -> None:
    y = torch.zeros(100, dtype=torch.int64)
    assert not torch.equal(random_splits(y, (0.6, 0.2, 0.2), 0)["train"], random_splits(y, (0.6, 0.2, 0.2), 1)["train"])


def test_random_splits_are_uniform() -> None:
    y = torch.zeros(10, dtype=torch.int64)
    counts = sum(torch.bincount(random_splits(y, (0.3, 0.3, 0.4), seed)["train"], minlength=10) for seed in range(2000))
    assert isinstance(counts, Tensor)
    # 9 degrees of freedom, less the fixed sum's correction: each count has variance n p (1 - p).
    chi_square = float(((counts - 600.0) ** 2 / (2000 * 0.3 * 0.7)).sum()) * 9 / 10
    assert chi_square < 27.9  # p = 0.001


@given(st.lists(st.integers(-1, 3), min_size=12, max_size=60).map(torch.tensor), st.integers(0, 100))
def test_per_class_splits_take_so_many_of_each(y: Tensor, seed: int) -> None:
    graph = RawGraph("g", "g", None, None, None)
    sizes = {label: int((y == label).sum()) for label in y.unique().tolist() if label >= 0}
    if any(size < 3 for size in sizes.values()) or not sizes:
        return
    splits = per_class_splits(graph, y, 2, 1, seed)
    for label, size in sizes.items():
        found = {name: int((y[ids] == label).sum()) for name, ids in splits.items()}
        assert found == {"train": 2, "val": 1, "test": size - 3}
    together = torch.cat(list(splits.values()))
    assert len(together.unique()) == len(together) == int((y >= 0).sum())
    check_splits(graph, splits, y)


def test_a_class_too_small_for_per_class_is_named(raw: Raw) -> None:
    y = torch.tensor([0] * 10 + [1] * 4)
    with pytest.raises(DatasetError, match="class 1 has 4 nodes; expected at least 5 of each class"):
        per_class_splits(raw(), y, 2, 3, 0)


@pytest.mark.parametrize("num_folds", [3, 10])
def test_folds_test_each_once_and_share_out_the_classes(raw: Raw, num_folds: int) -> None:
    y = torch.tensor([-1, *(number % 3 // 2 for number in range(100))])
    folds = [fold_splits(raw(), y, num_folds, fold, seed=4) for fold in range(num_folds)]
    assert torch.cat([fold["test"] for fold in folds]).sort().values.tolist() == list(range(1, 101))
    for fold, splits in enumerate(folds):
        assert torch.cat(list(splits.values())).sort().values.tolist() == list(range(1, 101))
        assert torch.equal(splits["val"], folds[(fold + 1) % num_folds]["test"])
        counts = y[splits["test"]].bincount(minlength=2)
        assert (counts - torch.tensor([67, 33]) / num_folds).abs().max() < 1
    assert not torch.equal(folds[0]["test"], fold_splits(raw(), y, num_folds, 0, seed=5)["test"])
    with pytest.raises(DatasetError, match="has 100 nodes with a label; expected at least 101, one a fold"):
        fold_splits(raw(), y, 101, 0, seed=4)
