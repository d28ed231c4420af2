"""From a name, a path or a dataset in Python to what is trained on: one graph, or many with a label each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from pygsage.config import TrainConfig
from pygsage.data.many_graphs.door import check_graphs, label_is_by_node
from pygsage.data.many_graphs.graph_set import GraphSet
from pygsage.data.many_graphs.join import join_graphs
from pygsage.data.many_graphs.made_store import open_made
from pygsage.data.many_graphs.reader import GraphReader
from pygsage.data.many_graphs.recipe_store import inputs_of, recipe_store
from pygsage.data.names import Reference, parse_reference
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.take import ManyGraphs
from pygsage.data.open import GIVEN, graph_from_data, open_graph
from pygsage.data.storage import Storage
from pygsage.data.store.recipe_dataset import choose_storage
from pygsage.errors import ConfigError, DatasetError
from pygsage.memory.peak import PeakMemory

Opened = Graph | GraphSet


def open_data(
    config: TrainConfig,
    stack: ExitStack,
    given: Any = None,
    *,
    need_split: bool = True,
    storage: Storage | None = None,
    memory: PeakMemory | None = None,
) -> Opened:
    """Reads, checks and prepares what a run trains on.

    Graphs that lie in no store yet are written to one first, one at a time: beside the files that a PyG class or OGB
    have processed, for a recipe in the user's cache, where it is used again as long as the inputs are the same; or for
    the time of the run in a folder of its own.

    Args:
        stack: Closed when the data are no longer used.
        given: A dataset in Python in the place of the one that is named.
        need_split: As for `open_graph`.
        storage: Where the dataset is held; None to find out.
        memory: Measures peaks, of reading and of processing apart.

    Raises:
        DatasetError: when it cannot be read, or is not what can be trained.
        ConfigError: when an option does not go with it.
    """
    opening = _Opening(config, stack, need_split, storage, memory)
    if given is not None:
        return opening.given(given)
    if config.dataset == GIVEN:
        return open_graph(config)  # says what is missing
    reference = parse_reference(config.dataset)
    if reference.kind in ("digits-grid", "ogb-graphs", "store"):
        return opening.named(reference)
    try:
        return open_graph(config, need_split=need_split, storage=storage, memory=memory)
    except ManyGraphs as found:
        if reference.kind not in ("pyg", "recipe"):
            raise
        dataset = found.dataset
    return opening.pyg(dataset) if reference.kind == "pyg" else opening.recipe(reference)


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
        from torch_geometric.data.data import BaseData

        from pygsage.data.store.stored import StoredGraphs

        config = self.config
        listed = isinstance(dataset, (list, tuple)) and all(isinstance(item, BaseData) for item in dataset)
        if not isinstance(dataset, (BaseData, Dataset)) and not (listed and dataset):
            raise not_a_dataset(dataset)
        if not (listed or isinstance(dataset, Dataset)) or len(dataset) < 2:
            only = dataset[0] if listed and len(dataset) == 1 else dataset
            return graph_from_data(only, config, need_split=self.need_split)
        raw = self._raw("the dataset given in Python")
        whole = isinstance(dataset, Dataset) and dataset._indices is None
        if isinstance(dataset, StoredGraphs) and whole and dataset.transform is None and _lies_in_store(dataset):
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
            config = self.config
            if label_is_by_node(reader):
                return join_graphs(reader, raw, config, self.need_split)
            self._hold(reader, raw)
            return check_graphs(reader, config, raw, task=task, need_split=self.need_split)

        return use

    def _hold(self, reader: GraphReader, raw: RawGraph) -> None:
        """Reads the arrays into memory, where they are to be held there: once for all processes of the machine."""
        store, config = reader.store, self.config
        if store is None:
            if config.storage == "memory":
                raise ConfigError(
                    f"{raw.origin} is a database, which is read from disk; --storage memory needs a columnar store.",
                    f"Make one: pygsage convert {raw.origin} NEW_FOLDER",
                )
            return
        if self.storage is not None and self.storage.is_of_graphs:
            chosen: str = self.storage.kind
        else:  # their size was not known beforehand
            chosen, why = choose_storage(store.num_bytes, config.storage, config.memory_limit)
            if config.storage == "auto":
                raw.notes.append(why)
        if chosen == "memory":
            store.populate()


def _lies_in_store(dataset: Any) -> bool:
    """Whether a stored dataset is what its folder holds, and not a changed copy in RAM."""
    store = getattr(dataset, "_store", None)
    return store is None or store.folder is not None
