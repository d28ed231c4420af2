"""A graph in one file."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from pygsage.data.names import parse_reference
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.sources.npz import read_npz
from pygsage.errors import DatasetError

Write = Callable[..., Path]


def read(path: Path) -> RawGraph:
    return read_npz(parse_reference(str(path)))


def refused(path: Path, said: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        read(path)
    assert str(path) in caught.value.found


def test_the_arrays_come_as_they_are(ring_npz: Write, raw: Callable[..., RawGraph]) -> None:
    graph, ring = read(ring_npz()), raw()
    assert torch.equal(graph.x, ring.x)
    assert torch.equal(graph.edge_index, ring.edge_index)
    assert torch.equal(graph.y, ring.y)
    assert {key: value.tolist() for key, value in graph.splits.items()} == {
        key: value.tolist() for key, value in ring.splits.items()
    }
    assert graph.notes == []


@pytest.mark.parametrize("dtype", ["<u2", "<u4", "<u8", ">i4", ">i8", ">u2"])
def test_integers_that_torch_lacks_are_widened(ring_npz: Write, raw: Callable[..., RawGraph], dtype: str) -> None:
    edges = raw().edge_index.numpy()
    assert read(ring_npz(edge_index=edges.astype(dtype))).edge_index.tolist() == edges.tolist()


@pytest.mark.parametrize("dtype", [">f4", ">f8", "g", "f2"])
def test_floats_that_torch_lacks_are_converted(ring_npz: Write, raw: Callable[..., RawGraph], dtype: str) -> None:
    x = raw().x.numpy()
    assert read(ring_npz(x=x.astype(dtype))).x.tolist() == x.tolist()


def test_numbers_beyond_int64_are_refused(ring_npz: Write) -> None:
    refused(ring_npz(y=np.full(6, 2**64 - 1, dtype=np.uint64)), "y holds 18446744073709551615")


def test_fortran_order_reads_the_same(ring_npz: Write) -> None:
    x = np.asfortranarray(np.arange(12.0).reshape(6, 2))
    assert read(ring_npz(x=x)).x.tolist() == x.tolist()


def test_arrays_that_are_not_needed_are_not_read(ring_npz: Write) -> None:
    evil = np.array([print, None], dtype=object)
    graph = read(ring_npz(edge_attr=evil, edge_weight=np.ones(6), year=evil))
    assert graph.notes == ["Not used: edge_attr, edge_weight, year."]


@pytest.mark.parametrize("key", ["x", "edge_index", "y", "train_mask"])
def test_c026_an_array_of_objects_is_refused_unread(ring_npz: Write, key: str) -> None:
    ragged = np.array([[1], [1, 2]], dtype=object)
    refused(ring_npz(**{key: ragged}), f"{key} is an array of Python objects, which can run code")


def test_text_is_refused_with_the_cure(ring_npz: Write) -> None:
    refused(ring_npz(y=np.array(list("abcabc"))), "y is text; expected numbers. Number the classes with numpy.unique(y")
    refused(ring_npz(y=np.zeros(6, dtype="datetime64[s]")), "y is of dtype datetime64[s]; expected numbers")


@pytest.mark.parametrize("key", ["x", "edge_index", "y"])
def test_a_missing_array_is_named(ring_npz: Write, key: str) -> None:
    refused(ring_npz(**{key: None}), f"has no {key}; found")


@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_a_matrix_of_scipys_is_recognised(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "adjacency.npz"
    scipy.sparse.save_npz(path, scipy.sparse.eye(4, format=layout))
    with pytest.raises(DatasetError, match=r"sparse matrix of scipy's.*scipy\.sparse\.load_npz") as caught:
        read_npz(parse_reference(str(path)))
    code = caught.value.advice.partition("edge_index=")[2].partition(", x=")[0]
    edges = eval(code, {"numpy": np, "scipy": scipy})
    np.testing.assert_array_equal(edges, [[0, 1, 2, 3]] * 2)


def test_names_that_are_nearly_right_are_recognised(ring_npz: Write) -> None:
    edges = np.zeros((2, 1), dtype=np.int64)
    refused(ring_npz(edge_index=None, edge_idx=edges), "Is edge_idx meant? Store it as edge_index.")
    for name in ("valid_mask", "val_maks", "val_ids"):
        refused(ring_npz(val_mask=None, **{name: np.zeros(6, dtype=bool)}), f"has {name}, which is not a name")
    refused(ring_npz(train_mask=None, train=np.arange(2)), "Store it as train_mask (true or false a node) or train_idx")


def test_the_layout_of_gnn_benchmark_is_recognised(ring_npz: Write) -> None:
    arrays = dict.fromkeys(("adj_indptr", "attr_indptr", "labels"), np.zeros(1))
    refused(ring_npz(x=None, edge_index=None, y=None, **arrays), "layout of gnn-benchmark")


def test_no_keys_at_all(tmp_path: Path) -> None:
    np.savez(tmp_path / "empty.npz")
    refused(tmp_path / "empty.npz", "has no x; found nothing")


def test_c012_a_compressed_file_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "small.npz"
    np.savez_compressed(path, x=np.zeros((1000, 50)), edge_index=np.zeros((2, 0)), y=np.zeros(1000, dtype=int))
    assert path.stat().st_size < 10_000
    assert read(path).x.shape == (1000, 50)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_file_cut_short_is_refused(ring_npz: Write, share: float) -> None:
    path = ring_npz()
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refused(path, "is damaged or cut short")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_file_with_wrong_bytes_is_refused(tmp_path: Path, save: Callable[..., None]) -> None:
    path = tmp_path / "broken.npz"
    x = np.random.default_rng(0).random((100, 8))
    save(path, x=x, edge_index=np.zeros((2, 1), dtype=int), y=np.zeros(100, dtype=int))
    content = bytearray(path.read_bytes())
    content[2000:2100] = bytes(100)
    path.write_bytes(content)
    refused(path, "x is damaged or cut short")


def test_a_header_that_promises_more_than_there_is_is_refused(ring_npz: Write) -> None:
    path = ring_npz(x=None)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (9, 9), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8))
    refused(path, "x is damaged or cut short")


def test_other_files_called_npz_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(b"")
    refused(path, "is not an .npz file")
    path.write_text("x,y\n1,2\n")
    refused(path, "is not an .npz file")
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    refused(path, "holds a single array")
    torch.save({"x": torch.ones(2)}, path)
    refused(path, "has no x; found")


def test_a_file_that_cannot_be_read_is_refused(ring_npz: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ring_npz()

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pygsage.data.sources.npz.np.load", denied)
    refused(path, "cannot be read: Permission denied")
