"""Options of `pygsage partition`, and what METIS takes in memory. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pygsage.config import option
from pygsage.errors import ConfigError
from pygsage.spelling import check_types, parse_size

# Of METIS with 64-bit numbers, its arrays included, fitted to what it takes of graphs with hubs or with edges anywhere,
# 8 and 32 neighbours a node, 2 to 16 parts (tools/bench/partition.py --metis-memory). Of graphs with communities, which
# shrink faster and have more edges twice, it takes down to 0.6 of that. Coarser graphs are kept beside the finer ones,
# and weights of nodes and edges beside the neighbours.
NEIGHBOUR_BYTES = 120
NODE_BYTES = 124
MOST_PARTS = 4096


@dataclass(frozen=True)
class PartitionConfig:
    """Splits the features of one graph over several machines: nodes that are neighbours lie together where they can.

    STORE is what `pygsage convert` wrote of one graph. Ids, edges, labels and splits stay as they are and lie in OUT
    once, as links to those of STORE where the disk can; a machine needs OUT without the parts of others. Training on
    OUT gives the same result as on STORE.

    Examples: pygsage partition graph_on_disk graph_in_parts --parts 2 and pygsage info graph_in_parts
    """

    store: str = option("", "the folder of one graph", positional=True)
    out: str = option("", "the folder to be made", positional=True)
    parts: int = option(2, "how many parts; as many as machines, or a multiple")
    method: Literal["metis", "range"] = option(
        "metis",
        "metis: few edges between parts (needs pymetis, and memory, which is said beforehand); range: ids in their "
        "order, those to train and the others apart, in no time and no memory; both share out training nodes and "
        "nodes evenly",
    )
    seed: int = option(0, "seed of METIS")
    memory_limit: str | None = option(None, "RAM that the job may take, such as 8GiB (default: what is available)")
    quiet: bool = option(False, "print nothing but errors")
    json: bool = option(False, "print the answer as one JSON object on the last line")

    def __post_init__(self) -> None:
        check_types(self)
        if not self.store or not self.out:
            raise ConfigError(
                "partition needs the folder of a graph and a folder to make.",
                "Type: pygsage partition STORE OUT --parts 2",
            )
        if not 1 <= self.parts <= MOST_PARTS:
            raise ConfigError(f"--parts is {self.parts}; expected a number from 1 to {MOST_PARTS}.")
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"--seed is {self.seed}; expected a number from 0 to 2**31 - 1.")
        if self.memory_limit is not None:
            parse_size(self.memory_limit, "--memory-limit")


def metis_bytes(num_nodes: int, num_edges: int, both_ways: float) -> int:
    """About the most that METIS takes for a graph, with the arrays that it is given.

    Args:
        num_edges: Directed edges.
        both_ways: The share of them whose reverse is there too: METIS needs each both ways.
    """
    neighbours = round(num_edges * (2 - both_ways))
    return NEIGHBOUR_BYTES * neighbours + NODE_BYTES * num_nodes
