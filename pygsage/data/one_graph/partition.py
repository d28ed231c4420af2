"""Which part each node of a graph lies in, and a folder where its features lie in parts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pygsage.data.files.arrays import (
    ArrayWriter,
    map_array,
    read_manifest,
    sync_folder,
    write_array,
    write_folder,
    write_manifest,
)
from pygsage.data.files.fetch import read_rows
from pygsage.data.names import refuse_inside
from pygsage.data.one_graph.graph import FORMAT, VERSION, Graph, manifest_of
from pygsage.data.one_graph.parts import name_of
from pygsage.data.one_graph.sampled import sampled_crc
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.memory.decide import DISK_SHARE, size_text
from pygsage.memory.machine import read_machine
from pygsage.memory.partition import PartitionConfig, metis_bytes
from pygsage.memory.peak import undroppable_bytes
from pygsage.spelling import parse_size

_AT_ONCE = 1 << 20  # edges that are looked at
_COPY_BYTES = 32 << 20  # of features that are copied at once
_SAMPLED_EDGES = 4096
_TRAIN_SHARE = 2  # all training nodes together weigh as much as so many times all nodes


def partition_graph(config: PartitionConfig) -> Graph:
    """Writes a graph's folder anew with its features in parts: all of it, or nothing.

    Raises:
        DatasetError: when the store is no graph's or in parts already, or the target exists.
        EnvironmentLimitError: when METIS is not installed, would not fit in memory (status 4), or the disk is full.

    Costs what `metis_bytes` says, and 24 bytes a node.
    """
    store, out = Path(os.path.expanduser(config.store)), Path(os.path.expanduser(config.out))
    graph = Graph.open(store)
    if graph.parts is not None:
        raise DatasetError(f"{store} is in {len(graph.parts)} parts already; expected the store it was made from.")
    if config.parts > graph.num_nodes:
        raise DatasetError(
            f"{store} has {graph.num_nodes} nodes; expected at least one for each of {config.parts} parts."
        )
    refuse_inside(store, out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):  # before any long work
        raise DatasetError(f"{out} exists already and is not empty; expected a new folder.")
    _check_disk(graph, store, out)
    if config.method == "metis" and config.parts > 1:
        check_memory(graph, config)
        part = _by_metis(graph, config)
    else:
        part = _by_range(graph, config.parts)
    write_folder(out, lambda folder: _write(graph, store, folder, part, config))
    return Graph.open(out)


def check_memory(graph: Graph, config: PartitionConfig) -> None:
    """Refuses a graph that METIS cannot hold.

    Raises:
        EnvironmentLimitError: with exit status 4, and the figures.
    """
    both_ways = share_both_ways(graph)
    need = metis_bytes(graph.num_nodes, graph.num_edges, both_ways) + undroppable_bytes()
    machine = read_machine()
    available, source = machine.memory_available_bytes, machine.memory_available_source
    if config.memory_limit is not None:
        available, source = parse_size(config.memory_limit, "--memory-limit"), "--memory-limit"
    if available is None or need <= DISK_SHARE * available:
        return
    error = EnvironmentLimitError(
        f"METIS would take about {size_text(need)} for {graph.num_nodes:,} nodes and {graph.num_edges:,} edges, of "
        f"which {both_ways:.0%} run both ways; there are {size_text(available)} ({source}).",
        "Type --method range, which takes none, or partition it on a larger machine.",
    )
    error.exit_status = 4
    raise error


def share_both_ways(graph: Graph) -> float:
    """The share of the edges whose reverse is there too, among 4,096 that are looked at."""
    if not graph.num_edges:
        return 1.0
    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    edges = np.unique(np.linspace(0, graph.num_edges - 1, min(_SAMPLED_EDGES, graph.num_edges)).astype(np.int64))
    targets = np.searchsorted(indptr, edges, side="right") - 1
    found = [
        target in indices[indptr[source] : indptr[source + 1]]
        for source, target in zip(indices[edges].tolist(), targets.tolist(), strict=True)
    ]
    return float(np.mean(found))


def _by_metis(graph: Graph, config: PartitionConfig) -> np.ndarray:
    try:
        import pymetis
    except ImportError as error:
        raise EnvironmentLimitError(
            f"pymetis, which calls METIS, cannot be loaded ({error}).",
            "Type: pip install pymetis, or add --method range.",
        ) from None
    starts, neighbours = _undirected(graph)
    weights = _weights(graph)
    _, part = pymetis.part_graph(
        config.parts,
        pymetis.CSRAdjacency(starts, neighbours),
        vweights=weights,
        options=pymetis.Options(seed=config.seed),
    )
    return np.asarray(part, dtype=np.int64)


def _undirected(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Each node's neighbours along edges of both directions, once each and without itself: int64, for METIS."""
    from scipy.sparse import csr_array

    size, indptr, indices = graph.num_nodes, graph.indptr.numpy(), graph.indices.numpy()
    # Bools, of which a sum is never zero however often an edge is there.
    forth = csr_array((np.ones(len(indices), np.bool_), indices, indptr), shape=(size, size))
    both = (forth + forth.T).tocsr()
    del forth
    starts, neighbours = both.indptr.astype(np.int64), both.indices
    del both
    rows = np.repeat(np.arange(size, dtype=neighbours.dtype), np.diff(starts))
    own = rows == neighbours
    if own.any():
        without = np.bincount(rows[own], minlength=size)
        starts[1:] -= np.cumsum(without)
        neighbours = neighbours[~own]
    return starts, neighbours.astype(np.int64)


