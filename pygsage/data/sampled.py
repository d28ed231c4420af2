"""The shape of a recipe of many graphs, from the first of them: what may load torch, for an estimate that may not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from torch import Tensor

from pygsage.data.names import Reference
from pygsage.data.one_graph.raw import shape_of_raw
from pygsage.data.one_graph.take import ManyGraphs
from pygsage.data.sources.recipe import open_recipe, read_recipe
from pygsage.errors import DatasetError
from pygsage.memory.degrees import Degrees
from pygsage.memory.shapes import IN_PYTHON, TYPE_NUMBERS, DatasetShape, shape_from_sample

_NUM_SAMPLED = 64
_NUM_CHOSEN = 256
_SAMPLED_VALUES = 1 << 23  # of all graphs that are looked at
_COUNTED_VALUES = 1 << 28  # the same where they have to be counted


def shape_of_recipe(reference: Reference, root: str | None) -> DatasetShape:
    """The shape of a recipe, of one graph or of many: its first graphs are made, or all to count them.

    Raises:
        DatasetError: when the recipe does not say how many graphs it has, and they are too many to count; what
            `open_recipe` raises.
    """
    try:
        shape = shape_of_raw(read_recipe(reference, root))
    except ManyGraphs:
        return shape_of_many(reference, root, count=True)
    if shape is None:
        raise DatasetError(f"{reference.text}: the size of its graph is not known beforehand.", TYPE_NUMBERS)
    return shape


def shape_of_many(reference: Reference, root: str | None, *, count: bool = False) -> DatasetShape:
    """The shape of a recipe of many graphs, from at most 64 of the first, in sum of at most 8M values.

    Args:
        count: Where the recipe does not say how many graphs it has: True to make them all, one after the other and as
            long as they have no more than 256M values, so that all are looked at.

    Raises:
        DatasetError: as `shape_of_recipe`; when their number stays unknown.
    """
    sample: list[dict[str, tuple[tuple[int, ...], str]]] = []
    classes = 0
    with open_recipe(reference, root) as recipe:
        num_graphs = recipe.num_graphs
        if num_graphs is None and not count:
            raise _not_counted(reference, 0)
        num_values = 0
        joined = _Joined()
        graphs = recipe.graphs()
        for data in graphs if num_graphs is None else islice(graphs, _NUM_SAMPLED):
            sample.append(_described(data))
            num_values += sum(value.numel() for value in data.to_dict().values() if isinstance(value, Tensor))
            classes = max(classes, _highest_label(data) + 1)
            joined.add(data)
            if num_graphs is None and num_values > _COUNTED_VALUES:
                raise _not_counted(reference, len(sample))
            if num_graphs is not None and num_values > _SAMPLED_VALUES:
                break
        shape = shape_from_sample(reference.text, sample, num_graphs or len(sample))
    if num_graphs is None:
        shape = replace(shape, source=f"all of its {len(sample):,} graphs, which were made to count them")
    if shape.made == "joined":
        shape = joined.described(shape, len(sample), (num_graphs or len(sample)) / len(sample))
    return shape.with_outputs(_outputs(shape, classes))


class _Joined:
    """What has to be known of graphs with labels of nodes, which are joined: training nodes and degrees."""

    def __init__(self) -> None:
        self._num_train = 0
        self._counted: tuple[Counter[int], Counter[int], Counter[int]] = (Counter(), Counter(), Counter())

    def add(self, data: Any) -> None:
        mask, split, edges = data.get("train_mask", None), data.get("split", None), data.get("edge_index", None)
        if isinstance(mask, Tensor):
            self._num_train += int(mask.sum())
        elif split == "train":
            self._num_train += int(data.num_nodes or 0)
        n = int(data.num_nodes or 0)
        good = isinstance(edges, Tensor) and edges.dim() == 2 and edges.size(0) == 2 and not edges.is_floating_point()
        if not good or (edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < n):
            return  # the door says what is wrong
        sources, destinations = edges.long()
        degrees = destinations.bincount(minlength=n)
        for counts, found in zip(
            self._counted, (degrees, degrees[sources], sources.bincount(minlength=n)), strict=True
        ):
            values, times = found.unique(return_counts=True)
            counts.update(dict(zip(values.tolist(), times.tolist(), strict=True)))

    def described(self, shape: DatasetShape, num_looked_at: int, scale: float) -> DatasetShape:
        nodes, reached, out = self._counted
        sources = {degree: scale * times for degree, times in out.items() if degree}
        degrees = Degrees(nodes, reached, sources, f"the edges of {num_looked_at:,} graphs")
        return replace(shape, num_train=round(scale * self._num_train) or None, degrees=degrees)


def shape_of_graphs(graphs: Sequence[Any]) -> DatasetShape:
    """The shape of many graphs that are there already, from at most 256 of them, evenly chosen."""
    step = -(-len(graphs) // _NUM_CHOSEN)
    chosen = [graphs[number] for number in range(0, len(graphs), step)]
    shape = shape_from_sample(
        IN_PYTHON, map(_described, chosen), len(graphs), f"{len(chosen):,} of its {len(graphs):,} graphs"
    )
    classes = max(map(_highest_label, chosen)) + 1
    return shape.with_outputs(_outputs(shape, classes))


def _outputs(shape: DatasetShape, classes: int) -> int:
    if shape.y_columns > 1:
        return shape.y_columns
    return max(2, classes) if "int" in shape.y_dtype else 1


def _not_counted(reference: Reference, num_made: int) -> DatasetError:
    made = f"; it has more than {num_made:,}, which were made to count them" if num_made else ""
    return DatasetError(
        f"{reference.text} does not say how many graphs it has{made}; expected its num_graphs, to know their size "
        "beforehand.",
        "Set num_graphs in the class, or in its __init__.",
    )


def _described(data: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    found: dict[str, tuple[tuple[int, ...], str]] = {"num_nodes": ((int(data.num_nodes or 0),), "int64")}
    for key, value in data.to_dict().items():
        if isinstance(value, Tensor):
            found[key] = (tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return found


def _highest_label(data: Any) -> int:
    y = data.to_dict().get("y")
    if isinstance(y, int):
        return y
    if not isinstance(y, Tensor) or y.is_floating_point() or y.numel() == 0:
        return -1
    return int(y.max())
