"""Any PyG dataset class that holds one graph with node labels, by the name of the class.

Naming a class runs its code, which may read pickled files and download: that is the trust the name gives.
"""

from __future__ import annotations

import fcntl
import inspect
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pygsage.data.foreign import fixed_seed, quiet, sentence
from pygsage.data.names import Reference, class_with
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.take import ManyGraphs, raw_from_data
from pygsage.data.sources.download import made_folder
from pygsage.errors import DatasetError, PygsageError
from pygsage.memory.disk import full_disk

_NODE_CLASSES = "such as Planetoid, Amazon, Coauthor, WebKB, Reddit, Flickr, WikiCS"


def read_pyg(reference: Reference, root: str | None, *, offline: bool) -> RawGraph:
    """Builds `torch_geometric.datasets.CLASS(root, name)` and takes its only graph.

    Raises:
        ManyGraphs: when there are several, with the dataset.
        DatasetError: as `open_pyg`; also when it holds anything but one graph with node labels.
    """
    dataset, data = open_pyg(reference, root, offline=offline)
    if len(dataset) > 1:
        raise ManyGraphs(f"{reference.text} holds {len(dataset)} graphs; expected one graph with node labels.", dataset)
    return raw_from_data(reference.text, reference.text, data, len(dataset))


def open_pyg(reference: Reference, root: str | None, *, offline: bool) -> tuple[Any, Any]:
    """Builds `torch_geometric.datasets.CLASS(root, name)`, and returns it with its first graph, or None.

    Args:
        root: Passed to the class; None for a folder of its own in the user's cache.
        offline: Refuse instead of downloading.

    Raises:
        DatasetError: when there is no such class, or its files are missing or cannot be read.
    """
    from torch_geometric.data.dataset import Dataset

    made = _find_class(reference.class_name)
    arguments = _arguments(made, reference)
    if "root" in inspect.signature(made).parameters:
        arguments["root"] = str(_root(reference, root))
    elif root is not None:
        raise DatasetError(f"{reference.class_name} reads no files.", "Leave --root out.")
    if issubclass(made, Dataset):
        made = _guarded(made, reference, offline)
    try:
        with quiet(), fixed_seed():
            dataset = made(**arguments)
            data = dataset[0] if len(dataset) else None
    except PygsageError:
        raise
    except ImportError as error:
        package = f"pip install {error.name.partition('.')[0]}" if error.name else ""
        raise DatasetError(f"{reference.text} needs a package that is not installed: {error}.", package) from None
    except Exception as error:  # another's code: anything can come out of it
        told = full_disk(error, arguments.get("root"))
        if told is not None:
            raise told from None
        where = f" Its files are in {arguments['root']}." if "root" in arguments else ""
        raise DatasetError(
            f"{reference.text} could not be read: {sentence(error)}.",
            f"Check the name and the files; a folder 'processed' that was left half-written can be deleted.{where}",
        ) from None
    return dataset, data


def _find_class(name: str) -> type:
    from torch_geometric import datasets

    names = [n for n in datasets.__all__ if inspect.isclass(getattr(datasets, n))]
    if name in names:
        found: type = getattr(datasets, name)
        return found
    lower = {n.lower(): n for n in names}
    near = get_close_matches(name.lower(), lower, n=1)
    meant = class_with(name) or (lower[near[0]] if near else "")
    raise DatasetError(
        f"torch_geometric.datasets has no class {name}; expected one {_NODE_CLASSES}.",
        f"Did you mean {meant}?" if meant else "",
    )


def _arguments(made: type, reference: Reference) -> dict[str, Any]:
    parameters = inspect.signature(made).parameters
    if reference.name is not None and "name" not in parameters:
        raise DatasetError(
            f"{reference.class_name} takes no name; found {reference.name}.", f"Type pyg:{reference.class_name}."
        )
    given = {} if reference.name is None else {"name": reference.name}
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [
        n
        for n, p in parameters.items()
        if p.default is p.empty and p.kind not in kinds and n not in given and n != "root"
    ]
    if missing == ["name"]:
        raise DatasetError(
            f"{reference.class_name} holds several datasets; expected which of them.",
            f"Type pyg:{reference.class_name}/NAME, such as pyg:Planetoid/Cora.",
        )
    if missing:
        raise DatasetError(
            f"{reference.class_name} wants to be told {', '.join(missing)}; classes that need more than a folder and a "
            f"name are not read in this version; expected one {_NODE_CLASSES}.",
        )
    return given


