"""Scores or embeddings of nodes from a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pygsage.config import Split, TrainConfig
from pygsage.data.open import open_graph
from pygsage.errors import DatasetError, RunError
from pygsage.nn.inference import layerwise_inference
from pygsage.training.checkpoint import load_checkpoint
from pygsage.training.rank import build_model
from pygsage.training.run import saved_config


def predict(
    run: str | Path,
    split: Split = "test",
    *,
    embeddings: bool = False,
    root: str | None = None,
    offline: bool = False,
) -> np.ndarray:
    """Computes class scores, or embeddings, with the best weights of a run, over all neighbours.

    Args:
        run: A run directory.
        split: Which nodes, in the order in which the dataset lists the split; `all`: every node by id.
        embeddings: Return the last hidden layer, after its activation, instead of the scores.
        root: Folder of raw data, when it has moved since training.
        offline: Never use the network.

    Returns:
        float32 [n, C] scores before softmax (`argmax(1)` is the predicted class), or [n, hidden] embeddings.

    Raises:
        RunError: when the run is missing, has no weights yet, or its weights do not fit the dataset.
        DatasetError: when the dataset cannot be opened, or has no such split.

    Cost: memory of two hidden layers of all nodes beside the dataset.
    """
    path = Path(run)
    values = saved_config(path)
    if values is None:
        raise RunError(f"'{run}' is no run directory: it has no config.yaml.", "Name a folder that train made.")
    moved: dict[str, Any] = {"root": root} if root is not None else {}
    config = TrainConfig().with_values({**values, **moved, "offline": offline}, str(path / "config.yaml"))
    best = load_checkpoint(path / "best.pt")
    graph = open_graph(config)
    if (best["in_channels"], best["out_channels"]) != (graph.num_features, graph.num_classes):
        raise RunError(
            f"The run has {best['in_channels']} features and {best['out_channels']} classes, the dataset now has "
            f"{graph.num_features} and {graph.num_classes}.",
            "Use the dataset that the run was trained on.",
        )
    if split != "all" and split not in graph.splits:
        raise DatasetError(
            f"{graph.name} has no {split} nodes.", f"Choose --split from: all, {', '.join(graph.splits)}."
        )
    model = build_model(config, graph.num_features, graph.num_classes)
    model.load_state_dict(best["model"])
    scores = layerwise_inference(model, graph.x, graph.indptr, graph.indices, last_hidden=embeddings)
    return (scores if split == "all" else scores[graph.splits[split]]).numpy()
