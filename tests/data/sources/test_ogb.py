"""OGB's raw files: made-up ones of a thousand nodes in exactly its layouts, and Cora written as ogbn-arxiv."""

from __future__ import annotations

import builtins
import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pygsage.config import TrainConfig
from pygsage.data.names import dataset_defaults, parse_reference
from pygsage.data.ogb_package import _no_look_for_updates
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.open import open_graph
from pygsage.data.sources.ogb import read_ogb
from pygsage.errors import DatasetError
from pygsage.training.launch import train

SHARED = Path(__file__).parents[3].parent / "shared" / "data" / "ogb" / "cora-as-ogbn-arxiv"
NUM_NODES, NUM_EDGES, NUM_FEATURES = 1000, 3000, 7


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is asked of the network, or of the user")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(builtins, "input", refuse)


def write_csv(path: Path, rows: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(map(str, np.atleast_1d(np.asarray(row)).tolist())) for row in rows]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


def write_splits(folder: Path) -> None:
    ids = np.random.default_rng(1).permutation(NUM_NODES)
    for name, part in zip(("train", "valid", "test"), np.split(ids[:900], [500, 700]), strict=True):
        write_csv(folder / f"{name}.csv.gz", part)


def random_edges() -> np.ndarray:
    return np.random.default_rng(0).integers(0, NUM_NODES, (NUM_EDGES, 2))


def write_products(root: Path, **files: Any) -> Path:
    """The layout of ogbn-products; keywords replace the rows of a file, None leaves it out."""
    rng = np.random.default_rng(2)
    folder = root / "ogbn_products"
    rows: dict[str, Any] = {
        "edge": random_edges(),
        "node_feat": rng.normal(size=(NUM_NODES, NUM_FEATURES)),
        "node_label": rng.integers(0, 47, NUM_NODES),
        "num_node_list": [NUM_NODES],
        "num_edge_list": [NUM_EDGES],
    }
    for key, value in {**rows, **files}.items():
        if value is not None:
            write_csv(folder / "raw" / f"{key.replace('_', '-')}.csv.gz", value)
    write_splits(folder / "split" / "sales_ranking")
    (folder / "RELEASE_v1.txt").touch()
    return folder


def write_papers(root: Path, compressed: bool, dtype: Any = np.float32) -> Path:
    """The layout of ogbn-papers100M."""
    rng = np.random.default_rng(3)
    folder = root / "ogbn_papers100M"
    write_splits(folder / "split" / "time")
    (folder / "raw").mkdir()
    y = rng.integers(0, 172, (NUM_NODES, 1)).astype(np.float32)
    y[np.random.default_rng(1).permutation(NUM_NODES)[900:]] = np.nan  # outside the splits
    save: Callable[..., None] = np.savez_compressed if compressed else np.savez
    save(
        folder / "raw" / "data.npz",
        edge_index=random_edges().T.copy(),
        node_feat=rng.normal(size=(NUM_NODES, NUM_FEATURES)).astype(dtype),
        node_year=np.full((NUM_NODES, 1), 2010),
        num_nodes_list=np.array([NUM_NODES]),
        num_edges_list=np.array([NUM_EDGES]),
    )
    save(folder / "raw" / "node-label.npz", node_label=y)
    (folder / "RELEASE_v1.txt").touch()
    return folder


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in [folder, *folder.rglob("*")]}


def read(name: str, root: Path, *, offline: bool = True) -> RawGraph:
    return read_ogb(parse_reference(name), str(root), offline=offline, quiet=True)


def opened(name: str, root: Path, **options: Any) -> Graph:
    values = {**dataset_defaults(name), "dataset": name, "root": str(root), "offline": True, **options}
    return open_graph(TrainConfig(**values))


def refused(said: str, name: str, root: Path, *, offline: bool = True) -> None:
    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        read(name, root, offline=offline)
    assert caught.value.exit_status == 2


def theirs() -> Any:
    with _no_look_for_updates():
        from ogb.io import read_graph_raw
    return read_graph_raw


def test_products_is_what_ogb_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pygsage.data.sources.csv_gz._CHUNK_VALUES", 2000)  # several pieces
    folder = write_products(tmp_path)
    before = listing(tmp_path)
    raw = read("ogbn-products", tmp_path)
    assert listing(tmp_path) == before
    (wanted,) = theirs().read_csv_graph_raw(str(folder / "raw"), add_inverse_edge=True)
    assert np.array_equal(raw.edge_index, wanted["edge_index"])
    assert raw.x.dtype == torch.float32
    assert np.array_equal(raw.x, wanted["node_feat"])
    assert raw.y.shape == (NUM_NODES, 1)
    assert raw.notes == []
    graph = opened("ogbn-products", tmp_path)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.task) == (1000, 6000, 7, "classes")
    assert {key: len(ids) for key, ids in graph.splits.items()} == {"train": 500, "val": 200, "test": 200}


