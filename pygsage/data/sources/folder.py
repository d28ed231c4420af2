"""A graph of ours as a source: for options that ask for other edges, features or labels than those in its folder."""

from __future__ import annotations

from pygsage.data.names import Reference
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.raw import RawGraph
from pygsage.errors import DatasetError


def read_folder(reference: Reference) -> RawGraph:
    """Maps the folder; its edges are in `grouped`, by destination.

    Raises:
        DatasetError: when it is damaged, or an option has added edges to it already.
    """
    graph = Graph.open(str(reference.path))
    if graph.edge_id is not None and len(graph.edge_id) and int(graph.edge_id.min()) < 0:
        raise DatasetError(
            f"{reference.text} was made with options that added edges; expected to be trained on as it is.",
            "Leave --undirected, --self-loops and the like out, or convert the dataset again without them.",
        )
    if graph.parts is not None:
        raise DatasetError(
            f"{reference.text} is in parts, which are trained on as they are; expected no option that changes edges, "
            "features or labels, and no conversion.",
            "Convert the dataset again with those options, then type pygsage partition.",
        )
    return RawGraph(
        name=reference.text,
        origin=reference.text,
        x=graph.x,
        edge_index=None,
        y=graph.y,
        splits={f"{name}_idx": ids for name, ids in graph.splits.items()},
        notes=list(graph.notes),
        node_id=graph.node_id,
        grouped=(graph.indptr, graph.indices, graph.edge_id),
    )
