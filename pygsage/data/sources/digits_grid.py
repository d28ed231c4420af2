"""scikit-learn's handwritten digits as many small graphs: real data that needs no network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from pygsage.data.one_graph.splits import random_splits

SIDE = 8


def digits_grid(seed: int) -> tuple[list[Data], dict[str, Tensor]]:
    """1,797 graphs of 64 nodes, 10 classes, and their splits: 60/20/20 of the graphs, drawn from `seed`.

    A graph is an image of 8 x 8 pixels: each pixel a node, with edges in both directions to those above, below, left
    and right of it. `x` is float32 `[64, 3]`: intensity, row and column, each in [0, 1].
    Data: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998.
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    y = torch.from_numpy(labels.astype(np.int64))
    splits = random_splits(y, (0.6, 0.2, 0.2), seed)
    return list(_graphs(pixels, y)), {f"{name}_idx": ids for name, ids in splits.items()}


def _graphs(pixels: np.ndarray, y: Tensor) -> Iterator[Data]:
    nodes = torch.arange(SIDE * SIDE).view(SIDE, SIDE)
    right = torch.stack([nodes[:, :-1].flatten(), nodes[:, 1:].flatten()])
    down = torch.stack([nodes[:-1].flatten(), nodes[1:].flatten()])
    edge_index = torch.cat([right, right.flip(0), down, down.flip(0)], dim=1)
    place = torch.arange(SIDE, dtype=torch.float32) / (SIDE - 1)
    places = torch.cartesian_prod(place, place)
    for image, label in zip(torch.from_numpy(pixels).to(torch.float32) / 16, y, strict=True):
        yield Data(x=torch.cat([image.unsqueeze(1), places], dim=1), edge_index=edge_index, y=label.view(1))
