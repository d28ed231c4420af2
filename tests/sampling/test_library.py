"""The samplers of pyg-lib and torch-sparse: real blocks, repeatable, and a sentence where they are not installed.

pyg-lib is on no package index, so a stand-in with its signature, as PyG calls it, serves; so it does for torch-sparse
where that is not installed.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import typing

from pygsage.cli.main import main
from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import Graph
from pygsage.errors import EnvironmentLimitError
from pygsage.sampling.library import LIBRARIES, LibrarySampler, check_sampler
from pygsage.training.launch import train


def neighbour_sample(indptr: Tensor, indices: Tensor, seeds: Tensor, fanouts: list[int]) -> tuple[list[int], ...]:
    """Nodes, rows, columns and edges, each hop from the nodes that the hop before reached, by torch's generator."""
    nodes, row, col, edge = seeds.tolist(), [], [], []
    place = {node: i for i, node in enumerate(nodes)}
    begin = 0
    for fanout in fanouts:
        end = len(nodes)
        for target in range(begin, end):
            first, last = int(indptr[nodes[target]]), int(indptr[nodes[target] + 1])
            order = torch.randperm(last - first) if 0 <= fanout < last - first else torch.arange(last - first)
            for offset in order[: fanout if fanout >= 0 else None].tolist():
                source = int(indices[first + offset])
                if source not in place:
                    place[source] = len(nodes)
                    nodes.append(source)
                row.append(place[source])
                col.append(target)
                edge.append(first + offset)
        begin = end
    return nodes, row, col, edge


