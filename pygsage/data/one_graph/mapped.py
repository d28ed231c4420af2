"""PyG's feature store and graph store over arrays that are mapped from a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, GraphStore, HeteroData, TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout

from pygsage.data.files.arrays import damaged, map_array, read_manifest, write_array, write_folder, write_manifest
from pygsage.data.one_graph import graph as one_graph
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.hetero import build_relation, count_nodes, edges_of
from pygsage.errors import DatasetError, in_words

FORMAT = "pygsage-hetero-graph"
VERSION = 1

EdgeType = tuple[str, str, str]
Group = str | EdgeType | None  # None: the nodes of a graph without types
Conversion = tuple[Any, Any, Any]


def open_stores(folder: str | Path) -> tuple[MappedFeatureStore, MappedGraphStore]:
    """Maps the folder of a `Graph`, or one that `save_hetero` wrote, as the pair that PyG's loaders take for data.

    Raises:
        DatasetError: when the folder is missing, incomplete, truncated, or not one of ours.
    """
    return MappedFeatureStore(folder), MappedGraphStore(folder)


def save_hetero(data: HeteroData, folder: str | Path) -> None:
    """Writes a heterogeneous graph to a folder that is new or empty: all of it, or nothing.

    Node and edge attributes are written as they are, edges as in-neighbours by destination (CSC).

    Raises:
        DatasetError: when the data are no HeteroData, have an attribute that is neither one row a node nor one row an
            edge, or an edge out of range; when the folder holds something already, or cannot be written.

    Costs one edge type's CSC at a time in RAM: 8 bytes a node and 12 an edge.
    """
    if not isinstance(data, HeteroData):
        raise DatasetError(
            f"save_hetero was given a {type(data).__name__}; expected a torch_geometric.data.HeteroData."
        )
    write_folder(folder, lambda unfinished: _write(data, unfinished))


class FeatureAttr(TensorAttr):
    """PyG's `TensorAttr`, of which an index may also be an array, as PyG documents."""

    def is_set(self, key: str) -> bool:
        """Whether a field was given; PyG compares an array with its mark element by element."""
        return getattr(self, key) is not self.__dataclass_fields__[key].default


