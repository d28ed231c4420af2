"""Graphs that look odd and are right: what is opened is compared with what plain Python makes of the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from pygsage.config import TrainConfig
from pygsage.data.one_graph.graph import Graph
from pygsage.data.open import graph_from_data, open_graph

Arrays = dict[str, Any]
SPLITS = ("train", "val", "test")


def random_graph(rng: np.random.Generator) -> Arrays:
    """1 to 30 nodes and any edges, duplicates and loops among them; some nodes without neighbours, some in no split."""
    num_nodes = int(rng.integers(1, 31))
    part = rng.integers(0, 4, num_nodes)
    part[0] = 0
    return {
        "x": rng.integers(0, 100, (num_nodes, int(rng.integers(1, 5)))).astype(np.float32),
        "edge_index": rng.integers(0, num_nodes, (2, int(rng.integers(0, 4 * num_nodes)))),
        "y": rng.integers(0, 3, num_nodes),
        **{f"{name}_mask": part == number for number, name in enumerate(SPLITS)},
    }


def brute_force(arrays: Arrays) -> dict[str, Any]:
    """In-neighbours of each node in the order of the edge list, and all else, as plain lists."""
    x, edges, y = (np.asarray(arrays[key]) for key in ("x", "edge_index", "y"))
    pairs = list(zip(*edges.reshape(2, -1).astype(int).tolist(), strict=True)) if edges.size else []
    of = [[(source, edge) for edge, (source, target) in enumerate(pairs) if target == node] for node in range(len(x))]
    splits = {}
    for name in SPLITS:
        if f"{name}_idx" in arrays:
            ids = arrays[f"{name}_idx"].astype(int).ravel().tolist()
        else:
            ids = [node for node, inside in enumerate(arrays[f"{name}_mask"].ravel().tolist()) if inside]
        if ids:
            splits[name] = ids
    labels = [int(value) if value == value and value >= 0 else -1 for value in y.ravel().tolist()]
    return {
        "x": [[float(np.float32(value)) for value in row] for row in x.tolist()],
        "neighbors": of,
        "y": labels,
        "splits": splits,
        "num_classes": max(labels) + 1,
    }


def as_lists(graph: Graph) -> dict[str, Any]:
    ends, sources, edges = graph.indptr.tolist(), graph.indices.tolist(), graph.edge_id.tolist()
    of = [list(zip(sources[s:e], edges[s:e], strict=True)) for s, e in pairwise(ends)]
    return {
        "x": graph.x.tolist(),
        "neighbors": of,
        "y": graph.y.tolist(),
        "splits": {name: ids.tolist() for name, ids in graph.splits.items()},
        "num_classes": graph.num_classes,
    }


def cast(key: str, dtype: str) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({key: arrays[key].astype(dtype)})


def each(keys: tuple[str, ...], make: Callable[[Any], Any]) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({key: make(arrays[key]) for key in keys})


ALL = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
MASKS = ALL[3:]


def as_ids(arrays: Arrays) -> None:
    for name in SPLITS:
        arrays[f"{name}_idx"] = arrays.pop(f"{name}_mask").nonzero()[0][::-1]


def fewer(num_nodes: int) -> Callable[[Arrays], None]:
    """Keeps the first nodes, all in the training split, and none of the edges."""

    def change(arrays: Arrays) -> None:
        arrays.update({key: arrays[key][:num_nodes] for key in ALL if key != "edge_index"})
        arrays["edge_index"] = np.zeros((2, 0), np.int64)

    return change


def no_label_outside(arrays: Arrays) -> None:
    inside = sum(arrays[key].astype(int) for key in MASKS)
    arrays["y"] = np.where(inside > 0, arrays["y"], np.nan)


def spread(array: np.ndarray) -> np.ndarray:
    """The same values, every second cell of a larger array."""
    large = np.zeros([2 * size for size in array.shape], array.dtype)
    view = large[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def locked(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


ODD: dict[str, Callable[[Arrays], None]] = {
    "as they are": lambda _: None,
    **{f"edges of {t}": cast("edge_index", t) for t in ("u1", "i1", "i2", "u2", "i4", "u4", "u8", ">i4", ">i8", ">u2")},
    **{f"x of {t}": cast("x", t) for t in ("f2", "f8", "g", ">f4", ">f8", "i1", "u1", "i4", "u8", "bool", ">i2")},
    **{f"y of {t}": cast("y", t) for t in ("u1", "i1", "i4", "u4", "f2", "f4", "f8", ">i8", ">f4")},
    **{f"masks of {t}": each(MASKS, lambda m, t=t: m.astype(t)) for t in ("u1", "i4", "i8", ">i4", "u8")},
    "a column of labels": each(("y",), lambda y: y[:, None]),
    "a column of masks": each(MASKS, lambda m: m[:, None]),
    "ids for masks": as_ids,
    "ids of uint8": lambda arrays: (
        as_ids(arrays),
        each(tuple(f"{n}_idx" for n in SPLITS), lambda i: i.astype("u1"))(arrays),
    )[0],
    "Fortran order": each(ALL, np.asfortranarray),
    "reversed in memory": each(ALL, lambda a: a[::-1].copy()[::-1]),
    "every second cell": each(ALL, spread),
    "read-only": each(ALL, locked),
    "no edges": each(("edge_index",), lambda e: e[:, :0]),
    "no edges, of floats": each(("edge_index",), lambda e: e[:, :0].astype("f4")),
    "no edges, flat": each(("edge_index",), lambda e: e[0, :0]),
    "a single node": fewer(1),
    "loops only": each(("edge_index",), lambda e: np.stack([e[0], e[0]])),
    "every edge twice": each(("edge_index",), lambda e: np.concatenate([e, e], 1)),
    "one target": each(("edge_index",), lambda e: np.stack([e[0], e[0] * 0])),
    "one class": each(("y",), lambda y: y * 0),
    "a class without nodes": each(("y",), lambda y: y * 2),
    "no label outside the splits": no_label_outside,
    "zeros": each(("x",), lambda x: x * 0),
    "large numbers": each(("x",), lambda x: (x.astype("f8") + 1) * 1e36),
    "small numbers": each(("x",), lambda x: (x.astype("f8") + 1) * 1e-300),
}


@pytest.mark.parametrize("name", ODD)
def test_a_file_is_what_plain_python_makes_of_it(name: str, tmp_path: Path) -> None:
    for seed in range(4):
        arrays = random_graph(np.random.default_rng(seed))
        if name == "x of bool":
            arrays["x"] = arrays["x"] % 2
        ODD[name](arrays)
        np.savez(tmp_path / "graph.npz", **arrays)
        graph = open_graph(TrainConfig(dataset=str(tmp_path / "graph.npz")))
        assert as_lists(graph) == brute_force(arrays)
        assert all(tensor.is_contiguous() for tensor in graph.arrays().values())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), names=st.lists(st.sampled_from(sorted(set(ODD) - {"x of bool"})), max_size=3))
def test_oddities_add_up(seed: int, names: list[str], tmp_path: Path) -> None:
    arrays = random_graph(np.random.default_rng(seed))
    for name in names:
        try:
            ODD[name](arrays)
        except (KeyError, IndexError):
            return  # such as ids for masks, twice
        if any(isinstance(array, np.ndarray) and array.ndim > 2 for array in arrays.values()):
            return
    np.savez(tmp_path / "graph.npz", **arrays)
    graph = open_graph(TrainConfig(dataset=str(tmp_path / "graph.npz")))
    assert as_lists(graph) == brute_force(arrays)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_graph_of_the_api_is_what_plain_python_makes_of_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = random_graph(rng)
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    odd = {
        "x": [
            lambda x: x.t().contiguous().t(),
            lambda x: x.requires_grad_(),
            lambda x: x.to_sparse(),
            lambda x: x.half(),
        ],
        "edge_index": [lambda e: e.t().contiguous().t(), lambda e: e.int(), lambda e: e.to(torch.int16)],
        "y": [lambda y: y.unsqueeze(1), lambda y: y.float(), lambda y: y.to(torch.uint8)],
        "train_mask": [lambda m: m.unsqueeze(1), lambda m: m.to(torch.uint8)],
    }
    for key, changes in odd.items():
        tensors[key] = changes[int(rng.integers(len(changes)))](tensors[key])
    assert as_lists(graph_from_data(Data(**tensors), TrainConfig(dataset="odd"))) == brute_force(arrays)
