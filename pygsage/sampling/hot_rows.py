"""Which rows of the features a training reads most often: found out by sampling some of its batches beforehand."""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch
from torch import Tensor

from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.sampler import NeighborSampler
from pygsage.sampling.shard import DistributedSeedSampler

BATCHES = 24
EDGE_PIECES, PIECE_EDGES = 32, 1 << 19
_EPOCH = (1 << 63) - 1  # no training comes so far: the batches are others than those that are trained on
_MOST = 255


def hot_rows(
    graph: Graph,
    seeds: Tensor,
    sampler: NeighborSampler,
    shards: DistributedSeedSampler,
    num_rows: int,
    among: Tensor | None = None,
) -> Tensor:
    """The `num_rows` nodes that are most likely to be in a batch, as bool [N].

    They are ranked by how many of 24 batches reached them, as in GNNLab (Yang et al., EuroSys 2022), and where that
    is the same, as it is for the many that none did, by how often they are a source among up to 16 M edges taken from
    all over the list: the outermost hop, which reaches most nodes, follows edges.

    Args:
        seeds: The training nodes, int64.
        shards: Says which of them are a rank's, in which step.
        among: bool [N]: the nodes that come into question, by default all.

    Costs the sampling of 24 batches, and 6 bytes a node while it lasts.
    """
    num_nodes = graph.num_nodes
    if num_rows >= (num_nodes if among is None else int(among.sum())):
        return torch.ones(num_nodes, dtype=torch.bool) if among is None else among.clone()
    score = np.zeros(num_nodes, np.uint16)  # batches in the upper half, edges in the lower
    starts = np.linspace(0, max(0, graph.num_edges - PIECE_EDGES), EDGE_PIECES).astype(np.int64)
    for start in np.unique(starts).tolist():
        ids, times = np.unique(graph.indices[start : start + PIECE_EDGES].numpy(), return_counts=True)
        score[ids] = np.minimum(score[ids] + times, _MOST)
    for shard in islice(shards.shards(_EPOCH), BATCHES):
        reached, _ = sampler.sample_blocks(seeds[shard.positions], _EPOCH, shard.step)
        score[reached.numpy()] += _MOST + 1
    if among is None:
        return torch.from_numpy(_highest(score, num_rows))
    candidates, chosen = among.nonzero().flatten(), torch.zeros(num_nodes, dtype=torch.bool)
    chosen[candidates[torch.from_numpy(_highest(score[candidates.numpy()], num_rows))]] = True
    return chosen


def _highest(score: np.ndarray, count: int) -> np.ndarray:
    """The places of the `count` highest, as bool; of those equal to the last of them the first."""
    of_score = np.zeros(1 << 16, np.int64)
    for start in range(0, len(score), 1 << 20):
        of_score += np.bincount(score[start : start + (1 << 20)], minlength=1 << 16)
    above = of_score[::-1].cumsum()[::-1] - of_score  # how many are higher
    least = int(np.argmax(above < count)) if count else 1 << 16
    chosen = score > least
    equal = np.flatnonzero(score == least)
    chosen[equal[: count - int(chosen.sum())]] = True
    return np.asarray(chosen)