class MappedFeatureStore(FeatureStore):
    """Node features, and in a heterogeneous graph edge features, mapped from a folder. Rows are copied when taken.

    A group is a node type, an edge type, or None for the nodes of a homogeneous graph. Edge features are in the order
    of the user's edges, which is that of `e_id`. An index may be a tensor of ids or a mask, an array, a slice, or an
    integer; with None the map itself comes back, without a copy. What is removed is forgotten by this object and its
    pickles; the files stay. Pickles hold the folder's path, so that each process maps the files for itself.

    Args:
        folder: A folder that `Graph.save` or `save_hetero` wrote.
        removed: Features to leave out, each a group and a name.

    Raises:
        DatasetError: as `open_stores`; also when something is put in.
    """

    def __init__(self, folder: str | Path, removed: Iterable[tuple[Group, str]] = ()) -> None:
        super().__init__(tensor_attr_cls=FeatureAttr)
        self.folder = Path(folder).absolute()
        self._removed = set(removed)
        contents = _open(self.folder)
        self._tensors = {key: value for key, value in contents.features.items() if key not in self._removed}

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Every feature's group and name: objects of the caller's own, as PyG writes indices into them."""
        return [FeatureAttr(group, name) for group, name in self._tensors]

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        tensor = self._tensors.get((attr.group_name, attr.attr_name))
        if tensor is None or attr.index is None:
            return tensor
        index = torch.from_numpy(attr.index) if isinstance(attr.index, np.ndarray) else attr.index
        if isinstance(index, Tensor):
            return tensor[index]
        return tensor[index].clone()  # a view of ten rows is pickled with all of the map behind it

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        tensor = self._get_tensor(attr)
        return None if tensor is None else tuple(tensor.shape)

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        key = (attr.group_name, attr.attr_name)
        self._removed.add(key)
        return self._tensors.pop(key, None) is not None

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise _read_only(self.folder)

    def update_tensor(self, tensor: Any, *args: Any, **kwargs: Any) -> bool:
        """Refused: the files are not changed."""
        raise _read_only(self.folder)

    def __reduce__(self) -> tuple[Callable[..., MappedFeatureStore], tuple[Any, ...]]:
        return MappedFeatureStore, (self.folder, tuple(self._removed))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"


class MappedGraphStore(GraphStore):
    """Edges mapped from a folder, held as in-neighbours by destination (CSC): sources int32 or int64, pointers int64.

    `csc` and `csr` say with their permutation where each edge stood in the user's list, -1 for one that an option
    added; `coo` gives the user's own order when there are no added ones. So an edge's id is the same as in memory.
    Removing and pickling are as for `MappedFeatureStore`.

    Args:
        folder: A folder that `Graph.save` or `save_hetero` wrote.
        removed: Edge types to leave out; None is that of a homogeneous graph.

    Raises:
        DatasetError: as `open_stores`; also when something is put in.
    """

    def __init__(self, folder: str | Path, removed: Iterable[EdgeType | None] = ()) -> None:
        super().__init__()
        self.folder = Path(folder).absolute()
        self._removed = set(removed)
        contents = _open(self.folder)
        self._num_nodes = contents.num_nodes
        self._edges = {key: value for key, value in contents.edges.items() if key not in self._removed}

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Every edge type with its layout and its numbers of source and destination nodes."""
        return [EdgeAttr(edge_type, EdgeLayout.CSC, size=self._size(edge_type)) for edge_type in self._edges]

    def csc(self, edge_types: list[Any] | None = None, store: bool = False) -> Conversion:
        """Sources, pointers, and each edge's position in the user's list (None: as it stands); copies nothing."""
        return self._with_ids(super().csc(edge_types), lambda edge_id, source, pointer, _: (source, pointer, edge_id))

    def csr(self, edge_types: list[Any] | None = None, store: bool = False) -> Conversion:
        """Pointers, destinations, and each edge's position in the user's list. Costs a sort and 24 bytes an edge."""
        return self._with_ids(
            super().csr(edge_types),
            lambda edge_id, pointer, target, perm: (pointer, target, perm if edge_id is None else edge_id[perm]),
        )

    def coo(self, edge_types: list[Any] | None = None, store: bool = False) -> Conversion:
        """Sources and destinations, int64, in the user's order. Costs 32 bytes an edge."""
        return self._with_ids(super().coo(edge_types), _in_order_of_ids)

    def _with_ids(self, converted: Conversion, change: Callable[..., Conversion]) -> Conversion:
        if not isinstance(converted[0], dict):
            return change(self._edges[None].edge_id, *converted)
        changed = {key: change(self._edges[key].edge_id, *(part[key] for part in converted)) for key in converted[0]}
        return tuple({key: parts[i] for key, parts in changed.items()} for i in range(3))  # type: ignore[return-value]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        edges = self._edges.get(edge_attr.edge_type)
        if edges is None or edge_attr.layout != EdgeLayout.CSC:
            return None
        return edges.indices, edges.indptr

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        self._removed.add(edge_attr.edge_type)
        return self._edges.pop(edge_attr.edge_type, None) is not None

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise _read_only(self.folder)

    def _size(self, edge_type: EdgeType | None) -> tuple[int, int]:
        source, target = (None, None) if edge_type is None else (edge_type[0], edge_type[2])
        return self._num_nodes[source], self._num_nodes[target]

    def __reduce__(self) -> tuple[Callable[..., MappedGraphStore], tuple[Any, ...]]:
        return MappedGraphStore, (self.folder, tuple(self._removed))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"


@dataclass(frozen=True)
class _Contents:
    num_nodes: dict[str | None, int]
    features: dict[tuple[Group, str], Tensor]
    edges: dict[EdgeType | None, _Edges]


class _Edges(NamedTuple):
    """In-neighbours by destination; `edge_id` is None where they are in the user's order."""

    indptr: Tensor
    indices: Tensor
    edge_id: Tensor | None


def _open(folder: Path) -> _Contents:
    manifest = read_manifest(folder, {one_graph.FORMAT: one_graph.VERSION, FORMAT: VERSION})
    if manifest["format"] == one_graph.FORMAT:
        graph = Graph.open(folder)
        if graph.parts is not None:
            raise DatasetError(
                f"{folder} is in parts, which only pygsage train and predict read; expected a whole graph."
            )
        edges = _Edges(graph.indptr, graph.indices, graph.edge_id)
        return _Contents({None: graph.num_nodes}, {(None, "x"): graph.x, (None, "y"): graph.y}, {None: edges})
    try:
        contents = _map_hetero(folder, manifest)
        _check_lengths(contents)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise damaged(folder, in_words(error)) from None
    return contents


