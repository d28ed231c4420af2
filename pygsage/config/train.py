"""Options of `pygsage train`, which other commands share."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from pygsage.config.option import option
from pygsage.errors import ConfigError
from pygsage.spelling import (
    check_placement,
    check_types,
    flag,
    parse_fanouts,
    parse_gpus,
    parse_share,
    parse_size,
    parse_split,
)

BATCH_OF = {"node": 1024, "graph": 64}  # a step of 1,024 graphs would be a whole epoch of many a dataset
LOWER_IS_BETTER = frozenset(
    {"loss", "mae", "rmse", "ogb_rmse"}
)  # of the scores; of all others the higher is the better


@dataclass(frozen=True)
class TrainConfig:
    """Everything that defines a training run.

    Raises:
        ConfigError: when a value, or a combination of values, cannot be used.
    """

    dataset: str = option(
        "digits",
        "digits, digits-grid, path/to/graph.npz or .pt, path/to/recipe.py, the folder of a store, ogbn-arxiv, "
        "ogbg-molbace, or pyg:CLASS/NAME such as pyg:Planetoid/Cora",
        positional=True,
    )
    root: str | None = option(
        None, "folder of raw data for pyg: and OGB's datasets (default: the user's cache) and recipes (their own)"
    )
    run_dir: str | None = option(None, "where the run is kept (default: runs/DATASET-TIME)", transient=True)
    resume: bool = option(False, "go on from the last checkpoint of --run-dir", transient=True)
    dry_run: bool = option(False, "check everything, say what would be done, train nothing", transient=True)
    seed: int = option(0, "seed of every random choice: split, weights, order, neighbours, dropout")

    gpus: str = option(
        "auto", "a number of GPUs (4), a list of ids (0,2), 0 for the CPU, or auto: all visible", transient=True
    )
    procs: int | None = option(None, "processes on the CPU; one process a GPU otherwise", transient=True)

    epochs: int = option(10, "passes over the training nodes or graphs")
    max_steps: int | None = option(None, "stop after this many steps in all")
    batch_size: int | None = option(
        None,
        "seed nodes or graphs a step in each process (default: 1024 nodes, or 64 graphs; some datasets set their own)",
    )
    fanouts: tuple[int, ...] = option(
        (10, 10, 10),
        "neighbours drawn at each hop from the seeds outwards, one layer each; -1 takes all; of many graphs only their "
        "count is used, and all neighbours are taken",
    )
    hidden: int = option(256, "width of the hidden layers")
    dropout: float = option(0.5, "share of hidden activations that are dropped, in steps of 1/256")
    aggr: Literal["mean", "sum", "max"] = option("mean", "how neighbours are aggregated")
    readout: Literal["mean", "sum", "max"] = option("mean", "of many graphs: how the nodes of each are put together")
    norm: Literal["none", "layer", "batch"] = option(
        "none", "normalisation between layers; batch takes its statistics over the rows of each process"
    )
    lr: float = option(0.001, "learning rate of Adam")
    weight_decay: float = option(0.0005, "L2 penalty of Adam")
    scheduler: Literal["none", "cosine", "plateau"] = option(
        "none",
        "learning rate over time: cosine falls to zero over all planned steps; plateau halves it after 5 evaluations "
        "without a better validation score",
    )
    class_weights: bool = option(False, "weigh each class by the inverse of its share of the training nodes")
    precision: Literal["fp32", "bf16"] = option(
        "fp32", "bf16 multiplies matrices in bfloat16 while training; weights, sums and evaluation stay float32"
    )
    patience: int | None = option(None, "stop when the validation score has not risen for this many evaluations")
    eval_every: int = option(
        1,
        "epochs between evaluations on the validation nodes; 0 never evaluates, nor on the test nodes at the end: the "
        "last weights are the best, and pygsage predict scores them when it is asked",
    )
    task: Literal["auto", "classes", "multilabel", "regression"] = option(
        "auto",
        "what the labels are: auto takes whole numbers a node for classes, a table of 0 and 1 (NaN is missing) for "
        "multilabel, other numbers for regression",
    )
    ignore_label: int | None = option(None, "a label that means none: its nodes are left out of every split")
    metric: Literal[
        "auto",
        "accuracy",
        "f1_micro",
        "f1_macro",
        "rocauc",
        "ap",
        "mae",
        "rmse",
        "loss",
        "ogb_acc",
        "ogb_ap",
        "ogb_rmse",
        "ogb_rocauc",
    ] = option(
        "auto",
        "the score that chooses the best epoch: auto is accuracy for classes, rocauc for multilabel, rmse for "
        "regression, OGB's own for its datasets",
    )

    split: str = option(
        "public",
        "public: the dataset's own; random:.6/.2/.2: shares of all nodes (or graphs); per-class:20/30: train and val "
        "nodes of each class, the rest test; folds:10: --split-id 0 to 9 is the test, the next one val, the rest train",
    )
    split_id: int | None = option(None, "which of the dataset's splits, when it has several, or which fold")
    normalize_features: bool = option(False, "scale features as PyG's NormalizeFeatures: each node's sum to one")
    relabel: bool = option(
        False, "node ids are any whole numbers: those in node_id, or those in edge_index in ascending order"
    )
    undirected: bool = option(False, "add the reverse of every edge")
    self_loops: bool = option(False, "add an edge from each node to itself where there is none")

    sampler: Literal["auto", "native", "reference", "pyg-lib", "torch-sparse"] = option(
        "auto",
        "native C++ sampler; the plain Python reference (slow); auto: native where it is built; pyg-lib, torch-sparse: "
        "if installed; their draws depend on the number of processes",
        transient=True,
    )
    sampler_threads: int | None = option(
        None, "threads that prepare batches in each process (default: 1 or 2, by cores)", transient=True
    )
    storage: Literal["auto", "memory", "disk"] = option(
        "auto",
        "hold the dataset in memory, or read it from disk while training; auto: in memory when that fits",
    )
    memory_limit: str | None = option(
        None, "RAM that the job may take, such as 8GiB (default: what is available)", transient=True
    )
    remote_cache: str = option(
        "15%",
        "of a graph in parts, on several machines: rows of other machines that each process keeps, as a share of all "
        "nodes or a size such as 2GiB; less where memory leaves less",
        transient=True,
    )
    placement: Literal["auto", "cpu-cpu", "cpu-cuda", "pinned-cuda", "cuda-cuda"] = option(
        "auto",
        "where features lie, then the model: cpu-cuda copies batches to the GPU, pinned-cuda does so beside the step, "
        "cuda-cuda holds all features there; edges are sampled on the CPU; auto: the last that fits",
        transient=True,
    )
    gpu_cache_size: str | None = option(
        None, "memory of each GPU for the hottest rows of the features, such as 2GiB", transient=True
    )
    checkpoint_every_s: float = option(
        300.0, "seconds between checkpoints inside an epoch; one is written after each epoch anyway", transient=True
    )
    offline: bool = option(False, "never use the network", transient=True)
    trust_pickle: bool = option(False, "read .pt files that can run code when they are read", transient=True)
    quiet: bool = option(False, "print only the result", transient=True)
    json: bool = option(False, "print the result as one JSON object on the last line", transient=True)

    def __post_init__(self) -> None:
        # YAML and callers give lists, or one number; a frozen dataclass is compared and hashed by tuples.
        for name in ("gpus", "memory_limit", "remote_cache", "gpu_cache_size"):
            number: Any = getattr(self, name)
            if isinstance(number, int) and not isinstance(number, bool):  # as callers in Python and YAML give one
                object.__setattr__(self, name, str(number))
        given: Any = self.fanouts
        object.__setattr__(self, "fanouts", tuple(given) if isinstance(given, (list, tuple)) else (given,))
        check_types(self)
        _check_fanouts(self.fanouts)
        for name in ("epochs", "hidden"):
            _at_least(name, getattr(self, name), 1)
        for name in ("batch_size", "max_steps", "procs", "patience", "sampler_threads"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        for name in ("split_id", "eval_every"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 0)
        if self.eval_every == 0 and (self.patience is not None or self.scheduler == "plateau"):
            need = "--patience" if self.patience is not None else "--scheduler plateau"
            raise ConfigError(f"{need} follows the validation score, and --eval-every is 0.", "Leave one of them out.")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"{flag('seed')} is {self.seed}; expected an integer from 0 to 2**63 - 1.")
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(f"{flag('dropout')} is {self.dropout:g}; expected a number from 0 to below 1.")
        for name, least in (("lr", 0.0), ("weight_decay", 0.0), ("checkpoint_every_s", 0.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise ConfigError(f"{flag(name)} is {value:g}; expected a finite number of at least {least:g}.")
        kind, numbers = parse_split(self.split)
        if kind == "folds" and (self.split_id or 0) >= numbers[0]:
            raise ConfigError(
                f"--split-id is {self.split_id}, and --split {self.split} makes {numbers[0]:.0f} folds; expected a "
                f"number from 0 to {numbers[0] - 1:.0f}.",
                "Type for example --split-id 0.",
            )
        parse_gpus(self.gpus)
        parse_share(self.remote_cache, "--remote-cache")
        if self.memory_limit is not None:
            parse_size(self.memory_limit, "--memory-limit")
        check_placement(self.placement, self.gpu_cache_size, self.gpus)
        if self.resume and self.run_dir is None:
            raise ConfigError("--resume needs to know which run to go on with.", "Add --run-dir RUN.")

    def batch_of(self, unit: str) -> int:
        """Seeds a step in each process: what was typed, or the rule for labels of a `node` or of a `graph`."""
        return self.batch_size or BATCH_OF[unit]

    def for_unit(self, unit: str) -> TrainConfig:
        """The same with its batch size in force, whether it was typed or not."""
        return replace(self, batch_size=self.batch_of(unit))

    def to_dict(self) -> dict[str, Any]:
        """What defines the result of the run, as plain values that YAML and JSON can hold."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if not f.metadata.get("transient")}
        return {**kept, "fanouts": list(self.fanouts)}

    def with_values(self, values: dict[str, Any], origin: str) -> TrainConfig:
        """A copy with some fields replaced; `origin` names their source in errors.

        Raises:
            ConfigError: for an unknown name or a value that cannot be used.
        """
        known = {f.name for f in fields(self)}
        for name in values:
            if name not in known:
                raise ConfigError(
                    f"{origin} sets '{name}', which is no option of pygsage train.", _nearest(str(name), known)
                )
        try:
            if isinstance(values.get("fanouts"), str):
                values = {**values, "fanouts": parse_fanouts(values["fanouts"])}
            return replace(self, **values)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error.found}", error.advice) from None


def _check_fanouts(fanouts: tuple[int, ...]) -> None:
    if not fanouts or any(not isinstance(k, int) or isinstance(k, bool) or k < -1 or k == 0 for k in fanouts):
        shown = ",".join(str(k) for k in fanouts) or "empty"
        raise ConfigError(
            f"--fanouts is {shown}; expected one positive integer a layer, or -1 for all neighbours.",
            "Type for example --fanouts 10,10,10.",
        )


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{flag(name)} is {value}; expected an integer of at least {least}.")


def _nearest(name: str, known: set[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f"Did you mean '{near[0]}'?" if near else ""
