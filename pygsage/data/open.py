"""From the options of a run to a graph that is ready to train on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from pygsage.config import TrainConfig
from pygsage.data.names import Reference, parse_reference
from pygsage.data.one_graph.build import build_graph
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.prepare import prepare_graph, with_splits
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.take import raw_from_data
from pygsage.data.storage import GIVEN, Storage, fingerprint_of, is_current, one_builder
from pygsage.errors import ConfigError, DatasetError
from pygsage.memory.peak import PeakMemory


def open_graph(
    config: TrainConfig,
    *,
    need_split: bool = True,
    storage: Storage | None = None,
    memory: PeakMemory | None = None,
) -> Graph:
    """Reads, checks and prepares the dataset of a run.

    In RAM nothing is written but a PyG class's own files. On disk it is built in `storage.folder`, or mapped from
    there if it was built before from the same files with the same options. A folder of ours is mapped either way.

    Args:
        storage: Where the graph is held; None for RAM.
        need_split: False to look at a dataset that has no split of its own, or several: `splits` is then empty, or
            the first of them, and a note says so.
        memory: Measures peaks, of reading and of processing apart.

    Raises:
        DatasetError: when it cannot be read, or is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    reference = parse_reference(config.dataset) if config.dataset != GIVEN else None
    if reference is not None and reference.kind == "graph":
        graph = Graph.open(str(reference.path))
        if not changes_arrays(config, graph):
            return with_splits(graph, config, need_split)
        if config.task == "auto":
            config = config.with_values({"task": graph.task}, "")  # said once, and kept
    if storage is None or storage.folder is None or reference is None:
        given = storage.raw if storage is not None else None
        return prepare_graph(given or read_source(config), config, need_split, memory)
    given = storage.raw
    return graph_on_disk(
        lambda scratch: given or read_source(config, scratch), config, reference, storage, need_split, memory
    )


def graph_on_disk(
    read: Callable[[Path], RawGraph],
    config: TrainConfig,
    reference: Reference | None,
    storage: Storage,
    need_split: bool,
    memory: PeakMemory | None = None,
) -> Graph:
    """The graph in `storage.folder`, which is built there unless it was, from the same files with the same options.

    Args:
        read: As for `build_graph`.
        reference: The dataset; None for one that is given in Python, which is built in any case.

    Raises:
        DatasetError, ConfigError: as `build_graph`.
    """
    folder = storage.folder
    assert folder is not None
    with one_builder(folder):
        if reference is not None and is_current(folder, config, reference):
            graph = Graph.open(folder)
        else:
            graph = build_graph(
                read,
                config,
                folder,
                fingerprint_of(config, reference) if reference is not None else {},
                need_split=need_split if config.split == "public" else None,
                budget_bytes=storage.budget_bytes,
                overwrite=True,
                memory=memory,
            )
    return graph if config.split == "public" else with_splits(graph, config, need_split)


def changes_arrays(config: TrainConfig, graph: Graph) -> bool:
    """Whether options ask for other arrays than those of a graph that is stored."""
    return (
        config.undirected
        or config.self_loops
        or config.normalize_features
        or config.relabel
        or config.ignore_label is not None
        or config.task not in ("auto", graph.task)
    )


def graph_from_data(data: Any, config: TrainConfig, *, need_split: bool = True) -> Graph:
    """The graph in RAM of what `raw_of_data` takes; it shares the memory of `data.x` where its dtype allows that.

    Raises:
        DatasetError: when it is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    return prepare_graph(raw_of_data(data, config), config, need_split)


def raw_of_data(data: Any, config: TrainConfig) -> RawGraph:
    """The parts of a PyG `Data`, or of a PyG dataset that holds one, which is left as it is; `config.dataset` names it.

    Raises:
        DatasetError: when it is not one graph.
    """
    from torch_geometric.data import Dataset

    num_graphs = 1
    if isinstance(data, Dataset):
        num_graphs = len(data)
        data = data[0] if num_graphs == 1 else None
    raw = raw_from_data(config.dataset, config.dataset, data, num_graphs)
    if config.normalize_features and isinstance(raw.x, Tensor):
        raw.x = raw.x.detach().clone()  # it is done in place
    return raw


def read_source(config: TrainConfig, scratch: Path | None = None) -> RawGraph:
    """The dataset as its source has it, unchecked.

    Args:
        scratch: A folder, for arrays that may not fit in RAM: they are mapped where they lie, or unpacked there.

    Raises:
        DatasetError: when there is no such dataset, or it cannot be read.
    """
    if config.dataset == GIVEN:
        raise DatasetError(
            "The run was trained on a graph that was given in Python; expected that graph again.",
            "Call pygsage.predict(RUN, data=DATA), or pygsage.train(DATA, run_dir=RUN, resume=True).",
        )
    reference = parse_reference(config.dataset)
    if config.root is not None and reference.kind not in ("ogb", "pyg", "recipe"):
        raise ConfigError(
            f"--root goes with pyg: datasets, ogbn- datasets and recipes; {config.dataset} needs none.",
            "Leave --root out.",
        )
    # Each source is loaded when it is used: scikit-learn and torch_geometric.datasets take a second each.
    if reference.kind == "digits":
        from pygsage.data.sources.digits import read_digits

        return read_digits(config.seed)
    if reference.kind == "npz":
        from pygsage.data.sources.npz import read_npz

        return read_npz(reference, scratch)
    if reference.kind == "graph":
        from pygsage.data.sources.folder import read_folder

        return read_folder(reference, config)
    if reference.kind == "pt":
        from pygsage.data.sources.pt import read_pt

        return read_pt(reference, trust_pickle=config.trust_pickle)
    if reference.kind == "recipe":
        from pygsage.data.sources.recipe import read_recipe

        return read_recipe(reference, config.root)
    if reference.kind == "ogb":
        from pygsage.data.sources.ogb import read_ogb

        return read_ogb(reference, config.root, offline=config.offline, quiet=config.quiet, scratch=scratch)
    from pygsage.data.sources.pyg import read_pyg

    return read_pyg(reference, config.root, offline=config.offline)
