"""Heterogeneous graphs: small random ones, and real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import load_npz
from torch_geometric.data import HeteroData

SHARED = Path(__file__).parents[2].parent / "shared" / "data"

# Two types to themselves, both directions between two, a type that is only a source, and one that is only reached.
EDGE_TYPES = [
    ("paper", "cites", "paper"),
    ("author", "writes", "paper"),
    ("paper", "by", "author"),
    ("topic", "of", "paper"),
    ("author", "at", "place"),
]


def random_hetero(seed: int, mean_degree: int = 4, max_nodes: int = 30) -> HeteroData:
    """Four node types of random sizes, at least one node each; isolated nodes and multi-edges happen."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for name in ("paper", "author", "topic", "place"):
        num_nodes = int(torch.randint(1, max_nodes, (1,), generator=generator))
        data[name].x = torch.randn(num_nodes, 5, generator=generator)
    data["paper"].y = torch.randint(3, (data["paper"].num_nodes,), generator=generator)
    for source, relation, target in EDGE_TYPES:
        num_edges = int(torch.randint(mean_degree * data[target].num_nodes + 1, (1,), generator=generator))
        ends = [torch.randint(data[name].num_nodes, (num_edges,), generator=generator) for name in (source, target)]
        data[source, relation, target].edge_index = torch.stack(ends)
        data[source, relation, target].edge_attr = torch.arange(num_edges, dtype=torch.float32).view(-1, 1)
    return data


@pytest.fixture(scope="session")
def hetero() -> Callable[..., HeteroData]:
    """Makes a random heterogeneous graph of a seed."""
    return random_hetero


@pytest.fixture(scope="session")
def acm() -> HeteroData:
    """Papers, their authors and their subjects, with edges both ways; skips without the files."""
    folder = SHARED / "heco" / "acm"
    if not folder.is_dir():
        pytest.skip("no heco/acm among the shared data files")
    data = HeteroData()
    data["paper"].x = torch.from_numpy(load_npz(folder / "p_feat.npz").toarray()).to(torch.float32)
    data["paper"].y = torch.from_numpy(np.load(folder / "labels.npy")).to(torch.int64)
    data["author"].num_nodes, data["subject"].num_nodes = 7167, 60
    for split in ("train", "val", "test"):
        mask = torch.zeros(4019, dtype=torch.bool)
        mask[torch.from_numpy(np.load(folder / f"{split}_20.npy")).to(torch.int64)] = True
        data["paper"][f"{split}_mask"] = mask
    for file, other in (("pa", "author"), ("ps", "subject")):
        edges = torch.from_numpy(np.loadtxt(folder / f"{file}.txt", dtype=np.int64).T.copy())
        data["paper", "to", other].edge_index = edges
        data[other, "to", "paper"].edge_index = edges.flip(0)
    return data


@pytest.fixture(scope="session")
def nations() -> HeteroData:
    """14 nations and 55 relations between them: one node type, many edge types; skips without the files."""
    path = SHARED / "kg" / "nations" / "train.txt"
    if not path.is_file():
        pytest.skip("no kg/nations among the shared data files")
    triples = [line.split("\t") for line in path.read_text().splitlines()]
    names = sorted({end for head, _, tail in triples for end in (head, tail)})
    number = {name: i for i, name in enumerate(names)}
    data = HeteroData()
    data["nation"].x = torch.eye(len(names))
    for relation in sorted({relation for _, relation, _ in triples}):
        edges = [(number[head], number[tail]) for head, name, tail in triples if name == relation]
        data["nation", relation, "nation"].edge_index = torch.tensor(edges).T.contiguous()
    return data
