"""In-neighbours grouped by destination (CSC), written to files in bounded memory, whatever the number of edges.

The edges are dealt out by ranges of destinations into one file, each range is sorted in RAM, and appended: two passes
over the edges (three when reverse edges are added), and no array of all of them in RAM.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from pygsage.data.files.arrays import ArrayWriter, counts_up
from pygsage.errors import EnvironmentLimitError
from pygsage.memory.peak import release_free_memory
from pygsage.native import core

BLOCK_EDGES = 1 << 19  # read and dealt out at once
RECORD_BYTES = 36  # RAM for an edge of the range that is sorted
CHANGED_RECORD_BYTES = 53  # the same where edges are added or left out: the range is copied for it


class Block(NamedTuple):
    """Some edges: sources, destinations, and each one's place in the user's list; integer arrays of one length."""

    sources: np.ndarray
    destinations: np.ndarray
    positions: np.ndarray


class EdgeBlocks(Protocol):
    """Edges that can be read block by block, as often as needed."""

    @property
    def num_edges(self) -> int:
        """How many there are."""

    def blocks(self) -> Iterator[Block]:
        """All of them, in blocks of up to `BLOCK_EDGES`."""


class ListedEdges:
    """The blocks of an integer `[2, E]`, in RAM or mapped from a file."""

    def __init__(self, edge_index: Tensor) -> None:
        self._edge_index = edge_index.numpy()
        self.num_edges = int(edge_index.size(1))

    def blocks(self) -> Iterator[Block]:
        for start in range(0, self.num_edges, BLOCK_EDGES):
            sources, destinations = self._edge_index[:, start : start + BLOCK_EDGES]
            yield Block(sources, destinations, np.arange(start, start + len(sources)))


class GroupedEdges:
    """The blocks of a CSC: `indptr [N + 1]`, `indices [E]`, and each edge's place in the user's list `[E]`, or None."""

    def __init__(self, indptr: Tensor, indices: Tensor, edge_id: Tensor | None) -> None:
        self._indptr, self._indices = indptr.numpy(), indices.numpy()
        self._edge_id = None if edge_id is None else edge_id.numpy()
        self.num_edges = len(self._indices)

    def blocks(self) -> Iterator[Block]:
        for start in range(0, self.num_edges, BLOCK_EDGES):
            end = min(start + BLOCK_EDGES, self.num_edges)
            first, last = np.searchsorted(self._indptr, [start, end - 1], side="right") - 1
            bounds = self._indptr[first : last + 2].clip(start, end)
            yield Block(
                self._indices[start:end],
                np.repeat(np.arange(first, last + 1), np.diff(bounds)),
                np.arange(start, end) if self._edge_id is None else self._edge_id[start:end],
            )


def write_csc(
    edges: EdgeBlocks,
    num_nodes: int,
    folder: Path,
    work: Path,
    *,
    undirected: bool = False,
    self_loops: bool = False,
    budget_bytes: int,
) -> dict[str, dict[str, Any]]:
    """Writes `indptr.npy`, `indices.npy` and `edge_id.npy` as the same steps in RAM would make them, byte for byte.

    Those steps are `options.to_undirected`, `options.add_self_loops` and `csc.build_csc`.

    Args:
        edges: Ids in range.
        work: A folder for a file that is deleted at the end: 16 bytes an edge, twice that for `undirected`.
        budget_bytes: RAM for all of it, of which a quarter at least is for the sorting. A node whose own edges exceed
            it is copied through in blocks, unless they are not in the order of the user's list.

    Returns:
        What a manifest says of the three files, or of two where the ids only count up: then they are not kept.

    Raises:
        EnvironmentLimitError: when the disk cannot hold the file of `work`.

    Costs O(N + E log E) time; RAM of the budget, and never less than 16 bytes a node and 40 MiB.
    """
    each = CHANGED_RECORD_BYTES if undirected or self_loops else RECORD_BYTES
    counts = _count(edges, num_nodes, undirected)
    for_sorting = max(budget_bytes - 16 * num_nodes, budget_bytes // 4)
    bounds, sizes = _ranges(counts, max(1, for_sorting // each))
    del counts
    index_dtype = np.dtype(np.int32 if num_nodes < 2**31 else np.int64)
    job = _Job(edges.num_edges, num_nodes, undirected, self_loops, _record(index_dtype))
    with (
        ArrayWriter(folder, "indptr", np.dtype(np.int64)) as indptr,
        ArrayWriter(folder, "indices", index_dtype) as indices,
        ArrayWriter(folder, "edge_id", np.dtype(np.int64)) as edge_id,
    ):
        total, as_given = 0, True
        indptr.write(np.zeros(1, dtype=np.int64))
        for first, end, pieces in _deal(edges, job, bounds, sizes, work):
            if isinstance(pieces, np.ndarray):
                degrees, sorted_pieces = job.sort(pieces, first, end)
            else:
                sorted_pieces = job.copy_node(pieces, first)
                degrees = np.zeros(1, dtype=np.int64)
            own = 0
            sources = ids = None
            for sources, ids in sorted_pieces:
                indices.write(sources)
                edge_id.write(ids)
                as_given = as_given and counts_up(ids, total + own)
                own += len(sources)
            if len(degrees) == 1:
                degrees[0] = own
            np.cumsum(degrees, out=degrees)
            indptr.write(degrees + total)
            total += own
            del pieces, sorted_pieces, sources, ids, degrees  # before the next range is read
        told = {"indptr": indptr.finish(), "indices": indices.finish()}
        if not as_given:
            return {**told, "edge_id": edge_id.finish()}
    (folder / "edge_id.npy").unlink()
    return told


def _record(index_dtype: np.dtype) -> np.dtype:
    return np.dtype([("to", index_dtype), ("from", index_dtype), ("rank", np.int64)])


def _count(edges: EdgeBlocks, num_nodes: int, undirected: bool) -> np.ndarray:
    counts = np.zeros(num_nodes, dtype=np.int64)
    for block in edges.blocks():
        for ends in (block.destinations, block.sources) if undirected else (block.destinations,):
            if num_nodes <= 4 * len(ends):
                counts += np.bincount(ends, minlength=num_nodes)
            else:
                np.add.at(counts, ends, 1)
    return counts


def _ranges(counts: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Ranges of nodes with up to `most` nodes and records each, or a single node; and the records of each range."""
    before = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=before[1:])
    bounds = [0]
    while bounds[-1] < len(counts):
        first = bounds[-1]
        end = int(np.searchsorted(before, before[first] + most, side="right")) - 1
        bounds.append(min(max(end, first + 1), first + most, len(counts)))
    chosen = np.array(bounds, dtype=np.int64)
    return chosen, np.diff(before[chosen])


