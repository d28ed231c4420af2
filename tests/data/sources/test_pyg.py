"""PyG's own classes: what is taken, what is refused, and when the network is touched."""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric import datasets
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.transforms import NormalizeFeatures

from pygsage.data.names import parse_reference
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.sources.pyg import read_pyg
from pygsage.errors import DatasetError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test writes to the user's cache or reaches the network."""

    def no_network(*_: Any, **__: Any) -> None:
        raise OSError("the network was asked")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def read(text: str, root: Path | str | None = None, *, offline: bool = True) -> RawGraph:
    return read_pyg(parse_reference(text), None if root is None else str(root), offline=offline)


def refused(said: str, text: str, root: Path | str | None = None, *, offline: bool = True) -> None:
    with pytest.raises(DatasetError, match=re.escape(said)):
        read(text, root, offline=offline)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], str]:
    """Puts a class among PyG's and returns the name to type."""

    def add(made: type) -> str:
        monkeypatch.setattr(datasets, made.__name__, made, raising=False)
        monkeypatch.setattr(datasets, "__all__", [*datasets.__all__, made.__name__])
        return f"pyg:{made.__name__}"

    return add


class Remote(InMemoryDataset):
    """Two raw files to download, one graph to process."""

    broken_after = 2
    downloads: list[str] = []  # noqa: RUF012

    def __init__(self, root: str, name: str = "a") -> None:
        self.name = name
        super().__init__(root)
        self.load(self.processed_paths[0])

    @property
    def raw_dir(self) -> str:
        return f"{self.root}/{self.name}/raw"

    @property
    def processed_dir(self) -> str:
        return f"{self.root}/{self.name}/processed"

    @property
    def raw_file_names(self) -> list[str]:
        return ["0.txt", "1.txt"]

    @property
    def processed_file_names(self) -> str:
        return "data.pt"

    def download(self) -> None:
        self.downloads.append(self.name)
        for number, name in enumerate(self.raw_file_names):
            if number == self.broken_after:
                raise ConnectionError("the line was cut")
            Path(self.raw_dir, name).write_text("raw")

    def process(self) -> None:
        print("Processing on standard output")
        assert Path(self.raw_paths[1]).read_text() == "raw"
        mask = torch.tensor([True, False, False])
        edges = torch.tensor([[0, 1], [1, 2]])
        self.save(
            [Data(x=torch.eye(3), edge_index=edges, y=torch.tensor([0, 1, 0]), train_mask=mask)],
            self.processed_paths[0],
        )


def fresh(**settings: Any) -> type[Remote]:
    return type("Remote", (Remote,), {"downloads": [], **settings})


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


# Names and arguments


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pyg:Cora", "Did you mean pyg:Planetoid/Cora?"),
        ("pyg:computers", "Did you mean pyg:Amazon/Computers?"),
        ("pyg:Planetiod/Cora", "no class Planetiod; expected one such as Planetoid, Amazon"),
        ("pyg:Planetiod/Cora", "Did you mean Planetoid?"),
        ("pyg:planetoid/Cora", "Did you mean Planetoid?"),
        ("pyg:graph_generator", "no class graph_generator"),
        ("pyg:Planetoid", "Type pyg:Planetoid/NAME"),
        ("pyg:Reddit/Cora", "Reddit takes no name; found Cora. Type pyg:Reddit."),
        ("pyg:UPFD/politifact", "UPFD wants to be told feature"),
        ("pyg:StochasticBlockModelDataset", "wants to be told block_sizes, edge_probs"),
    ],
)
def test_a_wrong_name_is_refused_and_makes_no_folder(cache: Path, text: str, said: str) -> None:
    refused(said, text, offline=False)
    assert not cache.exists()


def test_a_root_that_is_missing_or_without_use_is_refused(tmp_path: Path) -> None:
    refused("is not a folder; expected one with the files of Planetoid", "pyg:Planetoid/Cora", tmp_path / "no")
    refused("KarateClub reads no files. Leave --root out.", "pyg:KarateClub", tmp_path)
    assert not (tmp_path / "no").exists()


def test_a_class_without_files_works() -> None:
    raw = read("pyg:KarateClub")
    assert raw.x.shape == (34, 34)
    assert list(raw.splits) == ["train_mask"]


def test_a_class_that_draws_its_graph_draws_the_same_one() -> None:
    torch.manual_seed(5)
    random.seed(5)
    first, drawn = read("pyg:FakeDataset"), (torch.rand(1), random.random())
    torch.manual_seed(5)
    random.seed(5)
    assert drawn == (torch.rand(1), random.random())
    assert torch.equal(first.edge_index, read("pyg:FakeDataset").edge_index)