@pytest.mark.parametrize("name", ["ogbn-products", "ogbn-papers100M"])
def test_made_up_layouts_are_trained(tmp_path: Path, name: str) -> None:
    if name == "ogbn-products":
        write_products(tmp_path)
    else:
        write_papers(tmp_path, compressed=False)
    options: dict[str, Any] = {"epochs": 2, "hidden": 8, "fanouts": (2, 2), "gpus": "0", "quiet": True}
    config = TrainConfig(dataset=name, root=str(tmp_path), run_dir=str(tmp_path / "run"), offline=True, **options)
    result = train(config)
    assert result.test["ogb_acc"] == pytest.approx(result.test["accuracy"])
    assert (result.epochs, result.test["num_nodes"]) == (2, 200)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("compressed", [False, True])
def test_c103_papers100m_is_what_ogb_reads(tmp_path: Path, compressed: bool, dtype: Any) -> None:
    folder = write_papers(tmp_path, compressed, dtype)
    before = listing(tmp_path)
    raw = read("ogbn-papers100M", tmp_path)
    (wanted,) = theirs().read_binary_graph_raw(str(folder / "raw"))
    assert np.array_equal(raw.edge_index, wanted["edge_index"])
    assert np.array_equal(raw.x.float(), wanted["node_feat"].astype(np.float32))
    graph = opened("ogbn-papers100M", tmp_path)
    assert (graph.num_nodes, graph.num_edges) == (1000, 3000)
    assert int((graph.y < 0).sum()) == 100
    assert graph.y.dtype == torch.int64
    raw.x[0] = 5  # copy-on-write at most
    assert listing(tmp_path) == before


def test_c103_a_training_node_without_a_label_is_refused(tmp_path: Path) -> None:
    folder = write_papers(tmp_path, compressed=False)
    with np.load(folder / "raw" / "node-label.npz") as file:
        y = file["node_label"]
    node = int(np.random.default_rng(1).permutation(NUM_NODES)[0])
    y[node] = np.nan
    np.savez(folder / "raw" / "node-label.npz", node_label=y)
    with pytest.raises(DatasetError, match=f"the train split has nodes without a label .1 in all, such as node {node}"):
        opened("ogbn-papers100M", tmp_path)


def test_proteins_has_the_mean_of_its_edges_and_many_labels(tmp_path: Path) -> None:
    rng, edges = np.random.default_rng(4), random_edges()
    raw_folder = tmp_path / "ogbn_proteins" / "raw"
    features, y = rng.random((NUM_EDGES, 8)), rng.integers(0, 2, (NUM_NODES, 112))
    for name, rows in {
        "edge": edges,
        "edge-feat": features,
        "node-label": y,
        "species": np.full(NUM_NODES, 9606),  # the file that ogb renames
        "num-node-list": [NUM_NODES],
        "num-edge-list": [NUM_EDGES],
    }.items():
        write_csv(raw_folder / f"{name}.csv.gz", rows)
    write_splits(raw_folder.parent / "split" / "species")
    before = listing(tmp_path)
    graph = opened("ogbn-proteins", tmp_path)
    assert listing(tmp_path) == before
    assert (graph.task, tuple(graph.y.shape), graph.num_edges) == ("multilabel", (NUM_NODES, 112), 2 * NUM_EDGES)
    ends = np.concatenate([edges[:, 0], edges[:, 1]])
    mean = np.zeros((NUM_NODES, 8))
    np.add.at(mean, ends, np.concatenate([features, features]))
    mean /= np.bincount(ends, minlength=NUM_NODES).clip(min=1)[:, None]
    assert np.allclose(graph.x, mean, atol=1e-6)
    assert "There are no features of nodes: x is the mean of the features of each node's edges." in graph.notes


