"""Options of the commands other than `pygsage train`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pygsage.config.option import option
from pygsage.errors import ConfigError
from pygsage.spelling import check_types, parse_size

Split = Literal["train", "val", "test", "all"]


@dataclass(frozen=True)
class PredictConfig:
    """Writes the scores of a finished run's best weights to a .npy file, one row a node, over all neighbours.

    Rows are in the order of the dataset's split: with --split all, row i is node i. Scores are raw: argmax(1) is the
    predicted class.

    Example: pygsage predict runs/mine --split test -o scores.npy
    """

    run: str = option("", "a run directory", positional=True)
    split: Literal["train", "val", "test", "all"] = option(
        "test", "which nodes or graphs, in the order of the split; all: every one by its number"
    )
    embeddings: bool = option(
        False,
        "write the last hidden layer, or the readout, not raw scores (before softmax or sigmoid) or values",
    )
    output: str = option("", "the .npy file to write", short="-o")
    root: str | None = option(None, "folder of raw data, when it has moved since training")
    offline: bool = option(False, "never use the network")
    trust_pickle: bool = option(False, "read .pt files that can run code when they are read")
    quiet: bool = option(False, "print nothing but errors")
    json: bool = option(False, "print the result as one JSON object on the last line")

    def __post_init__(self) -> None:
        check_types(self)
        if not self.run:
            raise ConfigError("predict needs a run directory.", "Type: pygsage predict RUN -o scores.npy")
        if not self.output:
            raise ConfigError("predict needs a file to write.", f"Add for example -o {self.split}.npy")
        if not self.output.endswith(".npy"):
            raise ConfigError(f"-o is {self.output!r}; expected a path that ends in .npy.")


@dataclass(frozen=True)
class ConvertConfig:
    """Writes a dataset to a folder of plain arrays, graph by graph, and reads it from there ever after.

    A conversion that was interrupted goes on with --resume; nothing half-written is ever opened.

    Examples: pygsage convert pyg:TUDataset/PROTEINS proteins --root tu
    and pygsage convert path/to/recipe.py my_graphs
    """

    dataset: str = option(
        "", "pyg:CLASS/NAME, path/to/recipe.py, the folder of a store, or one graph as for train", positional=True
    )
    out: str = option("", "the folder to be made", positional=True)
    root: str | None = option(None, "folder of raw data for pyg:, ogbn- and recipe datasets")
    backend: Literal["columnar", "sqlite", "rocksdb"] = option(
        "columnar", "columnar is the fastest; sqlite and rocksdb hold one row a graph"
    )
    overwrite: bool = option(False, "replace what is there, once the new one is whole; forget an unfinished one")
    resume: bool = option(False, "go on with a conversion that was interrupted")
    missing: Literal["refuse", "keep"] = option(
        "refuse", "when some graphs lack an attribute: refuse, or keep it missing there"
    )
    on_error: Literal["stop", "skip"] = option("stop", "at a graph that cannot be written: stop, or skip it")
    undirected: bool = option(False, "of one graph: add the reverse of every edge")
    self_loops: bool = option(False, "of one graph: add an edge from each node to itself where there is none")
    normalize_features: bool = option(False, "of one graph: scale features as PyG's NormalizeFeatures")
    relabel: bool = option(False, "of one graph: node ids are any whole numbers, as for train")
    split_id: int | None = option(None, "of one graph: which of the dataset's splits, when it has several")
    memory_limit: str | None = option(None, "RAM that the job may take, such as 8GiB (default: what is available)")
    offline: bool = option(False, "never use the network")
    trust_pickle: bool = option(False, "read .pt files that can run code when they are read")
    quiet: bool = option(False, "print nothing but errors")
    json: bool = option(False, "print the answer as one JSON object on the last line")

    def __post_init__(self) -> None:
        check_types(self)
        if not self.dataset or not self.out:
            raise ConfigError("convert needs a dataset and a folder to make.", "Type: pygsage convert DATASET OUT")
        if self.overwrite and self.resume:
            raise ConfigError("--overwrite begins anew, and --resume goes on.", "Leave one of them out.")
        if self.memory_limit is not None:
            parse_size(self.memory_limit, "--memory-limit")


@dataclass(frozen=True)
class InfoConfig:
    """Describes a dataset as train would read it, the folder of a store, or a run.

    Examples: pygsage info graph.npz, pygsage info my_graphs --verify and pygsage info runs/mine
    """

    target: str = option(
        "digits", "a dataset, as for train, the folder of a store, or a run directory", positional=True
    )
    verify: bool = option(False, "of a store: compare every byte with its checksum")
    root: str | None = option(None, "folder of raw data for pyg:, ogbn- and recipe datasets")
    offline: bool = option(False, "never use the network")
    trust_pickle: bool = option(False, "read .pt files that can run code when they are read")
    json: bool = option(False, "print the answer as one JSON object")

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True)
class DoctorConfig:
    """Says what is installed and really loads, which limits are in force, and what to type for the rest."""

    json: bool = option(False, "print the answer as one JSON object")
