"""A graph in an `.npz` whose arrays have names of their own. Copy this file and change what differs.

    pygsage train datasets/npz_graph.py --root FOLDER

Here they are those of the gnn-benchmark collection (Shchur et al., 2018): sparse matrices `adj` and `attr` by rows,
and `labels`. There is no split: add `--split per-class:20/30`. A file with x, edge_index and y needs no recipe.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch_geometric.data import Data

from pygsage import Recipe


class NpzGraph(Recipe):
    """Reads one array after the other; only the features are spread out, as float32."""

    file = "graph.npz"
    num_graphs = 1

    def graphs(self) -> Iterator[Data]:
        """Yields the one graph."""
        with np.load(self.root / self.file, allow_pickle=False) as arrays:
            sources = _rows(arrays["adj_indptr"])
            edge_index = np.stack([sources, arrays["adj_indices"]]).astype(np.int64)
            x = np.zeros(arrays["attr_shape"], dtype=np.float32)
            x[_rows(arrays["attr_indptr"]), arrays["attr_indices"]] = arrays["attr_data"]
            y = arrays["labels"].astype(np.int64)
        yield Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(edge_index), y=torch.from_numpy(y))


def _rows(indptr: np.ndarray) -> np.ndarray:
    """The row of each entry of a matrix by rows (CSR)."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