# The network


def test_offline_never_downloads(cache: Path, serve: Callable[[type], str]) -> None:
    made = fresh()
    refused("1 more missing, and --offline is on. Leave --offline out", serve(made))
    assert made.downloads == []
    assert not cache.exists()
    refused("ind.cora.x and 7 more missing", "pyg:Planetoid/Cora")
    assert not cache.exists()


def test_offline_names_the_folder_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "Cora").mkdir()
    refused("Did you mean pyg:Planetoid/Cora?", "pyg:Planetoid/cora", tmp_path)
    refused("Did you mean pyg:Planetoid/Cora?", "pyg:Planetoid/Corra", tmp_path)


def test_a_download_lands_in_the_cache_and_is_used_again(
    cache: Path, serve: Callable[[type], str], capsys: pytest.CaptureFixture[str]
) -> None:
    made = fresh()
    text = serve(made)
    raw = read(f"{text}/b", offline=False)
    assert raw.x.shape == (3, 3)
    home = cache / "pygsage" / "pyg" / "Remote"
    assert {"b/raw/0.txt", "b/raw/1.txt", "b/processed/data.pt"} <= set(files(home))
    assert [p.name for p in home.iterdir()] == ["b"]
    assert capsys.readouterr().out == ""
    read(f"{text}/b", offline=True)
    assert made.downloads == ["b"]
    for path in (home / "b" / "raw").iterdir():
        path.unlink()
    read(f"{text}/b", offline=True)  # what was processed is enough
    assert made.downloads == ["b"]


def test_a_download_that_fails_leaves_nothing(cache: Path, tmp_path: Path, serve: Callable[[type], str]) -> None:
    text = serve(fresh(broken_after=1))
    refused(
        "pyg:Remote could not be downloaded: ConnectionError: the line was cut. Check the name", text, offline=False
    )
    assert not cache.exists()
    root = tmp_path / "mine"
    (root / "a" / "raw").mkdir(parents=True)
    (root / "a" / "raw" / "0.txt").write_text("raw")
    refused("could not be downloaded", text, root, offline=False)
    assert files(root) == ["a/raw/0.txt"]


def test_a_name_that_cannot_be_downloaded_leaves_nothing(cache: Path) -> None:
    refused("could not be downloaded: OSError: the network was asked", "pyg:Amazon/Photo", offline=False)
    assert not cache.exists()


def test_a_failure_while_processing_leaves_no_half_file(cache: Path, serve: Callable[[type], str]) -> None:
    class Failing(Remote):
        def process(self) -> None:
            Path(self.processed_paths[0]).write_bytes(b"half")
            raise RuntimeError("disk\nfull")

    text = serve(Failing)
    refused("pyg:Failing could not be read: RuntimeError: disk full. Check the name", text, offline=False)
    assert files(cache / "pygsage" / "pyg" / "Failing") == ["a/raw/0.txt", "a/raw/1.txt"]


def test_two_first_runs_at_once_download_and_process_once(
    serve: Callable[[type], str],
) -> None:
    """The second finds the folder locked, waits, and then finds everything there."""
    told, go, ended = os.pipe(), os.pipe(), []

    class Slow(Remote):
        def process(self) -> None:
            os.write(told[1], b"p")
            os.read(go[0], 1)
            super().process()

        def download(self) -> None:
            os.write(told[1], b"d")
            super().download()

    text = serve(Slow)
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if read(text, offline=False).x.shape == (3, 3) else 1)
            finally:
                os._exit(2)
        ended.append(pid)
    assert os.read(told[0], 1) + os.read(told[0], 1) == b"dp"
    os.write(go[1], b"gg")  # for a second one too, so that it fails and does not hang
    assert [os.waitpid(pid, 0)[1] for pid in ended] == [0, 0]
    os.set_blocking(told[0], False)
    with pytest.raises(BlockingIOError):
        os.read(told[0], 1)
    for descriptor in (*told, *go):
        os.close(descriptor)


def test_half_a_processed_file_is_refused_with_its_folder(tmp_path: Path, serve: Callable[[type], str]) -> None:
    text = serve(fresh())
    (tmp_path / "a" / "processed").mkdir(parents=True)
    (tmp_path / "a" / "processed" / "data.pt").write_bytes(b"half")
    refused(f"Its files are in {tmp_path}", text, tmp_path)


def test_a_missing_package_is_named(serve: Callable[[type], str]) -> None:
    class Needy(InMemoryDataset):
        def __init__(self) -> None:
            raise ModuleNotFoundError("No module named 'rdkit'", name="rdkit.Chem")

    refused("needs a package that is not installed: No module named 'rdkit'. pip install rdkit", serve(Needy))


