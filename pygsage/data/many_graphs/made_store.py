"""A store of graphs made from a source, kept where it is found again, and used again only for the same inputs."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pygsage.data.files.fingerprint import read_options, write_options
from pygsage.data.files.scratch import scratch_folder
from pygsage.data.many_graphs.graph_set import GraphSet
from pygsage.data.many_graphs.reader import GraphReader
from pygsage.data.many_graphs.recipe_store import FOLDER, is_made
from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.errors import DatasetError
from pygsage.memory.disk import full_disk
from pygsage.memory.peak import PeakMemory

T = TypeVar("T")


def open_made(
    graphs: Any,
    use: Callable[[GraphReader], T],
    stack: ExitStack,
    beside: Path | None,
    inputs: Mapping[str, Any],
    memory: PeakMemory | None = None,
) -> T:
    """What `use` makes of the store of some graphs, which is written first if it is not there.

    It is written under another name and renamed after `use` has accepted it, so that a refused dataset leaves nothing.

    Args:
        graphs: A PyG dataset, or an iterable of graphs; read once, or not at all.
        use: Checks the graphs; a `GraphSet` that it returns is told where the store lies in the end.
        stack: Removes what cannot be kept.
        beside: The folder to keep the store in; None, or one that cannot be written, for none.
        inputs: Everything that the graphs depend on, as plain values: a kept store made from others is replaced.
        memory: Measures peaks: writing the store counts for the phase `process`.

    Raises:
        DatasetError: when a graph does not go with those before; what `use` raises.
    """
    home = beside / FOLDER if beside is not None else None
    if home is not None and is_made(home, inputs):
        return use(GraphReader(home / "store"))
    making, is_kept = _new_folder(beside, stack)
    try:
        with memory.phase("process") if memory is not None else nullcontext():
            _write(graphs, making / "store")
        made = use(GraphReader(making / "store"))
        if not is_kept or home is None:
            return made
        write_options(making, inputs)
        _move(making, home, inputs)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    if isinstance(made, GraphSet):
        return replace(made, store=home / "store")
    return made


def _write(graphs: Any, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they are among the store's notes
        try:
            to_on_disk_dataset(graphs, folder)
        except DatasetError as error:  # nothing is kept here to be resumed
            raise DatasetError(
                error.found, error.advice.partition("The graphs before it are kept")[0].strip()
            ) from None


def _new_folder(beside: Path | None, stack: ExitStack) -> tuple[Path, bool]:
    """An empty folder, and whether it can become the one that is kept; else the stack removes it."""
    if beside is not None:
        making = beside / f".{FOLDER}.partial-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            making.mkdir(parents=True)
            return making, True
        except OSError:
            pass  # a folder that can only be read
    try:
        return stack.enter_context(scratch_folder()), False
    except OSError as error:
        told = full_disk(error, tempfile.gettempdir(), "or name another folder in TMPDIR")
        raise told or DatasetError(
            f"There is no folder for the graphs to be written to: {error.strerror}.", "Name one in TMPDIR."
        ) from None


def _move(making: Path, home: Path, inputs: Mapping[str, Any]) -> None:
    """Puts a new store in the place of an older one."""
    old = making.with_name(f"{making.name}.old")
    try:
        with suppress(FileNotFoundError):
            os.replace(home, old)
        os.replace(making, home)
    except OSError:
        if read_options(home) != inputs:  # else another process was first, with the same graphs
            raise
        shutil.rmtree(making, ignore_errors=True)
    finally:
        shutil.rmtree(old, ignore_errors=True)
