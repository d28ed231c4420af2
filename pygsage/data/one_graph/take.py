"""From what PyG calls a graph to what we do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pygsage.data.one_graph.raw import SPLITS, RawGraph
from pygsage.errors import DatasetError

SPLIT_KEYS = tuple(f"{name}_{kind}" for name in SPLITS for kind in ("mask", "idx"))
_EXPECTED = "expected one graph with node labels"
_UNUSED = ("edge_attr", "edge_weight")


class ManyGraphs(DatasetError):
    """There are many graphs where one was expected; whoever can train on many goes on with them.

    Args:
        found: As for `DatasetError`.
        dataset: The dataset, opened; None when its source has to be opened again.
    """

    def __init__(self, found: str, dataset: Any = None) -> None:
        super().__init__(found)
        self.dataset = dataset


def raw_from_data(text: str, origin: str, data: Any, num_graphs: int = 1) -> RawGraph:
    """The parts of a PyG `Data` that are trained on, as they are.

    Args:
        text: The dataset as the user named it.
        origin: Where it was found, for errors.
        num_graphs: How many graphs there are beside this one, itself included.

    Raises:
        ManyGraphs: when there are several.
        DatasetError: when it is not one homogeneous graph with an edge list.
    """
    from torch_geometric.data import Data, HeteroData

    if num_graphs != 1:
        raise ManyGraphs(f"{origin} holds {num_graphs} graphs; {_EXPECTED}.")
    if isinstance(data, HeteroData):
        types = ", ".join(map(str, data.node_types[:6])) or "none"
        raise DatasetError(
            f"{origin} is heterogeneous (node types {types}); {_EXPECTED} and a single type of nodes: HeteroData is "
            "not trained yet by pygsage train.",
            "PyG's own models and loaders take it, on our sampler too: torch_geometric.loader.NeighborLoader(data, "
            "fanouts, neighbor_sampler=pygsage.NeighborSampler(data, fanouts), input_nodes=TYPE); or make a Data of "
            "one type.",
        )
    if not isinstance(data, Data):
        raise DatasetError(
            f"{origin} holds a {type(data).__name__}; {_EXPECTED}.", "Make a torch_geometric.data.Data of it."
        )
    return raw_from_mapping(text, origin, {key: data[key] for key in data.keys()})  # noqa: SIM118


def raw_from_mapping(text: str, origin: str, values: Mapping[str, Any]) -> RawGraph:
    """The same of a plain mapping with the names that a `Data` or an `.npz` would have.

    Raises:
        DatasetError: when there is an `adj_t` in the place of `edge_index`.
    """
    if values.get("edge_index") is None and values.get("adj_t") is not None:
        raise DatasetError(
            f"{origin} has adj_t and no edge_index; expected edge_index [2, edges].",
            "Make it with torch_geometric.utils.to_edge_index(adj_t), and exchange its two rows.",
        )
    return RawGraph(
        name=text,
        origin=origin,
        x=values.get("x"),
        edge_index=values.get("edge_index"),
        y=values.get("y"),
        splits={key: values[key] for key in SPLIT_KEYS if values.get(key) is not None},
        notes=[f"Not used: {key}." for key in _UNUSED if values.get(key) is not None],
        node_id=values.get("node_id"),
    )
