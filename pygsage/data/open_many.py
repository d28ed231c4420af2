"""From a name, a path or a dataset in Python to what is trained on: one graph, or many with a label each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pygsage.config import TrainConfig
from pygsage.data.files.scratch import scratch_folder
from pygsage.data.many_graphs.door import check_graphs, label_is_by_node
from pygsage.data.many_graphs.graph_set import GraphSet
from pygsage.data.many_graphs.join import columns_of, join_graphs
from pygsage.data.many_graphs.made_store import open_made
from pygsage.data.many_graphs.reader import GraphReader
from pygsage.data.many_graphs.recipe_store import inputs_of, recipe_store
from pygsage.data.names import Reference, parse_reference
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.prepare import prepare_graph
from pygsage.data.one_graph.raw import RawGraph, shape_of_raw
from pygsage.data.one_graph.take import ManyGraphs
from pygsage.data.open import GIVEN, graph_on_disk, open_graph, raw_of_data
from pygsage.data.sampled import shape_of_graphs
from pygsage.data.storage import Storage, choose_storage
from pygsage.errors import ConfigError, DatasetError
from pygsage.memory.peak import PeakMemory
from pygsage.memory.shapes import IN_PYTHON, TYPE_NUMBERS, DatasetShape
from pygsage.memory.stores import shape_of_store

Opened = Graph | GraphSet


def open_data(
    config: TrainConfig,
    stack: ExitStack,
    given: Any = None,
    *,
    need_split: bool = True,
    storage: Storage | None = None,
    memory: PeakMemory | None = None,
) -> tuple[Opened, Storage | None]:
    """Reads, checks and prepares what a run trains on; returns it, and how it is held.

    Graphs that lie in no store yet are written to one first, one at a time: beside the files that a PyG class or OGB
    have processed, for a recipe in the user's cache, where it is used again as long as the inputs are the same; or for
    the time of the run in a folder of its own. Where their size was not known before, it is then, and `storage` is
    decided on.

    Args:
        stack: Closed when the data are no longer used.
        given: A dataset in Python in the place of the one that is named.
        need_split: As for `open_graph`.
        storage: Where the dataset is held; None for RAM, whatever it takes.
        memory: Measures peaks, of reading and of processing apart.

    Raises:
        DatasetError: when it cannot be read, or is not what can be trained.
        ConfigError: when an option does not go with it.
        EnvironmentLimitError: when it does not fit, and that could not be known before.
    """
    opening = _Opening(config, stack, need_split, storage, memory)
    if given is not None:
        return opening.given(given), opening.storage
    if config.dataset == GIVEN:
        return open_graph(config), storage  # says what is missing
    reference = parse_reference(config.dataset)
    if reference.kind in ("digits-grid", "ogb-graphs", "store"):
        return opening.named(reference), opening.storage
    try:
        return open_graph(config, need_split=need_split, storage=storage, memory=memory), storage
    except ManyGraphs as found:
        if reference.kind not in ("pyg", "recipe"):
            raise
        dataset = found.dataset
    opened = opening.pyg(dataset) if reference.kind == "pyg" else opening.recipe(reference)
    return opened, opening.storage


def not_a_dataset(given: Any) -> DatasetError:
    """The error for what was given in Python in the place of a dataset."""
    what = "None" if given is None else f"of type {type(given).__name__}"
    if isinstance(given, (list, tuple)):
        from torch_geometric.data.data import BaseData

        strange = next((type(item).__name__ for item in given if not isinstance(item, BaseData)), None)
        what = f"a {type(given).__name__} with a {strange}" if strange else f"an empty {type(given).__name__}"
    return DatasetError(
        f"The dataset that was given is {what}; expected a name as on the command line, a torch_geometric Data, a "
        "Dataset, or a list of Data.",
        "Type for example pygsage.train('digits'), or pygsage.train(data).",
    )


class _Opening:
    def __init__(
        self,
        config: TrainConfig,
        stack: ExitStack,
        need_split: bool,
        storage: Storage | None,
        memory: PeakMemory | None,
    ) -> None:
        self.config, self.stack, self.need_split = config, stack, need_split
        self.storage, self.memory = storage, memory

    def given(self, dataset: Any) -> Opened:
        from torch_geometric.data import Dataset

        from pygsage.data.store.stored import StoredGraphs

        config = self.config
        _check_given(dataset)
        listed = isinstance(dataset, (list, tuple))
        if not (listed or isinstance(dataset, Dataset)) or len(dataset) < 2:
            only = raw_of_data(dataset[0] if listed and len(dataset) == 1 else dataset, config)
            shape = _shape_in_ram(only)
            if shape is not None:
                self._decide(shape)
            return self._graph(only)
        raw = self._raw("the dataset given in Python")
        if isinstance(dataset, StoredGraphs) and _lies_in_store(dataset):
            return self._use(raw)(GraphReader(dataset.store_path.absolute()))
        graphs: Any = dataset
        if isinstance(dataset, Dataset) and dataset.transform is not None:
            raw.notes.append("The dataset's transform was applied once, to each graph.")
            graphs = (dataset[number] for number in range(len(dataset)))
        return open_made(graphs, self._use(raw), self.stack, None, {}, self.memory)

    def named(self, reference: Reference) -> Opened:
        config = self.config
        if reference.kind == "ogb-graphs":
            from pygsage.data.sources.ogb_graphs import open_ogb_graphs

            found = open_ogb_graphs(reference, config.root, offline=config.offline, quiet=config.quiet)
            raw = self._raw(str(found.folder), found.splits, found.notes)
            inputs = inputs_of(found.name, found.files())
            return open_made(
                found.graphs(), self._use(raw, found.task), self.stack, found.folder / "processed", inputs, self.memory
            )
        if config.root is not None:
            raise ConfigError(
                f"--root goes with pyg: datasets, OGB's and recipes; {config.dataset} needs none.", "Leave --root out."
            )
        if reference.kind == "store":
            assert reference.path is not None
            return self._use(self._raw(reference.text))(GraphReader(reference.path.absolute()))
        from pygsage.data.sources.digits_grid import digits_grid

        graphs, splits = digits_grid(config.seed)
        return open_made(graphs, self._use(self._raw(reference.text, splits)), self.stack, None, {}, self.memory)

    def pyg(self, dataset: Any) -> Opened:
        paths: list[str] = []
        beside = None
        with suppress(Exception):  # a class without files
            paths = [*dataset.processed_paths, *dataset.raw_paths]
            beside = Path(dataset.processed_dir) if paths else None
        inputs = inputs_of(self.config.dataset, map(Path, paths))
        return open_made(dataset, self._use(self._raw(self.config.dataset)), self.stack, beside, inputs, self.memory)

    def recipe(self, reference: Reference) -> Opened:
        from pygsage.data.sources.recipe import open_recipe

        home, inputs = recipe_store(self.config, reference)
        with open_recipe(reference, self.config.root) as recipe:
            use = self._use(self._raw(reference.text))

            def counted(reader: GraphReader) -> Opened:
                if recipe.num_graphs not in (None, reader.num_graphs):
                    raise DatasetError(
                        f"{reference.text}: num_graphs is {recipe.num_graphs}, and graphs() yielded "
                        f"{reader.num_graphs}; expected as many."
                    )
                return use(reader)

            return open_made(recipe, counted, self.stack, None if home is None else home.parent, inputs, self.memory)

    def _raw(self, origin: str, splits: dict[str, Any] | None = None, notes: list[str] | None = None) -> RawGraph:
        return RawGraph(self.config.dataset, origin, None, None, None, splits or {}, list(notes or ()))

    def _use(self, raw: RawGraph, task: str | None = None) -> Callable[[GraphReader], Opened]:
        def use(reader: GraphReader) -> Opened:
            if self.storage is not None and self.storage.told is None:
                self._decide(shape_of_store(raw.name, reader.folder))
            if label_is_by_node(reader):
                return self._graph(raw, reader)
            self._hold(reader, raw)
            return check_graphs(reader, self.config, raw, task=task, need_split=self.need_split)

        return use

    def _decide(self, shape: DatasetShape) -> None:
        """Decides where data are held whose size was not known before."""
        if self.storage is not None and self.storage.told is None:
            ranks, refuses = self.storage.num_ranks, self.storage.refuses
            self.storage = choose_storage(self.config, ranks, shape, refuse=refuses)

    def _graph(self, raw: RawGraph, reader: GraphReader | None = None) -> Graph:
        """One graph; with `reader`, of all of its graphs: in RAM but for the features, or built on disk."""
        config, storage = self.config, self.storage
        if storage is None or storage.kind == "memory":
            if reader is not None:
                is_rows = reader.store is None
                scratch = self.stack.enter_context(scratch_folder()) if is_rows else reader.folder
                raw = join_graphs(columns_of(reader, scratch), raw, None)
            return prepare_graph(raw, config, self.need_split, self.memory)
        if storage.folder is None:
            storage = replace(storage, folder=self.stack.enter_context(scratch_folder()) / "graph")

        def read(scratch: Path) -> RawGraph:
            return raw if reader is None else join_graphs(columns_of(reader, scratch), raw, scratch)

        reference = parse_reference(config.dataset) if config.dataset != GIVEN else None
        return graph_on_disk(read, config, reference, storage, self.need_split, self.memory)

    def _hold(self, reader: GraphReader, raw: RawGraph) -> None:
        """Reads the arrays into memory, where they are to be held there: once for all processes of the machine."""
        if reader.store is None and self.config.storage == "memory":
            raise ConfigError(
                f"{raw.origin} is a database, which is read from disk; --storage memory needs a columnar store.",
                f"Make one: pygsage convert {raw.origin} NEW_FOLDER",
            )
        if reader.store is not None and self.storage is not None and self.storage.kind == "memory":
            reader.store.populate()


def shape_of_given(dataset: Any) -> DatasetShape:
    """Counts and dtypes of a dataset in Python, as `open_data` takes it: some of its graphs are looked at.

    Raises:
        DatasetError: when it is none that can be trained on.
    """
    from torch_geometric.data import Dataset

    from pygsage.data.store.stored import StoredGraphs

    _check_given(dataset)
    listed = isinstance(dataset, (list, tuple))
    if not (listed or isinstance(dataset, Dataset)) or len(dataset) < 2:
        only = raw_of_data(dataset[0] if listed else dataset, TrainConfig(dataset=IN_PYTHON))
        shape = _shape_in_ram(only)
        if shape is None:
            raise DatasetError(f"{IN_PYTHON}: x, edge_index and y are no tensors of a graph.", TYPE_NUMBERS)
        return shape
    if isinstance(dataset, StoredGraphs) and _lies_in_store(dataset):
        return shape_of_store(IN_PYTHON, dataset.store_path.absolute())
    return shape_of_graphs(dataset)


def _check_given(dataset: Any) -> None:
    from torch_geometric.data import Dataset
    from torch_geometric.data.data import BaseData

    listed = isinstance(dataset, (list, tuple)) and all(isinstance(item, BaseData) for item in dataset)
    if not isinstance(dataset, (BaseData, Dataset)) and not (listed and dataset):
        raise not_a_dataset(dataset)


def _shape_in_ram(raw: RawGraph) -> DatasetShape | None:
    """The shape of a graph that is in RAM already, and measured as a part of the process."""
    shape = shape_of_raw(raw)
    return None if shape is None else replace(shape, mapped=frozenset(("x", "edge_index")), made="files")


def _lies_in_store(dataset: Any) -> bool:
    """Whether a stored dataset is just what its folder holds, and no part or changed copy of it."""
    store = getattr(dataset, "_store", None)
    return dataset._indices is None and dataset.transform is None and (store is None or store.folder is not None)
