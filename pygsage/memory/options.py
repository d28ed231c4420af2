"""Options of an estimate: what a dataset holds, and those of `train` that change memory."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from pygsage.config import TrainConfig, option
from pygsage.errors import ConfigError
from pygsage.spelling import check_placement, check_types, flag, parse_size

_NUMBERS = ("num_graphs", "avg_nodes", "avg_edges", "num_features")
_OF_TRAIN = {f.name: f for f in fields(TrainConfig)}


def _as_in_train(name: str) -> Any:
    return option(_OF_TRAIN[name].default, _OF_TRAIN[name].metadata["help"])


@dataclass(frozen=True)
class EstimateConfig:
    """Says what a dataset takes in RAM, on disk and on a GPU before it is read, and whether it fits this machine.

    Raises:
        ConfigError: when a value, or a combination of values, cannot be used.
    """

    dataset: str = option(
        "",
        "a name (ogbn-papers100M, pyg:Reddit), an .npz, .npy or .pt file, a folder of raw data, a graph or store "
        "of ours, or a recipe, whose first graphs are made; or leave it out and type numbers",
        positional=True,
    )
    root: str | None = _as_in_train("root")
    num_graphs: int | None = option(None, "how many graphs; 1 for one large graph")
    avg_nodes: float | None = option(None, "nodes a graph, on average")
    avg_edges: float | None = option(None, "directed edges a graph, on average")
    num_features: int | None = option(None, "features a node")
    dtype: Literal["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"] = (
        option("float32", "dtype of the features as stored")
    )
    num_classes: int = option(2, "classes, or width of the output")
    edge_features: int = option(0, "features an edge")
    degree: Literal["unknown", "constant", "poisson", "power"] = option(
        "unknown", "how degrees spread: power for hubs; where it is unknown, sampled nodes are bounded by the fanouts"
    )

    gpus: str = _as_in_train("gpus")
    procs: int | None = _as_in_train("procs")
    batch_size: int | None = _as_in_train("batch_size")
    fanouts: tuple[int, ...] = _as_in_train("fanouts")
    hidden: int = _as_in_train("hidden")
    norm: Literal["none", "layer", "batch"] = _as_in_train("norm")
    precision: Literal["fp32", "bf16"] = _as_in_train("precision")
    undirected: bool = _as_in_train("undirected")
    self_loops: bool = _as_in_train("self_loops")
    sampler_threads: int | None = _as_in_train("sampler_threads")
    eval_every: int = _as_in_train("eval_every")
    placement: Literal["auto", "cpu-cpu", "cpu-cuda", "pinned-cuda", "cuda-cuda"] = _as_in_train("placement")
    gpu_cache_size: str | None = _as_in_train("gpu_cache_size")

    memory_limit: str | None = option(None, "RAM that the job may take, such as 8GiB (default: what is available)")
    memory_share: float = option(0.5, "share of the RAM that may be planned for a dataset in memory")
    disk: str = option(".", "folder whose disk would hold a converted dataset")
    json: bool = option(False, "print the answer as one JSON object")

    def __post_init__(self) -> None:
        for name in ("gpus", "memory_limit", "gpu_cache_size"):
            number: Any = getattr(self, name)
            if isinstance(number, int) and not isinstance(number, bool):  # as callers in Python give one
                object.__setattr__(self, name, str(number))
        hops: Any = self.fanouts
        object.__setattr__(self, "fanouts", tuple(hops) if isinstance(hops, (list, tuple)) else (hops,))
        check_types(self)
        given = [name for name in _NUMBERS if getattr(self, name) is not None]
        if not self.dataset and not given:
            raise ConfigError(
                "estimate-memory needs a dataset or its numbers.",
                "Type for example pygsage estimate-memory ogbn-arxiv, or --num-graphs 1 --avg-nodes 1000000 "
                "--avg-edges 10000000 --num-features 128.",
            )
        if self.dataset and given:
            raise ConfigError(
                f"{flag(given[0])} and the dataset {self.dataset} were both given.", "Leave one of them out."
            )
        if given and len(given) < len(_NUMBERS):
            missing = ", ".join(flag(name) for name in _NUMBERS if name not in given)
            raise ConfigError(f"{', '.join(map(flag, given))} need {missing} beside them.")
        for name in (*_NUMBERS, "num_classes", "edge_features", "procs", "batch_size", "hidden", "sampler_threads"):
            value, least = getattr(self, name), 0 if name in ("num_features", "avg_edges", "edge_features") else 1
            if value is not None and not (least <= value < 2**62):
                raise ConfigError(f"{flag(name)} is {value:g}; expected a number of at least {least}.")
        TrainConfig(fanouts=self.fanouts)  # says what is wrong with them
        check_placement(self.placement, self.gpu_cache_size, self.gpus)
        if not 0 < self.memory_share <= 1:
            raise ConfigError(f"--memory-share is {self.memory_share:g}; expected a number above 0, at most 1.")
        if self.memory_limit is not None:
            parse_size(self.memory_limit, "--memory-limit")
