"""PyG's datasets in memory, whose graphs are joined already, read one graph or a block of graphs at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.data.separate import separate

from pygsage.data.files.ragged import gather_plain
from pygsage.data.store.attributes import count_key
from pygsage.data.store.intake import Intake
from pygsage.data.store.layout import Block
from pygsage.data.store.schema import DTYPES, Group

_MOST_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class _Part:
    """One attribute of all graphs: its tensor, where each graph begins, and the dimension in which they are joined."""

    group: Group
    key: str
    value: Tensor
    begins: np.ndarray
    cat_dim: int

    @property
    def row_bytes(self) -> int:
        return self.value.element_size() * (self.value.numel() // max(self.value.size(self.cat_dim), 1))

    def of(self, idx: int) -> Tensor:
        """That of one graph: a view."""
        start = self.begins.item(idx)
        return self.value.narrow(self.cat_dim, start, self.begins.item(idx + 1) - start)


def reader(dataset: InMemoryDataset) -> Callable[[int], Any]:
    """`dataset.get` without the list of all items that it fills."""
    data, slices = dataset._data, dataset.slices
    if dataset.len() == 1:
        return lambda idx: copy.copy(data)
    kind = type(data)
    parts = _parts(data, slices) if kind in (Data, HeteroData) else None
    if parts is None:
        return lambda idx: separate(cls=kind, batch=data, idx=idx, slice_dict=slices, decrement=False)
    num_nodes = _told_nodes(data)
    if kind is HeteroData:  # PyG's own fails for a node type of which only the number is known
        return lambda idx: _separate_types(data, parts, num_nodes, idx)
    told = num_nodes.get(None)

    def read(idx: int) -> Any:
        graph = Data()
        mapping = graph._store._mapping
        for part in parts:
            mapping[part.key] = part.of(idx)
        if told is not None:
            mapping["num_nodes"] = told.item(idx)
        return graph

    return read


def _separate_types(data: HeteroData, parts: list[_Part], num_nodes: Mapping[Group, np.ndarray], idx: int) -> Any:
    graph = HeteroData()
    for storage in data.stores:
        group: Group = storage._key
        out = graph._global_store if group is None else graph[group]
        for part in parts:
            if part.group == group:
                out[part.key] = part.of(idx)
        if group in num_nodes:
            out.num_nodes = num_nodes[group].item(idx)
    return graph


def _told_nodes(data: Any) -> dict[Group, np.ndarray]:
    """The numbers of nodes that the graphs were given, int64, of each type of which they were."""
    told = {storage._key: storage.__dict__.get("_num_nodes") for storage in data.stores}
    return {group: np.array(numbers, dtype=np.int64) for group, numbers in told.items() if numbers is not None}


class Blocks:
    """The graphs of a collated dataset, or of a subset of one, many at a time.

    Args:
        data: All graphs joined.
        parts: Its attributes.
        indices: Which graphs are meant, in this order.
    """

    def __init__(self, data: Any, parts: list[_Part], indices: Sequence[int]) -> None:
        self._parts, self._indices = parts, indices
        self._num_nodes = _told_nodes(data)
        self._keys: dict[Group, list[str]] = {}
        for storage in data.stores:
            group: Group = storage._key
            keys = [part.key for part in parts if part.group == group]
            if (not isinstance(data, HeteroData) or isinstance(group, str)) and (keys or group in self._num_nodes):
                self._keys[group] = keys

    def take(self, start: int, intake: Intake, room_bytes: int) -> tuple[int, Block | None]:
        """The next graphs from position `start` on, some `room_bytes` of them: how many, and they as a block.

        No block where they have to be taken one by one: the first of all, by which the intake learns what they have,
        and those that it would refuse, which are then named.
        """
        columns = {(column.group, column.key): column for column in intake.columns}
        ids = self._ids(start, _MOST_AT_ONCE)
        begins = [part.begins[ids] for part in self._parts]
        rows = [part.begins[ids + 1] - first for part, first in zip(self._parts, begins, strict=True)]
        num_bytes = sum((n * part.row_bytes for n, part in zip(rows, self._parts, strict=True)), np.zeros(len(ids)))
        num = max(1, int(np.searchsorted(np.cumsum(num_bytes), room_bytes, side="right")))
        ids, rows, begins = ids[:num], [n[:num] for n in rows], [b[:num] for b in begins]
        named = {(part.group, part.key) for part in self._parts} | {(group, "num_nodes") for group in self._num_nodes}
        if named != columns.keys():
            return num, None
        counts: dict[Group, np.ndarray] = {}
        for group, keys in self._keys.items():
            key = count_key(keys)
            if group in self._num_nodes:
                counts[group] = self._num_nodes[group][ids]
            elif key is not None:
                counts[group] = next(
                    n for n, p in zip(rows, self._parts, strict=True) if (p.group, p.key) == (group, key)
                )
            else:
                return num, None  # it is told by the largest id of each graph
        if counts.keys() != intake.counts.keys() or any((n < 0).any() for n in counts.values()):
            return num, None
        block = Block(num, [], counts)
        for part, first, n in zip(self._parts, begins, rows, strict=True):
            column = columns[part.group, part.key]
            rest = tuple(size for d, size in enumerate(part.value.shape) if d != part.cat_dim)
            if (column.torch_dtype, column.cat_dim, column.shape) != (part.value.dtype, part.cat_dim, rest):
                return num, None
            block.values.append((column, _bytes(part, first, n), n))
        for group, told in self._num_nodes.items():
            column = columns[group, "num_nodes"]
            if column.kind != "int":
                return num, None
            block.values.append((column, told[ids].astype("<i8").tobytes(), np.ones(num, dtype=np.int64)))
        return num, block if intake.allows(block) else None

    def _ids(self, start: int, most: int) -> np.ndarray:
        chosen = self._indices[start : start + most]
        if isinstance(chosen, range):
            return np.arange(chosen.start, chosen.stop, chosen.step)
        return np.asarray(chosen, dtype=np.int64)


def blocks_of(dataset: InMemoryDataset) -> Blocks | None:
    """The graphs of a dataset in blocks; None where PyG's own code has to take it apart."""
    data = dataset._data
    if type(data) not in (Data, HeteroData) or dataset.len() < 2:
        return None
    parts = _parts(data, dataset.slices)
    return None if parts is None else Blocks(data, parts, dataset.indices())


