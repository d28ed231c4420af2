"""A graph that `torch.save` wrote: read without running code, unless the user says that the file is trusted."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from typing import Any

import torch

from pygsage.data.foreign import quiet, sentence
from pygsage.data.names import Reference
from pygsage.data.one_graph.raw import RawGraph
from pygsage.data.one_graph.take import raw_from_data, raw_from_mapping
from pygsage.errors import DatasetError

_EXPECTED = "expected a PyG Data, or a dict of tensors with x, edge_index and y"


def read_pt(reference: Reference, *, trust_pickle: bool) -> RawGraph:
    """Reads a `Data`, a dict of tensors, or what a PyG `InMemoryDataset` keeps in `processed/`.

    The file is mapped; without `trust_pickle` nothing but tensors, plain values and PyG's own containers is made.

    Args:
        trust_pickle: Let the file make any object, which can run any code.

    Raises:
        DatasetError: when the file cannot be read, wants more than tensors and is not trusted, or holds anything but
            one graph.
    """
    path = str(reference.path)
    held = _load(path, trust_pickle)
    num_graphs = 1
    if isinstance(held, tuple) and len(held) in (2, 3):  # InMemoryDataset: data, slices, class
        data, slices = held[:2]
        num_graphs = _count(slices)
        held = _from_dict(data, held[2] if len(held) == 3 else None)
    elif isinstance(held, (list, tuple)):
        num_graphs = len(held)
        held = held[0] if num_graphs else None
    if isinstance(held, Mapping) and num_graphs == 1:
        missing = [key for key in ("x", "edge_index", "y") if held.get(key) is None]
        if missing and not ("adj_t" in held and missing == ["edge_index"]):
            shown = ", ".join(map(str, list(held)[:12])) or "nothing"
            raise DatasetError(f"{path} holds a dict without {', '.join(missing)} (found {shown}); {_EXPECTED}.")
        return raw_from_mapping(reference.text, path, held)
    return raw_from_data(reference.text, path, held, num_graphs)


def _load(path: str, trust_pickle: bool) -> Any:
    # A path that torch maps has to be of its zip format; older files are read whole.
    try:
        with quiet(), torch.serialization.safe_globals(_containers()):
            mapped = zipfile.is_zipfile(path)
            if not mapped and _starts_as_zip(path):
                raise DatasetError(f"{path} is cut short or damaged; {_EXPECTED}.")
            return torch.load(path, map_location="cpu", weights_only=not trust_pickle, mmap=mapped)
    except DatasetError:
        raise
    except pickle.UnpicklingError as error:
        if trust_pickle:
            raise DatasetError(f"{path} is cut short or damaged ({sentence(error)}); {_EXPECTED}.") from None
        wanted = re.search(r"GLOBAL ([\w.]+)", str(error))
        if not wanted and "Weights only" not in str(error):
            raise DatasetError(f"{path} is cut short or damaged ({sentence(error)}); {_EXPECTED}.") from None
        makes = f"makes objects of {wanted[1]}" if wanted else "makes more than tensors"
        raise DatasetError(
            f"{path} is a pickled file that {makes}, which can run code when it is read; {_EXPECTED}.",
            "If you trust the file, add --trust-pickle; else save its tensors as a dict: "
            "torch.save({'x': data.x, 'edge_index': data.edge_index, 'y': data.y}, PATH).",
        ) from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}; {_EXPECTED}.") from None
    except Exception as error:  # torch raises many kinds for damaged files; a trusted one can raise any
        raise DatasetError(f"{path} cannot be read ({sentence(error)}); {_EXPECTED}.", _missing(error)) from None


def _starts_as_zip(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _containers() -> list[Any]:
    """What a plain `Data` or `HeteroData` consists of beside tensors; PyG lists some of them itself."""
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    own = {Data, HeteroData, DataEdgeAttr, DataTensorAttr, BaseStorage, EdgeStorage, GlobalStorage, NodeStorage}
    # torch takes back on leaving what was listed on entering, so what PyG has listed for itself must not be among it.
    return list(own.difference(torch.serialization.get_safe_globals()))


def _missing(error: Exception) -> str:
    if isinstance(error, (ModuleNotFoundError, AttributeError)):
        return "The file needs the code that its objects were made with; save its tensors as a dict instead."
    return ""


def _count(slices: Any) -> int:
    if slices is None:
        return 1
    while isinstance(slices, Mapping) and slices:
        slices = next(iter(slices.values()))
    return len(slices) - 1 if hasattr(slices, "__len__") and len(slices) else 0


def _from_dict(data: Any, made: Any) -> Any:
    """HeteroData is kept as a dict whose keys say it only to its class."""
    from torch_geometric.data import HeteroData

    if isinstance(data, dict) and isinstance(made, type) and issubclass(made, HeteroData):
        return HeteroData.from_dict(data)
    return data
