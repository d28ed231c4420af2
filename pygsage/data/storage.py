"""Where a run holds its graph, in RAM or on disk, decided by the estimate; and where a store on disk lies."""

from __future__ import annotations

import fcntl
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pygsage import native
from pygsage.config import TrainConfig
from pygsage.data.files.arrays import MANIFEST, read_manifest
from pygsage.data.many_graphs.recipe_store import is_made, recipe_store
from pygsage.data.names import Reference, parse_reference, short_name
from pygsage.data.one_graph.graph import FORMAT, VERSION
from pygsage.data.one_graph.raw import RawGraph, shape_of_raw
from pygsage.data.one_graph.take import ManyGraphs
from pygsage.data.sampled import shape_of_many
from pygsage.data.sources.recipe import read_recipe
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.memory.answer import MemoryAnswer, answer
from pygsage.memory.decide import DISK_SHARE, size_text
from pygsage.memory.estimate import BUILD_BYTES
from pygsage.memory.machine import read_machine
from pygsage.memory.peak import undroppable_bytes
from pygsage.memory.shapes import DatasetShape
from pygsage.memory.stores import shape_of_store

_MOST_FILES = 10_000  # that are looked at to see whether a recipe's or a class's data have changed
GIVEN = "a graph given in Python"  # the name of a dataset that `pygsage.train` got as an object
_OPTIONS = ("undirected", "self_loops", "normalize_features", "relabel", "task", "ignore_label")


@dataclass(frozen=True)
class Storage:
    """How a dataset is held.

    Attributes:
        kind: In RAM, or mapped from a folder. Many graphs are mapped either way, and in memory read in beforehand.
        told: The estimate; None where the size is not known beforehand.
        folder: Where the store of a graph on disk lies, or will.
        budget_bytes: RAM that building it may take for sorting edges.
        num_ranks: Processes of the job on this machine.
        refuses: Whether what does not fit is refused, where its size becomes known only when it is opened.
        raw: What a recipe gave, which was asked already for the sake of its size.
        is_built: Whether it lies there already, made from the same files with the same options.
    """

    kind: Literal["memory", "disk"]
    told: MemoryAnswer | None = None
    folder: Path | None = None
    budget_bytes: int = BUILD_BYTES
    is_built: bool = False
    raw: RawGraph | None = None
    num_ranks: int = 1
    refuses: bool = True

    @property
    def is_of_graphs(self) -> bool:
        """Whether it holds many graphs, which lie in a store of their own."""
        return self.told is not None and self.told.shape.num_graphs > 1

    @property
    def takes_a_while(self) -> bool:
        """Whether something is built on disk before training, so that where and why is said first."""
        return self.folder is not None or (self.is_of_graphs and self.kind == "disk")

    def sentence(self) -> str:
        """One line for a run to print: where, and why; empty where there is nothing to say."""
        if self.told is None:
            where = f"memory: On disk, as --storage says. The graph is in {self.folder}."
            return where if self.folder is not None else ""
        decision = self.told.decision
        if self.kind == "memory" or (self.folder is None and decision.storage == "disk"):
            return self.told.sentence()
        if self.told.shape.made == "rows":
            return f"memory: From its database: needs {size_text(self.told.disk.need_bytes)} of RAM."
        if decision.storage != "disk":
            need, disk = size_text(self.told.disk.need_bytes), size_text(self.told.disk.disk_bytes)
            reason = f"On disk, as --storage says: takes {need} of RAM and {disk} of disk."
        else:
            reason = decision.reason
        return f"memory: {reason}" + (f" The graph is in {self.folder}." if self.folder is not None else "")


