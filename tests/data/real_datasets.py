"""Every small real dataset of many graphs among the shared data files, as PyG has it."""

from __future__ import annotations

import gzip
import json
import shutil
import warnings
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import subgraph

_MOST_MOLECULES = 1_200  # of 8,014 in Tox21; ESOL has 1,128
SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def shared(name: str) -> Path:
    """Where a dataset lies; skips the test without it."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {name} among the shared data files")
    return path


@cache
def tu(name: str, folder: Path) -> list[Data]:
    """A TU dataset."""
    from torch_geometric.datasets import TUDataset

    root = folder / name
    if (SHARED / "tu" / name).is_dir():
        shutil.copytree(SHARED / "tu" / name / "raw", root / "raw")
    else:
        with zipfile.ZipFile(shared(f"tu/{name}.zip")) as archive:
            archive.extractall(folder / f"unzipped-{name}")
        (found,) = (folder / f"unzipped-{name}").rglob(f"{name}_A.txt")
        shutil.copytree(found.parent, root / "raw")
    return [data.clone() for data in TUDataset(str(folder), name, use_node_attr=True)]


@cache
def ogb_molecules(name: str, folder: Path) -> list[Data]:
    """A dataset of molecules, as ogb's own class gives it: each bond in both directions, one after the other."""
    raw = shared(f"ogb/{name}/raw")

    def read(file: str, dtype: Any) -> np.ndarray:
        with gzip.open(raw / f"{file}.csv.gz", "rt") as lines:
            return np.loadtxt(lines, dtype=dtype, delimiter=",", ndmin=2)

    x, edges, edge_attr = (read(f, np.int64) for f in ("node-feat", "edge", "edge-feat"))
    y, num_nodes, num_edges = read("graph-label", np.float32), read("num-node-list", int), read("num-edge-list", int)
    if np.array_equal(y, y.astype(int)):
        y = y.astype(np.int64)
    graphs, node, edge = [], 0, 0
    for number, (n, e) in enumerate(zip(num_nodes[:, 0].tolist(), num_edges[:, 0].tolist(), strict=True)):
        bonds = torch.from_numpy(edges[edge : edge + e])
        graphs.append(
            Data(
                edge_index=torch.stack([bonds, bonds.flip(1)], dim=1).reshape(-1, 2).T.contiguous(),
                edge_attr=torch.from_numpy(edge_attr[edge : edge + e]).repeat_interleave(2, dim=0),
                x=torch.from_numpy(x[node : node + n]),
                y=torch.from_numpy(y[number : number + 1]),
                num_nodes=n,
            )
        )
        node, edge = node + n, edge + e
    return graphs


@cache
def acm(folder: Path) -> list[HeteroData]:
    """Two hundred papers a graph, with those who wrote them and what they are about."""
    files = shared("heco/acm")
    labels = torch.from_numpy(np.load(files / "labels.npy")).long()
    ends = {name: torch.from_numpy(np.loadtxt(files / f"{name}.txt", dtype=np.int64)) for name in ("pa", "ps")}
    graphs = []
    for start in range(0, len(labels), 200):
        data = HeteroData()
        data["paper"].y = labels[start : start + 200]
        data["paper"].paper_id = torch.arange(start, start + len(data["paper"].y))
        data["paper"].num_nodes = len(data["paper"].y)
        for name, other in (("pa", "author"), ("ps", "subject")):
            pairs = ends[name]
            pairs = pairs[(pairs[:, 0] >= start) & (pairs[:, 0] < start + 200)]
            others, place = pairs[:, 1].unique(return_inverse=True)
            data[other].num_nodes = len(others)
            data["paper", "to", other].edge_index = torch.stack([pairs[:, 0] - start, place])
            data[other, "to", "paper"].edge_index = torch.stack([place, pairs[:, 0] - start])
        graphs.append(data)
    return graphs


