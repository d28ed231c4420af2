"""PyG's side of graph-level training: InMemoryDataset, DataLoader, GraphSAGE, mean pooling, a linear head."""

from __future__ import annotations

import argparse
import platform
from typing import Any

import graph_arguments
import phases
import torch
import torch.nn.functional as F
import torch_geometric
from graph_arguments import CLASSES, EDGES, FEATURES, NODES
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphSAGE, global_mean_pool


class Made(InMemoryDataset):
    """Random graphs of one size, as collated tensors; the same for a seed."""

    def __init__(self, num_graphs: int, seed: int) -> None:
        super().__init__(None)
        random = torch.Generator().manual_seed(seed)
        self._data = Data(
            x=torch.randn(num_graphs * NODES, FEATURES, generator=random),
            edge_index=torch.randint(NODES, (2, num_graphs * EDGES), generator=random),
            y=torch.randint(CLASSES, (num_graphs,), generator=random),
        )
        count = torch.arange(num_graphs + 1)
        self.slices = {"x": count * NODES, "edge_index": count * EDGES, "y": count}


class Model(torch.nn.Module):
    """PyG's GraphSAGE, read out by the mean of each graph's nodes."""

    def __init__(self, hidden: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.sage = GraphSAGE(FEATURES, hidden, num_layers, dropout=dropout)
        self.head = torch.nn.Linear(hidden, CLASSES)

    def forward(self, batch: Any) -> torch.Tensor:
        h = self.sage(batch.x, batch.edge_index)
        return self.head(global_mean_pool(h, batch.batch, batch.num_graphs))


def main(told: argparse.Namespace, clock: phases.Phases) -> dict[str, Any]:
    torch.manual_seed(told.seed)
    torch.set_num_threads(told.threads)
    dataset = Made(told.graphs, told.seed)
    model = Model(told.hidden, told.layers, told.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(dataset, told.batch_size, shuffle=True))
    for number in range(told.batches + 2):
        if number == 2:
            clock.batches.clear()
        clock.start_batch()
        with clock("slice"):
            batch = next(batches)
        with clock("forward"):
            loss = F.cross_entropy(model(batch), batch.y)
        with clock("backward"):
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with clock("step"):
            optimizer.step()
    versions = f"PyG {torch_geometric.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    return {"name": "PyG in memory", "versions": versions}


if __name__ == "__main__":
    asked = graph_arguments.parse(__doc__)
    phases.measured(lambda clock: main(asked, clock))