def choose_storage(
    config: TrainConfig,
    num_ranks: int,
    shape: DatasetShape | None = None,
    *,
    refuse: bool = True,
    gpu_free_bytes: int | None = None,
) -> Storage:
    """Estimates a run on this machine, and decides where its data are held: as `--storage` says, or where it fits.

    Args:
        config: The options in force.
        num_ranks: Processes of the job on this machine.
        shape: What the dataset holds, where that is known already.
        refuse: False to take the disk for what does not seem to fit at all.
        gpu_free_bytes: As for `answer`.

    Raises:
        EnvironmentLimitError: when it would not fit there, with exit status 3 or 4 as `estimate-memory` has it.
    """
    unknown = Storage("memory", num_ranks=num_ranks, refuses=refuse)
    reference = parse_reference(config.dataset) if config.dataset != GIVEN else None
    folder = store_folder(config, reference) if reference is not None else None
    there = folder or Path(tempfile.gettempdir())
    if reference is not None and reference.kind == "graph":
        there = reference.path or there
    machine, base_bytes, raw = read_machine(folder=there), undroppable_bytes(), None
    if shape is None and reference is None:  # a dataset in Python, which is looked at when it is opened
        return replace(unknown, kind="disk") if config.storage == "disk" else unknown
    if reference is not None and reference.kind == "recipe" and shape is None:
        try:
            raw = read_recipe(reference, config.root)
            shape = shape_of_raw(raw)
        except ManyGraphs:
            shape = _shape_of_graphs(config, reference)
        except DatasetError:  # the door explains it
            return unknown
    is_built = reference is not None and folder is not None and is_current(folder, config, reference)
    if is_built:
        machine = replace(machine, disk_free_bytes=None)  # nothing is to be built
    try:
        told = answer(
            config,
            shape=shape,
            machine=machine,
            base_bytes=base_bytes,
            num_ranks=num_ranks,
            compiled=native.core is not None,
            gpu_free_bytes=gpu_free_bytes,
        )
    except DatasetError:  # a recipe, or a mistake that the door explains better
        if config.storage == "disk":
            return replace(unknown, kind="disk", folder=folder, is_built=is_built, raw=raw)
        return replace(unknown, raw=raw)
    is_rows = told.shape.made == "rows" and told.shape.num_graphs > 1
    if refuse and not (is_rows and config.storage == "memory"):  # that is refused where it is opened, with what to do
        _refuse_what_does_not_fit(config, told)
    known = replace(unknown, told=told)
    fits = "memory" in (config.storage, told.decision.storage if config.storage == "auto" else "")
    if told.shape.num_graphs > 1:
        return replace(known, kind="memory" if fits and not is_rows else "disk")
    if fits:
        return replace(known, raw=raw)
    return replace(known, kind="disk", folder=folder, budget_bytes=told.build_bytes, is_built=is_built, raw=raw)


def _shape_of_graphs(config: TrainConfig, reference: Reference) -> DatasetShape | None:
    """The shape of a recipe of many graphs: of the store made of it, or of its first graphs; None if unknown."""
    kept, inputs = recipe_store(config, reference)
    try:
        if kept is not None and is_made(kept, inputs):
            return shape_of_store(reference.text, kept / "store")
        return shape_of_many(reference, config.root)
    except DatasetError:
        return None


def check_build(config: TrainConfig, out: Path) -> int:
    """Refuses a dataset that cannot be built in the folder `out`, for lack of RAM or disk; returns RAM for its edges.

    Raises:
        EnvironmentLimitError: see above; exit status 4.
    """
    machine = read_machine(folder=existing_folder(out.absolute()))
    try:
        told = answer(config, machine=machine, base_bytes=undroppable_bytes(), num_ranks=1)
    except DatasetError:  # its size is not known beforehand, or the door explains better what is wrong
        return BUILD_BYTES
    if told.shape.num_graphs > 1:
        return BUILD_BYTES
    phases = [phase for phase in told.disk.phases() if phase not in ("train", "evaluate")]
    need, available = max(map(told.disk.ram_bytes, phases)), told.decision.available_bytes
    disk, free = told.disk.built_disk_bytes, machine.disk_free_bytes
    if (available is None or need <= DISK_SHARE * available) and (free is None or disk <= free):
        return told.build_bytes
    error = EnvironmentLimitError(
        f"Converting {config.dataset} needs {size_text(need)} of RAM and {size_text(disk)} of disk; {_there(told)}.",
        "Name a folder on a larger disk, or raise --memory-limit.",
    )
    error.exit_status = 4
    raise error


def _refuse_what_does_not_fit(config: TrainConfig, told: MemoryAnswer) -> None:
    decision = told.decision
    available = decision.available_bytes
    if config.storage == "disk":
        free = told.machine.disk_free_bytes
        too_much = available is not None and told.disk.need_bytes > DISK_SHARE * available
        if not too_much and (free is None or told.disk.disk_bytes <= free):
            return
    elif decision.storage == "memory" or (config.storage == "auto" and decision.storage == "disk"):
        return
    if config.storage == "disk":
        needs = f"{size_text(told.disk.need_bytes)} of RAM and {size_text(told.disk.disk_bytes)} of disk"
        found = f"Training on {config.dataset} from disk needs {needs}; {_there(told)}."
    else:
        found = f"Training on {config.dataset} does not fit in memory. {decision.reason}"
    advice = "`pygsage estimate-memory` shows what takes how much; a larger --memory-limit goes ahead all the same."
    if decision.storage == "disk":
        advice = "Leave --storage out, or type --storage disk."
    error = EnvironmentLimitError(found, advice)
    error.exit_status = decision.exit_status or 4
    raise error


def _there(told: MemoryAnswer) -> str:
    free = told.machine.disk_free_bytes
    room = f" and {size_text(free)} ({told.machine.disk_folder})" if free is not None else ""
    return f"there are {size_text(told.decision.available_bytes or 0)} ({told.decision.available_source}){room}"


