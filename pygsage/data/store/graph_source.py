"""Where graphs that are converted come from: by their number, in blocks, or one after the other; never kept."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.data.dataset import Dataset

from pygsage.data.files.streams import pieces
from pygsage.data.foreign import fixed_seed
from pygsage.data.recipe import Recipe
from pygsage.data.store.collated import Blocks, blocks_of, reader
from pygsage.data.store.intake import Intake
from pygsage.errors import DatasetError

_NUM_SAMPLED = 64
_PLAIN = ("Data", "HeteroData")


class GraphSource:
    """Graphs by their number, never kept."""

    data_class: type | None = None
    mean_bytes = 0.0  # of the graphs that were looked at
    most_bytes = 0

    def __init__(
        self, name: str, num_graphs: int | None, read: Callable[[int], Any] | None, blocks: Blocks | None = None
    ) -> None:
        self.name, self.num_graphs, self._read, self.blocks = name, num_graphs, read, blocks

    def readers(self, start: int) -> Iterator[Callable[[], Any]]:
        """A function for each graph from that number on, which reads it."""
        assert self._read is not None
        for number in range(start, self.num_graphs or 0):
            yield lambda number=number: self._read(number)  # type: ignore[misc]

    def fingerprint(self) -> dict[str, Any]:
        """What is cheap to tell of the graphs: how many, and the bytes of three of them."""
        return {"source": self.name, "num_graphs": self.num_graphs, "sample": self._checksums()}

    def look(self) -> None:
        """Reads some graphs, and learns how large they are."""
        num = self.num_graphs or 0
        self._learn_sizes(self._try(number) for number in range(0, num, max(1, num // _NUM_SAMPLED)))

    def _learn_sizes(self, graphs: Iterable[Any]) -> None:
        intake = Intake("keep")
        sizes: list[int] = []
        for data in graphs:
            try:
                taken = intake.take(data)
            except Exception:  # it is met again, and told of, when its turn comes
                continue
            sizes.append(sum(len(content) for _, content, _ in taken.values) + 8 * len(taken.values))
        if sizes:
            self.mean_bytes, self.most_bytes = sum(sizes) / len(sizes), max(sizes)

    def _try(self, number: int) -> Any:
        assert self._read is not None
        try:
            return self._read(number)
        except Exception:  # likewise
            return None

    def _checksums(self) -> list[int]:
        if self._read is None or not self.num_graphs:
            return []
        told: list[int] = []
        for number in sorted({0, self.num_graphs // 2, self.num_graphs - 1}):
            crc = 0
            try:
                data = self._read(number)
                for _, content, _ in Intake("keep").take(data).values:
                    for piece in pieces(content):
                        crc = zlib.crc32(piece, crc)
                if number == 0 and type(data).__mro__[1] is not object and type(data).__name__ not in _PLAIN:
                    self.data_class = type(data)
            except Exception:  # it is met again, and told of, when its turn comes
                crc = -1
            told.append(crc)
        return told


class GraphStream(GraphSource):
    """Graphs that can only be had one after the other."""

    def __init__(self, name: str, graphs: Iterable[Any], recipe: Recipe | None = None) -> None:
        super().__init__(name, None if recipe is None else recipe.num_graphs, None)
        self._graphs, self._recipe = iter(graphs), recipe

    def look(self) -> None:
        """Makes the first graphs of a recipe, and learns how large they are."""
        if self._recipe is None or self.num_graphs is None:
            return
        with fixed_seed():
            self._learn_sizes(islice(_until_it_fails(self._recipe.graphs()), _NUM_SAMPLED))

    def readers(self, start: int) -> Iterator[Callable[[], Any]]:
        """A function for each graph from that number on; those before are read and dropped."""
        for _ in range(start):
            next(self._graphs, None)
        while True:
            try:
                data = next(self._graphs)
            except StopIteration:
                return
            yield lambda data=data: data  # type: ignore[misc]


def _until_it_fails(graphs: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from graphs
    except Exception:  # likewise
        return


def graph_source(dataset: Any) -> GraphSource:
    """The graphs of anything that holds many.

    Raises:
        DatasetError: when it is no dataset, list or iterator.
    """
    kind = type(dataset)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(dataset, Recipe):
        return GraphStream(name, dataset.graphs(), dataset)
    if isinstance(dataset, Dataset):
        indices = dataset.indices()
        get = dataset.get
        if isinstance(dataset, InMemoryDataset) and kind.get is InMemoryDataset.get:
            get = reader(dataset)
            return GraphSource(name, len(indices), lambda number: get(indices[number]), blocks_of(dataset))
        return GraphSource(name, len(indices), lambda number: get(indices[number]))
    if isinstance(dataset, (Data, str, bytes, dict)):
        raise DatasetError(f"The dataset is a {kind.__name__}; expected a dataset, list or iterator of many graphs.")
    if isinstance(dataset, Sequence) or (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        return GraphSource(name, len(dataset), lambda number: dataset[number])
    if isinstance(dataset, Iterable):
        return GraphStream(name, dataset)
    raise DatasetError(f"The dataset is a {kind.__name__}; expected a dataset, list or iterator of many graphs.")
