"""OGB's own scores beside ours, for datasets of OGB's."""

from __future__ import annotations

from torch import Tensor

from pygsage.data.names import parse_reference
from pygsage.distributed import World


def ogb_metric(dataset: str) -> str | None:
    """The name of the official score, `ogb_acc` or `ogb_rocauc`, or None for a dataset that is not OGB's."""
    if not _is_ogb(dataset):
        return None
    from pygsage.data.ogb_package import ogb_entry

    return f"ogb_{ogb_entry(dataset).metric}"


def score_with_ogb(dataset: str, y: Tensor, scores: Tensor, nodes: Tensor, world: World) -> dict[str, float]:
    """What OGB's evaluator says of some nodes, on rank 0 and told to all; nothing for other datasets.

    Args:
        y: Labels of all nodes.
        scores: Outputs for all nodes, [N, C].
        nodes: int64 [n].
    """
    if not _is_ogb(dataset):
        return {}
    from pygsage.data.ogb_package import ogb_scores

    found = ogb_scores(dataset, y[nodes], scores[nodes]) if world.is_main else None
    told: dict[str, float] = world.broadcast(found)
    return {f"ogb_{name}": value for name, value in told.items()}


def _is_ogb(dataset: str) -> bool:
    return dataset.startswith("ogbn-") and parse_reference(dataset).kind == "ogb"
