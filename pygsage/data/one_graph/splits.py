"""Which nodes train, validate and test: the source's own splits, or new ones drawn from the seed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pygsage.data.one_graph.checks import check_dense, shape_of, to_cpu
from pygsage.data.one_graph.raw import SPLITS, RawGraph
from pygsage.errors import ConfigError, DatasetError

_WHAT_TO_TYPE = "Type --split random:.6/.2/.2 or --split per-class:20/30."


def count_public_splits(raw: RawGraph, num_nodes: int) -> int:
    """How many splits the source brings: 0 when it has none for training, 1, or the columns of its masks.

    Raises:
        DatasetError: when a mask is not `[N]` or `[N, S]`.
    """
    if not any(key.startswith("train_") for key in raw.splits):
        return 0
    num_splits = 1
    for key, mask in raw.splits.items():
        if key.endswith("_mask"):
            mask = to_cpu(raw, key, mask)
            _check_shape(raw, key, mask, num_nodes)
            num_splits = max(num_splits, int(mask.size(1)) if mask.dim() == 2 else 1)
    return num_splits


def public_splits(
    raw: RawGraph, y: Tensor, split_id: int | None = None, ignored: Tensor | None = None
) -> dict[str, Tensor]:
    """The source's own splits as int64 node ids: masks in ascending order, index arrays in the order given.

    Args:
        y: Checked labels, int64 `[N]`, -1 for none.
        split_id: Which column, when the masks are `[N, S]`.
        ignored: bool `[N]`: nodes to leave out of every split.

    Raises:
        DatasetError: when there is none for training, or one is malformed, out of range, empty, unlabelled, or
            shares nodes with another.
        ConfigError: when `split_id` is needed and missing, out of range, or given without need.
    """
    num_splits = count_public_splits(raw, len(y))
    if num_splits == 0:
        have = ", ".join(sorted(raw.splits)) or "none"
        raise DatasetError(
            f"{raw.origin} has no training split (masks found: {have}); expected train_mask or train_idx.",
            _WHAT_TO_TYPE,
        )
    _check_split_id(raw, num_splits, split_id)
    splits: dict[str, Tensor] = {}
    for key, value in raw.splits.items():
        name = key.rpartition("_")[0]
        if name in splits:
            raise DatasetError(f"{raw.origin} has both {name}_mask and {name}_idx; expected one of them.")
        value = to_cpu(raw, key, value)
        check_dense(raw, key, value)
        is_mask = key.endswith("_mask")
        splits[name] = _from_mask(raw, key, value, len(y), split_id) if is_mask else _from_ids(raw, key, value, len(y))
    if ignored is not None:
        splits = {name: ids[~ignored[ids]] for name, ids in splits.items()}
    return check_splits(raw, {name: splits[name] for name in SPLITS if name in splits}, y)


def random_splits(y: Tensor, shares: tuple[float, ...], seed: int) -> dict[str, Tensor]:
    """Shares of the labelled nodes, drawn without replacement; int64 ids in ascending order.

    Shares that add up to one use every labelled node.
    """
    ids = np.flatnonzero(y.numpy() >= 0)
    order = np.random.default_rng(seed).permutation(ids)
    ends = [round(min(float(end), 1.0) * len(ids)) for end in np.cumsum(shares)]
    parts = np.split(order, ends)[:3]
    return {name: torch.from_numpy(np.sort(part)) for name, part in zip(SPLITS, parts, strict=True)}


def per_class_splits(raw: RawGraph, y: Tensor, num_train: int, num_val: int, seed: int) -> dict[str, Tensor]:
    """So many training and validation nodes of each class, the other labelled nodes for the test; ids ascend.

    The protocol of Shchur et al., "Pitfalls of graph neural network evaluation", 2018.

    Raises:
        DatasetError: when a class has fewer nodes than that.
    """
    labels = y.numpy()
    rng = np.random.default_rng(seed)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
    for label in np.unique(labels[labels >= 0]):
        ids = rng.permutation(np.flatnonzero(labels == label))
        if len(ids) < num_train + num_val:
            raise DatasetError(
                f"{raw.origin}: class {label} has {len(ids)} {raw.unit}s; expected at least {num_train + num_val} of "
                f"each class for --split per-class:{num_train}/{num_val}.",
                "Type smaller numbers, or --split random:.6/.2/.2.",
            )
        for name, part in zip(SPLITS, np.split(ids, [num_train, num_train + num_val]), strict=True):
            parts[name].append(part)
    return {name: torch.from_numpy(np.sort(np.concatenate(found))) for name, found in parts.items()}


def fold_splits(raw: RawGraph, y: Tensor, num_folds: int, fold: int, seed: int) -> dict[str, Tensor]:
    """Fold `fold` for the test, the next one for validation, the others to train on; int64 ids in ascending order.

    The labelled ones of each class are shuffled and dealt out in turn, so that each fold has its share of each class;
    labels that are no classes count as one class. The folds of all `fold` are the same for a seed.

    Raises:
        DatasetError: when there are fewer than there are folds.
    """
    labels = y.numpy()
    ids = np.flatnonzero(labels >= 0)
    if len(ids) < num_folds:
        raise DatasetError(
            f"{raw.origin} has {len(ids)} {raw.unit}s with a label; expected at least {num_folds}, one a fold.",
            "Type a smaller number of folds.",
        )
    ids = np.random.default_rng(seed).permutation(ids)
    ids = ids[np.argsort(labels[ids], kind="stable")]
    parts = [np.sort(ids[number::num_folds]) for number in range(num_folds)]
    test, val = parts[fold], parts[(fold + 1) % num_folds]
    train = np.sort(np.concatenate([p for n, p in enumerate(parts) if n not in (fold, (fold + 1) % num_folds)]))
    return {name: torch.from_numpy(part) for name, part in zip(SPLITS, (train, val, test), strict=True)}


def check_splits(raw: RawGraph, splits: dict[str, Tensor], y: Tensor) -> dict[str, Tensor]:
    """Refuses splits that overlap, hold unlabelled nodes, or leave nothing to train on; drops and notes empty ones.

    Raises:
        DatasetError: see above.
    """
    if len(splits["train"]) == 0:
        raise DatasetError(
            f"{raw.origin}: the training split is empty; expected at least one {raw.unit}.", _WHAT_TO_TYPE
        )
    owner = torch.zeros(len(y), dtype=torch.uint8)
    for position, (name, ids) in enumerate(splits.items()):
        shared = ids[owner[ids] > 0]
        if len(shared):
            other = list(splits)[int(owner[shared[0]]) - 1]
            raise DatasetError(
                f"{raw.origin}: the {name} split shares {raw.unit}s with other splits ({len(shared)} in all, such as "
                f"{raw.unit} {int(shared[0])} with {other}): scores would be too good; expected splits "
                f"that share no {raw.unit}.",
                "Mend the masks, or " + _WHAT_TO_TYPE[0].lower() + _WHAT_TO_TYPE[1:],
            )
        owner[ids] = position + 1
        unlabelled = ids[y[ids] < 0]
        if len(unlabelled):
            raise DatasetError(
                f"{raw.origin}: the {name} split has {raw.unit}s without a label ({len(unlabelled)} in all, such as "
                f"{raw.unit} {int(unlabelled[0])}); expected a class from 0 (negative labels such as -1, -100 and NaN "
                "mean none).",
                f"Take these {raw.unit}s out of the split; if negative numbers are classes, number the classes from 0.",
            )
    for name in SPLITS:
        if name not in splits or len(splits[name]) == 0:
            raw.notes.append(f"There are no {name} {raw.unit}s.")
    return {name: ids for name, ids in splits.items() if len(ids)}


def _check_split_id(raw: RawGraph, num_splits: int, split_id: int | None) -> None:
    if num_splits == 1 and split_id not in (None, 0):
        raise ConfigError(
            f"--split-id is {split_id}, and {raw.origin} has a single split; expected 0 or no such option.",
            "Leave --split-id out.",
        )
    if num_splits > 1 and (split_id is None or split_id >= num_splits):
        found = f"--split-id is {split_id}" if split_id is not None else "--split-id is missing"
        raise ConfigError(
            f"{found}, and {raw.origin} has {num_splits} splits; expected a number from 0 to {num_splits - 1}.",
            "Type for example --split-id 0.",
        )


def _from_mask(raw: RawGraph, key: str, mask: Tensor, num_nodes: int, split_id: int | None) -> Tensor:
    _check_shape(raw, key, mask, num_nodes)
    if mask.dim() == 2:
        column = 0 if mask.size(1) == 1 else int(split_id or 0)
        if column >= mask.size(1):
            raise DatasetError(
                f"{raw.origin}: {key} has {mask.size(1)} columns and another mask more; expected as many in each."
            )
        mask = mask[:, column]
    if mask.dtype == torch.bool:
        return mask.nonzero().flatten()
    if mask.is_floating_point() or mask.is_complex() or not ((mask == 0) | (mask == 1)).all():
        dtype = str(mask.dtype).removeprefix("torch.")
        raise DatasetError(
            f"{raw.origin}: {key} is of dtype {dtype} and not only 0 and 1 as integers; expected true or false a "
            f"{raw.unit}.",
            f"Node ids belong in {key.replace('_mask', '_idx')}; else store {key}.astype(bool).",
        )
    return mask.nonzero().flatten()


def _check_shape(raw: RawGraph, key: str, mask: Tensor, num_nodes: int) -> None:
    good = mask.dim() in (1, 2) and mask.size(0) == num_nodes and mask.numel() > 0
    if not good:
        turned = mask.dim() == 2 and mask.size(1) == num_nodes
        wants = f"[{num_nodes}], one value a {raw.unit}, or [{num_nodes}, splits]"
        raise DatasetError(
            f"{raw.origin}: {key} is {shape_of(mask)} and x has {num_nodes} rows; expected {wants}.",
            f"Is it transposed? Store {key}.T." if turned else "",
        )


def _from_ids(raw: RawGraph, key: str, ids: Tensor, num_nodes: int) -> Tensor:
    if ids.dim() == 2 and 1 in ids.shape:
        ids = ids.flatten()
    if ids.dim() == 1 and len(ids) == 0:
        return torch.empty(0, dtype=torch.int64)
    if ids.dim() != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        mask = f"Masks belong in {key.replace('_idx', '_mask')}." if ids.dtype == torch.bool else ""
        dtype = str(ids.dtype).removeprefix("torch.")
        raise DatasetError(f"{raw.origin}: {key} is {dtype} {shape_of(ids)}; expected a list of integer ids.", mask)
    ids = ids.to(torch.int64)
    outside = ids[(ids < 0) | (ids >= num_nodes)]
    if len(outside):
        raise DatasetError(
            f"{raw.origin}: {key} holds {int(outside[0])} ({len(outside)} ids out of range), and x has {num_nodes} "
            f"rows; expected node ids from 0 to {num_nodes - 1}."
        )
    values, counts = torch.unique(ids, return_counts=True)
    if len(values) < len(ids):
        raise DatasetError(
            f"{raw.origin}: {key} holds {raw.unit} {int(values[counts > 1][0])} more than once "
            f"({len(ids) - len(values)} repeats); expected each {raw.unit} once.",
            f"Store numpy.unique({key}).",
        )
    return ids.contiguous()
