"""A thousand graphs of 500 nodes and 64 features: rings, stars, grids and trees, to be told apart.

    pygsage convert datasets/shapes.py shapes_on_disk

The features are 128 MB in all (1,000 x 500 x 64 float32), and no more than one graph is ever held: that is what
a recipe's generator is for.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch_geometric.data import Data

from pygsage import Recipe


class Shapes(Recipe):
    """Graph `i` is of kind `i % 4`: its label `y`, int64 `[1]`. Features are noise."""

    num_graphs = 1_000
    num_nodes = 500
    num_features = 64

    def graphs(self) -> Iterator[Data]:
        """Yields the graphs one by one; the same each time."""
        kinds = (self.ring, self.star, self.grid, self.tree)
        for number in range(self.num_graphs):
            random = torch.Generator().manual_seed(number)
            pairs = kinds[number % len(kinds)](random)
            yield Data(
                x=torch.randn(self.num_nodes, self.num_features, generator=random),
                edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
                y=torch.tensor([number % len(kinds)]),
            )

    def ring(self, random: torch.Generator) -> torch.Tensor:
        """Each node with the next."""
        nodes = torch.arange(self.num_nodes)
        return torch.stack([nodes, (nodes + 1) % self.num_nodes])

    def star(self, random: torch.Generator) -> torch.Tensor:
        """Node 0 with all others."""
        others = torch.arange(1, self.num_nodes)
        return torch.stack([torch.zeros_like(others), others])

    def grid(self, random: torch.Generator) -> torch.Tensor:
        """Rows of 20, each node with its right and its lower neighbour."""
        nodes = torch.arange(self.num_nodes)
        right = nodes[(nodes % 20 < 19) & (nodes + 1 < self.num_nodes)]
        down = nodes[nodes + 20 < self.num_nodes]
        return torch.cat([torch.stack([right, right + 1]), torch.stack([down, down + 20])], dim=1)

    def tree(self, random: torch.Generator) -> torch.Tensor:
        """Each node with a random one before it."""
        children = torch.arange(1, self.num_nodes)
        parents = (torch.rand(len(children), generator=random) * children).long()
        return torch.stack([parents, children])
