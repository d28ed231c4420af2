from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from pygsage import ConfigError, DatasetError, DistributedSeedSampler, NeighborLoader, NeighborSampler, PygsageError
from pygsage.sampling.arguments import seeds_of


@pytest.fixture(scope="module")
def data() -> Data:
    return Data(x=torch.zeros(5, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("replace", True),
        ("disjoint", True),
        ("subgraph_type", "induced"),
        ("subgraph_type", SubgraphType.bidirectional),
        ("directed", False),
        ("temporal_strategy", "last"),
        ("time_attr", "time"),
        ("input_time", torch.arange(5)),
        ("weight_attr", "weight"),
        ("drop_last", True),
        ("sampler", [1, 2]),
    ],
)
def test_options_that_would_be_ignored_are_refused(data: Data, option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"was given {option}"):
        NeighborLoader(data, [2], **{option: value})


@pytest.mark.parametrize(
    ("num_neighbors", "options", "said"),
    [
        ([3.5], {}, r"num_neighbors is \[3\.5\]; expected positive integers"),
        ([float("nan")], {}, "expected positive integers"),
        ([None], {}, "expected positive integers"),
        (3, {}, r"num_neighbors is 3; expected a list .* num_neighbors=\[3, 10\]"),
        (None, {}, "num_neighbors is None; expected a list"),
        ([2], {"batch_size": 2.5}, "batch_size is 2.5; expected a whole number"),
        ([2], {"batch_size": "3"}, "batch_size is '3'; expected a whole number"),
        ([2], {"batch_size": 0}, "The batch size is 0"),
        ([2], {"seed": 1.5}, "seed is 1.5; expected a whole number"),
        ([2], {"num_workers": -1}, "num_workers is -1; expected a whole number of 0 or more"),
        ([2], {"num_workers": 1.5}, "num_workers is 1.5"),
        ([2], {"rank": 0.5, "num_ranks": 2}, "rank is 0.5; expected a whole number"),
    ],
)
def test_odd_numbers_are_refused(data: Data, num_neighbors: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        NeighborLoader(data, num_neighbors, **options)


def test_numbers_of_other_libraries_are_taken(data: Data) -> None:
    loader = NeighborLoader(data, torch.tensor([2, 2]), batch_size=np.int64(3), seed=np.uint8(1))
    assert sum(batch.batch_size for batch in loader) == data.num_nodes


@pytest.mark.parametrize(
    "both", [{"shuffle": True}, {"shuffle": False}, {"batch_size": 2}, {"rank": 0, "num_ranks": 1}], ids=str
)
def test_what_a_batch_sampler_decides_is_not_given_twice(data: Data, both: dict[str, Any]) -> None:
    shards = DistributedSeedSampler(data.num_nodes, 2)
    with pytest.raises(ConfigError, match=f"{next(iter(both))}=.* beside a batch_sampler, which decides that"):
        NeighborLoader(data, [2], batch_sampler=shards, **both)


def test_options_that_say_what_is_done_anyway_are_taken(data: Data) -> None:
    loader = NeighborLoader(
        data,
        [2],
        replace=False,
        disjoint=False,
        subgraph_type=SubgraphType.directional,
        temporal_strategy="uniform",
        time_attr=None,
        weight_attr=None,
        is_sorted=True,
        directed=True,
        drop_last=False,
        transform=lambda batch: batch.num_nodes,
    )
    assert list(loader) == [1, 2, 2, 1, 1]


@pytest.mark.parametrize(
    "nodes",
    [[3, 1], (3, 1), torch.tensor([3, 1]), torch.tensor([3, 1], dtype=torch.int32), np.array([3, 1])],
)
def test_seeds_of_one_graph_in_their_forms(data: Data, nodes: Any) -> None:
    name, ids = seeds_of(NeighborSampler(data, [1]), nodes)
    assert name is None
    assert ids.tolist() == [3, 1]
    assert ids.dtype == torch.int64


def test_all_nodes_none_and_masks(data: Data, hetero: Callable[..., HeteroData]) -> None:
    sampler = NeighborSampler(data, [1])
    assert seeds_of(sampler, None)[1].tolist() == [0, 1, 2, 3, 4]
    assert seeds_of(sampler, [])[1].tolist() == []
    assert seeds_of(sampler, np.array([True, False, True, False, False]))[1].sum() == 2
    typed = NeighborSampler(hetero(1), [1])
    num_papers = typed.num_nodes["paper"]
    for form in ("paper", ("paper", None), ["paper", None], ("paper", range(num_papers))):
        name, ids = seeds_of(typed, form)
        assert name == "paper"
        assert torch.equal(ids, torch.arange(num_papers))


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([5], "has the id 5; expected node ids from 0 to below 5"),
        ([-1], "has the id -1"),
        ([0.5], r"torch.float32 of shape \[1\]"),
        ([[1, 2]], r"shape \[1, 2\]"),
        (torch.ones(4, dtype=torch.bool), "a mask of 4 elements; expected one for each of 5"),
        ("paper", "input_nodes is a str"),
        (("paper", [0]), "input_nodes is a tuple"),
        ([], "no seed nodes"),
    ],
)
def test_wrong_seeds_of_one_graph_are_refused(data: Data, nodes: Any, said: str) -> None:
    with pytest.raises(PygsageError, match=said):
        NeighborLoader(data, [2], nodes)


def test_wrong_seeds_of_a_graph_with_types_are_refused(hetero: Callable[..., HeteroData]) -> None:
    data = hetero(1)
    for nodes, said in [
        (None, "names no node type; expected one of"),
        (torch.tensor([0]), "names no node type"),
        ("movie", "names 'movie'; expected one of"),
        (("movie", [0]), "names 'movie'"),
    ]:
        with pytest.raises(ConfigError, match=said):
            NeighborLoader(data, [2], nodes)
    with pytest.raises(DatasetError, match="has the id 10000"):
        NeighborLoader(data, [2], ("paper", [10_000]))


def test_a_batch_sampler_for_other_seeds_is_refused(data: Data) -> None:
    with pytest.raises(ConfigError, match="is for 4 seeds, but input_nodes has 5"):
        NeighborLoader(data, [2], batch_sampler=DistributedSeedSampler(4))
