"""One graph built on disk in bounded memory: features, labels, splits and edges by destination, file by file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pygsage.config import TrainConfig
from pygsage.data.files.arrays import ArrayWriter, map_array, sync_folder, write_array
from pygsage.data.files.unfinished import Unfinished, UnfinishedFolder
from pygsage.data.one_graph.checks import stored_dtype
from pygsage.data.one_graph.external import EdgeBlocks, GroupedEdges, ListedEdges, write_csc
from pygsage.data.one_graph.graph import Graph, manifest_of
from pygsage.data.one_graph.prepare import Parts, check_parts, direction_notes
from pygsage.data.one_graph.raw import RawGraph
from pygsage.errors import DatasetError
from pygsage.memory.disk import full_disk
from pygsage.memory.peak import PeakMemory

CHUNK_VALUES = 1 << 22  # of x, written at once
_WORK = "work"


def build_graph(
    read: Callable[[Path], RawGraph],
    config: TrainConfig,
    target: Path,
    fingerprint: Mapping[str, Any],
    *,
    need_split: bool | None,
    budget_bytes: int,
    overwrite: bool = False,
    unfinished: Unfinished = "auto",
    memory: PeakMemory | None = None,
) -> Graph:
    """Makes the folder of a graph, as `prepare` and `Graph.save` would make it, without holding the graph in RAM.

    The arrays are the same byte for byte; but float16 features stay float16, which in RAM become float32.

    It is made beside the target under another name. A build that was killed is begun again, as its arrays are a
    function of the dataset and the options alone: nothing is lost but time.

    Args:
        read: Reads the source, with a folder for what it has to unpack.
        config: The options of the dataset: split, added edges, scaling, task.
        target: The folder to be made.
        fingerprint: Of inputs and options, for the manifest.
        need_split: As for `check_parts`.
        budget_bytes: RAM for sorting edges.
        overwrite: Whether a target that exists is replaced, at the end and in one step.
        unfinished: What to do with what an earlier build left when it was all but renamed.
        memory: As for `check_parts`.

    Raises:
        DatasetError, ConfigError: when it is not what can be trained, or the target cannot be written.
        EnvironmentLimitError: when the disk is full; what was begun is deleted.

    Costs RAM of the budget, pieces of a few million values, and some 60 bytes a node; disk of the graph, of 16 bytes
    an edge (32 when reverse edges are added), and of arrays that have to be unpacked.
    """
    try:
        folder = UnfinishedFolder(target, fingerprint, overwrite=overwrite, unfinished=unfinished)
    except OSError as error:
        told = full_disk(error, target.parent)
        raise told or DatasetError(f"The graph cannot be written to {target}: {error.strerror or error}.") from None
    try:
        if folder.progress is not None and folder.is_whole:
            folder.publish()
        else:
            _write(read, config, folder, need_split, budget_bytes, memory)
    except OSError as error:
        folder.discard()
        told = full_disk(error, target.parent)
        raise told or DatasetError(f"The graph cannot be written to {target}: {error.strerror or error}.") from None
    except BaseException:
        folder.discard()
        raise
    return Graph.open(target)


def _write(
    read: Callable[[Path], RawGraph],
    config: TrainConfig,
    folder: UnfinishedFolder,
    need_split: bool | None,
    budget_bytes: int,
    memory: PeakMemory | None,
) -> None:
    work = folder.path / _WORK
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    raw = read(work)
    parts = check_parts(raw, config, need_split, work, memory)
    arrays = {"y": write_array(folder.path, "y", parts.labels.y.numpy())}
    if parts.node_id is not None:
        arrays["node_id"] = write_array(folder.path, "node_id", parts.node_id.numpy())
    if parts.splits:
        (folder.path / "split").mkdir(exist_ok=True)
    for name, ids in parts.splits.items():
        arrays[f"split/{name}"] = write_array(folder.path, f"split/{name}", ids.numpy())
    task, num_classes, splits = parts.labels.task, parts.labels.num_classes, parts.splits
    del parts.labels  # what the edges need the room for
    arrays["x"] = write_features(parts.x, folder.path, config.normalize_features)
    num_nodes = len(parts.x)
    arrays |= write_csc(
        _edges_of(raw, parts),
        num_nodes,
        folder.path,
        work,
        undirected=config.undirected,
        self_loops=config.self_loops,
        budget_bytes=budget_bytes,
    )
    indptr = map_array(folder.path, "indptr", arrays["indptr"])
    notes = dict.fromkeys([*raw.notes, *direction_notes(indptr, splits, config)])
    del parts, indptr
    shutil.rmtree(work)
    sync_folder(folder.path)
    order = ("indptr", "indices", "edge_id", "x", "y", "node_id", *(f"split/{name}" for name in splits))
    arrays = {name: arrays[name] for name in order if name in arrays}
    folder.publish(manifest_of(config.dataset, num_classes, task, notes, arrays, fingerprint=folder.fingerprint))


def _edges_of(raw: RawGraph, parts: Parts) -> EdgeBlocks:
    if raw.grouped is not None:
        return GroupedEdges(*raw.grouped)
    return ListedEdges(parts.edge_index)


def write_features(x: Tensor, folder: Path, normalize: bool) -> dict[str, Any]:
    """Writes `x.npy` piece by piece: float32, or float16 if it is; with `normalize` as `normalize_features` does."""
    dtype = torch.float32 if normalize else stored_dtype(x)
    lowest = min((rows.min() for rows in _pieces(x, torch.float32)), default=None) if normalize else None
    numpy_dtype = np.dtype(np.float16 if dtype == torch.float16 else np.float32)
    with ArrayWriter(folder, "x", numpy_dtype, tuple(x.shape[1:])) as writer:
        for rows in _pieces(x, dtype):
            if lowest is not None:
                rows = rows - lowest
                rows.div_(rows.sum(dim=1, keepdim=True).clamp_(min=1.0))
            writer.write(rows.numpy())
        return writer.finish()


def _pieces(x: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    rows = max(1, CHUNK_VALUES // x.size(1))
    for start in range(0, len(x), rows):
        yield x[start : start + rows].to(dtype).contiguous()
