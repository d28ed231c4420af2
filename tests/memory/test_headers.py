from __future__ import annotations

import builtins
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from pygsage import to_on_disk_dataset
from pygsage.errors import DatasetError
from pygsage.memory.headers import ITEM_BYTES, Header, read_npy, read_npz, read_pt
from pygsage.memory.shapes import shape_of


@pytest.mark.parametrize("dtype", [name for name in ITEM_BYTES if name != "bfloat16"])
def test_the_header_of_an_npy_file(tmp_path: Path, dtype: str) -> None:
    array = np.zeros((3, 4), dtype)
    np.save(tmp_path / "x.npy", array)
    header = read_npy(tmp_path / "x.npy")
    assert (header.shape, header.dtype, header.num_bytes) == ((3, 4), dtype, array.nbytes)


def test_arrays_of_an_npz_are_found_where_they_lie(tmp_path: Path) -> None:
    x = np.arange(12.0).reshape(3, 4)
    np.savez(tmp_path / "g.npz", x=x, y=np.array([1, 2, 3]))
    np.savez_compressed(tmp_path / "c.npz", x=x)
    found = read_npz(tmp_path / "g.npz")
    content = (tmp_path / "g.npz").read_bytes()
    start = found["x"].offset
    assert start is not None
    assert content[start : start + x.nbytes] == x.tobytes()
    assert read_npz(tmp_path / "c.npz")["x"] == Header("x", (3, 4), "float64", None)


def test_c008_headers_are_read_and_not_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB of random numbers: a few kilobytes of the file are read."""
    path = tmp_path / "g.npz"
    x = np.frombuffer(np.random.default_rng(0).bytes(16 << 20), np.uint8).reshape(1 << 14, 1 << 10)
    np.savez(path, x=x, edge_index=np.zeros((2, 0), np.int64), y=np.zeros(1 << 14))
    read = 0

    class Counted:
        def __init__(self, file: object) -> None:
            self.file = file

        def read(self, *size: int) -> bytes:
            nonlocal read
            content: bytes = self.file.read(*size)  # type: ignore[attr-defined]
            read += len(content)
            return content

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

        def __enter__(self) -> Counted:
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()  # type: ignore[attr-defined]

    real = builtins.open
    for module in ("pygsage.memory.headers", "zipfile"):
        monkeypatch.setattr(f"{module}.open", lambda *a, **k: Counted(real(*a, **k)), raising=False)
    monkeypatch.setattr("zipfile.io.open", lambda *a, **k: Counted(real(*a, **k)))
    assert read_npz(path)["x"].num_bytes == 16 << 20
    assert 0 < read < 200_000


def test_c008_no_form_of_a_dataset_is_read_to_know_its_size(tmp_path: Path) -> None:
    """16 MiB of features in each: an array, a graph, many graphs, and the folders of a PyG class and of a store."""
    x, edges = torch.zeros(1 << 14, 1 << 8), torch.zeros(2, 100, dtype=torch.int64)
    graph = Data(x=x, edge_index=edges, y=torch.zeros(len(x), dtype=torch.int64))
    np.save(tmp_path / "x.npy", x.numpy())
    torch.save(graph, tmp_path / "one.pt")
    small = [Data(x=part, edge_index=edges, y=torch.tensor([0])) for part in x.split(1 << 10)]
    processed = tmp_path / "folder" / "processed"
    processed.mkdir(parents=True)
    InMemoryDataset.save(small, str(processed / "data.pt"))
    to_on_disk_dataset(small, tmp_path / "store")
    for name, num_graphs in (("x.npy", 1), ("one.pt", 1), ("folder", 16), ("store", 16)):
        before = bytes_read()
        shape = shape_of(str(tmp_path / name))
        assert bytes_read() - before < 400_000, name
        assert (shape.num_graphs, shape.x_bytes) == (num_graphs, 16 << 20), name


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def test_c012_a_small_file_says_nothing_of_what_it_becomes(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros((200_000, 250), np.float32))
    assert path.stat().st_size < 300_000
    assert read_npz(path)["x"].num_bytes == 200_000_000


def test_files_that_are_damaged_or_hold_objects(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    (tmp_path / "b.npy").write_bytes(b"nothing")
    np.savez(tmp_path / "c.npz", x=np.array([None, 1], dtype=object))
    np.savez(tmp_path / "d.npz", x=np.array(["a"]))
    for name in ("a.npz", "c.npz", "d.npz", "none.npz"):
        with pytest.raises(DatasetError):
            read_npz(tmp_path / name)
    with pytest.raises(DatasetError):
        read_npy(tmp_path / "b.npy")


@pytest.fixture
def data() -> Data:
    return Data(
        x=torch.zeros(10, 3, dtype=torch.float64), edge_index=torch.zeros(2, 20, dtype=torch.long), y=torch.zeros(10)
    )


def test_a_pt_file_of_one_graph(tmp_path: Path, data: Data) -> None:
    torch.save(data, tmp_path / "data.pt")
    torch.save({"x": data.x, "edge_index": data.edge_index}, tmp_path / "dict.pt")
    found = read_pt(tmp_path / "data.pt")
    assert {n: (h.shape, h.dtype) for n, h in found.items()} == {
        "x": ((10, 3), "float64"), "edge_index": ((2, 20), "int64"), "y": ((10,), "float32")
    }  # fmt: skip
    assert set(read_pt(tmp_path / "dict.pt")) == {"x", "edge_index"}


def test_a_pt_file_of_many_graphs(tmp_path: Path, data: Data) -> None:
    joined, slices = InMemoryDataset.collate([data] * 7)
    torch.save((joined.to_dict(), slices, Data), tmp_path / "processed.pt")
    found = read_pt(tmp_path / "processed.pt")
    assert (found["0.x"].shape, found["1.edge_index"].shape) == ((70, 3), (8,))
    torch.save([data, data], tmp_path / "list.pt")
    assert read_pt(tmp_path / "list.pt")["1.x"].shape == (10, 3)


def test_a_pt_file_of_a_heterogeneous_graph(tmp_path: Path) -> None:
    graph = HeteroData()
    graph["paper"].x = torch.zeros(5, 2)
    graph["paper", "cites", "paper"].edge_index = torch.zeros(2, 4, dtype=torch.long)
    torch.save(graph, tmp_path / "h.pt")
    shapes = sorted(h.shape for h in read_pt(tmp_path / "h.pt").values())
    assert shapes == [(2, 4), (5, 2)]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (eval, ("1 / 0",))


def test_a_pt_file_runs_no_code(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.pt", "w") as archive:
        archive.writestr("evil/data.pkl", pickle.dumps({"x": Evil()}, protocol=2))
    assert read_pt(tmp_path / "evil.pt") == {}


@pytest.mark.parametrize("content", [b"nothing", b""])
def test_a_pt_file_of_another_format(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "old.pt").write_bytes(content)
    with pytest.raises(DatasetError, match="Type the numbers"):
        read_pt(tmp_path / "old.pt")


def test_a_damaged_pickle_is_the_files_fault(tmp_path: Path) -> None:
    for number, pickled in enumerate((b"\x80\x02}q\x00", b"\x80\x02a.", b"\x80\x02h\x05.", b"garbage")):
        path = tmp_path / f"{number}.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/data.pkl", pickled)
        with pytest.raises(DatasetError, match="damaged"):
            read_pt(path)
