"""The neighbour samplers of pyg-lib and torch-sparse as a source of batches, for who asks for them.

They draw from torch's generator, so that a draw belongs to a batch and not to a node: a run on the same number of
processes repeats, and one on another number draws other neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from pygsage.data.one_graph.graph import Graph
from pygsage.errors import EnvironmentLimitError
from pygsage.sampling.keys import stream_of
from pygsage.sampling.sample import Block, Layers
from pygsage.sampling.sampler import NeighborSampler, resolve_backend

LIBRARIES = {"pyg-lib": "pyg_lib", "torch-sparse": "torch_sparse"}
_INSTALL = {
    "pyg-lib": "It is on no package index: https://github.com/pyg-team/pyg-lib says how to install it.",
    "torch-sparse": "Type: pip install --no-build-isolation torch-scatter torch-sparse (a compiler builds them).",
}
_GENERATOR = Lock()  # torch's generator is one for all threads


class StepSampler(Protocol):
    """Draws the neighbours of a training step's seeds, as `NeighborSampler` does."""

    seed: int

    def sample_blocks(self, seeds: Tensor, epoch: int, step: int) -> tuple[Tensor, list[Block]]:
        """As `NeighborSampler.sample_blocks`."""

    def sample_layers(self, seeds: Tensor, epoch: int, step: int) -> Layers:
        """As `NeighborSampler.sample_layers`."""


def step_sampler(graph: Graph, fanouts: Sequence[int], seed: int, name: str) -> StepSampler:
    """The sampler that `--sampler` names.

    Raises:
        EnvironmentLimitError: when it is not installed.
    """
    return (
        LibrarySampler(graph, fanouts, seed, name) if name in LIBRARIES else NeighborSampler(graph, fanouts, seed, name)
    )


def check_sampler(name: str) -> str:
    """The sampler in force for a name, `auto` resolved.

    Raises:
        EnvironmentLimitError: when it is not installed, or does not load.
    """
    if name not in LIBRARIES:
        return resolve_backend(name)
    try:
        import_module(LIBRARIES[name])
    except (ImportError, OSError, RuntimeError) as error:  # a wheel made for another torch raises any of them
        reason = " ".join(str(error).split())
        raise EnvironmentLimitError(
            f"The sampler {name} is not installed, or does not load ({reason}).",
            f"Leave --sampler out: the native one needs nothing. {_INSTALL[name]}",
        ) from None
    return name


class LibrarySampler:
    """Draws in-neighbours without replacement by the library's own sampler; the graph's edges are copied to int64.

    torch's generator is set to a function of (seed, epoch, step) for each batch and put back afterwards, under a lock:
    threads draw one after the other. With equal fanouts a node draws once, as PyG's loader does; with unequal ones
    every node reached so far draws anew at each hop, the trainer's meaning of fanouts, as DGL's.

    Args:
        graph: The graph.
        fanouts: Neighbours drawn at each hop, from the seeds outwards; -1 takes all.
        seed: Seed of all draws.
        library: `pyg-lib` or `torch-sparse`.

    Raises:
        EnvironmentLimitError: when the library is not installed.

    Cost: 8 bytes an edge where the graph's indices are int32.
    """

    def __init__(self, graph: Graph, fanouts: Sequence[int], seed: int, library: str) -> None:
        self.seed = seed
        self.fanouts = tuple(fanouts)
        self._sample = {"pyg-lib": _by_pyg_lib, "torch-sparse": _by_torch_sparse}[check_sampler(library)]
        self._indptr, self._indices = graph.indptr, graph.indices.to(torch.int64)

    def sample_blocks(self, seeds: Tensor, epoch: int, step: int) -> tuple[Tensor, list[Block]]:
        """As `NeighborSampler.sample_blocks`; the seeds are distinct. The draws are the library's."""
        nodes, blocks = seeds, []
        with _seeded(stream_of(self.seed, epoch, step)):
            if len(set(self.fanouts)) == 1:
                drawn = self._sample(self._indptr, self._indices, seeds, list(self.fanouts))
                return drawn.nodes, _prefixes(drawn, len(seeds), len(self.fanouts))
            for fanout in self.fanouts:
                drawn = self._sample(self._indptr, self._indices, nodes, [fanout])
                blocks += _prefixes(drawn, len(nodes), 1)
                nodes = drawn.nodes
        return nodes, blocks[::-1]

    def sample_layers(self, seeds: Tensor, epoch: int, step: int) -> Layers:
        """As `NeighborSampler.sample_layers`; the seeds are distinct. The draws are the library's."""
        nodes, (outer, *blocks) = self.sample_blocks(seeds, epoch, step)
        return Layers(nodes[: outer.num_dst], blocks, outer.indptr, nodes[outer.indices])


class _Drawn(NamedTuple):
    """Ids of the nodes that were reached, the given ones first; each edge's source and target as rows of them."""

    nodes: Tensor
    row: Tensor
    col: Tensor


def _by_torch_sparse(indptr: Tensor, indices: Tensor, seeds: Tensor, fanouts: list[int]) -> _Drawn:
    nodes, row, col, _ = torch.ops.torch_sparse.neighbor_sample(indptr, indices, seeds, fanouts, False, True)
    return _Drawn(nodes, row, col)


def _by_pyg_lib(indptr: Tensor, indices: Tensor, seeds: Tensor, fanouts: list[int]) -> _Drawn:
    """As torch_geometric/sampler/neighbor_sampler.py calls it: which arguments there are depends on its version."""
    from torch_geometric import typing

    of_edges = (None,) if typing.WITH_EDGE_TIME_NEIGHBOR_SAMPLE else ()
    weights = (None,) if typing.WITH_WEIGHTED_NEIGHBOR_SAMPLE else ()
    # Times of nodes, edges and seeds, weights; CSC, with replacement, directed, disjoint, by what time, ids of edges.
    how = (None, *of_edges, None, *weights, True, False, True, False, "uniform", True)
    row, col, nodes, *_ = torch.ops.pyg.neighbor_sample(indptr, indices, seeds, fanouts, *how)
    return _Drawn(nodes, row, col)


def _prefixes(drawn: _Drawn, num_seeds: int, num_hops: int) -> list[Block]:
    """A block a hop, outermost first, each a prefix of the next: nodes are numbered as they are reached."""
    row, col = drawn.row, drawn.col
    if len(col) > 1 and not bool((col[1:] >= col[:-1]).all()):
        order = torch.argsort(col, stable=True)
        row, col = row[order], col[order]
    ends, reached = [num_seeds], num_seeds
    for _ in range(num_hops - 1):
        num_edges = int(torch.searchsorted(col, reached))
        reached = max(reached, int(row[:num_edges].max()) + 1) if num_edges else reached
        ends.append(reached)
    indptr = torch.zeros(reached + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(col, minlength=reached), 0, out=indptr[1:])
    return [Block(indptr[: end + 1], row[: int(indptr[end])]) for end in reversed(ends)]


@contextmanager
def _seeded(stream: int) -> Iterator[None]:
    """torch's generator starts at `stream` inside, and is as it was afterwards."""
    with _GENERATOR:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(stream >> 1)
        try:
            yield
        finally:
            torch.set_rng_state(before)
