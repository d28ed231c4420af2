"""OGB's own scores beside ours, for datasets of OGB's."""

from __future__ import annotations

from torch import Tensor

from pygsage.data.names import parse_reference
from pygsage.distributed import World


def ogb_metric(dataset: str) -> str | None:
    """The name of the official score, such as `ogb_acc` or `ogb_rocauc`, or None for a dataset that is not OGB's."""
    if not _is_ogb(dataset):
        return None
    from pygsage.data.ogb_package import ogb_entry

    return f"ogb_{ogb_entry(dataset).metric}"


def score_with_ogb(dataset: str, y: Tensor, scores: Tensor, world: World) -> dict[str, float]:
    """What OGB's evaluator says, on rank 0 and told to all; nothing for other datasets.

    Args:
        y: This rank's labels, [n] or [n, C].
        scores: This rank's outputs, [n, C].
    """
    if not _is_ogb(dataset):
        return {}
    from pygsage.data.ogb_package import ogb_scores

    # Each rank has a share, and the official score is no sum of parts; of scores of classes the highest is enough.
    predicted = scores.argmax(dim=1) if ogb_metric(dataset) == "ogb_acc" else scores
    y, predicted = world.gather_rows(y), world.gather_rows(predicted)
    found = ogb_scores(dataset, y, predicted) if world.is_main else None
    told: dict[str, float] = world.broadcast(found)
    return {f"ogb_{name}": value for name, value in told.items()}


def _is_ogb(dataset: str) -> bool:
    return dataset.startswith("ogb") and parse_reference(dataset).kind in ("ogb", "ogb-graphs")
