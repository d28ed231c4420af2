"""OGB's datasets of many graphs, read from their raw files by ourselves, in pieces, without a change to the folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from pygsage.data.names import Reference
from pygsage.data.ogb_package import OgbEntry, ogb_entry
from pygsage.data.sources.csv_gz import read_pieces, read_table
from pygsage.data.sources.ogb import find_folder, read_split
from pygsage.errors import DatasetError

_AGAIN = "Fetch it again."
_SPLIT_FILES = {"train_idx": "train.csv.gz", "val_idx": "valid.csv.gz", "test_idx": "test.csv.gz"}
_TASKS = {"binary classification": "multilabel", "multiclass classification": "classes", "regression": "regression"}


@dataclass(frozen=True)
class OgbGraphs:
    """One of OGB's datasets of many graphs.

    Attributes:
        name: As OGB has it.
        folder: Where its files lie.
        task: What its labels are: `multilabel` where OGB asks for binary labels, also for a single one.
        splits: Graph numbers of OGB's own split, by `train_idx`, `val_idx`, `test_idx`.
        notes: Lines worth telling the user.
    """

    name: str
    folder: Path
    entry: OgbEntry
    task: str
    splits: dict[str, Tensor]
    notes: list[str]

    def files(self) -> list[Path]:
        """The files that the graphs are read from."""
        return [self.folder / name for name in _files(self.entry)]

    def graphs(self) -> Iterator[Data]:
        """The graphs one by one: `x` and `edge_index` as OGB's own loaders have them, `edge_attr` left out, `y` [1, C].

        With the reverse of each edge after it where OGB's table says so. The numbers of nodes and edges and the labels
        of all graphs are held, and pieces of at most 4M values of the rest.

        Raises:
            DatasetError: when a file is cut short or malformed.
        """
        raw = self.folder / "raw"
        num_nodes, num_edges = (_counts(raw / f"num-{what}-list.csv.gz") for what in ("node", "edge"))
        labels = read_table(raw / "graph-label.csv.gz", len(num_nodes))
        if labels.shape[1] != self.entry.num_tasks:
            raise DatasetError(
                f"{raw / 'graph-label.csv.gz'} has {labels.shape[1]} columns; expected {self.entry.num_tasks}.", _AGAIN
            )
        if len(num_edges) != len(num_nodes):
            raise DatasetError(
                f"{raw} counts the nodes of {len(num_nodes)} graphs, the edges of {len(num_edges)}; expected as many.",
                _AGAIN,
            )
        edges = _cut(raw / "edge.csv.gz", num_edges)
        features = _cut(raw / "node-feat.csv.gz", num_nodes) if self.entry.has_node_features else None
        for count, y in zip(num_nodes.tolist(), torch.from_numpy(labels), strict=True):
            pairs = torch.from_numpy(next(edges)).T
            if pairs.size(0) != 2 or pairs.is_floating_point():
                raise DatasetError(f"{raw / 'edge.csv.gz'} is no table of two whole numbers a row.", _AGAIN)
            if self.entry.add_inverse_edge:
                pairs = torch.stack([pairs, pairs.flip(0)], dim=2).reshape(2, -1)
            y = y.view(1, -1)
            data = Data(edge_index=pairs.contiguous(), y=y if self.task == "classes" else y.to(torch.float32))
            if features is None:
                data.num_nodes = count
            else:
                data.x = torch.from_numpy(next(features))
            yield data
        for path, rest in ((raw / "edge.csv.gz", edges), (raw / "node-feat.csv.gz", features)):
            if rest is not None and next(rest, None) is not None:
                raise DatasetError(f"{path} has more rows than its counts say.", _AGAIN)

    def graphs_with_splits(self) -> Iterator[Data]:
        """The same with the text `split` in each, so that a store made of them has OGB's split."""
        words = {int(id): key.removesuffix("_idx") for key, ids in self.splits.items() for id in ids}
        for number, data in enumerate(self.graphs()):
            data.split = words.get(number, "")
            yield data


def open_ogb_graphs(reference: Reference, root: str | None, *, offline: bool, quiet: bool) -> OgbGraphs:
    """Finds `ROOT/ogbg_NAME_pyg`, else `ROOT/ogbg_NAME`, which is downloaded first if it is missing.

    Args:
        root: None for `pygsage/ogb` in the user's cache.
        offline: Refuse instead of downloading.
        quiet: Show no progress of a download.

    Raises:
        DatasetError: when the files are missing or cannot be downloaded, or its task is not one that is trained.
        EnvironmentLimitError: when ogb, whose table is read, is not installed.
    """
    entry = ogb_entry(reference.text)
    if entry.task_type not in _TASKS or entry.is_binary:
        raise DatasetError(
            f"{entry.name} has the task {entry.task_type}; expected one of {', '.join(_TASKS)}, in csv files."
        )
    folder = find_folder(entry, root, offline, quiet)
    missing = [name for name in _files(entry) if not (folder / name).is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DatasetError(
            f"{entry.name} is not whole: {folder / missing[0]}{more} missing; expected all of its files.",
            f"Give the folder that has all of it with --root DIR, or move {folder} away: it is then downloaded anew.",
        )
    splits = {key: read_split(folder / "split" / entry.split / name) for key, name in _SPLIT_FILES.items()}
    notes = []
    if not (folder / entry.release_file).is_file():
        notes.append(f"{folder} has no {entry.release_file}: its files may be of another version.")
    if entry.has_edge_features:
        notes.append("Not used: the features of edges, which GraphSAGE does not take.")
    return OgbGraphs(entry.name, folder, entry, _TASKS[entry.task_type], splits, notes)


def _files(entry: OgbEntry) -> list[str]:
    names = [
        "num-node-list",
        "num-edge-list",
        "edge",
        "graph-label",
        *(["node-feat"] if entry.has_node_features else []),
    ]
    return [
        *(f"raw/{name}.csv.gz" for name in names),
        *(f"split/{entry.split}/{name}" for name in _SPLIT_FILES.values()),
    ]


def _counts(path: Path) -> np.ndarray:
    table = read_table(path, dtype=np.int64)
    if table.shape[1] != 1 or (len(table) and table.min() < 0):
        raise DatasetError(f"{path} is no table of one number from 0 a row.", _AGAIN)
    return table[:, 0]


def _cut(path: Path, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of a file, so many for each graph, then what is left over, if anything is."""
    pieces = read_pieces(path) if lengths.sum() else iter(())
    _, have = next(pieces, (0, np.empty((0, 2), dtype=np.int64)))
    for number, length in enumerate(lengths.tolist()):
        parts, missing = [have[:length]], length - len(have)
        have = have[length:]
        while missing > 0:
            piece = next(pieces, None)
            if piece is None:
                raise DatasetError(
                    f"{path} ends in graph {number} of {len(lengths)}; expected {length} rows for it.", _AGAIN
                )
            have = piece[1]
            parts.append(have[:missing])
            missing, have = missing - len(have), have[missing:]
        parts = [part for part in parts if len(part)] or parts[:1]
        yield np.concatenate(parts) if len(parts) > 1 else parts[0].copy()
    if len(have) or next(pieces, None) is not None:
        yield have
