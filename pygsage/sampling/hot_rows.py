"""Which rows of the features a training reads most often: found out by sampling some of its batches beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.library import StepSampler
from pygsage.sampling.shard import DistributedSeedSampler

BATCHES = 24
EDGE_PIECES, PIECE_EDGES = 32, 1 << 19
TESTED = 2  # batches by which the use of the RAM is chosen: those that ranked the rows would flatter it
SHARES = [number / 40 for number in range(40, 9, -1)]  # of the RAM, for rows that are held
MOST_BATCHES = 64
PAGE_COST = 4  # bytes of single pages against those of a pass
_EPOCH = (1 << 63) - 1  # no training comes so far: the batches are others than those that are trained on
_MOST = 255


@dataclass(frozen=True)
class ReadPlan:
    """How rows that do not fit in RAM are read.

    Attributes:
        held: bool [N]: the rows that are held in RAM.
        spare: Room for so many rows besides, into which those are read that several batches miss, in one pass over
            all that are not held; 0: they are read row by row.
    """

    held: Tensor
    spare: int


def plan_reads(
    graph: Graph,
    seeds: Tensor,
    sampler: StepSampler,
    shards: DistributedSeedSampler,
    num_rows: int,
    *,
    packed: bool,
) -> ReadPlan:
    """How to use the RAM of `num_rows` rows: for rows that are held, or for batches that wait for a common pass.

    A disk reads whole pages, of 16 rows of 256 bytes, and single ones at a quarter of the speed of a pass at best
    (measured: 250 against 800 MB/s and more). A pass reads all rows that are not held, for as many batches as there
    is room for; three such groups are under way: one that is drawn, one that is read, one that is trained on
    (`sampling.passes`). Which
    share of the RAM is best follows from how many rows two other batches miss.

    Args:
        packed: Whether the rows that are not held get a file of their own, so that a pass reads no others.

    The other arguments and costs are those of `hot_rows`.
    """
    num_nodes, row_bytes = graph.num_nodes, graph.x.element_size() * graph.num_features
    score = _scores(graph, seeds, sampler, shards)
    if num_rows >= num_nodes:
        return ReadPlan(torch.ones(num_nodes, dtype=torch.bool), 0)
    reached, sample_bytes = np.zeros(1 << 16, np.int64), 0
    for shard in islice(shards.shards(_EPOCH - 1), TESTED):
        nodes, blocks = sampler.sample_blocks(seeds[shard.positions], _EPOCH - 1, shard.step)
        reached += np.bincount(score[nodes.numpy()], minlength=1 << 16)
        inner = sum(block.indices.nbytes for block in blocks[1:])
        sample_bytes = max(sample_bytes, inner + 24 * blocks[0].num_dst + 4 * len(blocks[0].indices))
    of_score = _histogram(score)
    above = np.concatenate([[0], of_score[::-1].cumsum()])
    missed_above = (reached.sum() - np.concatenate([[0], reached[::-1].cumsum()])) / TESTED
    best = (row_bytes * 16 * PAGE_COST * max(1.0, np.interp(num_rows, above, missed_above)), num_rows, 0)
    for share in SHARES:
        count = int(share * num_rows)
        missed = float(np.interp(count, above, missed_above))
        group = (num_rows - count) * row_bytes / (2 * missed * row_bytes + 3 * sample_bytes)
        if group >= 2:  # a row that a pass has read costs about as much again, until it is in its place
            cost = row_bytes * ((num_nodes - count * packed) / min(MOST_BATCHES, len(shards), int(group)) + missed)
            spare = 2 * missed * min(MOST_BATCHES, group)
            best = min(best, (cost, count, int(spare)))
    return ReadPlan(torch.from_numpy(_highest(score, best[1], of_score)), best[2])


def hot_rows(
    graph: Graph,
    seeds: Tensor,
    sampler: StepSampler,
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
    score = _scores(graph, seeds, sampler, shards)
    if among is None:
        return torch.from_numpy(_highest(score, num_rows))
    candidates, chosen = among.nonzero().flatten(), torch.zeros(num_nodes, dtype=torch.bool)
    chosen[candidates[torch.from_numpy(_highest(score[candidates.numpy()], num_rows))]] = True
    return chosen


def _scores(graph: Graph, seeds: Tensor, sampler: StepSampler, shards: DistributedSeedSampler) -> np.ndarray:
    num_nodes = graph.num_nodes
    score = np.zeros(num_nodes, np.uint16)  # batches in the upper half, edges in the lower
    starts = np.linspace(0, max(0, graph.num_edges - PIECE_EDGES), EDGE_PIECES).astype(np.int64)
    for start in np.unique(starts).tolist():
        ids, times = np.unique(graph.indices[start : start + PIECE_EDGES].numpy(), return_counts=True)
        score[ids] = np.minimum(score[ids] + times, _MOST)
    for shard in islice(shards.shards(_EPOCH), BATCHES):
        reached, _ = sampler.sample_blocks(seeds[shard.positions], _EPOCH, shard.step)
        score[reached.numpy()] += _MOST + 1
    return score


def _histogram(score: np.ndarray) -> np.ndarray:
    of_score = np.zeros(1 << 16, np.int64)
    for start in range(0, len(score), 1 << 20):
        of_score += np.bincount(score[start : start + (1 << 20)], minlength=1 << 16)
    return of_score


def _highest(score: np.ndarray, count: int, of_score: np.ndarray | None = None) -> np.ndarray:
    """The places of the `count` highest, as bool; of those equal to the last of them the first."""
    of_score = _histogram(score) if of_score is None else of_score
    above = of_score[::-1].cumsum()[::-1] - of_score  # how many are higher
    least = int(np.argmax(above < count)) if count else 1 << 16
    chosen = score > least
    equal = np.flatnonzero(score == least)
    chosen[equal[: count - int(chosen.sum())]] = True
    return np.asarray(chosen)
