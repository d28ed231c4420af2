"""Runs a user's recipe: a file is loaded by its path, its class made, its one graph taken."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from pygsage.data.foreign import fixed_seed, quiet, sentence
from pygsage.data.names import Reference
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.take import ManyGraphs, raw_from_data
from pygsage.data.recipe import Recipe
from pygsage.errors import DatasetError, PygsageError

_MODULE = "pygsage_recipe"
_ONE = "expected one graph with node labels"
_EXPECTED = "expected a class that derives from pygsage.Recipe"


def read_recipe(reference: Reference, root: str | None) -> RawGraph:
    """Loads the file, makes its `Recipe`, and takes the only graph that `graphs()` yields.

    While it runs, modules beside the file can be imported; afterwards neither they nor the file's own module are left
    in `sys.modules`, nor their folder in `sys.path`.

    Raises:
        ManyGraphs: when it yields several.
        DatasetError: when the file has no such class or more than one, or its code raises: then with the file and line.
    """
    with open_recipe(reference, root) as recipe:
        told = recipe.num_graphs
        if told is not None and told > 1:
            raise ManyGraphs(f"{reference.text} holds {told} graphs; {_ONE}.")
        if told == 0:
            raise DatasetError(f"{reference.text}: num_graphs is 0; expected at least one graph.")
        graphs = recipe.graphs()
        if not isinstance(graphs, Iterator):
            raise DatasetError(
                f"{reference.text}: graphs() returned a {type(graphs).__name__}; expected a generator.",
                "Write yield data in place of return data.",
            )
        data = next(graphs, None)
        if data is None:
            raise DatasetError(f"{reference.text}: graphs() yielded no graph; expected one.")
        if next(graphs, None) is not None:
            raise ManyGraphs(f"{reference.text} yields more than one graph; {_ONE}.")
        return raw_from_data(reference.text, reference.text, data)


def holds_one_graph(reference: Reference, root: str | None) -> bool:
    """Whether a recipe says, or shows by its first two graphs, that it is one graph with a label a node.

    Raises:
        DatasetError: as `open_recipe`.
    """
    with open_recipe(reference, root) as recipe:
        if recipe.num_graphs not in (1, None):
            return False
        graphs = iter(recipe.graphs())
        first = next(graphs, None)
        y = getattr(first, "y", None)
        if first is None or not isinstance(y, Tensor) or y.dim() == 0 or len(y) != first.num_nodes:
            return False
        return next(graphs, None) is None


@contextmanager
def open_recipe(reference: Reference, root: str | None) -> Iterator[Recipe]:
    """Loads the file and makes its `Recipe`, which is used inside the `with`; errors name the file and line.

    Raises:
        DatasetError: when the file has no such class or more than one, or its code raises.
    """
    path = Path(reference.path or "").absolute()
    if root is not None and not os.path.isdir(os.path.expanduser(root)):
        raise DatasetError(f"--root {root} is not a folder; expected the one with the data of {reference.text}.")
    folder = Path(os.path.expanduser(root)).absolute() if root is not None else path.parent
    with _importable(path.parent), quiet(show_warnings=True), fixed_seed():
        try:
            recipe = _choose(reference, _load(path))(folder)
            told = recipe.num_graphs
            if told is not None and (not isinstance(told, int) or isinstance(told, bool) or told < 0):
                raise DatasetError(f"{reference.text}: num_graphs is {told!r}; expected a whole number or None.")
            yield recipe
        except PygsageError:
            raise
        except (Exception, SystemExit, GeneratorExit) as error:  # the user's code: anything can come out of it
            raise _theirs(reference, path, error) from None


def _load(path: Path) -> ModuleType:
    spec = spec_from_file_location(_MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[_MODULE] = module  # where dataclasses and pickle look a class's module up
    spec.loader.exec_module(module)
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Lets a file import its neighbours, as a script can, writes no bytecode beside it, and leaves no trace."""
    before, wrote = set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = wrote
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if name == _MODULE or (file and Path(file).is_relative_to(folder) and "site-packages" not in file):
                del sys.modules[name]


def _choose(reference: Reference, module: ModuleType) -> Any:
    own = {n: v for n, v in vars(module).items() if inspect.isclass(v) and v.__module__ == _MODULE}
    recipes = {n: v for n, v in own.items() if issubclass(v, Recipe)}
    shown = ", ".join(recipes) or "none"
    wanted = reference.class_name
    if wanted:
        if wanted in recipes:
            return recipes[wanted]
        near = get_close_matches(wanted, recipes, n=1)
        what = "no Recipe" if wanted in own else "not there"
        raise DatasetError(
            f"{reference.path}: the class {wanted} is {what}; {_EXPECTED} (found: {shown}).",
            f"Did you mean {reference.path}:{near[0]}?" if near else "",
        )
    if not recipes:
        other = f" (found the classes {', '.join(own)})" if own else ""
        advice = "Write from pygsage import Recipe, and class Mine(Recipe): with a method graphs(self)."
        raise DatasetError(f"{reference.path} has no recipe{other}; {_EXPECTED}.", advice)
    # A base class of another recipe in the file is not what is meant.
    last = [n for n, v in recipes.items() if not any(v is not o and issubclass(o, v) for o in recipes.values())]
    if len(last) > 1:
        choices = " or ".join(f"{reference.path}:{name}" for name in last)
        raise DatasetError(f"{reference.path} has {len(last)} recipes; expected to be told which.", f"Type {choices}")
    return recipes[last[0]]


def _theirs(reference: Reference, path: Path, error: BaseException) -> DatasetError:
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}" if error.filename else str(path)
        return DatasetError(f"{where}: {error.msg}; expected Python that can be run.")
    if isinstance(error, ModuleNotFoundError) and error.name:
        advice = f"Type pip install {error.name.partition('.')[0]}, if that is the package's name."
    else:
        advice = ""
    traces = [traceback.extract_tb(e.__traceback__) for e in (error, error.__cause__) if e is not None]
    frames = [frame for trace in traces for frame in trace if Path(frame.filename).is_relative_to(path.parent)]
    where = f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else reference.text
    return DatasetError(f"{where}: {sentence(error)}.", advice)
