"""Batches of nodes whose features lie on several machines: made in two steps, of which the second is a round of all."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.features import joined_features
from pygsage.sampling.pipeline import Batch, NodeBatches
from pygsage.sampling.remote_rows import RemoteRows, Wanted
from pygsage.sampling.sample import Block
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import SeedShard


@dataclass(frozen=True)
class Draft:
    """A batch that lacks the rows of other machines."""

    shard: SeedShard
    epoch: int
    nodes: Tensor
    blocks: list[Block]
    wanted: Wanted
    seconds: dict[str, float]


class PartBatches(NodeBatches):
    """As `NodeBatches`, for a `BatchPipeline` that completes what this makes.

    Args:
        rows: The features.
        The others are those of `NodeBatches`.
    """

    def __init__(
        self,
        graph: Graph,
        seeds: Tensor,
        sampler: NeighborSampler,
        seed_weights: Tensor | None,
        aggr: str,
        dtype: torch.dtype | None,
        rows: RemoteRows,
    ) -> None:
        super().__init__(graph, seeds, sampler, seed_weights, aggr, dtype, rows)
        self._remote = rows

    def draft(self, shard: SeedShard, epoch: int) -> Draft:
        """The neighbours of a shard's seeds, and the rows that are on this machine; called by several threads."""
        start = time.perf_counter()
        reached, blocks = self._sampler.sample_blocks(self._seeds[shard.positions], epoch, shard.step)
        sampled = time.perf_counter()
        wanted = self._remote.start(reached)
        seconds = {"sample": sampled - start, "gather": time.perf_counter() - sampled}
        return Draft(shard, epoch, reached, blocks, wanted, seconds)

    def complete(self, draft: Draft) -> Batch:
        """The batch, with the rows of other machines: all ranks together, in the order of the steps."""
        start = time.perf_counter()
        x = self._remote.complete(draft.wanted)
        fetched = time.perf_counter()
        first, *blocks = draft.blocks
        own = torch.arange(first.num_dst)
        x = joined_features(x, own, first.indptr, first.indices, self._aggr, self._dtype)
        seconds = {
            "sample": draft.seconds["sample"],
            "fetch": fetched - start,
            "gather": draft.seconds["gather"] + time.perf_counter() - fetched,
        }
        return self._batch(draft.shard, draft.epoch, draft.nodes[: first.num_dst], x, blocks, seconds)