def _deal(
    edges: EdgeBlocks, job: _Job, bounds: np.ndarray, sizes: np.ndarray, work: Path
) -> Iterator[tuple[int, int, np.ndarray | Callable[[], Iterator[np.ndarray]]]]:
    """Each range with its records: an array, or for one node with too many a function that reads them by and by."""
    if len(sizes) <= 1:
        if len(sizes):
            records = np.empty(int(sizes[0]), dtype=job.record)
            have = _fill(records, job.records(edges))
            release_free_memory()
            yield 0, int(bounds[1]), records[:have]
        return
    path = work / "edges.part"
    most = int(max(sizes[np.diff(bounds) > 1], default=BLOCK_EDGES))
    item = job.record.itemsize
    begins = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=begins[1:])
    with open(path, "w+b", buffering=0) as file:
        _reserve(file.fileno(), path, int(begins[-1]) * item)
        written = _deal_out(job.records(edges), bounds, begins[:-1], file.fileno())
        release_free_memory()  # what the blocks leave with the allocator would be held beside every range
        for number, (start, end) in enumerate(zip(begins[:-1].tolist(), written.tolist(), strict=True)):
            first, last = int(bounds[number]), int(bounds[number + 1])
            if last == first + 1 and end - start > max(most, BLOCK_EDGES) and _is_sorted(path, job, start, end):
                yield first, last, lambda begin=start, stop=end: _read(path, job.record, begin, stop)  # type: ignore[misc]
            else:
                yield first, last, np.fromfile(path, job.record, end - start, offset=start * item)
    path.unlink()


def _fill(records: np.ndarray, pieces: Iterator[np.ndarray]) -> int:
    have = 0
    for piece in pieces:
        records[have : have + len(piece)] = piece
        have += len(piece)
    return have


def _deal_out(pieces: Iterator[np.ndarray], bounds: np.ndarray, begins: np.ndarray, descriptor: int) -> np.ndarray:
    """Appends each record to its range's part of the file, and returns where each part ends now, in records."""
    written = begins.copy()
    for piece in pieces:
        place = (np.searchsorted(bounds, piece["to"], side="right") - 1).astype(np.int32)
        piece = piece[np.argsort(place, kind="stable")]
        share = np.bincount(place, minlength=len(begins))
        start = 0
        for number in np.flatnonzero(share).tolist():
            end = start + int(share[number])
            os.pwrite(descriptor, piece[start:end].data, int(written[number]) * piece.itemsize)
            written[number] += end - start
            start = end
    return written


