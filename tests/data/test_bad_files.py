"""Files, recipes and OGB's folders with random damage, given to the command: refused, or read as if whole."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pygsage.config import TrainConfig
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open import open_graph
from pygsage.errors import DatasetError

Refusal = Callable[..., str]
NUM_NODES, NUM_EDGES, NUM_FEATURES = 40, 90, 3


def graph_arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    nodes = np.arange(NUM_NODES)
    return {
        "x": rng.normal(size=(NUM_NODES, NUM_FEATURES)).astype(np.float32),
        "edge_index": rng.integers(0, NUM_NODES, (2, NUM_EDGES)),
        "y": nodes % 3,
        "train_mask": nodes < 20,
        "val_mask": (nodes >= 20) & (nodes < 30),
        "test_mask": nodes >= 30,
    }


def tensors() -> dict[str, Any]:
    return {key: torch.from_numpy(array) for key, array in graph_arrays().items()}


# .npz: bytes


def npz_bytes(compressed: bool, **arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **{**graph_arrays(), **arrays})
    return file.getvalue()


def zip_of(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(array: np.ndarray, old: bytes = b"", new: bytes = b"") -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue().replace(old, new, 1) if old else file.getvalue()


def npz_with_member(key: str, content: bytes) -> bytes:
    return zip_of(**{**{name: npy(array) for name, array in graph_arrays().items()}, key: content})


def of_npz() -> Iterator[tuple[str, bytes]]:
    whole = {kind: npz_bytes(kind == "compressed") for kind in ("plain", "compressed")}
    for (kind, content), share in product(whole.items(), (0.0, 0.01, 0.2, 0.5, 0.8, 0.95, 0.999)):
        yield f"{kind} cut at {share}", content[: int(share * len(content))]
        yield f"{kind} without the first {share + 0.001}", content[int((share + 0.001) * len(content)) :]
    for key, array in graph_arrays().items():
        start = whole["plain"].index(array.tobytes()[:16])
        spoilt = bytearray(whole["plain"])
        spoilt[start + 3] ^= 0x40
        yield f"a bit of {key} turned", bytes(spoilt)
        yield f"{key} cut inside", npz_with_member(key, npy(array)[:-5])
        yield f"{key} is no npy", npz_with_member(key, b"text")
        yield f"{key} empty", npz_with_member(key, b"")
        header = str(array.shape).encode()
        yield f"{key} promises more", npz_with_member(key, npy(array, header, b"(9999,)" + b" " * (len(header) - 7)))
        yield (
            f"{key} promises a lot",
            npz_with_member(key, npy(array, header + b", }         ", b"(99999999999999999,)")),
        )
        yield (
            f"{key} with a negative shape",
            npz_with_member(key, npy(array, header, b"(-4,)" + b" " * (len(header) - 5))),
        )
        yield f"{key} of another version", npz_with_member(key, npy(array, b"\x93NUMPY\x01", b"\x93NUMPY\x09"))
        yield f"{key} of an unknown dtype", npz_with_member(key, npy(array, b"'descr': '", b"'descr': 'q"))
        yield f"{key} as a pickle", npz_bytes(False, **{key: np.array([{}, None], dtype=object)})
    for method, name in ((1, "shrunk"), (99, "encrypted")):
        strange = bytearray(whole["plain"])
        for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            position = strange.find(mark)
            while position >= 0:
                strange[position + offset] = method
                position = strange.find(mark, position + 4)
        yield f"a zip {name}", bytes(strange)
    yield "a single array", npy(np.ones(3))
    yield "an empty zip", zip_of()
    yield "text", b"x,y\n1,2\n"
    yield "a pickle", pickle.dumps({"x": [1]})
    yield "gzip", gzip.compress(b"text")
    yield "zeros", bytes(5000)


NPZ = dict(of_npz())


@pytest.mark.parametrize("name", NPZ)
def test_c012_a_damaged_npz_is_refused(name: str, tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "graph.npz").write_bytes(NPZ[name])
    said = refusal("graph.npz")
    assert "graph.npz" in said
    assert "expected" in said


def test_any_byte_changed_is_refused_or_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    whole = npz_bytes(True)
    path.write_bytes(whole)
    wanted = open_graph(TrainConfig(dataset=str(path))).arrays()
    rng, refused = np.random.default_rng(1), 0
    for position in rng.choice(len(whole), 150, replace=False):
        spoilt = bytearray(whole)
        spoilt[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(spoilt)
        try:
            found = open_graph(TrainConfig(dataset=str(path))).arrays()
        except DatasetError as error:
            refused += str(path) in error.found
        else:
            # A name that changed is a split that is missing; all else has a checksum.
            assert all(torch.equal(array, wanted[name]) for name, array in found.items()), position
    assert refused > 100


# .pt


def pt_bytes(held: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(held, file, **options)
    return file.getvalue()


class Mine:
    """A class that only this file has."""


def hetero() -> HeteroData:
    return HeteroData({"paper": {"x": torch.ones(2, 2)}, "author": {"x": torch.ones(2, 2)}})


def of_pt() -> Iterator[tuple[str, str, Callable[[], bytes]]]:
    for share in (0.0, 0.1, 0.5, 0.9, 0.99):
        for new in (True, False):
            yield (
                f"{'new' if new else 'old'} cut at {share}",
                "cut short or damaged" if share and new else "",
                lambda s=share, n=new: (b := pt_bytes(tensors(), _use_new_zipfile_serialization=n))[: int(s * len(b))],
            )
    held: dict[str, tuple[str, Callable[[], Any]]] = {
        "HeteroData": ("is heterogeneous (node types paper, author)", hetero),
        "a list of HeteroData": ("is heterogeneous", lambda: [hetero()]),
        "two graphs": ("holds 2 graphs", lambda: [Data(**tensors()), Data(**tensors())]),
        "no graph": ("holds 0 graphs", list),
        "a tensor": ("holds a Tensor", lambda: torch.ones(3)),
        "a number": ("holds a int", lambda: 3),
        "nothing": ("holds a NoneType", lambda: None),
        "text": ("holds a str", lambda: "x"),
        "an empty dict": ("without x, edge_index, y", dict),
        "weights of a model": ("without x, edge_index, y", lambda: torch.nn.Linear(2, 2).state_dict()),
        "a model": ("can run code when it is read", lambda: torch.nn.Linear(2, 2)),
        "a class of the user's": ("can run code when it is read", Mine),
        "an empty Data": ("has no x", Data),
        "Data with only num_nodes": ("has no x", lambda: Data(num_nodes=5)),  # C023
        "an array of numpy": ("can run code when it is read", lambda: {**tensors(), "x": np.ones((2, 2))}),
    }
    for name, (says, make) in held.items():
        yield name, says, lambda make=make: pt_bytes(make())
    parts: dict[str, dict[str, Callable[[], Any]]] = {
        "x": {
            "sparse in three dimensions": lambda: torch.ones(NUM_NODES, 2, 2).to_sparse(),
            "quantized": lambda: torch.quantize_per_tensor(torch.ones(NUM_NODES, 2), 0.1, 0, torch.qint8),
            "of complex numbers": lambda: torch.ones(NUM_NODES, 2, dtype=torch.complex64),
            "a list": lambda: [[1.0]] * NUM_NODES,
            "a number": lambda: 1.0,
            "nothing": lambda: None,
            "sparse and not finite": lambda: (
                (torch.eye(NUM_NODES) * torch.nan).nan_to_num(0.0).fill_diagonal_(torch.inf).to_sparse()
            ),
            "without rows": lambda: torch.ones(0, 3),
            "on no device": lambda: torch.ones(NUM_NODES, 2, device="meta"),
        },
        "edge_index": {
            "sparse": lambda: torch.eye(NUM_NODES).to_sparse(),
            "sparse of csr": lambda: torch.eye(2, 50).to_sparse_csr(),
            "a list": lambda: [[0, 1], [1, 2]],
            "of floats": lambda: torch.ones(2, 9),
            "of bool": lambda: torch.ones(2, 9, dtype=torch.bool),
            "transposed": lambda: torch.ones(9, 2, dtype=torch.int64),
            "beyond": lambda: torch.full((2, 9), NUM_NODES),
            "on no device": lambda: torch.ones(2, 9, device="meta", dtype=torch.int64),
        },
        "y": {
            "sparse": lambda: torch.ones(NUM_NODES).to_sparse(),
            "sparse, of several": lambda: torch.ones(NUM_NODES, 2).to_sparse(),
            "of complex numbers": lambda: torch.ones(NUM_NODES, dtype=torch.complex64),
            "a list": lambda: [0] * NUM_NODES,
            "a number": lambda: 3,
            "a single tensor": lambda: torch.tensor(1),  # C021
            "of another length": lambda: torch.ones(7, dtype=torch.int64),
            "on no device": lambda: torch.ones(NUM_NODES, device="meta", dtype=torch.int64),
        },
        **{
            f"{split}_mask": {
                "a list": lambda: [True] * NUM_NODES,
                "sparse": lambda: torch.ones(NUM_NODES).to_sparse(),
                "short": lambda: torch.ones(3, dtype=torch.bool),
                "text": lambda: "all",
                "a single tensor": lambda: torch.tensor(True),
                "on no device": lambda: torch.ones(NUM_NODES, device="meta", dtype=torch.bool),
            }
            for split in ("train", "val", "test")
        },
    }
    for key, values in parts.items():
        for (name, make), kind in product(values.items(), (dict, Data)):
            yield (
                f"{key} {name} in a {kind.__name__}",
                key,
                lambda key=key, make=make, kind=kind: pt_bytes(kind(**{**tensors(), key: make()})),
            )
    adj_t = {"edge_index": None, "adj_t": torch.ones(NUM_NODES, 1)}
    yield "adj_t", "has adj_t and no edge_index", lambda: pt_bytes({**tensors(), **adj_t})  # C028


PT = {name: (says, make) for name, says, make in of_pt()}


@pytest.mark.parametrize("name", PT)
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch: sparse CSR is in beta
def test_a_damaged_pt_is_refused(name: str, tmp_path: Path, refusal: Refusal) -> None:
    says, make = PT[name]
    (tmp_path / "graph.pt").write_bytes(make())
    said = refusal("graph.pt")
    assert "graph.pt" in said
    assert says in said
    assert "expected" in said


# Cases


@pytest.mark.parametrize("y", [torch.tensor(1), torch.tensor([1]), 1, True, 2.5])
def test_c021_a_label_of_the_whole_graph_is_refused(y: Any, tmp_path: Path, refusal: Refusal) -> None:
    torch.save(Data(**{**tensors(), "y": y}), tmp_path / "graph.pt")
    said = refusal("graph.pt")
    assert "graph.pt: y is" in said
    assert "expected one label a node" in said or "expected a tensor" in said


def test_c024_a_file_without_a_graph_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    torch.save([], tmp_path / "graph.pt")
    assert "graph.pt holds 0 graphs; expected one graph with node labels" in refusal("graph.pt")


def test_c030_a_graph_that_was_opened_cannot_be_changed_by_accident(tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", **graph_arrays())
    graph = open_graph(TrainConfig(dataset=str(tmp_path / "graph.npz")))
    with pytest.raises(FrozenInstanceError):
        graph.y = torch.zeros(NUM_NODES, dtype=torch.int64)  # type: ignore[misc]
    graph.save(tmp_path / "graph")
    opened = Graph.open(tmp_path / "graph")
    opened.y[:] = 0  # a mapping of its own
    assert torch.equal(Graph.open(tmp_path / "graph").y, graph.y)


def test_how_many_there_are() -> None:
    print(f"{len({*NPZ, *PT})} distinct bad files")
    assert len({*NPZ, *PT}) >= 150
