"""A graph of ours as a source: for options that ask for other edges, features or labels than those in its folder."""

from __future__ import annotations

from pygsage.config import TrainConfig
from pygsage.data.files.arrays import read_manifest
from pygsage.data.names import Reference
from pygsage.data.one_graph.graph import FORMAT, VERSION, Graph
from pygsage.data.one_graph.raw import RawGraph
from pygsage.errors import DatasetError
from pygsage.spelling import flag

_ADD_EDGES = ("undirected", "self_loops")
_OTHERS = ("normalize_features", "relabel", "ignore_label", "task")


def read_folder(reference: Reference, config: TrainConfig) -> RawGraph:
    """Maps the folder; its edges are in `grouped`, by destination.

    Args:
        config: The options that ask for other arrays than those in it.

    Raises:
        DatasetError: when it is damaged, or an option has added edges to it already.
    """
    graph = Graph.open(str(reference.path))
    default = TrainConfig()
    typed = [name for name in (*_ADD_EDGES, *_OTHERS) if getattr(config, name) != getattr(default, name)]
    typed = [name for name in typed if name != "task" or config.task != graph.task]  # which goes with the folder
    said = ", ".join(map(flag, typed))
    if graph.edge_id is not None and len(graph.edge_id) and int(graph.edge_id.min()) < 0:
        made = _made_with(graph)
        how = " and ".join(map(flag, made)) or "options that added edges"
        if typed and set(typed) <= set(made):
            raise DatasetError(
                f"{reference.text} was made with {how} and has those edges; expected no {said} once more.",
                f"Leave {said} out.",
            )
        raise DatasetError(
            f"{reference.text} was made with {how}, and {said or 'convert'} would begin from the edges that the "
            "dataset has itself; expected a folder without the added ones.",
            f"Leave {said} out, or convert the dataset itself with all of these options."
            if said
            else "Convert the dataset itself.",
        )
    if graph.parts is not None:
        raise DatasetError(
            f"{reference.text} is in parts, which are trained on as they are; expected no option that changes edges, "
            f"features or labels, and no conversion{f' (found {said})' if said else ''}.",
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


def _made_with(graph: Graph) -> list[str]:
    """The options that added edges when the folder was made, as far as its manifest tells them."""
    assert graph.folder is not None
    made = read_manifest(graph.folder, {FORMAT: VERSION}).get("fingerprint")
    told = str(made.get("options", "")).split("+") if isinstance(made, dict) else []
    return [name for name in _ADD_EDGES if name in told]