def test_no_question_is_asked(serve: Callable[[type], str]) -> None:
    class Asking(InMemoryDataset):
        def __init__(self) -> None:
            input("Download 80 GB? (y/N)")

    before = sys.stdin
    refused("could not be read: EOFError", serve(Asking))
    assert sys.stdin is before


def test_warnings_of_a_class_are_its_own(serve: Callable[[type], str]) -> None:
    class Warning_(InMemoryDataset):
        def __init__(self) -> None:
            super().__init__()
            warnings.warn("old file", stacklevel=1)
            self.data, self.slices = self.collate([Data(x=torch.eye(2), edge_index=torch.zeros(2, 1).long())])

    assert read(serve(Warning_)).y is None


# What it holds


def holding(*graphs: Any) -> type:
    class Holding(InMemoryDataset):
        def __init__(self) -> None:
            super().__init__()

        def __len__(self) -> int:
            return len(graphs)

        def __getitem__(self, idx: Any) -> Any:
            return graphs[idx]

    return Holding


def test_what_is_not_one_graph_is_refused(serve: Callable[[type], str]) -> None:
    hetero = HeteroData()
    hetero["paper"].x = torch.ones(2, 1)
    hetero["author"].x = torch.ones(2, 1)
    refused("pyg:Holding holds 2 graphs; expected one graph with node labels", serve(holding(Data(), Data())))
    refused("pyg:Holding holds 0 graphs", serve(holding()))
    refused("is heterogeneous (node types paper, author); expected", serve(holding(hetero)))
    refused("pyg:Holding holds a dict; expected", serve(holding({"x": 1})))
    refused("has adj_t and no edge_index", serve(holding(Data(adj_t=torch.eye(2)))))


def test_real_classes_that_are_not_one_graph_are_refused() -> None:
    refused("is heterogeneous", "pyg:FakeHeteroDataset")


def test_edge_attributes_are_noted(serve: Callable[[type], str]) -> None:
    graph = Data(x=torch.ones(1, 1), edge_index=torch.zeros(2, 1).long(), y=torch.zeros(1), edge_attr=torch.ones(1))
    assert read(serve(holding(graph))).notes == ["Not used: edge_attr."]


# Real files


def test_cora_reads_from_its_raw_files(raw_folder: Callable[[str, str], Path]) -> None:
    raw = read("pyg:Planetoid/Cora", raw_folder("planetoid/Cora", "Cora"))
    assert raw.x.shape == (2708, 1433)
    assert raw.edge_index.shape == (2, 10556)
    assert {key: int(value.sum()) for key, value in raw.splits.items()} == {
        "train_mask": 140,
        "val_mask": 500,
        "test_mask": 1000,
    }


def test_many_graphs_are_refused(raw_folder: Callable[[str, str], Path]) -> None:
    root = raw_folder("tu/MUTAG", "MUTAG")
    refused("pyg:TUDataset/MUTAG holds 188 graphs; expected one", "pyg:TUDataset/MUTAG", root)


class Processed(InMemoryDataset):
    """A class of PyG's that needs no raw files."""

    def __init__(self, root: str | None = None, pre_transform: Any = None) -> None:
        super().__init__(root, pre_transform=pre_transform)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.load(self.processed_paths[0])  # PyG warns of its own files

    @property
    def processed_file_names(self) -> str:
        return "data.pt"

    def process(self) -> None:
        nodes = torch.arange(6)
        data = Data(x=torch.ones(6, 2), edge_index=torch.stack([nodes, nodes.flip(0)]), y=nodes % 2)
        self.save([data if self.pre_transform is None else self.pre_transform(data)], self.processed_paths[0])


def test_c041_files_made_with_other_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "Processed", Processed, raising=False)
    monkeypatch.setattr(datasets, "__all__", [*datasets.__all__, "Processed"])
    reference = parse_reference("pyg:Processed")
    Processed(str(tmp_path), pre_transform=NormalizeFeatures())
    before = sorted(p.stat().st_mtime_ns for p in tmp_path.rglob("*"))
    with pytest.raises(
        DatasetError, match="processed were made with a pre_transform or pre_filter; expected"
    ) as caught:
        read_pyg(reference, str(tmp_path), offline=True)
    assert f"delete {tmp_path / 'processed'}" in caught.value.advice
    assert sorted(p.stat().st_mtime_ns for p in tmp_path.rglob("*")) == before
    shutil.rmtree(tmp_path / "processed")
    assert read_pyg(reference, str(tmp_path), offline=True).x.sum() == 12
    assert read_pyg(reference, str(tmp_path), offline=True).x.sum() == 12  # what we made is taken again
