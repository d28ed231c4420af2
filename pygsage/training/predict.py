"""Scores or embeddings of nodes or graphs from a finished run."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from pygsage.config import Split, TrainConfig
from pygsage.data.files.scratch import scratch_folder
from pygsage.data.storage import choose_storage
from pygsage.distributed import World
from pygsage.errors import DatasetError, RunError
from pygsage.spelling import check_choice, path_of
from pygsage.training.checkpoint import load_checkpoint, load_weights
from pygsage.training.content import check_content
from pygsage.training.opening import open_problem
from pygsage.training.run import BEST_KEYS
from pygsage.training.run_folder import saved_config


def predict(
    run: str | Path,
    split: Split = "test",
    *,
    embeddings: bool = False,
    root: str | None = None,
    offline: bool = False,
    trust_pickle: bool = False,
    data: Any = None,
) -> np.ndarray:
    """Computes raw scores or values, or embeddings, with the best weights of a run, over all neighbours.

    Args:
        run: A run directory.
        split: Which nodes, in the order in which the dataset lists the split; `all`: every node by id.
        embeddings: Return the last hidden layer, after its activation, instead of the scores.
        root: Folder of raw data, when it has moved since training.
        offline: Never use the network.
        trust_pickle: Read a `.pt` dataset that can run code when it is read.
        data: The PyG `Data` that `train` was given, for a run on one.

    Returns:
        float32 [n, C]: for classes scores before softmax (`argmax(1)` is the predicted class), for several labels
        scores before the sigmoid (above zero: more likely than not), for regression the predicted values; or
        [n, hidden] embeddings.

    Raises:
        RunError: when the run is missing, has no weights yet, or its weights do not fit the dataset.
        DatasetError: when the dataset cannot be opened, or has no such split.

    Cost: memory of two hidden layers of all nodes beside the dataset.
    """
    path = path_of(run, "run")
    check_choice(split, "split", ("train", "val", "test", "all"))
    values = saved_config(path)
    if values is None:
        raise RunError(f"'{run}' is no run directory: it has no config.yaml.", "Name a folder that train made.")
    moved: dict[str, Any] = {"root": root} if root is not None else {}
    # It evaluates, whether or not the run did: that says whether layers go to the disk.
    how = {"offline": offline, "trust_pickle": trust_pickle, "eval_every": 1}
    config = TrainConfig().with_values({**values, **moved, **how}, str(path / "config.yaml"))
    if not (path / "best.pt").exists():
        raise RunError(
            f"'{run}' has no weights yet: it ended before any were kept.",
            f"Go on with: pygsage train --run-dir {run} --resume",
        )
    best = load_checkpoint(path / "best.pt", BEST_KEYS)
    with ExitStack() as stack:
        problem = open_problem(config, stack, data, choose_storage(config, 1, refuse=False))
        storage = problem.storage
        found = problem.data
        if (best["in_channels"], best["out_channels"]) != (found.num_features, found.num_outputs):
            raise RunError(
                f"The run has {best['in_channels']} features and {best['out_channels']} outputs, the dataset now has "
                f"{found.num_features} and {found.num_outputs}.",
                "Use the dataset that the run was trained on.",
            )
        check_content(path, found)
        if split != "all" and split not in found.splits:
            raise DatasetError(
                f"{found.name} has no {split} {problem.unit}s.",
                f"Choose --split from: all, {', '.join(found.splits)}.",
            )
        model = problem.build_model(config)
        load_weights(model, best["model"], path / "best.pt")
        ids = slice(None) if split == "all" else found.splits[split]
        scratch = None
        if storage is not None and storage.kind == "disk":
            scratch = stack.enter_context(scratch_folder(path, ".scratch-"))
        wanted = None if isinstance(ids, slice) else ids
        return problem.predictor(model.eval(), World(), scratch, embeddings=embeddings, wanted=wanted)(ids).numpy()
