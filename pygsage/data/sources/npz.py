"""A graph in one `.npz` file: plain arrays, nothing that runs code when it is read."""

from __future__ import annotations

import zipfile
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pygsage.data.names import Reference
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.take import SPLIT_KEYS, raw_from_mapping
from pygsage.data.sources.npz_members import made, read_member
from pygsage.errors import DatasetError

_NEEDED = ("x", "edge_index", "y")
_OPTIONAL = ("node_id",)
_UNUSED = ("edge_attr", "edge_weight")
_WRITE_IT = "Write it with numpy.savez."
_CHUNK_COLUMNS = 1 << 20


def read_npz(reference: Reference, scratch: Path | None = None) -> RawGraph:
    """Reads the arrays that are needed, one at a time; the others are not touched.

    Args:
        scratch: A folder, for arrays that may not fit in RAM: they are mapped where they lie in the file, or, if
            they are packed, unpacked to files there.

    Raises:
        DatasetError: when the file is no `.npz`, is cut short, lacks an array, or holds pickled ones.
    """
    path = str(reference.path)
    try:
        if not zipfile.is_zipfile(path):
            raise _no_zip(path)
        # Opened here, because numpy leaves a damaged file open.
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            notes = _check_keys(path, file.files)
            keys = (*_NEEDED, *SPLIT_KEYS, *_OPTIONAL)
            arrays = {key: _read(path, file, key, scratch) for key in keys if key in file.files}
    except DatasetError:
        raise
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}; expected an .npz file.") from None
    except Exception as error:  # zipfile and numpy raise many kinds for damaged files
        raise DatasetError(f"{path} is damaged ({_sentence(error)}); expected a whole .npz file.", _WRITE_IT) from None
    raw = raw_from_mapping(reference.text, path, arrays)
    raw.notes.extend(notes)
    return raw


def _read(path: str, file: np.lib.npyio.NpzFile, key: str, scratch: Path | None) -> Tensor:
    try:
        array = file[key] if scratch is None else read_member(Path(path), key, scratch)
    except MemoryError as error:
        raise DatasetError(
            f"{path}: {key} does not fit in memory ({_sentence(error)}); expected an array that does."
        ) from None
    except OSError:
        raise
    except Exception as error:  # zipfile and numpy raise many kinds for damaged files
        if not any(words in str(error) for words in ("allow_pickle", "Python objects")):
            raise _damaged(path, key, _sentence(error)) from None
        raise DatasetError(
            f"{path}: {key} is an array of Python objects, which can run code when it is read; expected numbers.",
            "Rows of different length, or None, make such arrays; store one number a cell.",
        ) from None
    if not isinstance(array, np.ndarray):  # numpy hands out the bytes of what is no .npy
        raise _damaged(path, key, "it is no .npy")
    return to_tensor(path, key, array, scratch)


def to_tensor(path: str, key: str, array: np.ndarray, scratch: Path | None = None) -> Tensor:
    """A tensor on the array's memory where torch knows its dtype, else on a copy of a wider one.

    Args:
        scratch: A folder where such a copy is mapped from; None to have it in RAM.
    """
    kind, width = array.dtype.kind, array.dtype.itemsize
    if kind not in "biuf":
        what = "text" if kind in "US" else f"of dtype {array.dtype}"
        raise DatasetError(f"{path}: {key} is {what}; expected numbers.", _numbers_for(key) if kind in "US" else "")
    if kind == "u" and width > 1:
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise DatasetError(f"{path}: {key} holds {int(array.max())}; expected numbers that int64 can hold.")
        array = _cast(array, np.dtype(np.int64), key, scratch)
    elif kind == "f" and width > 8:
        array = _cast(array, np.dtype(np.float64), key, scratch)
    return torch.from_numpy(_cast(array, array.dtype.newbyteorder("="), key, scratch))


def _cast(array: np.ndarray, dtype: np.dtype, key: str, scratch: Path | None) -> np.ndarray:
    if array.dtype == dtype or scratch is None or array.ndim == 0:
        return array.astype(dtype, copy=False)
    cast = made(scratch, f"{key}-{dtype.name}", dtype, array.shape)
    for start in range(0, array.shape[-1], _CHUNK_COLUMNS):
        cast[..., start : start + _CHUNK_COLUMNS] = array[..., start : start + _CHUNK_COLUMNS]
    return cast


def _numbers_for(key: str) -> str:
    """What to do about names or words in the place of numbers."""
    if key == "y":
        return "Number the classes with numpy.unique(y, return_inverse=True)[1]."
    if key == "edge_index":
        return "Put the row of x in the place of each node's name."
    if key.endswith("_mask"):
        return f"Compare it with the word that means true: {key} == 'True'."
    return f"Store {key}.astype(float)." if key == "x" else f"Store {key}.astype(int), if all of it are numbers."


def _check_keys(path: str, keys: list[str]) -> list[str]:
    if {"format", "shape", "data"} <= set(keys) and "x" not in keys:
        raise DatasetError(
            f"{path} holds a sparse matrix of scipy's: edges alone; expected {', '.join(_NEEDED)}.",
            f"Write edges, features and labels: numpy.savez('graph.npz', edge_index=numpy.stack("
            f"scipy.sparse.load_npz({path!r}).nonzero()), x=…, y=…).",
        )
    known = (*_NEEDED, *SPLIT_KEYS, *_OPTIONAL, *_UNUSED)
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
        near = get_close_matches(key, SPLIT_KEYS, n=1, cutoff=0.7)
        name = near[0].rpartition("_")[0] if near else ""
        if near and not {f"{name}_mask", f"{name}_idx"} & set(keys):
            raise DatasetError(
                f"{path} has {key}, which is not a name that is read; expected {name}_mask or {name}_idx.",
                f"Store it as {name}_mask (true or false a node) or {name}_idx (node ids).",
            )
    unused = [key for key in keys if key in _UNUSED or key in unknown]
    return [f"Not used: {', '.join(unused)}."] if unused else []


def _damaged(path: str, key: str, reason: str) -> DatasetError:
    found = f"{path}: {key} is damaged or cut short ({reason}); expected a whole array."
    return DatasetError(found, _WRITE_IT)


def _no_zip(path: str) -> DatasetError:
    with open(path, "rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        return DatasetError(f"{path} holds a single array; expected {', '.join(_NEEDED)}.", _WRITE_IT)
    found = "is damaged or cut short" if start[:2] == b"PK" else "is not an .npz file"
    return DatasetError(f"{path} {found}; expected a whole file with {', '.join(_NEEDED)}.", _WRITE_IT)


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