def _weights(graph: Graph) -> np.ndarray:
    """int64 `[N]`: 1 for each node, so that parts are of one size, and more for those to train, which come first."""
    weights = np.ones(graph.num_nodes, np.int64)
    train = graph.splits["train"].numpy() if "train" in graph.splits else np.empty(0, np.int64)
    if len(train):
        weights[train] += max(1, round(_TRAIN_SHARE * graph.num_nodes / len(train)))
    return weights


def _by_range(graph: Graph, num_parts: int) -> np.ndarray:
    """Ranges of ids, one of the nodes to train and one of the others: each part has as many as any other, or one more.

    Of all nodes in one, parts that hold as many to train differ in size wherever those are not spread evenly.
    """
    to_train = np.zeros(graph.num_nodes, np.bool_)
    if "train" in graph.splits:
        to_train[graph.splits["train"].numpy()] = True
    train, of_all = (_even(count, num_parts) for count in (int(to_train.sum()), graph.num_nodes))
    part = np.empty(graph.num_nodes, np.int64)
    part[to_train] = np.repeat(np.arange(num_parts), train)
    part[~to_train] = np.repeat(np.arange(num_parts), of_all - train)
    return part


def _even(count: int, num_parts: int) -> np.ndarray:
    """int64 `[num_parts]` that add up to `count`, the first of them one more than the others where it must be."""
    return count // num_parts + (np.arange(num_parts) < count % num_parts)


def _check_disk(graph: Graph, store: Path, out: Path) -> None:
    at = next(parent for parent in out.absolute().parents if parent.is_dir())
    free = read_machine(folder=at).disk_free_bytes
    need = graph.x.nbytes + 8 * graph.num_nodes
    if at.stat().st_dev != store.stat().st_dev:
        need += sum(array.nbytes for name, array in graph.arrays().items() if name != "x")
    if free is not None and need > free:
        error = EnvironmentLimitError(
            f"The parts take {size_text(need)} of disk, and {size_text(free)} are free in {at}.",
            "Name a folder on a larger disk.",
        )
        error.exit_status = 4
        raise error


def _write(graph: Graph, store: Path, folder: Path, part: np.ndarray, config: PartitionConfig) -> None:
    order = np.argsort(part, kind="stable")  # the nodes by storage number: part by part, each by id
    begins = np.searchsorted(part[order], np.arange(config.parts + 1))
    place = np.empty(len(part), np.int32 if len(part) < 2**31 else np.int64)
    place[order] = np.arange(len(part), dtype=place.dtype)
    told = read_manifest(store.absolute(), {FORMAT: VERSION})["arrays"]
    (folder / "split").mkdir()
    for name in told:
        if name != "x":
            _take(store / f"{name}.npy", folder / f"{name}.npy")
    sync_folder(folder / "split")
    arrays = {name: each for name, each in told.items() if name != "x"}
    arrays["place"] = write_array(folder, "place", place)
    train = graph.splits["train"].numpy() if "train" in graph.splits else np.empty(0, np.int64)
    num_train = np.bincount(part[train], minlength=config.parts).tolist()
    parts: list[dict[str, Any]] = []
    for number in range(config.parts):
        (folder / name_of(number)).mkdir()
        nodes = order[begins[number] : begins[number + 1]]
        rows = _write_rows(graph.x.numpy(), nodes, folder / name_of(number))
        sampled = sampled_crc(map_array(folder / name_of(number), "x", rows))
        parts.append({"x": rows, "sampled_crc": sampled, "num_train": num_train[number]})
    about = {"method": config.method, "seed": config.seed, "edge_cut": _edge_cut(graph, part)}
    x = {"dtype": told["x"]["dtype"], "shape": told["x"]["shape"], "sampled_crc": sampled_crc(graph.x)}
    x["place_crc"] = sampled_crc(torch.from_numpy(place))
    more = {"x": x, "parts": parts, "partition": about, "partition_of": str(store.absolute())}
    write_manifest(folder, manifest_of(graph.name, graph.num_classes, graph.task, graph.notes, arrays, **more))


def _write_rows(x: np.ndarray, nodes: np.ndarray, folder: Path) -> dict[str, Any]:
    step = max(1, _COPY_BYTES // max(1, x.itemsize * x.shape[1]))
    with ArrayWriter(folder, "x", x.dtype, x.shape[1:]) as writer:
        for begin in range(0, len(nodes), step):
            writer.write(read_rows(x, nodes[begin : begin + step]))
        return writer.finish()


def _take(source: Path, target: Path) -> None:
    """A second name for a file, where the disk allows it: files of a graph are replaced, and never changed."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())


def _edge_cut(graph: Graph, part: np.ndarray) -> float:
    """The share of the edges whose ends lie in two parts."""
    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    cut = 0
    for begin in range(0, len(indices), _AT_ONCE):
        end = min(begin + _AT_ONCE, len(indices))
        first, last = np.searchsorted(indptr, [begin, end - 1], side="right") - 1
        bounds = indptr[first : last + 2].clip(begin, end)
        targets = np.repeat(part[first : last + 1], np.diff(bounds))
        cut += int((part[indices[begin:end]] != targets).sum())
    return cut / max(1, len(indices))
