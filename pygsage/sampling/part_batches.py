"""Batches of nodes whose features lie on several machines: made in two steps, of which the second is a round of all."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.library import StepSampler
from pygsage.sampling.pipeline import Coming, Drawn, NodeBatches
from pygsage.sampling.remote_rows import RemoteRows, Wanted
from pygsage.sampling.shard import SeedShard
from pygsage.sampling.transfer import Carrier


@dataclass(frozen=True)
class Draft:
    """A batch that lacks the rows of other machines."""

    drawn: Drawn
    wanted: Wanted
    gather_s: float


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
        sampler: StepSampler,
        seed_weights: Tensor | None,
        aggr: str,
        dtype: torch.dtype | None,
        rows: RemoteRows,
        carrier: Carrier | None = None,
    ) -> None:
        super().__init__(graph, seeds, sampler, seed_weights, aggr, dtype, rows, carrier=carrier)
        self._remote = rows

    def draft(self, shard: SeedShard, epoch: int) -> Draft:
        """The neighbours of a shard's seeds, and the rows that are on this machine; called by several threads."""
        drawn = self.draw(shard, epoch)
        start = time.perf_counter()
        wanted = self._remote.start(drawn.reached)
        return Draft(drawn, wanted, time.perf_counter() - start)

    def complete(self, draft: Draft) -> Coming:
        """The batch, with the rows of other machines: all ranks together, in the order of the steps."""
        start = time.perf_counter()
        x = self._remote.complete(draft.wanted)
        fetched = time.perf_counter()
        coming = self.join(draft.drawn, x, fetched - draft.gather_s)
        coming.seconds["fetch"] = fetched - start
        return coming