def store_folder(config: TrainConfig, reference: Reference) -> Path:
    """Where the store of a dataset lies that a run builds for itself: one folder for each set of options.

    Beside the file (`graph.npz.pygsage`), in the folder of raw data (`--root`), or in the user's cache where neither
    can be written.
    """
    base = _beside(config, reference)
    parent = base.parent if base is not None else None
    if base is None or parent is None or not (os.access(parent, os.W_OK) or os.path.isdir(base)):
        named = str(reference.path.absolute()) if reference.path is not None else f"{reference.text} {config.root}"
        base = _cache() / f"{short_name(config.dataset)}-{zlib.crc32(named.encode()):08x}.pygsage"
    return base / (_of_options(config, reference) or "plain")


def _beside(config: TrainConfig, reference: Reference) -> Path | None:
    if reference.kind in ("npz", "pt", "graph", "store") and reference.path is not None:
        path = reference.path.absolute()
        return path.with_name(f"{path.name}.pygsage")
    if config.root is not None:
        return Path(os.path.expanduser(config.root)).absolute() / f"{short_name(config.dataset)}.pygsage"
    if reference.kind == "recipe" and reference.path is not None:
        path = reference.path.absolute()
        return path.with_name(f"{path.name}{'-' if reference.class_name else ''}{reference.class_name}.pygsage")
    return None


def _cache() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pygsage" / "graphs"


def _of_options(config: TrainConfig, reference: Reference) -> str:
    """The options that change what is stored, as the name of a folder, such as `undirected+split_id-2`."""
    told = []
    default = TrainConfig()
    for name in (*_OPTIONS, *(["split_id"] if config.split == "public" else [])):
        value = getattr(config, name)
        if value != getattr(default, name):
            told.append(name if value is True else f"{name}-{value}")
    if config.split != "public":
        told.append("no-split")  # it is made anew whenever the store is opened
    if reference.kind == "digits":
        told.append(f"seed-{config.seed}")
    return "+".join(told)


def fingerprint_of(config: TrainConfig, reference: Reference) -> dict[str, Any]:
    """Of the options that change what is stored, and of the dataset's files: name, size and time of change.

    Files of a recipe or a PyG class are those in its folder of raw data, as far as they can be told.
    """
    files: dict[str, list[int]] = {}
    for path in _inputs(config, reference):
        status = path.stat()
        files[path.name if path == reference.path else str(path)] = [status.st_size, status.st_mtime_ns]
    return {"dataset": config.dataset, "options": _of_options(config, reference) or "plain", "files": files}


def _inputs(config: TrainConfig, reference: Reference) -> Iterator[Path]:
    if reference.kind in ("graph", "store") and reference.path is not None:
        yield reference.path / MANIFEST
        return
    if reference.path is not None:
        yield reference.path
    if reference.kind in ("npz", "pt", "digits"):
        return
    if config.root is not None:
        root = Path(os.path.expanduser(config.root))
    elif reference.kind == "recipe" and reference.path is not None:
        root = reference.path.absolute().parent
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pygsage" / reference.kind
    if reference.kind == "ogb":
        folder = root / reference.text.replace("-", "_")
        root = next((each for each in (Path(f"{folder}_pyg"), folder) if each.is_dir()), folder)
    left = _MOST_FILES
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not _is_made(name))
        for name in sorted(names):
            if not name.startswith(".") and (Path(place) / name).is_file():
                yield Path(place) / name
                left -= 1
        if left <= 0:  # a recipe in a home folder, say
            return


def _is_made(name: str) -> bool:
    return name.endswith(".pygsage") or name in ("processed", "runs", "__pycache__")


def existing_folder(path: Path) -> Path:
    """The nearest folder above a path that is there."""
    return next(parent for parent in path.parents if parent.is_dir())


def is_current(folder: Path, config: TrainConfig, reference: Reference) -> bool:
    """Whether a store is there that was made from the same files with the same options."""
    try:
        told = read_manifest(folder, {FORMAT: VERSION}).get("fingerprint")
    except DatasetError:
        return False
    return bool(told == fingerprint_of(config, reference))


@contextmanager
def one_builder(folder: Path) -> Iterator[None]:
    """Lets one process at a time look for a store and build it; others wait for it, where the file system can."""
    at = folder.with_name(f".{folder.name}.builder")
    with ExitStack() as stack:
        while True:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # one that has just finished took the folder away, too
                lock = stack.enter_context(open(at, "ab"))
                with suppress(OSError):  # some network file systems have no locks
                    fcntl.flock(lock, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(lock.fileno()), os.stat(at)):
                    break
        try:
            yield
        finally:
            with suppress(OSError):
                at.unlink()
                folder.parent.rmdir()  # of a build that was refused; any other has its store there
