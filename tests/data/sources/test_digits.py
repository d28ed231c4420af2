"""The embedded dataset."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from pygsage.data.sources.digits import read_digits


def test_counts_and_dtypes() -> None:
    raw = read_digits(0)
    assert raw.x.dtype == torch.float32
    assert raw.x.shape == (1797, 64)
    assert (float(raw.x.min()), float(raw.x.max())) == (0.0, 1.0)
    assert raw.edge_index.shape == (2, 17970)
    assert raw.y.unique().tolist() == list(range(10))
    assert [len(ids) for ids in raw.splits.values()] == [1078, 360, 359]


def test_edges_come_from_the_nearest_neighbours() -> None:
    raw = read_digits(0)
    pixels, labels = load_digits(return_X_y=True)
    distances, _ = NearestNeighbors(n_neighbors=11, algorithm="brute").fit(pixels).kneighbors(pixels)
    sources, destinations = raw.edge_index
    assert torch.equal(destinations, torch.arange(1797).repeat_interleave(10))
    assert not (sources == destinations).any()
    images = torch.from_numpy(pixels)
    found = (images[sources] - images[destinations]).norm(dim=1).reshape(1797, 10)
    # Ties may be other nodes, never other distances; column 0 is the node itself.
    assert torch.allclose(found, torch.from_numpy(distances[:, 1:]))
    assert torch.equal(raw.y, torch.from_numpy(labels))


def test_the_seed_decides_the_split_and_nothing_else() -> None:
    first, again, other = read_digits(3), read_digits(3), read_digits(4)
    assert torch.equal(first.edge_index, other.edge_index)
    assert torch.equal(first.splits["train_idx"], again.splits["train_idx"])
    assert not torch.equal(first.splits["train_idx"], other.splits["train_idx"])
