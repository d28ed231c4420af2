"""The one-graph datasets of OGB, read from their raw files by ourselves, in pieces, without a change to the folder."""

from __future__ import annotations

import os
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pygsage.data.foreign import sentence
from pygsage.data.names import Reference
from pygsage.data.ogb_package import OgbEntry, ogb_entry
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.sources.csv_gz import read_pieces, read_table
from pygsage.data.sources.download import download, extract, made_folder
from pygsage.data.sources.npz import to_tensor
from pygsage.data.sources.npz_members import made, read_member
from pygsage.errors import DatasetError

_AGAIN = "Fetch it again."
_SPLIT_FILES = {"train_idx": "train.csv.gz", "val_idx": "valid.csv.gz", "test_idx": "test.csv.gz"}


def read_ogb(
    reference: Reference, root: str | None, *, offline: bool, quiet: bool, scratch: Path | None = None
) -> RawGraph:
    """Reads `ROOT/ogbn_NAME_pyg` if it is there, else `ROOT/ogbn_NAME`, which is downloaded first if it is missing.

    Edges come in the order of OGB's own loaders, with the reverse of each after it where OGB's table says so. x is
    float32; y as it is, `[N, tasks]`. Of ogbn-mag the papers are read and the citations among them, as in OGB's own
    `examples/nodeproppred/mag/gnn.py`; ogbn-proteins has no features of its nodes: as in OGB's
    `examples/nodeproppred/proteins/gnn.py` each has the mean of its edges' features.

    Args:
        root: None for `pygsage/ogb` in the user's cache.
        offline: Refuse instead of downloading.
        quiet: Show no progress of a download.
        scratch: A folder, for arrays that may not fit in RAM: what cannot be mapped where it lies is unpacked there.

    Raises:
        DatasetError: when the files are missing, cut short or malformed, or cannot be downloaded.
        EnvironmentLimitError: when ogb, whose table is read, is not installed.

    Costs the arrays and one piece of at most 4M values; arrays of a binary layout are mapped where they lie.
    """
    entry = ogb_entry(reference.text)
    layout = _layout(entry)
    folder = find_folder(entry, root, offline, quiet)
    missing = [name for name in layout.files() if not (folder / name).is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DatasetError(
            f"{entry.name} is not whole: {folder / missing[0]}{more} missing; expected all of its files.",
            f"Give the folder that has all of it with --root DIR, or move {folder} away: it is then downloaded anew.",
        )
    try:
        read = _read_binary(folder, scratch) if entry.is_binary else _read_csv(folder, layout, entry, scratch)
        x, edge_index, y = read
    except MemoryError as error:
        raise DatasetError(f"{folder} does not fit in memory ({error}); expected arrays that do.") from None
    _check_targets(folder / layout.y, y, entry)
    splits = {key: read_split(folder / layout.split / name) for key, name in _SPLIT_FILES.items()}
    notes = []
    if not (folder / entry.release_file).is_file():
        notes.append(f"{folder} has no {entry.release_file}: its files may be of another version.")
    if entry.is_hetero:
        notes.append("Only papers and the citations among them are used; other types of nodes and edges are not.")
    if not entry.has_node_features:
        notes.append("There are no features of nodes: x is the mean of the features of each node's edges.")
    return RawGraph(reference.text, str(folder), x, edge_index, y, splits, notes)


@dataclass(frozen=True)
class _Layout:
    """Where the files are below the dataset's folder; `x` and `edge_attr` are '' where there are none."""

    num_nodes: str
    num_edges: str
    edges: str
    x: str
    edge_attr: str
    y: str
    split: str

    def files(self) -> list[str]:
        own = (self.num_nodes, self.num_edges, self.edges, self.x, self.edge_attr, self.y)
        return [*dict.fromkeys(name for name in own if name), *(f"{self.split}/{f}" for f in _SPLIT_FILES.values())]


def _layout(entry: OgbEntry) -> _Layout:
    split = f"split/{entry.split}"
    if entry.is_binary:
        data = "raw/data.npz"
        return _Layout(data, data, data, data, "", "raw/node-label.npz", split)
    if entry.is_hetero:
        relation = "raw/relations/paper___cites___paper"
        return _Layout(
            num_nodes="raw/num-node-dict.csv.gz",
            num_edges=f"{relation}/num-edge-list.csv.gz",
            edges=f"{relation}/edge.csv.gz",
            x="raw/node-feat/paper/node-feat.csv.gz",
            edge_attr="",
            y="raw/node-label/paper/node-label.csv.gz",
            split=f"{split}/paper",
        )
    return _Layout(
        num_nodes="raw/num-node-list.csv.gz",
        num_edges="raw/num-edge-list.csv.gz",
        edges="raw/edge.csv.gz",
        x="raw/node-feat.csv.gz" if entry.has_node_features else "",
        edge_attr="" if entry.has_node_features else "raw/edge-feat.csv.gz",
        y="raw/node-label.csv.gz",
        split=split,
    )


def _root(root: str | None, entry: OgbEntry) -> Path:
    if root is None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(cache) / "pygsage" / "ogb"
    path = Path(os.path.expanduser(root))
    if not os.path.isdir(path):
        raise DatasetError(
            f"--root {root} is not a folder; expected one that holds {entry.folder}.",
            f"To have it downloaded there, make it first: mkdir -p {root}",
        )
    return path


def find_folder(entry: OgbEntry, given_root: str | None, offline: bool, quiet: bool) -> Path:
    """The dataset's folder, downloaded first if it is missing.

    Raises:
        DatasetError: when it is not there and cannot be downloaded.
    """
    root = _root(given_root, entry)
    for name in (f"{entry.folder}_pyg", entry.folder):
        if (root / name).is_dir():
            return root / name
    if (root / "raw").is_dir() and (root / "split").is_dir():
        raise DatasetError(
            f"--root {root} is the folder of a dataset; expected the folder that holds {entry.folder}.",
            f"Name it {entry.folder} if it is not, and type --root {root.absolute().parent}",
        )
    target, unpacked = root / entry.folder, root / entry.zip_folder
    if (unpacked / "raw").is_dir():
        raise DatasetError(f"{target} does not exist; found {unpacked}.", f"Type mv {unpacked} {target}")
    zip_name = entry.url.rpartition("/")[2]
    theirs, ours = root / zip_name, root / f".{zip_name}"
    by_hand = (
        f"get {entry.url}, unzip it in {root} and rename its folder {entry.zip_folder} to {entry.folder}; or name a "
        f"folder that holds {entry.folder} with --root DIR."
    )
    if zipfile.is_zipfile(theirs):
        extract(theirs, entry.zip_folder, target)
        return target
    half = f" {theirs} is there, but is cut short ({theirs.stat().st_size:,} bytes)." if theirs.is_file() else ""
    if offline:
        raise DatasetError(
            f"{entry.name} is not on this machine: {target} does not exist, and --offline is on.{half}",
            f"Leave --offline out to download it, or {by_hand}",
        )
    try:
        with made_folder(root):
            if not zipfile.is_zipfile(ours):
                _download(entry.url, ours, quiet)
    except (DatasetError, OSError) as error:
        reason = error.found if isinstance(error, DatasetError) else f"{root} cannot be made: {error.strerror}."
        found = f"{entry.name} is not on this machine: {target} does not exist.{half} {reason}"
        raise DatasetError(found, f"Try again, or {by_hand}") from None
    try:
        extract(ours, entry.zip_folder, target)
    finally:
        ours.unlink(missing_ok=True)
    return target


def _download(url: str, target: Path, quiet: bool) -> None:
    from tqdm import tqdm

    print(f"downloading {url}", file=sys.stderr)
    with tqdm(desc=target.name.lstrip("."), unit="B", unit_scale=True, disable=True if quiet else None) as bar:

        def show(have: int, total: int) -> None:
            bar.total = total or None
            bar.update(have - bar.n)

        download(url, target, progress=show)


def _read_csv(folder: Path, layout: _Layout, entry: OgbEntry, scratch: Path | None) -> tuple[Tensor, Tensor, Tensor]:
    num_nodes = _read_count(folder / layout.num_nodes, column="paper" if entry.is_hetero else None)
    num_edges = _read_count(folder / layout.num_edges)
    copies = 2 if entry.add_inverse_edge else 1
    edges = made(scratch, "edge_index", np.dtype(np.int64), (2, copies * num_edges))
    have = 0
    path = folder / layout.edges
    for start, piece in read_pieces(path) if num_edges else ():
        have = start + len(piece)
        if piece.shape[1] != 2 or piece.dtype.kind != "i" or have > num_edges:
            found = f"{piece.shape[1]} columns of {piece.dtype}, {have} rows or more"
            raise DatasetError(f"{path} has {found}; expected {num_edges} rows of two whole numbers.")
        for row in (0, 1):
            edges[row, copies * start : copies * have : copies] = piece[:, row]
            if copies == 2:
                edges[row, copies * start + 1 : copies * have : copies] = piece[:, 1 - row]
    if have != num_edges:
        raise DatasetError(f"{path} has {have} rows; expected {num_edges}.", "It may be cut short: fetch it again.")
    y = read_table(folder / layout.y, num_nodes)
    if layout.x:
        x = read_table(folder / layout.x, num_nodes, dtype=np.float32, scratch=scratch)
    else:
        x = _mean_of_edges(folder / layout.edge_attr, edges[:, ::copies], num_nodes)
    return torch.from_numpy(x), torch.from_numpy(edges), torch.from_numpy(y)


def _mean_of_edges(path: Path, edges: np.ndarray, num_nodes: int) -> np.ndarray:
    """The mean of the features of the edges at each node, both ends of an edge alike; zero where there is none."""
    if edges.size and not (edges.min() >= 0 and edges.max() < num_nodes):
        raise DatasetError(f"{path.with_name('edge.csv.gz')} holds ids beyond the {num_nodes} nodes; expected none.")
    counts = [np.bincount(ends, minlength=num_nodes) for ends in edges]
    degree = (counts[0] + counts[1]).clip(min=1)
    sums = np.zeros((num_nodes, 0))
    have = 0
    for start, piece in read_pieces(path) if edges.size else ():
        have = start + len(piece)
        if have > edges.shape[1]:
            break
        if start == 0:
            sums = np.zeros((num_nodes, piece.shape[1]))
        for column in range(piece.shape[1]):
            for ends in edges[:, start:have]:
                sums[:, column] += np.bincount(ends, weights=piece[:, column], minlength=num_nodes)
    if have != edges.shape[1]:
        raise DatasetError(f"{path} has not as many rows as there are edges ({edges.shape[1]}).", _AGAIN)
    return (sums / degree[:, None]).astype(np.float32)


def _read_count(path: Path, column: str | None = None) -> int:
    """A number of nodes or edges; `column` for a table with a header, as the heterogeneous layout has."""
    if column is None:
        table = read_table(path, dtype=np.int64)
    else:
        import gzip

        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                header, *rows = [line.strip().split(",") for line in file if line.strip()]
            table = np.array([[int(row[header.index(column)])] for row in rows])
        except (OSError, EOFError, ValueError, IndexError, OverflowError, zlib.error) as error:
            raise DatasetError(
                f"{path} cannot be read ({sentence(error)}); expected a table with a column {column}.", _AGAIN
            ) from None
    if table.shape != (1, 1):
        raise DatasetError(f"{path} counts {len(table)} graphs; expected one.")
    if table[0, 0] < 0:
        raise DatasetError(f"{path} counts {table[0, 0]}; expected a number from 0.", _AGAIN)
    return int(table[0, 0])


def _check_targets(path: Path, y: Tensor, entry: OgbEntry) -> None:
    """Refuses labels that are not what OGB's evaluator scores: classes, or a table of 0 and 1."""
    columns = y.size(1) if y.dim() == 2 else y.dim()
    if columns != entry.num_tasks:
        raise DatasetError(f"{path} has labels of shape {list(y.shape)}; expected {entry.num_tasks} a node.", _AGAIN)
    if y.is_floating_point():
        odd = ~torch.isnan(y) & (y != y.round())
        if odd.any():
            row = int(odd.nonzero()[0, 0])
            raise DatasetError(
                f"{path} has the label {y[odd][0].item():g} in row {row}; expected whole numbers.", _AGAIN
            )


def read_split(path: Path) -> Tensor:
    """The ids of a split's file, int64 [n].

    Raises:
        DatasetError: when it is no table of one column of whole numbers.
    """
    table = read_table(path, dtype=np.int64)
    if table.shape[1] != 1:
        raise DatasetError(f"{path} has {table.shape[1]} columns; expected one number a row.")
    return torch.from_numpy(table[:, 0])


def _read_binary(folder: Path, scratch: Path | None) -> tuple[Tensor, Tensor, Tensor]:
    data, labels = folder / "raw" / "data.npz", folder / "raw" / "node-label.npz"
    num_nodes, num_edges = (_read_array(data, f"num_{what}_list").flatten().tolist() for what in ("nodes", "edges"))
    if len(num_nodes) != 1 or len(num_edges) != 1:
        raise DatasetError(f"{data} holds {len(num_nodes)} graphs; expected one.")
    x, edge_index = _read_array(data, "node_feat", scratch), _read_array(data, "edge_index", scratch)
    for key, size, expected in (("node_feat", len(x), num_nodes[0]), ("edge_index", edge_index.size(-1), num_edges[0])):
        if size != expected:
            raise DatasetError(f"{data}: {key} has {size} entries and its list says {expected}; expected the same.")
    return x, edge_index, _read_array(labels, "node_label")


def _read_array(path: Path, key: str, scratch: Path | None = None) -> Tensor:
    try:
        array = read_member(path, key, scratch)
    except KeyError:
        raise DatasetError(f"{path} has no {key}; expected it.", _AGAIN) from None
    except MemoryError:
        raise
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}; expected an .npz file.") from None
    except Exception as error:  # zipfile and numpy raise many kinds for damaged files
        found = f"{path}: {key} is cut short or damaged ({sentence(error)}); expected a whole array."
        raise DatasetError(found, _AGAIN) from None
    if array.ndim == 0:
        raise DatasetError(f"{path}: {key} is a single number; expected an array.")
    return to_tensor(str(path), key, array, scratch)
