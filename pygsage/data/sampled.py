"""The shape of a recipe of many graphs, from the first of them: what may load torch, for an estimate that may not."""

from __future__ import annotations

from itertools import islice
from typing import Any

from torch import Tensor

from pygsage.data.names import Reference
from pygsage.data.one_graph.raw import shape_of_raw
from pygsage.data.one_graph.take import ManyGraphs
from pygsage.data.sources.recipe import open_recipe, read_recipe
from pygsage.errors import DatasetError
from pygsage.memory.shapes import TYPE_NUMBERS, DatasetShape, shape_from_sample

_NUM_SAMPLED = 64
_SAMPLED_VALUES = 1 << 23  # of all graphs that are looked at


def shape_of_recipe(reference: Reference, root: str | None) -> DatasetShape:
    """The shape of a recipe, of one graph or of many: its first graphs are made.

    Raises:
        DatasetError: when the recipe does not say how many graphs it has; what `open_recipe` raises.
    """
    try:
        shape = shape_of_raw(read_recipe(reference, root))
    except ManyGraphs:
        return shape_of_many(reference, root)
    if shape is None:
        raise DatasetError(f"{reference.text}: the size of its graph is not known beforehand.", TYPE_NUMBERS)
    return shape


def shape_of_many(reference: Reference, root: str | None) -> DatasetShape:
    """The shape of a recipe of many graphs, from at most 64 of the first, in sum of at most 8M values.

    Raises:
        DatasetError: as `shape_of_recipe`.
    """
    sample: list[dict[str, tuple[tuple[int, ...], str]]] = []
    classes = 0
    with open_recipe(reference, root) as recipe:
        if recipe.num_graphs is None:
            raise DatasetError(
                f"{reference.text} does not say how many graphs it has; expected its num_graphs, to know their size "
                "beforehand.",
                "Set num_graphs in the class, or in its __init__.",
            )
        num_values = 0
        for data in islice(recipe.graphs(), _NUM_SAMPLED):
            sample.append(_described(data))
            num_values += sum(value.numel() for value in data.to_dict().values() if isinstance(value, Tensor))
            classes = max(classes, _highest_label(data) + 1)
            if num_values > _SAMPLED_VALUES:
                break
        shape = shape_from_sample(reference.text, sample, recipe.num_graphs)
    columns = shape.y_columns
    return shape.with_outputs(columns if columns > 1 else max(2, classes) if "int" in shape.y_dtype else 1)


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
