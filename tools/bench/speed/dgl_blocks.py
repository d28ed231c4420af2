"""DGL's side of the speed comparison, as its GraphSAGE example has it: fused neighbour sampler, blocks, SAGEConv."""

from __future__ import annotations

import os
import platform
from itertools import pairwise
from typing import Any

import arguments
import dgl
import dgl.nn
import numpy as np
import phases
import torch
import torch.nn.functional as F


class Sage(torch.nn.Module):
    """Mean-aggregating SAGE layers with ReLU and dropout between them."""

    def __init__(self, widths: list[int], dropout: float) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(dgl.nn.SAGEConv(*pair, "mean") for pair in pairwise(widths))
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, blocks: Any, h: torch.Tensor) -> torch.Tensor:
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, h)
            if number < len(self.layers) - 1:
                h = self.dropout(F.relu(h))
        return h

    @torch.no_grad()
    def inference(self, graph: Any, x: torch.Tensor, batch_size: int) -> torch.Tensor:
        """Layer by layer over all neighbours, in batches of nodes, as the example does."""
        for number, layer in enumerate(self.layers):
            last = number == len(self.layers) - 1
            y = torch.empty(len(x), layer._out_feats)
            sampler = dgl.dataloading.MultiLayerFullNeighborSampler(1)
            for nodes in torch.arange(len(x)).split(batch_size):
                inputs, outputs, blocks = sampler.sample_blocks(graph, nodes)
                h = layer(blocks[0], x[inputs])
                y[outputs] = h if last else F.relu(h)
            x = y
        return x


def main(told: Any, clock: phases.Phases) -> dict[str, Any]:
    torch.manual_seed(told.seed)
    torch.set_num_threads(told.threads)
    dgl.utils.set_num_threads(told.threads)
    arrays = {name: np.load(f"{told.folder}/{name}.npy") for name in ("indptr", "indices", "x", "y", "split/train")}
    indptr, indices = (torch.from_numpy(arrays[name].astype(np.int64)) for name in ("indptr", "indices"))
    graph = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))), num_nodes=len(indptr) - 1)
    del indptr, indices, arrays["indptr"], arrays["indices"]
    x, y, train = (torch.from_numpy(arrays[name]) for name in ("x", "y", "split/train"))
    graph.create_formats_() if told.what == "inference" else graph.formats("csc")
    layers = len(told.fanouts)
    model = Sage([x.size(1), *[told.hidden] * (layers - 1), int(y.max()) + 1], told.dropout)
    about = {
        "name": "DGL",
        "versions": f"dgl {dgl.__version__}, torch {torch.__version__}, {platform.python_version()}",
    }
    if told.what == "inference":
        clock.start_batch()
        with clock("inference"):
            model.eval().inference(graph, x, 4096)
        return about
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    # Its example lists fanouts from the input layer on.
    sampler = dgl.dataloading.NeighborSampler(told.fanouts[::-1])
    order = train[torch.randperm(len(train))]
    for number in range(told.batches + 2):
        if number == 2:
            clock.batches.clear()
        seeds = order[number * told.batch_size : (number + 1) * told.batch_size]
        clock.start_batch()
        with clock("sample"):
            inputs, outputs, blocks = sampler.sample_blocks(graph, seeds)
        if told.what == "sample":
            continue
        with clock("slice"):
            h, labels = x[inputs], y[outputs]
        if told.what == "input":
            continue
        with clock("forward"), torch.autocast("cpu", torch.bfloat16, enabled=told.precision == "bf16"):
            loss = F.cross_entropy(model(blocks, h).float(), labels)
        with clock("backward"):
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with clock("step"):
            optimizer.step()
    return about


if __name__ == "__main__":
    asked = arguments.parse(__doc__)
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    phases.measured(lambda clock: main(asked, clock))