@cache
def triples(split: str) -> list[list[str]]:
    """Head, relation and tail of each fact about the nations."""
    return [line.split("\t") for line in shared(f"kg/nations/{split}.txt").read_text().splitlines()]


def nation_numbers() -> dict[str, int]:
    names = {end for head, _, tail in triples("train") for end in (head, tail)}
    return {name: number for number, name in enumerate(sorted(names))}


@cache
def nations(folder: Path) -> list[Data]:
    """A graph a relation; its name is a text."""
    number = nation_numbers()
    graphs = []
    for relation in sorted({relation for _, relation, _ in triples("train")}):
        pairs = [(number[head], number[tail]) for head, name, tail in triples("train") if name == relation]
        graphs.append(Data(num_nodes=len(number), edge_index=torch.tensor(pairs).T.contiguous(), relation=relation))
    return graphs


@cache
def nations_by_split() -> list[HeteroData]:
    """The three splits, each relation an edge type; some have none of some."""
    number = nation_numbers()
    graphs = []
    for split in ("train", "valid", "test"):
        data = HeteroData()
        data["nation"].num_nodes = len(number)
        for relation in sorted({relation for _, relation, _ in triples(split)}):
            pairs = [(number[head], number[tail]) for head, name, tail in triples(split) if name == relation]
            data["nation", relation, "nation"].edge_index = torch.tensor(pairs).T.contiguous()
        graphs.append(data)
    return graphs


@cache
def twitch_country(name: str) -> Data:
    """The users of one country, what they play, and whether they use explicit language."""
    folder = shared(f"musae-twitch/{name}")
    target = np.loadtxt(folder / "target.csv", delimiter=",", skiprows=1, dtype=str)
    y = torch.zeros(len(target), dtype=torch.int64)
    y[torch.from_numpy(target[:, 5].astype(np.int64))] = torch.from_numpy((target[:, 2] == "True").astype(np.int64))
    x = torch.zeros(len(y), 3170, dtype=torch.uint8)
    for node, features in json.loads((folder / "features.json").read_text()).items():
        x[int(node), features] = 1
    pairs = torch.from_numpy(np.loadtxt(folder / "edges.csv", delimiter=",", skiprows=1, dtype=np.int64)).T
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), y=y)


@cache
def twitch(folder: Path) -> list[Data]:
    """A hundred users a graph, with the friendships among them, and thirty-two of the features."""
    whole, graphs = twitch_country("PTBR"), []
    for start in range(0, whole.num_nodes, 100):
        nodes: Tensor = torch.arange(start, min(start + 100, whole.num_nodes))
        edge_index, _ = subgraph(nodes, whole.edge_index, relabel_nodes=True, num_nodes=whole.num_nodes)
        graphs.append(Data(x=whole.x[nodes, :32].clone(), edge_index=edge_index, y=whole.y[nodes].clone()))
    return graphs


@cache
def molecule_net(name: str, folder: Path) -> list[Data]:
    """A dataset that needs rdkit."""
    pytest.importorskip("rdkit")
    from torch_geometric.datasets import MoleculeNet

    raw = folder / name.lower() / "raw"
    raw.mkdir(parents=True)
    for path in (shared(f"moleculenet/{name.lower()}") / "raw").iterdir():
        lines = path.read_text().splitlines(keepends=True)
        (raw / path.name).write_text("".join(lines[: _MOST_MOLECULES + 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of molecules without atoms, which PyG leaves out
        return [data.clone() for data in MoleculeNet(str(folder), name)]


REAL: dict[str, Callable[[Path], list[Any]]] = {
    **{name: partial(tu, name) for name in ("MUTAG", "PROTEINS", "ENZYMES", "IMDB-BINARY")},
    **{name: partial(ogb_molecules, name) for name in ("ogbg_molbace", "ogbg_molesol", "ogbg_molfreesolv")},
    "acm": acm,
    "nations": nations,
    "twitch": twitch,
    **{name: partial(molecule_net, name) for name in ("ESOL", "Tox21")},
}