def _map_hetero(folder: Path, manifest: Mapping[str, Any]) -> _Contents:
    features = {
        (_group(told["group"]), str(told["name"])): map_array(folder, f"feature-{i}", told)
        for i, told in enumerate(manifest["features"])
    }
    edges: dict[EdgeType | None, _Edges] = {
        _edge_type(told["type"]): _Edges(
            map_array(folder, f"indptr-{i}", told["indptr"], ("int64",)),
            map_array(folder, f"indices-{i}", told["indices"], ("int32", "int64")),
            map_array(folder, f"edge_id-{i}", told["edge_id"], ("int64",)),
        )
        for i, told in enumerate(manifest["edges"])
    }
    if (len(features), len(edges)) != (len(manifest["features"]), len(manifest["edges"])):
        raise ValueError("the manifest names an array twice")
    return _Contents({str(name): int(count) for name, count in manifest["num_nodes"].items()}, features, edges)


def _check_lengths(contents: _Contents) -> None:
    for edge_type, (indptr, indices, edge_id) in contents.edges.items():
        good = (
            edge_type is not None
            and edge_type[0] in contents.num_nodes
            and edge_id is not None
            and indptr.dim() == indices.dim() == edge_id.dim() == 1
            and len(indptr) == contents.num_nodes[edge_type[2]] + 1
            and int(indptr[0]) == 0
            and int(indptr[-1]) == len(indices) == len(edge_id)
        )
        if not good:
            raise ValueError(f"the lengths of the arrays of {edge_type} do not agree")
    for (group, name), tensor in contents.features.items():
        rows = len(contents.edges[group].indices) if isinstance(group, tuple) else contents.num_nodes[group]
        if tensor.dim() == 0 or len(tensor) != rows:
            raise ValueError(f"{name} of {group!r} has the shape {list(tensor.shape)}; expected {rows} rows")


def _write(data: HeteroData, folder: Path) -> None:
    num_nodes = count_nodes(data)
    features: list[dict[str, Any]] = []
    for group, name, array in _features(data, num_nodes):
        features.append({"group": group, "name": name, **write_array(folder, f"feature-{len(features)}", array)})
    edges: list[dict[str, Any]] = []
    for i, edge_type in enumerate(data.edge_types):
        source, _, target = edge_type
        csc = build_relation(edges_of(data, edge_type), num_nodes[source], num_nodes[target], f"Edge type {edge_type}")
        arrays = {"indptr": csc.indptr, "indices": csc.indices, "edge_id": csc.perm}
        written = {name: write_array(folder, f"{name}-{i}", tensor.numpy()) for name, tensor in arrays.items()}
        edges.append({"type": edge_type, **written})
    manifest = {"format": FORMAT, "version": VERSION, "num_nodes": num_nodes, "features": features, "edges": edges}
    write_manifest(folder, manifest)


def _features(data: HeteroData, num_nodes: Mapping[str, int]) -> Iterator[tuple[Group, str, np.ndarray]]:
    """Every attribute of the data but the edges; each is told by where it stands, not by its length."""
    if names := list(data._global_store.keys()):
        name = names[0]
        raise DatasetError(
            f"The data have {name!r}, which belongs to no node or edge type and cannot be stored.",
            f"Type: del data[{name!r}]",
        )
    for group in [*data.node_types, *data.edge_types]:
        edges = isinstance(group, tuple)
        rows = edges_of(data, group).size(1) if isinstance(group, tuple) else num_nodes[group]
        for name, value in data[group].items():
            if name == ("edge_index" if edges else "num_nodes"):
                continue
            array = _as_array(value)
            if array is None or array.ndim == 0 or len(array) != rows:
                what = f"of shape {list(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"
                raise DatasetError(
                    f"{name} of {group!r} is {what}; expected numbers, {rows} rows, one for each "
                    f"{'edge' if edges else 'node'}.",
                    f"Type: del data[{group!r}].{name}",
                )
            yield group, name, array


def _as_array(value: Any) -> np.ndarray | None:
    if isinstance(value, Tensor) and value.layout == torch.strided and value.dtype != torch.bfloat16:
        return value.detach().cpu().resolve_conj().resolve_neg().contiguous().numpy()
    return value if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" else None


def _in_order_of_ids(edge_id: Tensor | None, source: Tensor, target: Tensor, _: Any) -> Conversion:
    source = source.to(torch.int64)
    if edge_id is None or len(edge_id) == 0 or int(edge_id.min()) < 0:
        return source, target, None
    ordered = [torch.empty_like(ends).scatter_(0, edge_id, ends) for ends in (source, target)]
    return ordered[0], ordered[1], None


def _group(told: Any) -> Group:
    return told if isinstance(told, str) else _edge_type(told)


def _edge_type(told: Any) -> EdgeType:
    source, relation, target = told
    return str(source), str(relation), str(target)


def _read_only(folder: Path) -> DatasetError:
    return DatasetError(
        f"The stores in {folder} are read only.", "Change the HeteroData or Graph, and save it to a new folder."
    )
