"""How many nodes and edges a sampled batch holds: expected from the degrees where they are known, else a bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MOST_EDGES_COUNTED = 1_500_000  # whose ids are read (24 MiB) for the sake of their degrees


@dataclass(frozen=True)
class Degrees:
    """Degrees of a graph, or of a sample of it, as histograms.

    Attributes:
        nodes: In-degree -> weight, over nodes: what a seed draws from.
        reached: In-degree -> weight, over the sources of edges: what a sampled neighbour draws from in its turn.
        sources: Out-degree -> number of nodes, which says how often draws meet; empty when unknown: then they are
            taken as spread evenly, which reaches the most nodes.
        basis: Where they come from, in words.
    """

    nodes: Mapping[int, float]
    reached: Mapping[int, float]
    sources: Mapping[int, float]
    basis: str


@dataclass(frozen=True)
class SampledBatch:
    """Sizes of one batch.

    Attributes:
        num_nodes: Nodes known before each hop and at the end: one number more than hops.
        num_edges: Edges of each hop's block, the seeds' hop first.
        num_drawn: Edges that the sampler itself draws, once each where all fanouts are equal.
        basis: `degree distribution: …` (these are expected sizes) or `bound: …` (they can only be smaller).
    """

    num_nodes: tuple[float, ...]
    num_edges: tuple[float, ...]
    num_drawn: float
    basis: str


def degrees_of_edges(sources: Sequence[int], destinations: Sequence[int], num_nodes: int, basis: str) -> Degrees:
    """Counts the degrees of a list of edges; takes about 0.3 s for a million."""
    in_degree, out_degree = Counter(destinations), Counter(sources)
    nodes: Counter[int] = Counter(in_degree.values())
    nodes[0] += num_nodes - len(in_degree)
    reached: Counter[int] = Counter()
    for node, times in out_degree.items():
        reached[in_degree.get(node, 0)] += times
    return Degrees(nodes, reached, Counter(out_degree.values()), basis)


def degrees_as_told(kind: str, num_nodes: int, num_edges: int) -> Degrees:
    """`constant` or `poisson` (a random graph) of the mean degree, or `power` (P(d) ~ 1 / d**2.5, hubs).

    In a graph with hubs the nodes that are reached have more neighbours than others: it is taken as undirected.
    """
    mean = num_edges / max(1, num_nodes)
    basis = f"{kind} with mean {mean:.1f}, as told"
    if kind == "constant":
        low = math.floor(mean)
        nodes = {low: 1 - (mean - low), low + 1: mean - low}
        return Degrees(nodes, nodes, {}, basis)
    if kind == "poisson":
        top = int(mean + 12 * math.sqrt(mean) + 20)
        nodes = {
            d: math.exp(d * math.log(mean) - mean - math.lgamma(d + 1)) if mean else float(d == 0) for d in range(top)
        }
        return Degrees(nodes, nodes, {d: p * num_nodes for d, p in nodes.items()}, basis)
    nodes = _power_law(mean, num_nodes)
    by_edge = {d: p * d for d, p in nodes.items()}
    return Degrees(nodes, by_edge, {d: p * num_nodes for d, p in nodes.items()}, basis)


def _power_law(mean: float, num_nodes: int) -> dict[int, float]:
    """P(d) ~ d**-2.5 from the least degree that gives about the mean: mean = 3 * least for a long tail."""
    least = max(1, round(mean / 3))
    found: dict[int, float] = {}
    degree = least
    while degree < max(num_nodes, least + 1):
        after = max(degree + 1, int(degree * 1.1))  # in steps of a tenth: a million degrees are not needed
        found[degree] = least**1.5 * (degree**-1.5 - after**-1.5)
        degree = after
    scale = sum(d * p for d, p in found.items()) / mean if mean else 1.0
    return {max(1, round(d / scale)): p for d, p in found.items()}


def sample_sizes(
    num_nodes: int, num_edges: int, batch_size: int, fanouts: Sequence[int], degrees: Degrees | None
) -> SampledBatch:
    """Nodes and edges of one batch, as the trainer's sampler draws them.

    For U distinct nodes among m draws from nodes with popularities p: sum over nodes of 1 - (1 - p)**m, which is
    largest when all are equally popular: N * (1 - (1 - 1/N)**m).
    """
    seeds = float(min(batch_size, num_nodes))
    counts, new, edges = [seeds], [seeds], []
    for hop in range(len(fanouts)):

        def drawn(choose: Callable[[Sequence[int]], int], hop: int = hop) -> float:
            means = (
                _mean_draws(num_nodes, num_edges, choose(fanouts[h : hop + 1]), degrees, h > 0) for h in range(hop + 1)
            )
            return min(float(num_edges), sum(count * mean for count, mean in zip(new, means, strict=True)))

        # Every node reached so far draws with the hop's fanout; its draws of earlier hops are longer or shorter ones.
        edges.append(drawn(lambda some: some[-1]))
        distinct = _distinct(drawn(_widest), num_nodes, degrees)
        counts.append(min(num_nodes, max(counts[-1], seeds + distinct * (1 - seeds / max(1, num_nodes)))))
        new.append(counts[-1] - counts[-2])
    basis = (
        f"degree distribution: {degrees.basis}" if degrees is not None else "bound: no node draws more than its fanout"
    )
    equal = len(set(fanouts)) == 1
    return SampledBatch(tuple(counts), tuple(edges), edges[-1] if equal else sum(edges), basis)


def _widest(fanouts: Sequence[int]) -> int:
    return -1 if -1 in fanouts else max(fanouts)


def _mean_draws(num_nodes: int, num_edges: int, fanout: int, degrees: Degrees | None, reached: bool) -> float:
    """Mean of min(degree, fanout) of a node; `reached`: of one that an edge led to."""
    if degrees is None:
        mean = num_edges / max(1, num_nodes)
        if fanout < 0:
            return float(num_edges) if reached else mean
        # For seeds the mean of a minimum is at most the minimum of the means (Jensen).
        return float(fanout) if reached else min(float(fanout), mean)
    weights = degrees.reached if reached and degrees.reached else degrees.nodes
    whole = sum(weights.values())
    return sum((d if fanout < 0 else min(d, fanout)) * w for d, w in weights.items()) / whole if whole else 0.0


def _distinct(draws: float, num_nodes: int, degrees: Degrees | None) -> float:
    if num_nodes <= 0 or draws <= 0:
        return 0.0
    if degrees is None or not degrees.sources:
        return -num_nodes * math.expm1(draws * math.log1p(-1 / num_nodes)) if num_nodes > 1 else 1.0
    edges = sum(d * n for d, n in degrees.sources.items())
    return sum(
        n if d >= edges else -n * math.expm1(draws * math.log1p(-d / edges)) for d, n in degrees.sources.items() if d
    )


def describe(sizes: SampledBatch) -> str:
    """`1,024 seeds -> 10,240 -> …`, for formulas."""
    shown = [f"{sizes.num_nodes[0]:,.0f} seeds", *(f"{n:,.0f}" for n in sizes.num_nodes[1:])]
    return " -> ".join(shown) + " nodes"
