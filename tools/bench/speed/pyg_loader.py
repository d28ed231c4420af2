"""PyG's side of the speed comparison, as its examples have it: NeighborLoader, SAGEConv over the sampled subgraph."""

from __future__ import annotations

import platform
from itertools import pairwise
from typing import Any

import arguments
import numpy as np
import phases
import torch
import torch.nn.functional as F
import torch_geometric
import torch_geometric.typing
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv


class Sage(torch.nn.Module):
    """Mean-aggregating SAGE layers with ReLU and dropout between them."""

    def __init__(self, widths: list[int], dropout: float) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(SAGEConv(*pair) for pair in pairwise(widths))
        self.dropout = dropout

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x, edge_index)
            if number < len(self.layers) - 1:
                x = F.dropout(F.relu(x), self.dropout, self.training)
        return x

    @torch.no_grad()
    def inference(self, data: Data, batch_size: int) -> torch.Tensor:
        """Layer by layer over all neighbours, in batches of nodes, as the examples do."""
        loader = NeighborLoader(Data(edge_index=data.edge_index, num_nodes=data.num_nodes), [-1], batch_size=batch_size)
        x = data.x
        for number, layer in enumerate(self.layers):
            parts = []
            for batch in loader:
                h = layer(x[batch.n_id], batch.edge_index)[: batch.batch_size]
                parts.append(h if number == len(self.layers) - 1 else F.relu(h))
            x = torch.cat(parts)
        return x


def main(told: Any, clock: phases.Phases) -> dict[str, Any]:
    torch.manual_seed(told.seed)
    torch.set_num_threads(told.threads)
    arrays = {name: np.load(f"{told.folder}/{name}.npy") for name in ("indptr", "indices", "x", "y", "split/train")}
    targets = np.repeat(np.arange(len(arrays["indptr"]) - 1), np.diff(arrays["indptr"]))
    edge_index = torch.from_numpy(np.stack([arrays["indices"].astype(np.int64), targets]))
    data = Data(x=torch.from_numpy(arrays["x"]), edge_index=edge_index, y=torch.from_numpy(arrays["y"]))
    train = torch.from_numpy(arrays["split/train"])
    del arrays, targets, edge_index
    layers = len(told.fanouts)
    model = Sage([data.num_features, *[told.hidden] * (layers - 1), int(data.y.max()) + 1], told.dropout)
    with_lib = "pyg-lib" if torch_geometric.typing.WITH_PYG_LIB else "torch-sparse"
    versions = f"PyG {torch_geometric.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    about = {"name": f"PyG + {with_lib}", "versions": versions}
    if told.what == "inference":
        clock.start_batch()
        with clock("inference"):
            model.eval().inference(data, 4096)
        return about
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    # Slicing apart from sampling, so that each has a figure; the work is the same.
    # The edges are sorted by target already, which spares it a sort and a copy of them.
    loader = NeighborLoader(
        data,
        told.fanouts,
        input_nodes=train,
        batch_size=told.batch_size,
        filter_per_worker=False,
        is_sorted=True,
    )
    order = torch.randperm(len(train))
    for number in range(told.batches + 2):
        if number == 2:
            clock.batches.clear()
        seeds = order[number * told.batch_size : (number + 1) * told.batch_size]
        clock.start_batch()
        with clock("sample"):
            sampled = loader.collate_fn(seeds)
        if told.what == "sample":
            continue
        with clock("slice"):
            batch = loader.filter_fn(sampled)
        if told.what == "input":
            continue
        with clock("forward"), torch.autocast("cpu", torch.bfloat16, enabled=told.precision == "bf16"):
            scores = model(batch.x, batch.edge_index)[: batch.batch_size].float()
            loss = F.cross_entropy(scores, batch.y[: batch.batch_size])
        with clock("backward"):
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with clock("step"):
            optimizer.step()
    return about


if __name__ == "__main__":
    asked = arguments.parse(__doc__)
    phases.measured(lambda clock: main(asked, clock))
