"""What a run was trained on, as a number: a run that goes on, and `predict`, notice that the dataset has changed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pygsage.data.many_graphs.graph_set import GraphSet
from pygsage.data.one_graph.sampled import sampled_blocks, sampled_crc
from pygsage.errors import RunError, in_words
from pygsage.training.checkpoint import write_atomically
from pygsage.training.problem import TrainingData

FILE = "dataset.json"
_VERSION = 1
_GRAPHS = 64


def content_of(data: TrainingData) -> int:
    """A CRC-32 of the labels, the splits, where the edges of each node (or graph) begin, and of samples of the rest.

    The same in memory and on disk, whatever the backend and wherever the files lie. Of features and edges 64 blocks of
    1,024 rows are looked at, evenly chosen, of many graphs 64 graphs: of a small dataset that is all.

    Costs a pass over 16 bytes a node (or graph), and reads of the blocks.
    """
    crc = 0
    for array in _parts(data):
        values = np.ascontiguousarray(array)
        crc = zlib.crc32(f"{values.dtype} {values.shape}".encode(), crc)
        crc = zlib.crc32(values.reshape(-1).view(np.uint8).data, crc)
    return crc


def has_content(run_dir: Path) -> bool:
    """Whether a run says what it was trained on; one of an older version does not."""
    return (run_dir / FILE).is_file()


def note_content(run_dir: Path, data: TrainingData) -> None:
    """Writes to a run what it is trained on."""
    told = {"version": _VERSION, "crc32": content_of(data)}
    write_atomically(run_dir / FILE, json.dumps(told).encode() + b"\n")


def check_content(run_dir: Path, data: TrainingData) -> None:
    """Refuses a dataset that is not what a run was trained on, as far as that was noted.

    Raises:
        RunError: see above.
    """
    try:
        told = json.loads((run_dir / FILE).read_bytes())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise RunError(f"'{run_dir / FILE}' cannot be read: {in_words(error)}.") from None
    if told.get("version") == _VERSION and told.get("crc32") != content_of(data):
        raise RunError(
            f"The dataset {data.name} is not what the run '{run_dir}' was trained on: its labels, splits, edges or "
            "features have changed since.",
            "Bring the dataset back as it was, or begin a new run.",
        )


def _parts(data: Any) -> Iterator[np.ndarray]:
    yield data.y.numpy()
    for name, ids in data.splits.items():
        yield np.frombuffer(name.encode(), dtype=np.uint8)
        yield ids.numpy()
    if isinstance(data, GraphSet):
        yield data.nodes
        yield data.edges
        ids = np.unique(np.linspace(0, data.num_graphs - 1, _GRAPHS).astype(np.int64))
        found = data.reader.read(ids)
        yield found.edge_index.numpy()
        if found.x is not None:
            yield found.x.float().numpy()
        return
    yield data.indptr.numpy()
    yield from sampled_blocks(data.indices)
    # Of features in parts some are elsewhere: the number is the one that was noted when they were split.
    features = data.parts.sampled_crc if data.parts is not None else sampled_crc(data.x)
    yield np.asarray([features], dtype=np.int64)
