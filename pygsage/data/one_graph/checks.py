"""The door: features, edges and labels are refused here or can be trusted from here on (design §1, promise 5)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pygsage.data.one_graph.raw import RawGraph
from pygsage.errors import DatasetError

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_CHUNK_VALUES = 1 << 22  # values looked at in one go, so that a check costs no second copy


def stored_dtype(x: Tensor) -> torch.dtype:
    """What the features have on disk: float16 and float32 stay as they are, all else becomes float32."""
    return x.dtype if x.dtype == torch.float16 else torch.float32


def check_features(raw: RawGraph, *, convert: bool = True) -> Tensor:
    """The features as float32 `[N, F]` in RAM, all finite; copies only when the dtype or the layout asks for it.

    Args:
        convert: False to check them, and to return them as they are: they may be mapped from a file, of any real
            dtype, and are looked at piece by piece.

    Raises:
        DatasetError: when they are missing, not `[N, F]`, not numbers, or not finite.
    """
    x = _part(raw, "x")
    if x.layout != torch.strided:
        x = _dense(raw, x)
    if x.dim() != 2 or x.size(0) == 0 or x.size(1) == 0:
        advice = "For one feature a node: x.reshape(-1, 1)." if x.dim() == 1 and len(x) else ""
        raise DatasetError(
            f"{raw.origin}: x is {shape_of(x)}; expected [nodes, features], at least one of each.", advice
        )
    if x.dtype not in (*INTEGERS, *_FLOATS, torch.bool):
        raise DatasetError(f"{raw.origin}: x is of dtype {_dtype(x)}; expected real numbers.", "Cast it to float32.")
    given, dtype = x, torch.float32 if convert else stored_dtype(x)
    if convert:
        x = x.to(dtype).contiguous()
    for start, finite in _finite_values(x, dtype):
        if not finite.all():
            raise _not_finite(raw, given, x, start, ~finite)
    if given.dtype != dtype and given.is_floating_point():
        raw.notes.append(f"x is {_dtype(given)}; it is used as float32.")
    elif given.dtype in (torch.int32, torch.int64) and max(int(given.max()), -int(given.min())) > 2**24:
        raw.notes.append(f"x is {_dtype(given)} with values above 2**24, which float32 rounds.")
    return x


def check_edges(raw: RawGraph, num_nodes: int, *, convert: bool = True) -> Tensor:
    """The edges as int64 `[2, E]` in RAM, every id in `[0, num_nodes)`; copies only when the dtype asks for it.

    Args:
        convert: False to return them as they are, of any integer dtype.

    Raises:
        DatasetError: when they are missing, transposed, not integers, or out of range.
    """
    edge_index = check_edge_list(raw, convert=convert)
    if edge_index.numel() == 0:
        raw.notes.append("The graph has no edges: each node is classified by its own features.")
    elif int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes:
        raise _out_of_range(raw, edge_index, num_nodes)
    return edge_index


def check_edge_list(raw: RawGraph, *, convert: bool = True) -> Tensor:
    """The edges as int64 `[2, E]` in RAM, or without `convert` as they are, whatever the ids.

    Raises:
        DatasetError: when they are missing, transposed, or not integers.
    """
    edge_index = _part(raw, "edge_index")
    if edge_index.layout != torch.strided:
        raise DatasetError(
            f"{raw.origin}: edge_index is a sparse matrix of shape {shape_of(edge_index)}; expected ids [2, edges].",
            "Convert it with torch_geometric.utils.to_edge_index.",
        )
    if edge_index.numel() == 0:  # an empty list is often float, as torch.empty(2, 0) is
        return torch.empty(2, 0, dtype=torch.int64)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        turned = edge_index.dim() == 2 and edge_index.size(1) == 2
        advice = "Is it transposed? Store edge_index.T." if turned else "Row 0 holds sources, row 1 destinations."
        raise DatasetError(f"{raw.origin}: edge_index is {shape_of(edge_index)}; expected [2, edges].", advice)
    if edge_index.dtype not in INTEGERS:
        raise DatasetError(
            f"{raw.origin}: edge_index is of dtype {_dtype(edge_index)}; expected integer node ids.",
            "Store edge_index.astype('int64'), after making sure that the ids were never rounded.",
        )
    if edge_index.size(1) == 2:
        raw.notes.append("edge_index is [2, 2], which reads both ways: row 0 is taken as sources.")
    return edge_index.to(torch.int64).contiguous() if convert else edge_index


def check_labels(raw: RawGraph, num_nodes: int) -> tuple[Tensor, int]:
    """The labels as int64 `[N]`, -1 where there is none, and the number of classes (the highest label plus one).

    Negative labels and NaN mean: no label. Whether a split may hold such a node is for `splits` to say.

    Raises:
        DatasetError: when they are missing, of the wrong length, not whole numbers, or hardly classes.
    """
    y = _part(raw, "y")
    check_dense(raw, "y", y)
    if y.dim() == 2 and y.size(1) == 1:
        y = y.squeeze(1)
    if y.dim() == 2 and y.size(0) == num_nodes and y.numel():
        raise _several_columns(raw, y)
    if y.dim() != 1 or y.size(0) != num_nodes:
        alone = y.numel() == 1 < num_nodes
        advice = "Labels of whole graphs are learnt from many graphs: this is one." if alone else ""
        rows = f"x has {num_nodes} rows" if raw.unit == "node" else f"there are {num_nodes} {raw.unit}s"
        found = f"{raw.origin}: y is {shape_of(y)} and {rows}"
        raise DatasetError(f"{found}; expected one label a {raw.unit}.", advice)
    if y.dtype in _FLOATS:
        y = _whole_numbers(raw, y)
    elif y.dtype not in (*INTEGERS, torch.bool):
        raise DatasetError(f"{raw.origin}: y is of dtype {_dtype(y)}; expected integer classes.")
    y = y.to(torch.int64).contiguous().clamp(min=-1)
    num_classes = int(y.max()) + 1
    if num_classes == 0:
        raise DatasetError(f"{raw.origin}: y is negative or NaN everywhere: no label; expected classes from 0.")
    if num_classes > max(num_nodes, 10_000):
        raise DatasetError(
            f"{raw.origin}: y has the label {num_classes - 1}, but only {num_nodes} {raw.unit}s; expected classes from "
            "0.",
            "Number the classes with numpy.unique(y, return_inverse=True)[1]; for measurements type --task regression.",
        )
    _note_classes(raw, y, num_classes)
    return y, num_classes


def to_cpu(raw: RawGraph, key: str, value: object) -> Tensor:
    """An array of the source as a tensor in RAM, without its gradient; no copy where it is there already.

    Raises:
        DatasetError: when it is no tensor, or one without values.
    """
    if not isinstance(value, Tensor):
        raise DatasetError(f"{raw.origin}: {key} is of type {type(value).__name__}; expected a tensor.")
    if value.is_meta or value.is_nested or value.is_quantized:
        kind = "on the meta device, without values" if value.is_meta else "nested" if value.is_nested else "quantized"
        raise DatasetError(f"{raw.origin}: {key} is {kind}; expected a plain tensor.")
    return value.detach().cpu()


def check_dense(raw: RawGraph, key: str, value: Tensor) -> None:
    """Refuses a sparse tensor.

    Raises:
        DatasetError: see above.
    """
    if value.layout != torch.strided:
        raise DatasetError(f"{raw.origin}: {key} is a sparse tensor; expected a dense one.", f"Store {key}.to_dense().")


def _part(raw: RawGraph, key: str) -> Tensor:
    value = getattr(raw, key)
    if value is None:
        advice = "A one-hot of the node's degree can serve as features." if key == "x" else ""
        raise DatasetError(f"{raw.origin} has no {key}; expected x, edge_index and y.", advice)
    return to_cpu(raw, key, value)


def _dense(raw: RawGraph, x: Tensor) -> Tensor:
    num_bytes = 4 * x.numel()
    if num_bytes > 2**31:
        raise DatasetError(
            f"{raw.origin}: x is a sparse matrix of shape {shape_of(x)}, {num_bytes / 2**30:.1f} GiB as dense float32; "
            "expected at most 2 GiB, since this version expands it.",
            "Reduce its columns, for example with sklearn.decomposition.TruncatedSVD, and store the result.",
        )
    raw.notes.append("x is a sparse matrix; it is used as a dense one.")
    return x.to_dense()


def _finite_values(x: Tensor, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """Which values of each piece are finite as `dtype`: its first row, and bool `[n, F]`, overwritten by the next.

    Costs a byte a value, and one of `dtype` where it is another: torch's own isfinite takes eight.
    """
    rows = min(len(x), max(1, _CHUNK_VALUES // x.size(1)))
    finite = np.empty((rows, x.size(1)), np.bool_)
    cast = None if x.dtype == dtype else torch.empty(rows, x.size(1), dtype=dtype)
    for start, piece in _chunks(x):
        values = piece if cast is None else cast[: len(piece)].copy_(piece)
        yield start, torch.from_numpy(np.isfinite(values.numpy(), out=finite[: len(piece)]))


def _chunks(x: Tensor) -> list[tuple[int, Tensor]]:
    rows = max(1, _CHUNK_VALUES // x.size(1))
    return [(start, x[start : start + rows]) for start in range(0, x.size(0), rows)]


def _not_finite(raw: RawGraph, given: Tensor, x: Tensor, start: int, wrong: Tensor) -> DatasetError:
    row, column = wrong.nonzero()[0].tolist()
    value = given[start + row, column].item()
    total = sum(int((~torch.isfinite(rows.to(torch.float32))).sum()) for _, rows in _chunks(x))
    too_large = f"{value:g}"[-1].isdigit()
    expected = "numbers that float32 can hold" if too_large else "finite numbers"
    return DatasetError(
        f"{raw.origin}: x is {value:g} in row {start + row}, column {column} ({total} such values in all); "
        f"expected {expected}.",
        "Scale the features first." if too_large else "Fill them first, for example with numpy.nan_to_num.",
    )


def _out_of_range(raw: RawGraph, edge_index: Tensor, num_nodes: int) -> DatasetError:
    edge, row, num_outside = -1, 0, 0
    for start in range(0, edge_index.size(1), _CHUNK_VALUES):
        some = edge_index[:, start : start + _CHUNK_VALUES]
        outside = (some < 0) | (some >= num_nodes)
        num_outside += int(outside.any(0).sum())
        if edge < 0 < num_outside:
            edge = int(outside.any(0).nonzero()[0])
            row = int(outside[:, edge].nonzero()[0])
            edge += start
    lowest, highest = int(edge_index.min()), int(edge_index.max())
    y = raw.y
    num_labels = len(y) if isinstance(y, Tensor) and y.dim() in (1, 2) else 0
    if lowest == 1 and highest == num_nodes:
        advice = "The ids seem to count from 1: subtract 1."
    elif lowest >= 0 and num_nodes < num_labels and highest < num_labels:
        advice = f"y has {num_labels} labels, which would do: is x transposed, or are rows missing?"
    else:
        advice = "If nodes have ids of their own, with gaps, add --relabel."
    return DatasetError(
        f"{raw.origin}: edge {edge} of edge_index has the {('source', 'destination')[row]} "
        f"{int(edge_index[row, edge])}, and x has {num_nodes} rows; expected node ids from 0 to {num_nodes - 1} "
        f"(found {lowest} to {highest}; {num_outside} edges lead outside).",
        advice,
    )


def _several_columns(raw: RawGraph, y: Tensor) -> DatasetError:
    one_hot = bool(((y == 0) | (y == 1)).all() and (y.sum(1) == 1).all())
    advice = "Each row holds a single 1: store y.argmax(1)." if one_hot else "Choose one column, or another --task."
    return DatasetError(
        f"{raw.origin}: y is {shape_of(y)}: several labels a {raw.unit}; expected one class a {raw.unit}.",
        advice,
    )


def _whole_numbers(raw: RawGraph, y: Tensor) -> Tensor:
    """Float labels as int64, NaN as -1; large public datasets store classes so."""
    labelled = ~torch.isnan(y)
    endless = torch.isinf(y)
    if endless.any():
        node = int(endless.nonzero()[0])
        raise DatasetError(
            f"{raw.origin}: y is {y[node].item():g} at {raw.unit} {node}; expected finite numbers.",
            "NaN marks a label that is missing.",
        )
    odd = labelled & (y != y.round())
    if odd.any():
        node = int(odd.nonzero()[0])
        raise DatasetError(
            f"{raw.origin}: y is {y[node].item():g} at {raw.unit} {node}; expected whole numbers: classes.",
            "If they are measurements, type --task regression.",
        )
    largest = float(y[labelled].abs().max()) if labelled.any() else 0.0
    if largest >= 2**53:
        raise DatasetError(f"{raw.origin}: y holds {largest:g}, which is no class; expected classes from 0.")
    return torch.where(labelled, y.to(torch.float64), -1.0).to(torch.int64)


def _note_classes(raw: RawGraph, y: Tensor, num_classes: int) -> None:
    counts = torch.bincount(y + 1, minlength=num_classes + 1)
    if counts[0]:
        raw.notes.append(f"{int(counts[0])} of {len(y)} {raw.unit}s have no label (y negative or NaN).")
    empty = (counts[1:] == 0).nonzero().flatten().tolist()
    if empty:
        shown = ", ".join(map(str, empty[:5])) + (", …" if len(empty) > 5 else "")
        raw.notes.append(f"{len(empty)} of {num_classes} classes have no {raw.unit}: {shown}.")
    if num_classes - len(empty) == 1:
        raw.notes.append(f"Every labelled {raw.unit} has the class {num_classes - 1}: there is nothing to learn.")


def shape_of(tensor: Tensor) -> str:
    """A tensor's shape for an error, such as `[6, 2]`."""
    return "a single number" if tensor.dim() == 0 else str(list(tensor.shape))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