def _read(path: Path, record: np.dtype, start: int, end: int) -> Iterator[np.ndarray]:
    for begin in range(start, end, BLOCK_EDGES):
        yield np.fromfile(path, record, min(BLOCK_EDGES, end - begin), offset=begin * record.itemsize)


def _is_sorted(path: Path, job: _Job, start: int, end: int) -> bool:
    last = -1
    for piece in _read(path, job.record, start, end):
        ranks = piece["rank"]
        if ranks[0] < last or (ranks[1:] < ranks[:-1]).any():
            return False
        last = int(ranks[-1])
    return True


def _reserve(descriptor: int, path: Path, num_bytes: int) -> None:
    """Takes the room on the disk at once: a full disk is an error now, not after an hour."""
    if not num_bytes or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise EnvironmentLimitError(
            f"{path.parent} cannot hold {num_bytes / 2**30:.2f} GiB of edges while they are sorted: {error.strerror}.",
            "Make room there, or name a folder on a larger disk.",
        ) from None


class _Job(NamedTuple):
    num_edges: int
    num_nodes: int
    undirected: bool
    self_loops: bool
    record: np.dtype

    def records(self, edges: EdgeBlocks) -> Iterator[np.ndarray]:
        """Each edge at its destination; then, for `undirected`, at its source too, ranked behind all of the first."""
        for block in edges.blocks():
            yield self._filled(block.destinations, block.sources, block.positions)
        if self.undirected:
            for block in edges.blocks():
                other = np.flatnonzero(block.sources != block.destinations)
                ranks = block.positions[other] + self.num_edges
                yield self._filled(block.sources[other], block.destinations[other], ranks)

    def _filled(self, to: np.ndarray, sources: np.ndarray, rank: np.ndarray) -> np.ndarray:
        records = np.empty(len(to), dtype=self.record)
        records["to"], records["from"], records["rank"] = to, sources, rank
        return records

    def ids(self, ranks: np.ndarray) -> np.ndarray:
        """The place in the user's list; -1 for what was added. Changes the ranks, which are the caller's own."""
        ranks[ranks >= self.num_edges] = -1
        return ranks

    def sort(
        self, records: np.ndarray, first: int, end: int
    ) -> tuple[np.ndarray, Iterator[tuple[np.ndarray, np.ndarray]]]:
        """Degrees of the nodes from `first` to below `end`, and their sources and edge ids."""
        if (records["rank"][1:] < records["rank"][:-1]).any():
            records = records[np.argsort(records["rank"], kind="stable")]
        if self.undirected:
            records = records[_first_of_each(records, first, self.num_nodes)]
        if self.self_loops:
            missing = np.ones(end - first, dtype=bool)
            missing[records["to"][records["to"] == records["from"]] - first] = False
            nodes = np.flatnonzero(missing) + first
            records = np.concatenate([records, self._filled(nodes, nodes, np.full(len(nodes), 2 * self.num_edges))])
        place = records["to"].astype(np.int64)
        place -= first
        degrees, order = _grouped(place, end - first)
        del place
        return degrees, iter([(records["from"][order], self.ids(records["rank"][order]))])

    def copy_node(
        self, pieces: Callable[[], Iterator[np.ndarray]], node: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same for one node whose records are in order, and are too many for RAM: piece by piece."""
        seen = np.zeros(self.num_nodes if self.undirected else 0, dtype=bool)
        looped = False
        for piece in pieces():
            if self.undirected:
                _, where = np.unique(piece["from"], return_index=True)
                piece = piece[np.sort(where)]
                piece = piece[~seen[piece["from"]]]
                seen[piece["from"]] = True
            looped |= bool((piece["from"] == node).any())
            yield piece["from"].copy(), self.ids(piece["rank"].copy())
        if self.self_loops and not looped:
            yield np.array([node], dtype=self.record["from"]), np.array([-1])


def _first_of_each(records: np.ndarray, first: int, num_nodes: int) -> np.ndarray:
    """Where the first record of each pair of nodes is, ascending."""
    keys = records["to"].astype(np.int64)
    keys -= first
    keys *= num_nodes  # below 2**62: an index of more than 2**31 nodes has no place here
    keys += records["from"]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return np.sort(order[new])


def _grouped(place: np.ndarray, num_places: int) -> tuple[np.ndarray, np.ndarray]:
    """How many there are of each place, and the stable order that groups them."""
    if core is None:
        return np.bincount(place, minlength=num_places), np.argsort(place, kind="stable")
    indptr, _, order = core.build_csc(place, place, num_places, "int32" if num_places < 2**31 else "int64")
    return np.diff(indptr), order
