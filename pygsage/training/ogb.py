"""OGB's own scores beside ours, for datasets of OGB's."""

from __future__ import annotations

import torch
from torch import Tensor

from pygsage.data.names import parse_reference
from pygsage.distributed import World


def ogb_metric(dataset: str) -> str | None:
    """The name of the official score, such as `ogb_acc` or `ogb_rocauc`, or None for a dataset that is not OGB's."""
    if not _is_ogb(dataset):
        return None
    from pygsage.data.ogb_package import ogb_entry

    return f"ogb_{ogb_entry(dataset).metric}"


class OgbScores:
    """What OGB's evaluator says of what was added piece by piece; nothing for datasets that are not OGB's.

    Args:
        dataset: Its name.

    Cost: 16 bytes a node where the score is of classes, else all scores and labels.
    """

    def __init__(self, dataset: str) -> None:
        self.dataset, self._metric = dataset, ogb_metric(dataset)
        self._labels: list[Tensor] = []
        self._predicted: list[Tensor] = []

    def update(self, scores: Tensor, y: Tensor) -> None:
        """Adds some of this rank's outputs [n, C] and labels, [n] or [n, C]."""
        if self._metric is not None:
            # Of scores of classes the highest is enough.
            self._predicted.append(scores.argmax(dim=1) if self._metric == "ogb_acc" else scores)
            self._labels.append(y)

    def compute(self, world: World) -> dict[str, float]:
        """The scores, found by rank 0 and told to all: each rank has a share, and they are no sums of parts."""
        if self._metric is None:
            return {}
        from pygsage.data.ogb_package import ogb_scores

        y, predicted = (world.gather_rows(torch.cat(parts)) for parts in (self._labels, self._predicted))
        found = ogb_scores(self.dataset, y, predicted) if world.is_main else None
        told: dict[str, float] = world.broadcast(found)
        return {f"ogb_{name}": value for name, value in told.items()}


def _is_ogb(dataset: str) -> bool:
    return dataset.startswith("ogb") and parse_reference(dataset).kind in ("ogb", "ogb-graphs")
