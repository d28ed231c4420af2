"""The door: what is refused, what is cast, what is noted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pygsage.data.one_graph.checks import check_edges, check_features, check_labels
from pygsage.data.one_graph.raw import RawGraph
from pygsage.errors import DatasetError

Raw = Callable[..., RawGraph]


def refused(check: Callable[..., object], *arguments: Any, said: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(said)):
        check(*arguments)


def test_a_good_graph_is_taken_without_a_copy(raw: Raw) -> None:
    graph = raw()
    assert check_features(graph).data_ptr() == graph.x.data_ptr()
    assert check_edges(graph, 6).data_ptr() == graph.edge_index.data_ptr()
    y, num_classes = check_labels(graph, 6)
    assert torch.equal(y, graph.y)
    assert num_classes == 2
    assert graph.notes == []


# Features


@pytest.mark.parametrize("key", ["x", "edge_index", "y"])
def test_c031_a_missing_part_is_named(raw: Raw, key: str) -> None:
    checks = {"x": check_features, "edge_index": check_edges, "y": check_labels}
    refused(checks[key], raw(**{key: None}), *([6] if key != "x" else []), said=f"ring has no {key}")
    refused(checks[key], raw(**{key: [1, 2]}), *([6] if key != "x" else []), said=f"{key} is of type list")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_c019_other_floats_are_cast_with_a_note(raw: Raw, dtype: torch.dtype) -> None:
    graph = raw()
    given, graph.x = graph.x, graph.x.to(dtype)
    x = check_features(graph)
    assert x.dtype == torch.float32
    assert torch.equal(x, given)
    assert len(graph.notes) == 1
    assert str(dtype).removeprefix("torch.") in graph.notes[0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_c019_integers_and_booleans_are_cast(raw: Raw, dtype: torch.dtype) -> None:
    graph = raw(x=torch.ones(6, 2, dtype=dtype))
    assert torch.equal(check_features(graph), torch.ones(6, 2))
    assert graph.notes == []


def test_c019_large_integers_are_noted(raw: Raw) -> None:
    graph = raw(x=torch.full((6, 2), -(2**24) - 1))
    check_features(graph)
    assert "float32 rounds" in graph.notes[0]


@pytest.mark.parametrize("shape", [(6,), (6, 0), (0, 2), (6, 2, 1), ()])
def test_features_of_another_shape_are_refused(raw: Raw, shape: tuple[int, ...]) -> None:
    refused(check_features, raw(x=torch.ones(shape)), said="expected [nodes, features]")


def test_complex_features_are_refused(raw: Raw) -> None:
    refused(check_features, raw(x=torch.ones(6, 2, dtype=torch.complex64)), said="complex64; expected real numbers")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_c035_features_that_are_not_finite_are_located_and_counted(raw: Raw, value: float) -> None:
    graph = raw()
    graph.x[4, 1] = graph.x[5, 0] = value
    refused(check_features, graph, said=f"x is {value:g} in row 4, column 1 (2 such values in all)")


def test_c035_a_double_that_float32_cannot_hold_is_refused(raw: Raw) -> None:
    x = torch.ones(6, 2, dtype=torch.float64)
    x[2, 0] = 1e300
    refused(
        check_features, raw(x=x), said="x is 1e+300 in row 2, column 0 (1 such values in all); expected numbers that"
    )


def test_the_search_for_nan_works_in_pieces(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pygsage.data.one_graph.checks._CHUNK_VALUES", 4)
    graph = raw()
    graph.x[3, 0] = graph.x[5, 1] = torch.nan
    refused(check_features, graph, said="row 3, column 0 (2 such")


def test_sparse_features_are_expanded_when_small(raw: Raw) -> None:
    graph = raw(x=torch.eye(6).to_sparse())
    assert torch.equal(check_features(graph), torch.eye(6))
    assert "sparse" in graph.notes[0]
    place = torch.zeros(2, 1, dtype=torch.int64)
    huge = torch.sparse_coo_tensor(place, torch.ones(1), (2**20, 2**10), check_invariants=True)
    refused(check_features, raw(x=huge), said="expected at most 2 GiB")


def test_features_are_detached_and_contiguous(raw: Raw) -> None:
    x = check_features(raw(x=torch.ones(2, 6, requires_grad=True).T))
    assert x.is_contiguous()
    assert not x.requires_grad


# Edges


@pytest.mark.parametrize("shape", [(5, 2), (1, 2), (3, 2)])
def test_c036_transposed_edges_are_recognised(raw: Raw, shape: tuple[int, int]) -> None:
    edges = torch.zeros(shape, dtype=torch.int64)
    refused(check_edges, raw(edge_index=edges), 6, said="Is it transposed? Store edge_index.T.")


def test_c036_two_edges_are_taken_with_a_note(raw: Raw) -> None:
    graph = raw(edge_index=torch.tensor([[0, 1], [2, 3]]))
    assert check_edges(graph, 6).tolist() == [[0, 1], [2, 3]]
    assert "reads both ways" in graph.notes[0]


@pytest.mark.parametrize("shape", [(6,), (3, 5), (2, 5, 1)])
def test_edges_of_another_shape_are_refused(raw: Raw, shape: tuple[int, ...]) -> None:
    refused(check_edges, raw(edge_index=torch.zeros(shape, dtype=torch.int64)), 6, said="expected [2, edges]")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_c035_narrow_ids_are_cast(raw: Raw, dtype: torch.dtype) -> None:
    graph = raw()
    given, graph.edge_index = graph.edge_index, graph.edge_index.to(dtype)
    edges = check_edges(graph, 6)
    assert edges.dtype == torch.int64
    assert torch.equal(edges, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool, torch.complex64])
def test_c020_ids_that_are_no_integers_are_refused(raw: Raw, dtype: torch.dtype) -> None:
    graph = raw()
    refused(check_edges, raw(edge_index=graph.edge_index.to(dtype)), 6, said="expected integer node ids")


@pytest.mark.parametrize(
    "edges", [torch.empty(2, 0), torch.empty(2, 0, dtype=torch.int64), torch.empty(0, 2), torch.empty(0)]
)
def test_c020_c032_a_graph_without_edges_is_taken_whatever_the_dtype(raw: Raw, edges: torch.Tensor) -> None:
    graph = raw(edge_index=edges)
    taken = check_edges(graph, 6)
    assert taken.dtype == torch.int64
    assert taken.shape == (2, 0)
    assert "no edges" in graph.notes[0]


@pytest.mark.parametrize(
    ("row", "value", "said"),
    [
        (0, 6, "edge 2 of edge_index has the source 6, and x has 6 rows; expected node ids from 0 to 5"),
        (1, 6, "edge 2 of edge_index has the destination 6"),
        (1, -1, "edge 2 of edge_index has the destination -1"),
        (0, 2**62, f"edge 2 of edge_index has the source {2**62}"),
    ],
)
def test_c034_ids_out_of_range_are_located(raw: Raw, row: int, value: int, said: str) -> None:
    graph = raw()
    graph.edge_index[row, 2] = value
    refused(check_edges, graph, 6, said=said)


def test_c033_ids_with_gaps_are_refused_with_the_cure(raw: Raw) -> None:
    graph = raw(x=torch.ones(5, 2), edge_index=torch.tensor([[3, 4, 7], [9, 12, 3]]))
    refused(check_edges, graph, 5, said="add --relabel")


def test_c033_ids_that_count_from_one_are_recognised(raw: Raw) -> None:
    graph = raw()
    refused(check_edges, raw(edge_index=graph.edge_index + 1), 6, said="count from 1")


def test_c028_a_sparse_adjacency_is_refused(raw: Raw) -> None:
    refused(check_edges, raw(edge_index=torch.eye(6).to_sparse()), 6, said="to_edge_index")


# Labels


def test_labels_as_a_column_are_squeezed(raw: Raw) -> None:
    graph = raw()
    y, num_classes = check_labels(raw(y=graph.y.reshape(6, 1)), 6)
    assert torch.equal(y, graph.y)
    assert num_classes == 2


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.float32, torch.float64])
def test_labels_of_other_dtypes_are_cast(raw: Raw, dtype: torch.dtype) -> None:
    graph = raw()
    y, _ = check_labels(raw(y=graph.y.to(dtype)), 6)
    assert y.dtype == torch.int64
    assert torch.equal(y, graph.y)


@pytest.mark.parametrize("length", [3, 5, 7])
def test_c029_c035_labels_of_another_length_are_refused(raw: Raw, length: int) -> None:
    refused(check_labels, raw(y=torch.zeros(length, dtype=torch.int64)), 6, said=f"y is [{length}] and x has 6 rows")


def test_c029_one_label_a_graph_is_recognised(raw: Raw) -> None:
    refused(check_labels, raw(y=torch.tensor([1])), 6, said="Labels of whole graphs are learnt from many graphs")
    refused(check_labels, raw(y=torch.tensor(1)), 6, said="y is a single number")


def test_several_labels_a_node_are_no_classes(raw: Raw) -> None:
    refused(check_labels, raw(y=torch.ones(6, 3)), 6, said="several labels a node; expected one class")
    refused(check_labels, raw(y=torch.eye(6)), 6, said="store y.argmax(1)")


def test_measurements_are_no_classes(raw: Raw) -> None:
    y = torch.zeros(6)
    y[3] = 0.5
    refused(
        check_labels,
        raw(y=y),
        6,
        said="y is 0.5 at node 3; expected whole numbers: classes. If they are measurements, type --task",
    )
    y[3] = torch.inf
    refused(check_labels, raw(y=y), 6, said="y is inf at node 3")
    y[3] = 1e30
    refused(check_labels, raw(y=y), 6, said="which is no class")


def test_c103_nan_among_whole_numbers_means_no_label(raw: Raw) -> None:
    graph = raw(y=torch.tensor([[0.0], [1.0], [2.0], [torch.nan], [torch.nan], [1.0]]))
    y, num_classes = check_labels(graph, 6)
    assert y.tolist() == [0, 1, 2, -1, -1, 1]
    assert num_classes == 3
    assert graph.notes == ["2 of 6 nodes have no label (y negative or NaN)."]


def test_c105_negative_labels_mean_no_label(raw: Raw) -> None:
    y, num_classes = check_labels(raw(y=torch.tensor([-100, -1, 0, 1, 2, 0])), 6)
    assert y.tolist() == [-1, -1, 0, 1, 2, 0]
    assert num_classes == 3


@pytest.mark.parametrize("y", [torch.full((6,), -1), torch.full((6,), torch.nan)])
def test_a_graph_without_any_label_is_refused(raw: Raw, y: torch.Tensor) -> None:
    refused(check_labels, raw(y=y), 6, said="y is negative or NaN everywhere")


def test_labels_that_look_like_ids_are_refused(raw: Raw) -> None:
    refused(check_labels, raw(y=torch.arange(6) * 5000), 6, said="y has the label 25000, but only 6 nodes")
    assert check_labels(raw(y=torch.arange(6) * 1000), 6)[1] == 5001


def test_empty_classes_are_noted(raw: Raw) -> None:
    graph = raw(y=torch.tensor([0, 0, 3, 3, 5, 5]))
    assert check_labels(graph, 6)[1] == 6
    assert graph.notes == ["3 of 6 classes have no node: 1, 2, 4."]


def test_a_single_class_is_noted(raw: Raw) -> None:
    graph = raw(y=torch.zeros(6, dtype=torch.int64))
    check_labels(graph, 6)
    assert "nothing to learn" in graph.notes[0]


def test_labels_of_no_number_type_are_refused(raw: Raw) -> None:
    refused(check_labels, raw(y=torch.ones(6, dtype=torch.complex64)), 6, said="expected integer classes")


def test_c035_every_wrong_graph_of_that_case_is_refused(raw: Raw) -> None:
    refused(check_labels, raw(y=torch.zeros(3, dtype=torch.int64)), 6, said="y is [3]")
    refused(check_features, raw(x=torch.full((6, 2), np.nan)), said="(12 such values in all)")