def pyg_lib(
    indptr: Tensor, indices: Tensor, seeds: Tensor, fanouts: list[int], node_time: None, edge_time: None,
    seed_time: None, edge_weight: None, csc: bool, replace: bool, directed: bool, disjoint: bool, strategy: str,
    return_edge_id: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """As `torch.ops.pyg.neighbor_sample` of pyg-lib 0.4."""
    assert (node_time, edge_time, seed_time, edge_weight) == (None,) * 4
    assert (csc, replace, directed, disjoint, strategy, return_edge_id) == (True, False, True, False, "uniform", True)
    assert indptr.dtype == indices.dtype == seeds.dtype == torch.int64
    nodes, row, col, edge = map(torch.tensor, neighbour_sample(indptr, indices, seeds, fanouts))
    return row.long(), col.long(), nodes.long(), edge.long(), [len(seeds)], []


def torch_sparse(
    indptr: Tensor, indices: Tensor, seeds: Tensor, fanouts: list[int], replace: bool, directed: bool
) -> tuple[Tensor, ...]:
    """As `torch.ops.torch_sparse.neighbor_sample` of torch-sparse 0.6.18."""
    assert (replace, directed) == (False, True)
    return tuple(torch.tensor(part).long() for part in neighbour_sample(indptr, indices, seeds, fanouts))


@pytest.fixture(params=["pyg-lib", "torch-sparse"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    module = LIBRARIES[name]
    if find_spec(module) is None:
        space = "pyg" if name == "pyg-lib" else module
        ops = ModuleType(space)
        ops.neighbor_sample = pyg_lib if name == "pyg-lib" else torch_sparse  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
        monkeypatch.setattr(torch.ops, space, ops, raising=False)
        monkeypatch.setattr(typing, "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", True)
        monkeypatch.setattr(typing, "WITH_WEIGHTED_NEIGHBOR_SAMPLE", True)
    return name


def graph(num_nodes: int = 60, num_edges: int = 400) -> Graph:
    generator = torch.Generator().manual_seed(0)
    csc = build_csc(torch.randint(num_nodes, (2, num_edges), generator=generator), num_nodes)
    x, y = torch.randn(num_nodes, 4, generator=generator), torch.randint(3, (num_nodes,), generator=generator)
    return Graph("g", csc.indptr, csc.indices, csc.perm, x, y, {}, 3)


@pytest.mark.parametrize("fanouts", [(3, 3), (4, 2, 1), (-1, 2), (1,)])
@pytest.mark.parametrize("num_seeds", [0, 1, 9])
def test_blocks_are_draws_of_in_neighbours_without_replacement(
    library: str, fanouts: tuple[int, ...], num_seeds: int
) -> None:
    data = graph()
    sampler = LibrarySampler(data, fanouts, 7, library)
    seeds = torch.randperm(60, generator=torch.Generator().manual_seed(1))[:num_seeds]
    nodes, blocks = sampler.sample_blocks(seeds, 2, 3)
    assert torch.equal(nodes[:num_seeds], seeds)
    assert len(nodes.unique()) == len(nodes)
    num_dst = num_seeds
    for block, fanout in zip(reversed(blocks), fanouts, strict=True):
        assert block.num_dst == num_dst
        for i in range(num_dst):
            node = int(nodes[i])
            drawn = nodes[block.indices[block.indptr[i] : block.indptr[i + 1]]].tolist()
            own = data.indices[data.indptr[node] : data.indptr[node + 1]].tolist()
            assert len(drawn) == (len(own) if fanout < 0 else min(fanout, len(own)))
            for each in set(drawn):  # parallel edges may each be drawn once
                assert drawn.count(each) <= own.count(each)
        num_dst = int(block.indices.max()) + 1 if len(block.indices) else num_dst
        num_dst = max(num_dst, block.num_dst)
    assert num_dst == len(nodes)
    layers = sampler.sample_layers(seeds, 2, 3)
    assert torch.equal(layers.nodes, nodes[: blocks[0].num_dst])
    assert torch.equal(layers.outer_indptr, blocks[0].indptr)
    assert torch.equal(layers.outer_ids, nodes[blocks[0].indices])
    assert all(torch.equal(a.indices, b.indices) for a, b in zip(layers.blocks, blocks[1:], strict=True))


def test_a_draw_is_a_function_of_seed_epoch_and_step_and_leaves_the_generator_alone(library: str) -> None:
    data, seeds = graph(), torch.arange(20)
    sampler = LibrarySampler(data, (2, 2), 7, library)
    before = torch.get_rng_state()
    one = sampler.sample_layers(seeds, 1, 5)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert torch.equal(one.outer_ids, sampler.sample_layers(seeds, 1, 5).outer_ids)
    others = [
        sampler.sample_layers(seeds, 1, 6),
        sampler.sample_layers(seeds, 2, 5),
        LibrarySampler(data, (2, 2), 8, library).sample_layers(seeds, 1, 5),
    ]
    assert not any(torch.equal(one.outer_ids, other.outer_ids) for other in others)


def test_every_neighbour_is_drawn_about_as_often(library: str) -> None:
    edges = torch.stack([torch.arange(1, 9), torch.zeros(8, dtype=torch.int64)])
    csc = build_csc(edges, 9)
    star = Graph("star", csc.indptr, csc.indices, csc.perm, torch.zeros(9, 1), torch.zeros(9).long(), {}, 1)
    sampler = LibrarySampler(star, (3,), 0, library)
    counts = torch.zeros(9, dtype=torch.int64)
    for step in range(800):
        counts[sampler.sample_layers(torch.tensor([0]), 0, step).outer_ids] += 1
    assert counts[0] == 0
    assert counts[1:].sum() == 2400
    # Five standard deviations of 13.7; torch-sparse 0.6.18 itself draws the last neighbours of a node a quarter less.
    assert ((counts[1:] - 300).abs() < (70 if library == "pyg-lib" else 110)).all(), counts


def test_training_learns_and_repeats(library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {
        "gpus": "0", "fanouts": (5, 5), "hidden": 64, "batch_size": 64, "epochs": 3, "sampler": library,
    }  # fmt: skip
    one = train("digits", run_dir=str(tmp_path / "one"), **options)
    assert f"note: {library} draws from torch's generator" in capsys.readouterr().out
    two = train("digits", run_dir=str(tmp_path / "two"), sampler_threads=2, quiet=True, **options)
    assert one.val == two.val
    assert one.test["accuracy"] == two.test["accuracy"] > 0.8


@pytest.mark.parametrize("name", list(LIBRARIES))
def test_a_library_that_is_not_there_is_told_with_what_to_type(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)
    with pytest.raises(EnvironmentLimitError, match=rf"{name} is not installed.* Leave --sampler out"):
        check_sampler(name)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--gpus", "0", "--sampler", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