def test_mag_is_its_papers_and_their_citations(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    folder = tmp_path / "ogbn_mag"
    x = rng.normal(size=(NUM_NODES, NUM_FEATURES)).astype(np.float32)
    write_csv(folder / "raw" / "num-node-dict.csv.gz", [["author", "paper"], [44, NUM_NODES]])
    relation = folder / "raw" / "relations" / "paper___cites___paper"
    write_csv(relation / "edge.csv.gz", random_edges())
    write_csv(relation / "num-edge-list.csv.gz", [NUM_EDGES])
    write_csv(folder / "raw" / "node-feat" / "paper" / "node-feat.csv.gz", x)
    write_csv(folder / "raw" / "node-label" / "paper" / "node-label.csv.gz", rng.integers(0, 349, NUM_NODES))
    write_splits(folder / "split" / "time" / "paper")
    raw = read("ogbn-mag", tmp_path)
    assert np.array_equal(raw.edge_index, random_edges().T)
    assert np.allclose(raw.x, x)
    assert raw.notes[1].startswith("Only papers and the citations among them are used")
    assert opened("ogbn-mag", tmp_path).num_edges > NUM_EDGES  # made undirected
    write_csv(folder / "raw" / "num-node-dict.csv.gz", [["author", "institution"], [44, 3]])
    refused("expected a table with a column paper", "ogbn-mag", tmp_path)


def test_c132_c133_arxiv_without_stdin_network_or_release_file(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("no Cora in OGB's layout among the shared data files")
    shutil.copytree(SHARED, tmp_path / "data")
    folder = tmp_path / "data" / "ogbn_arxiv"
    for path in [folder.parent, *folder.parent.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    (folder / "RELEASE_v1.txt").unlink()
    for path in folder.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = listing(folder.parent)
    code = """
        import os, socket, sys, threading
        os.close(0)
        def refuse(*_, **__): raise SystemExit("the network was asked")
        socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
        started = []
        start = threading.Thread.start
        threading.Thread.start = lambda self: (started.append(self._target), start(self))[1]
        import torch
        from pygsage.config import TrainConfig
        from pygsage.data.names import dataset_defaults
        from pygsage.data.open import open_graph
        from pygsage.data.ogb_package import ogb_scores
        name = "ogbn-arxiv"
        graph = open_graph(TrainConfig(dataset=name, root=sys.argv[1], offline=True, **dataset_defaults(name)))
        assert (graph.num_nodes, graph.num_edges, graph.num_features) == (2708, 2 * 5278 + 2708, 1433), graph
        assert {k: len(v) for k, v in graph.splits.items()} == {"train": 140, "val": 500, "test": 1000}
        assert "has no RELEASE_v1.txt" in graph.notes[0], graph.notes
        assert "ogb" not in sys.modules and "outdated" not in sys.modules
        scores = torch.nn.functional.one_hot(graph.y).float()
        scores[graph.splits["test"][:10]] = 0
        test = graph.splits["test"]
        right = int((graph.y[test] == scores[test].argmax(1)).sum())
        assert ogb_scores(name, graph.y[test], scores[test]) == {"acc": right / 1000}
        assert "outdated" not in sys.modules and "OUTDATED_IGNORE" not in os.environ
        from pygsage.cli.main import main
        options = "--offline --epochs 1 --gpus 0 --hidden 8 --fanouts 2,2 --json --quiet".split()
        assert main(["train", name, "--root", sys.argv[1], "--run-dir", sys.argv[2], *options]) == 0
        assert not any("ogb" in getattr(f, "__module__", "") for f in started), started
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(folder.parent), str(tmp_path / "run")]
    result = json.loads(subprocess.run(command, check=True, timeout=100, stdout=subprocess.PIPE).stdout)
    assert result["metric"] == "ogb_acc"
    assert result["test"]["ogb_acc"] == pytest.approx(result["test"]["accuracy"])
    assert listing(folder.parent) == before


def test_the_pyg_folder_wins(tmp_path: Path) -> None:
    write_products(tmp_path)
    (tmp_path / "ogbn_products").rename(tmp_path / "ogbn_products_pyg")
    write_products(tmp_path, node_label=None)
    assert read("ogbn-products", tmp_path).origin.endswith("ogbn_products_pyg")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    write_products(tmp_path, node_label=None, edge=None)
    missing = tmp_path / "ogbn_products" / "raw" / "edge.csv.gz"
    refused(f"ogbn-products is not whole: {missing} and 1 more missing; expected all", "ogbn-products", tmp_path)
    before = listing(tmp_path)
    refused("move", "ogbn-products", tmp_path, offline=False)  # not even then is it mended in place
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"num_edge_list": [NUM_EDGES + 1]}, "edge.csv.gz has 3000 rows; expected 3001"),
        ({"num_edge_list": [10]}, "expected 10 rows of two whole numbers"),
        ({"num_node_list": [500, 500]}, "counts 2 graphs; expected one"),
        ({"node_label": np.zeros(10, int)}, "node-label.csv.gz has 10 rows; expected 1000"),
        ({"node_feat": np.zeros((1001, 2))}, "node-feat.csv.gz has more than 1000 rows"),
        ({"edge": random_edges() + 0.5}, "2 columns of float64"),
        ({"edge": np.zeros((NUM_EDGES, 3), int)}, "3 columns of int64"),
        ({"node_feat": [["a", 1]] * NUM_NODES}, "has 'a' in row 0, column 0; expected a number"),
    ],
)
def test_damaged_tables_are_named(tmp_path: Path, files: dict[str, Any], said: str) -> None:
    write_products(tmp_path, **files)
    refused(said, "ogbn-products", tmp_path)


def test_a_table_cut_short_is_named(tmp_path: Path) -> None:
    path = write_products(tmp_path) / "raw" / "node-feat.csv.gz"
    path.write_bytes(path.read_bytes()[:-100])
    refused(f"{path} is cut short or damaged", "ogbn-products", tmp_path)


def test_a_binary_file_cut_short_is_named(tmp_path: Path) -> None:
    path = write_papers(tmp_path, compressed=False) / "raw" / "data.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(f"{path}: num_nodes_list is cut short or damaged", "ogbn-papers100M", tmp_path)
    np.savez(path, node_feat=np.zeros((3, 2)))
    refused(f"{path} has no num_nodes_list; expected it.", "ogbn-papers100M", tmp_path)


def test_offline_says_what_is_expected_where(tmp_path: Path) -> None:
    refused(f"{tmp_path / 'ogbn_arxiv'} does not exist, and --offline is on. Leave", "ogbn-arxiv", tmp_path)
    refused(f"rename its folder arxiv to {'ogbn_arxiv'}", "ogbn-arxiv", tmp_path)
    refused("is not a folder; expected one that holds ogbn_arxiv", "ogbn-arxiv", tmp_path / "nowhere")
    (tmp_path / "arxiv" / "raw").mkdir(parents=True)
    refused(f"Type mv {tmp_path / 'arxiv'} {tmp_path / 'ogbn_arxiv'}", "ogbn-arxiv", tmp_path)
    folder = write_products(tmp_path)
    refused(f"type --root {tmp_path}", "ogbn-products", folder)


def products_zip(tmp_path: Path) -> bytes:
    folder = write_products(tmp_path / "made")
    with zipfile.ZipFile(tmp_path / "made.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, Path("products", path.relative_to(folder)))
    return (tmp_path / "made.zip").read_bytes()


def test_c134_half_a_zip_is_never_taken_for_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = products_zip(tmp_path)
    root = tmp_path / "root"
    root.mkdir()
    half = root / "products.zip"
    half.write_bytes(whole[: len(whole) // 2])
    refused(f"{half} is there, but is cut short ({len(whole) // 2:,} bytes)", "ogbn-products", root)

    def offline(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    before = listing(root)
    refused("products.zip could not be downloaded: no route to host", "ogbn-products", root, offline=False)
    refused(f"{half} is there, but is cut short", "ogbn-products", root, offline=False)
    assert {p: size for p, (size, _) in listing(root).items() if p != str(root)} == {
        p: size for p, (size, _) in before.items() if p != str(root)
    }
    half.write_bytes(whole)  # of which a whole one serves, even offline
    assert read("ogbn-products", root).edge_index.shape == (2, 6000)
    assert sorted(os.listdir(root)) == ["ogbn_products", "products.zip"]


def test_a_missing_dataset_is_downloaded_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = products_zip(tmp_path)

    def fetch(url: str, target: Path, **_: Any) -> None:
        assert url == "http://snap.stanford.edu/ogb/data/nodeproppred/products.zip"
        target.write_bytes(whole)

    monkeypatch.setattr("pygsage.data.sources.ogb.download", fetch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    graph = read_ogb(parse_reference("ogbn-products"), None, offline=False, quiet=True)
    assert graph.edge_index.shape == (2, 6000)
    assert os.listdir(tmp_path / "cache" / "pygsage" / "ogb") == ["ogbn_products"]
    monkeypatch.setattr("pygsage.data.sources.ogb.download", None)  # is not needed again
    read_ogb(parse_reference("ogbn-products"), None, offline=False, quiet=True)


def test_a_damaged_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bytearray(products_zip(tmp_path))
    whole[len(whole) // 3] ^= 0xFF

    monkeypatch.setattr("pygsage.data.sources.ogb.download", lambda _, target, **__: target.write_bytes(whole))
    root = tmp_path / "root"
    root.mkdir()
    refused("is cut short or damaged", "ogbn-products", root, offline=False)
    assert os.listdir(root) == []
