"""A user's own dataset, in one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Recipe:
    """A dataset in one Python file: derive from this, write `graphs`, and train on `path/to/file.py`.

    With several recipes in a file, name one: `path/to/file.py:CLASS`. The file is run: naming it is the trust.
    `datasets/` of this project holds recipes to copy.

    **What `graphs` yields.** PyG `Data`, one graph at a time. One graph with labels of nodes has these fields:

    - `x`: features, `[N, F]`, any real dtype, finite; used as float32.
    - `edge_index`: int `[2, E]`, node ids from 0 to N-1; messages run from row 0 to row 1. Duplicates stay.
    - `y`: the labels, whose kind says what is learnt (`--task` says it instead): whole numbers `[N]` or `[N, 1]` are
      classes from 0 on, negative or NaN for no label; 0, 1 and NaN `[N, C]` are several labels a node; other floats,
      `[N]` or `[N, C]`, are measurements.
    - `train_mask`, `val_mask`, `test_mask`: bool `[N]`, or `[N, S]` for S splits of which `--split-id` picks one; or
      `train_idx`, `val_idx`, `test_idx`: ids. They share no node. With none, type `--split random:.6/.2/.2`.
    - `node_id`: int `[N]`, only with `--relabel`: the ids that `edge_index` uses, row by row.

    Many graphs with a label each have `x` `[N, F]` (columns of integers above 1 are categories, which are embedded;
    without `x`, set `num_nodes`: each node's in-degree serves), `edge_index` whose ids count from 0 in each graph, and
    `y` `[1]` or `[1, C]`, with NaN where a label is missing. For a split of their own each has the text
    `split = "train"`, `"val"`, `"test"` or `""`, or bool masks `[1]`; else type `--split random:.8/.1/.1` or
    `--split folds:10 --split-id 0`.

    Many graphs with labels of nodes, `y` `[N]`, are joined into one; `split` then is that of all nodes of a graph.

    **How many.** `num_graphs` if it is known before, else None.

    **Streaming.** `graphs` is a generator, asked for one graph after the other, so that a recipe holds no more than
    one; read files in pieces where they are large. It is called on each machine, with the random generators of NumPy,
    torch and Python at a fixed seed, and has to yield the same each time. Many graphs are written to a store in the
    user's cache, which is used again until the recipe's file, one beside it, or one below `--root` changes.

    **Errors.** Any exception ends the command with one sentence that names the file and line.

    Args:
        root: Folder of the data, `--root` on the command line; None for the folder of the recipe's file.
    """

    name: str = ""
    num_graphs: int | None = None
    made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Recipe:
        """Remembers what the recipe is made with: a store of one split must not be taken for that of another."""
        recipe = super().__new__(cls)
        recipe.made_with = (args, kwargs)
        return recipe

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root) if root is not None else Path(type(self).graphs.__code__.co_filename).parent

    def graphs(self) -> Iterator[Any]:
        """Yields the graphs as PyG `Data`, one after the other."""
        raise NotImplementedError(f"{type(self).__name__} has no method graphs(self); expected one that yields Data")