def _parts(data: Any, slices: Any) -> list[_Part] | None:
    parts = []
    for storage in data.stores:
        group: Group = storage._key
        if not all(isinstance(n, int) for n in storage.__dict__.get("_num_nodes") or ()):
            return None
        own = slices if group is None else slices.get(group, {})
        for key in [key for key in own if key in storage and not isinstance(own[key], dict)]:
            value = storage[key]
            if type(value) is not Tensor or not isinstance(own[key], Tensor) or value.dim() == 0:
                return None
            cat_dim = data.__cat_dim__(key, value, storage)
            plain = value.layout is torch.strided and value.device.type == "cpu" and value.dtype in DTYPES
            if not isinstance(cat_dim, int) or not plain or value.is_nested or value.is_quantized:
                return None
            parts.append(_Part(group, key, value.detach(), own[key].numpy(), cat_dim % value.dim()))
    return parts


def _bytes(part: _Part, begins: np.ndarray, lengths: np.ndarray) -> memoryview:
    """What the store has of some graphs: the joined dimension first. Without a copy where it lies so already."""
    value = part.value.view(torch.int16) if part.value.dtype is torch.bfloat16 else part.value
    start, total = int(begins[0]), int(lengths.sum())
    if (begins[1:] == begins[:-1] + lengths[:-1]).all():
        joined = value.narrow(part.cat_dim, start, total).movedim(part.cat_dim, 0).contiguous().numpy()
    else:
        joined = gather_plain(value.movedim(part.cat_dim, 0).numpy(), begins, lengths)
    return np.ascontiguousarray(joined).reshape(-1).view(np.uint8).data
