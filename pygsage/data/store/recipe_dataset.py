"""A recipe of many graphs as a dataset, in memory or on disk, whichever fits."""

from __future__ import annotations

import inspect
import sys
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pygsage.data.files.fingerprint import describe_settings
from pygsage.data.foreign import fixed_seed
from pygsage.data.recipe import Recipe
from pygsage.data.store.column_store import ColumnStore, is_store
from pygsage.data.store.in_memory import InMemoryGraphs
from pygsage.data.store.intake import Intake, Missing
from pygsage.data.store.on_disk import OnDiskGraphs
from pygsage.data.store.stored import Filter, Transform
from pygsage.errors import ConfigError, DatasetError
from pygsage.memory.decide import size_text
from pygsage.memory.machine import read_machine
from pygsage.spelling import limit_of, path_of

Storage = Literal["auto", "memory", "disk"]
_NUM_SAMPLED = 64


def open_dataset(
    recipe: Recipe | type[Recipe] | str | Path,
    storage: Storage = "auto",
    memory_limit: int | str | None = None,
    *,
    root: str | Path | None = None,
    transform: Transform | None = None,
    pre_transform: Transform | None = None,
    pre_filter: Filter | None = None,
    missing: Missing = "refuse",
    force_reload: bool = False,
    log: bool = True,
) -> InMemoryGraphs | OnDiskGraphs:
    """The graphs of a recipe, made once, one at a time, and then held in memory or read from disk.

    With `storage="auto"` the first 64 graphs are looked at before anything is made: in memory when all of them take
    less than half of the RAM that is available, else on disk; a line on standard error says why. Where the recipe does
    not know its `num_graphs`, it is decided by the size of what was made. The graphs are the same either way.

    Args:
        recipe: A recipe or its class; or the folder of a columnar store, which is opened.
        storage: `auto`, `memory` or `disk`.
        memory_limit: RAM to count on, such as `8GiB`, in place of what the machine has.
        root: Where `processed/` is made; None for the recipe's own.
        transform, pre_transform, pre_filter, missing, force_reload: As in `OnDiskGraphs`.
        log: Print what is decided, and when processing begins and ends.

    Raises:
        ConfigError: when an option cannot be used.
        DatasetError: when a graph does not go with those before, or `storage="memory"` does not fit, with the number.
    """
    if storage not in ("auto", "memory", "disk"):
        raise ConfigError(f"storage is {storage!r}; expected auto, memory or disk.")
    limit = limit_of(memory_limit, "memory_limit")
    if root is not None:
        path_of(root, "root")
    kind = recipe if isinstance(recipe, type) else type(recipe)
    if not isinstance(recipe, (str, Path)) and not issubclass(kind, Recipe):
        given = f"the class {kind.__name__}" if kind is recipe else f"of type {kind.__name__}"
        raise DatasetError(
            f"The recipe that was given is {given}; expected a Recipe, its class, or the folder of a store.",
            "Of other datasets, pygsage.to_on_disk_dataset makes a store.",
        )
    if isinstance(recipe, (str, Path)):
        if not is_store(recipe):
            raise DatasetError(f"{recipe} is no folder of a store; expected one, or a Recipe.")
        return _opened(Path(recipe), _choose(ColumnStore.open(recipe).num_bytes, storage, limit, log), transform)
    made = recipe() if isinstance(recipe, type) else recipe
    folder = Path(root if root is not None else made.root)
    num_bytes = None if is_store(_store_path(folder)) and not force_reload else _expected_bytes(made, missing)
    chosen = None if num_bytes is None else _choose(num_bytes, storage, limit, log)
    _Made(
        made,
        folder,
        pre_transform=pre_transform,
        pre_filter=pre_filter,
        missing=missing,
        force_reload=force_reload,
        log=log,
    )
    store = _store_path(folder)
    return _opened(store, chosen or _choose(ColumnStore.open(store).num_bytes, storage, limit, log), transform)


class _Made(OnDiskGraphs):
    """Makes the store of a recipe; it is read by its path, as a recipe cannot be sent to other processes."""

    def __init__(self, recipe: Recipe, root: Path, **options: Any) -> None:
        self._recipe = recipe
        super().__init__(root, **options)

    def graphs(self) -> Iterator[Any]:
        """The recipe's, with the random generators at a fixed seed."""
        with fixed_seed():
            yield from self._recipe.graphs()

    def _options(self) -> dict[str, Any]:
        kind = type(self._recipe)
        try:
            text = inspect.getsource(kind)
        except (OSError, TypeError):
            text = ""
        args, kwargs = self._recipe.made_with
        made_with = inspect.signature(kind).bind_partial(*args, **kwargs).arguments
        settings = describe_settings(made_with, self._recipe.root, but={"root"})
        return {**super()._options(), **settings, "recipe": f"{kind.__qualname__} {zlib.crc32(text.encode()):08x}"}


def _store_path(folder: Path) -> Path:
    return folder / "processed" / "graphs-columnar"


def _opened(store: Path, chosen: str, transform: Transform | None) -> InMemoryGraphs | OnDiskGraphs:
    return (InMemoryGraphs if chosen == "memory" else OnDiskGraphs)(store, transform=transform)


def _expected_bytes(recipe: Recipe, missing: Missing) -> int | None:
    """Bytes of all graphs, from the first of them; None when their number is not known."""
    if recipe.num_graphs is None:
        return None
    intake, num_bytes = Intake(missing), 0
    with fixed_seed():
        for data in islice(recipe.graphs(), _NUM_SAMPLED):
            taken = intake.take(data)
            num_bytes += sum(len(content) for _, content, _ in taken.values) + 8 * len(taken.values)
    return num_bytes * recipe.num_graphs // max(intake.num_graphs, 1)


def choose_storage(num_bytes: int, storage: Storage, memory_limit: int | str | None) -> tuple[str, str]:
    """Where graphs of so many bytes are held, `memory` or `disk`, and a sentence that says why.

    Raises:
        DatasetError: when `storage="memory"` does not fit, with the number.
    """
    limit = limit_of(memory_limit, "memory_limit")
    machine = read_machine()
    available = limit if limit is not None else machine.memory_available_bytes
    source = "memory_limit" if limit is not None else machine.memory_available_source
    fits = available is None or num_bytes <= available // 2
    have = "unknown RAM" if available is None else f"{size_text(available)} ({source})"
    why = f"the graphs take {size_text(num_bytes)}, {'under' if fits else 'over'} half of {have}"
    if storage == "memory" and not fits:
        raise DatasetError(f"In memory they do not fit: {why}.", "Give storage='disk', or a higher memory_limit.")
    chosen = storage if storage != "auto" else "memory" if fits else "disk"
    return chosen, f"{'In memory' if chosen == 'memory' else 'On disk'}: {why}."


def _choose(num_bytes: int, storage: Storage, limit: int | None, log: bool) -> str:
    chosen, why = choose_storage(num_bytes, storage, limit)
    if log and storage == "auto":
        print(why, file=sys.stderr)
    return chosen