def _root(reference: Reference, root: str | None) -> Path:
    if root is None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(cache) / "pygsage" / "pyg" / reference.class_name
    path = Path(os.path.expanduser(root))
    if not os.path.isdir(path):
        raise DatasetError(
            f"--root {root} is not a folder; expected one with the files of {reference.class_name}.",
            f"To have them downloaded there, make it first: mkdir -p {root}",
        )
    return path


def _guarded(made: Any, reference: Reference, offline: bool) -> type:
    """The class with a download that leaves all its files or none, and none at all when offline."""

    class Guarded(made):
        root: str

        def _download(self) -> None:
            if self._is_missing():
                root = Path(self.root)
                with made_folder(root), _one_at_a_time(root):
                    if self._is_missing():  # nobody else has fetched it meanwhile
                        self._download_once()

        def _is_missing(self) -> bool:
            missing = [path for path in self.raw_paths if not os.path.exists(path)]
            processed = self.processed_paths if self.has_process else []
            if (self.raw_paths and not missing) or (processed and all(map(os.path.exists, processed))):
                return False
            if offline:
                raise _files_missing(reference, Path(self.root), missing)
            return True

        def _download_once(self) -> None:
            root = Path(self.root)
            with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as scratch:
                self.root = scratch
                try:
                    os.makedirs(self.raw_dir, exist_ok=True)
                    self.download()
                except Exception as error:  # another's code, and the network
                    told = full_disk(error, root)
                    raise told or DatasetError(
                        f"{reference.text} could not be downloaded: {sentence(error)}.",
                        _near_folder(reference, root)
                        or "Check the name and the network, or give the raw files that you have with --root DIR.",
                    ) from None
                finally:
                    self.root = str(root)
                _move_into(Path(scratch), root)

        def _process(self) -> None:
            root = Path(self.root)
            with made_folder(root), _one_at_a_time(root):
                self._process_once()

        def _process_once(self) -> None:
            folder = Path(self.processed_dir)
            is_new = not folder.exists()
            try:
                with warnings.catch_warnings():
                    # PyG only warns when it takes what other options have made.
                    warnings.filterwarnings("error", "The `pre_(transform|filter)` argument differs")
                    super()._process()
            except UserWarning:
                raise DatasetError(
                    f"{reference.text}: the files in {folder} were made with a pre_transform or pre_filter; expected "
                    "those that are made without.",
                    f"Give another folder with --root DIR, or delete {folder}: it is then made anew.",
                ) from None
            except BaseException:
                if is_new:
                    shutil.rmtree(folder, ignore_errors=True)
                raise

    Guarded.__name__ = Guarded.__qualname__ = made.__name__
    return Guarded


@contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    """Lets one process at a time download and process; others wait, and find it done.

    The folder itself is locked, so that no file is left.
    """
    try:
        descriptor = os.open(root, os.O_RDONLY)
    except OSError:  # what cannot be read is told by whoever reads it
        yield
        return
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _files_missing(reference: Reference, root: Path, missing: list[str]) -> DatasetError:
    advice = _near_folder(reference, root)
    advice = advice or "Leave --offline out to download them, or name the folder that has them with --root DIR."
    files = f"{missing[0]} and {len(missing) - 1} more" if len(missing) > 1 else "".join(missing[:1]) or str(root)
    return DatasetError(f"{reference.text} is not on this machine: {files} missing, and --offline is on.", advice)


def _near_folder(reference: Reference, root: Path) -> str:
    if not reference.name or not root.is_dir():
        return ""
    folders = {p.name.lower(): p.name for p in root.iterdir() if p.is_dir() and p.name != reference.name}
    near = get_close_matches(reference.name.lower(), folders, n=1)
    return f"Did you mean pyg:{reference.class_name}/{folders[near[0]]}?" if near else ""


def _move_into(source: Path, target: Path) -> None:
    """Renames everything below `source` into `target`, file by file where a folder is there already."""
    for path in sorted(source.iterdir()):
        goal = target / path.name
        if path.is_dir() and goal.is_dir():
            _move_into(path, goal)
        else:
            os.replace(path, goal)
