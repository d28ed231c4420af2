"""scikit-learn's handwritten digits as a graph of nearest neighbours: real data that needs no network."""

from __future__ import annotations

import numpy as np
import torch

from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.splits import random_splits

_NUM_NEIGHBORS = 10


def read_digits(seed: int) -> RawGraph:
    """1,797 images of 8 x 8 pixels, 10 classes, and edges to each from its 10 nearest by the pixels.

    `x` is float32 `[1797, 64]` in [0, 1]; edges run neighbour -> node, nearest first, ties by the lower id. 60/20/20
    of the nodes, drawn from `seed`, are for training, validation and test.
    Data: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998.
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    num_nodes = len(pixels)
    squares = (pixels**2).sum(1)
    distances = squares[:, None] + squares - 2 * pixels @ pixels.T  # whole numbers, exact in float64
    np.fill_diagonal(distances, squares.max() * 4)  # beyond all others
    ranks = distances.astype(np.int64) * num_nodes + np.arange(num_nodes)  # by distance, then by id: no ties
    ranks.partition(_NUM_NEIGHBORS, axis=1)
    nearest = np.sort(ranks[:, :_NUM_NEIGHBORS], axis=1) % num_nodes
    edges = np.stack([nearest.ravel(), np.repeat(np.arange(num_nodes), _NUM_NEIGHBORS)])
    y = torch.from_numpy(labels.astype(np.int64))
    splits = random_splits(y, (0.6, 0.2, 0.2), seed)
    return RawGraph(
        name="digits",
        origin="digits",
        x=torch.from_numpy((pixels / 16).astype(np.float32)),
        edge_index=torch.from_numpy(edges.astype(np.int64)),
        y=y,
        splits={f"{name}_idx": ids for name, ids in splits.items()},
    )
