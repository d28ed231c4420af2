"""A graph in one `.npz` file: plain arrays, nothing that runs code when it is read."""

from __future__ import annotations

import zipfile
import zlib
from difflib import get_close_matches

import numpy as np
import torch
from torch import Tensor

from pygsage.data.names import Reference
from pygsage.data.raw import SPLITS, RawGraph
from pygsage.errors import DatasetError

_NEEDED = ("x", "edge_index", "y")
_SPLIT_KEYS = tuple(f"{name}_{kind}" for name in SPLITS for kind in ("mask", "idx"))
_UNUSED = ("edge_attr", "edge_weight")
_WRITE_IT = "Write it with numpy.savez."


def read_npz(reference: Reference) -> RawGraph:
    """Reads the arrays that are needed, one at a time; the others are not touched.

    Raises:
        DatasetError: when the file is no `.npz`, is cut short, lacks an array, or holds pickled ones.
    """
    path = str(reference.path)
    try:
        if not zipfile.is_zipfile(path):
            raise _no_zip(path)
        with np.load(path, allow_pickle=False) as file:
            notes = _check_keys(path, file.files)
            x, edge_index, y = (_read(path, file, key) for key in _NEEDED)
            splits = {key: _read(path, file, key) for key in _SPLIT_KEYS if key in file.files}
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise DatasetError(f"{path} is damaged ({_sentence(error)}).", _WRITE_IT) from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}.") from None
    return RawGraph(reference.text, path, x, edge_index, y, splits, notes)


def _read(path: str, file: np.lib.npyio.NpzFile, key: str) -> Tensor:
    try:
        array = file[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise DatasetError(f"{path}: {key} is damaged or cut short ({_sentence(error)}).") from None
        raise DatasetError(
            f"{path}: {key} is an array of Python objects, which can run code when it is read; expected numbers.",
            "Rows of different length, or None, make such arrays; store one number a cell.",
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DatasetError(f"{path}: {key} is damaged or cut short ({_sentence(error)}).") from None
    except MemoryError as error:
        raise DatasetError(f"{path}: {key} does not fit in memory ({_sentence(error)}).") from None
    return _to_tensor(path, key, array)


def _to_tensor(path: str, key: str, array: np.ndarray) -> Tensor:
    """A tensor on the array's memory where torch knows its dtype, else on a copy of a wider one."""
    kind, width = array.dtype.kind, array.dtype.itemsize
    if kind not in "biuf":
        what = "text" if kind in "US" else f"of dtype {array.dtype}"
        advice = f"Number it with numpy.unique({key}, return_inverse=True)[1]." if kind in "US" else ""
        raise DatasetError(f"{path}: {key} is {what}; expected numbers.", advice)
    if kind == "u" and width > 1:
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise DatasetError(f"{path}: {key} holds {int(array.max())}; expected numbers that int64 can hold.")
        array = array.astype(np.int64)
    elif kind == "f" and width > 8:
        array = array.astype(np.float64)
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def _check_keys(path: str, keys: list[str]) -> list[str]:
    known = (*_NEEDED, *_SPLIT_KEYS, *_UNUSED)
    unknown = sorted(set(keys) - set(known))
    shown = ", ".join(sorted(keys)[:12]) or "nothing"
    for key in _NEEDED:
        if key not in keys:
            if {"adj_indptr", "attr_indptr", "labels"} <= set(keys):
                advice = "This is the layout of gnn-benchmark: torch_geometric.io.read_npz reads it; store its arrays."
            else:
                near = get_close_matches(key, unknown, n=1)
                advice = f"Is {near[0]} meant? Store it as {key}." if near else ""
            raise DatasetError(f"{path} has no {key}; found {shown}; expected {', '.join(_NEEDED)}.", advice)
    for key in unknown:
        near = get_close_matches(key, _SPLIT_KEYS, n=1, cutoff=0.7)
        name = near[0].rpartition("_")[0] if near else ""
        if near and not {f"{name}_mask", f"{name}_idx"} & set(keys):
            raise DatasetError(
                f"{path} has {key}, which is not a name that is read.",
                f"Store it as {name}_mask (true or false a node) or {name}_idx (node ids).",
            )
    unused = [key for key in keys if key in _UNUSED or key in unknown]
    return [f"Not used: {', '.join(unused)}."] if unused else []


def _no_zip(path: str) -> DatasetError:
    with open(path, "rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        return DatasetError(f"{path} holds a single array; expected {', '.join(_NEEDED)}.", _WRITE_IT)
    found = "is damaged or cut short" if start[:2] == b"PK" else "is not an .npz file"
    return DatasetError(f"{path} {found}; expected a whole file with {', '.join(_NEEDED)}.", _WRITE_IT)


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
