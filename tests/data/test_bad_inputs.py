"""Random graphs with random damage, given to the command: each is refused with a sentence, and nothing is written.

A damage is named by the attribute, the kind, and its dtype and place; each has a random graph of its own.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pygsage.config import TrainConfig
from pygsage.data.open import open_graph
from pygsage.errors import PygsageError

Arrays = dict[str, Any]
Change = Callable[[Arrays, np.random.Generator], None]
SPLITS = ("train", "val", "test")
PLACES = ("first", "some", "last")
NOT_NUMBERS = ("complex64", "complex128", "U4", "S4", "object", "datetime64[s]", "timedelta64[s]", "i4,f4")


def random_graph(rng: np.random.Generator) -> Arrays:
    """15 to 40 nodes, edges with duplicates and loops, each class in each split."""
    num_nodes, num_classes = int(rng.integers(15, 41)), int(rng.integers(2, 4))
    y = rng.permutation(np.arange(num_nodes) % num_classes)
    x = rng.normal(size=(num_nodes, int(rng.integers(2, 6)))).astype(np.float32)
    edges = rng.integers(0, num_nodes, (2, int(rng.integers(num_nodes, 4 * num_nodes))))
    edges[:, -1] = num_nodes - 1, 0
    parts = np.split(rng.permutation(num_nodes), [num_nodes // 2, 3 * num_nodes // 4])
    masks = {f"{name}_mask": np.isin(np.arange(num_nodes), part) for name, part in zip(SPLITS, parts, strict=True)}
    return {"x": x, "edge_index": edges, "y": y, **masks}


@dataclass(frozen=True)
class Damage:
    """A way to spoil a graph, what the sentence has to name beside the file, and options to type."""

    name: str
    says: str
    change: Change
    options: tuple[str, ...] = ()


def place(size: int, where: str, rng: np.random.Generator) -> int:
    return {"first": 0, "last": size - 1}.get(where, int(rng.integers(size)))


def put(key: str, make: Callable[[Any], Any]) -> Change:
    """Replaces an array by what is made of it."""

    def change(arrays: Arrays, _: np.random.Generator) -> None:
        arrays[key] = make(arrays[key])

    return change


def cell(key: str, value: Any, where: str, dtype: Any = None, row: int | None = None) -> Change:
    """Writes one value to a place of an array, cast to `dtype` first; `value` may be a function of the arrays."""

    def change(arrays: Arrays, rng: np.random.Generator) -> None:
        array = arrays[key].astype(dtype or arrays[key].dtype)
        part = array[row] if row is not None else array
        with np.errstate(over="ignore"):
            part.flat[place(part.size, where, rng)] = value(arrays) if callable(value) else value
        arrays[key] = array

    return change


def drop(*keys: str) -> Change:
    def change(arrays: Arrays, _: np.random.Generator) -> None:
        for key in keys:
            del arrays[key]

    return change


def as_objects(array: np.ndarray, dtype: str) -> np.ndarray:
    """The same shape, of no number type."""
    return np.zeros(array.shape, dtype) if "," in dtype else array.astype(np.int64).astype(dtype)


def of_features() -> Iterator[Damage]:
    yield Damage("x missing", "no x", drop("x"))
    shapes: dict[str, Callable[[Any], Any]] = {
        "1-D": lambda x: x[:, 0],
        "3-D": lambda x: x[:, :, None],
        "0-D": lambda x: x[0, 0],
        "no rows": lambda x: x[:0],
        "no columns": lambda x: x[:, :0],
    }
    for name, make in shapes.items():
        yield Damage(f"x {name}", "x is", put("x", make))
    rows: dict[str, Callable[[Any], Any]] = {
        "transposed": lambda x: x.T,
        "one row less": lambda x: x[:-1],
        "one row": lambda x: x[:1],
        "half": lambda x: x[: len(x) // 2],
        "one row more": lambda x: np.concatenate([x, x[:1]]),
        "twice": lambda x: np.concatenate([x, x]),
    }
    for name, make in rows.items():
        yield Damage(f"x {name}", "x has", put("x", make))
    for dtype in NOT_NUMBERS:
        yield Damage(f"x of {dtype}", "x is", put("x", lambda x, dtype=dtype: as_objects(x, dtype)))
    for dtype, value, where in product(("f2", "f4", "f8", ">f4", ">f8", "g"), (np.nan, np.inf, -np.inf), PLACES):
        yield Damage(f"x {value} {dtype} {where}", "x is", cell("x", value, where, dtype))
    for dtype, value, where in product(("f8", ">f8"), (1e39, -1e300), PLACES):
        yield Damage(f"x {value} {dtype} {where}", "x is", cell("x", value, where, dtype))
    yield Damage("x all nan", "x is", put("x", lambda x: x * np.nan))
    yield Damage("x above int64", "x holds", cell("x", 2**63, "some", np.uint64))


def of_edges() -> Iterator[Damage]:
    key = "edge_index"
    yield Damage("edge_index missing", "no edge_index", drop(key))
    yield Damage("edge_index called edges", "edge_index", lambda a, _: a.update(edge_indices=a.pop(key)))
    shapes: dict[str, Callable[[Any], Any]] = {
        "transposed": lambda e: e.T,
        "flat": lambda e: e.ravel(),
        "one row": lambda e: e[:1],
        "three rows": lambda e: np.concatenate([e, e[:1]]),
        "3-D": lambda e: e[None],
        "0-D": lambda e: e[0, 0],
        "a matrix of all pairs": lambda e: np.zeros((e.max() + 1, e.max() + 1), int),
    }
    for name, make in shapes.items():
        yield Damage(f"edge_index {name}", "edge_index is", put(key, make))
    for dtype in ("f2", "f4", "f8", ">f8", "g", "bool", *NOT_NUMBERS):
        cast = (lambda e, dtype=dtype: e.astype(dtype)) if dtype not in NOT_NUMBERS else (
            lambda e, dtype=dtype: as_objects(e, dtype)
        )  # fmt: skip
        yield Damage(f"edge_index of {dtype}", "edge_index is", put(key, cast))

    def beyond(arrays: Arrays) -> int:
        return len(arrays["x"])

    values: list[tuple[str, Any]] = [("N", beyond), ("N+1", lambda a: beyond(a) + 1)]
    values += [(str(v), v) for v in (-1, -7, 10**6, 2**31 - 1, 2**31, 2**33 + 1, 2**62, 2**63 - 1, -(2**63))]
    for (name, value), row, where in product(values, (0, 1), PLACES):
        yield Damage(f"edge_index {name} row {row} {where}", "edge_index has", cell(key, value, where, row=row))
    narrow = (("i1", -1), ("i1", 100), ("i2", -5), ("i4", -1), ("i4", 2**31 - 1), (">i4", 99), (">i8", -1), ("u1", 255))
    for (dtype, value), row in product(
        (*narrow, ("u2", 65535), (">u2", 500), ("u4", 2**32 - 1), ("u8", 2**62)), (0, 1)
    ):
        name = f"edge_index {value} {dtype} row {row}"
        yield Damage(name, "edge_index has", cell(key, value, "some", dtype, row))
    yield Damage("edge_index above int64", "edge_index holds", cell(key, 2**64 - 1, "some", "u8"))
    yield Damage("edge_index from 1", "count from 1", put(key, lambda e: e + 1))
    yield Damage("edge_index with gaps", "--relabel", put(key, lambda e: e * 3 + 5))


def of_labels() -> Iterator[Damage]:
    yield Damage("y missing", "no y", drop("y"))
    yield Damage("y called label", "no y", lambda a, _: a.update(label=a.pop("y")))
    shapes: dict[str, Callable[[Any], Any]] = {
        "one less": lambda y: y[:-1],
        "one more": lambda y: np.append(y, 0),
        "three": lambda y: y[:3],
        "one": lambda y: y[:1],
        "none": lambda y: y[:0],
        "twice": lambda y: np.tile(y, 2),
        "a row": lambda y: y[None],
        "3-D": lambda y: y[:, None, None],
        "0-D": lambda y: y[0],
        "no columns": lambda y: y[:, None][:, :0],
        "two columns of integers": lambda y: np.stack([y, y + 1], 1),
        "one-hot": lambda y: np.eye(y.max() + 1)[y],
        "one-hot of integers": lambda y: np.eye(y.max() + 1, dtype=int)[y],
        "one-hot transposed": lambda y: np.eye(y.max() + 1)[y].T,
    }
    for name, make in shapes.items():
        yield Damage(f"y {name}", "y is", put("y", make))
    for dtype in NOT_NUMBERS:
        yield Damage(f"y of {dtype}", "y is", put("y", lambda y, dtype=dtype: as_objects(y, dtype)))
    for dtype in ("f2", "f4", "f8", "i1", "i8"):
        none = -1 if dtype[0] == "i" else np.nan
        yield Damage(f"y none of {dtype}", "y is", put("y", lambda y, d=dtype, n=none: np.full(len(y), n, d)))
        yield Damage(f"y all negative of {dtype}", "y is", put("y", lambda y, d=dtype: (-1 - y).astype(d)))
    for dtype, value in (
        ("i4", 10**6),
        ("i8", 2**40),
        ("u4", 2**32 - 1),
        ("i8", 2**63 - 1),
        ("f4", 1e9),
        ("f8", 2.0**60),
    ):
        yield Damage(f"y {value} {dtype}", "y h", cell("y", value, "some", dtype))
    yield Damage("y above int64", "y holds", cell("y", 2**63, "some", "u8"))
    for dtype, value in product(("f2", "f4", "f8"), (np.inf, -np.inf)):
        yield Damage(f"y {value} {dtype}", "y is", cell("y", value, "some", dtype))
    told = ("--task", "classes")
    for dtype, value in product(("f2", "f4", "f8"), (0.5, -1.5)):
        yield Damage(f"y {value} {dtype} as classes", "y is", cell("y", value, "some", dtype), told)
    yield Damage("y 2 as multilabel", "y is", put("y", lambda y: np.stack([y, y * 0 + 2], 1)), ("--task", "multilabel"))
    yield Damage("y 0.5 as multilabel", "y is", put("y", lambda y: y * 0.5), ("--task", "multilabel"))
    for value in (1e39, np.inf):
        change = cell("y", value, "some", "f8")
        yield Damage(f"y {value} as regression", "y is", change, ("--task", "regression"))
    for name, (dtype, value) in product(SPLITS, (("f4", np.nan), ("f8", np.nan), ("i8", -1), ("i2", -100), ("f4", -1))):

        def unlabelled(arrays: Arrays, rng: np.random.Generator, name: str = name, of: Any = (dtype, value)) -> None:
            arrays["y"] = arrays["y"].astype(of[0])
            arrays["y"][rng.choice(arrays[f"{name}_mask"].nonzero()[0])] = of[1]

        yield Damage(f"y {value} {dtype} in {name}", f"the {name} split", unlabelled)
    yield Damage("y all ignored", "y is", put("y", lambda y: y * 0 + 1), ("--ignore-label", "1"))


def of_masks() -> Iterator[Damage]:
    shapes: dict[str, Callable[[Any], Any]] = {
        "one short": lambda m: m[:-1],
        "one long": lambda m: np.append(m, False),
        "three": lambda m: m[:3],
        "none": lambda m: m[:0],
        "a row": lambda m: m[None],
        "3-D": lambda m: m[:, None, None],
        "0-D": lambda m: m[0],
        "no columns": lambda m: m[:, None][:, :0],
        "splits in rows": lambda m: np.stack([m, m, m]),
        "of floats": lambda m: m.astype(np.float32),
        "of ids": lambda m: np.arange(len(m)),
        "of 0 and 2": lambda m: m * 2,
        "of -1": lambda m: -m.astype(int),
    }
    for split, (name, make) in product(SPLITS, shapes.items()):
        yield Damage(f"{split}_mask {name}", f"{split}_mask is", put(f"{split}_mask", make))
    for split, dtype in product(SPLITS, NOT_NUMBERS):
        key = f"{split}_mask"
        yield Damage(f"{key} of {dtype}", f"{key} is", put(key, lambda m, dtype=dtype: as_objects(m, dtype)))
    for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
        for where in PLACES:

            def share(a: Arrays, rng: np.random.Generator, ends: Any = (first, second, where)) -> None:
                ids = a[f"{ends[0]}_mask"].nonzero()[0]
                a[f"{ends[1]}_mask"][ids[place(len(ids), ends[2], rng)]] = True

            yield Damage(f"{second} shares the {where} of {first}", f"the {second} split", share)
        same = lambda a, _, first=first, second=second: a.update({f"{second}_mask": a[f"{first}_mask"]})  # noqa: E731
        yield Damage(f"{second} is {first}", f"the {second} split", same)
    yield Damage("train_mask all false", "training split", put("train_mask", lambda m: m & False))
    yield Damage("train_mask missing", "training split", drop("train_mask"))
    yield Damage("masks missing", "training split", drop(*(f"{name}_mask" for name in SPLITS)))
    for split in SPLITS:
        key = f"{split}_mask"
        typo = {"train": "training_mask", "val": "valid_mask", "test": "testing_mask"}[split]
        yield Damage(f"{key} called {typo}", typo, lambda a, _, k=key, t=typo: a.update({t: a.pop(k)}))
        twice = lambda a, _, s=split: a.update({f"{s}_idx": a[f"{s}_mask"].nonzero()[0]})  # noqa: E731
        yield Damage(f"{split} as mask and ids", f"{split}_mask and {split}_idx", twice)
    for text, says in (("7", "--split-id is 7"), ("1", "--split-id is 1")):
        yield Damage(f"split {text} of one", says, lambda *_: None, ("--split-id", text))
    table = put("train_mask", lambda m: np.stack([m, m, m], 1))
    yield Damage("three splits, none named", "--split-id is missing", table)
    for text in ("3", "99"):
        yield Damage(f"split {text} of three", f"--split-id is {text}", table, ("--split-id", text))
    yield Damage("a split and a new one", "--split-id", table, ("--split-id", "0", "--split", "random:.6/.2/.2"))
    yield Damage("too few of a class", "--split per-class", lambda *_: None, ("--split", "per-class:20/30"))


def of_ids() -> Iterator[Damage]:
    changes: dict[str, Callable[[Any], Any]] = {
        "-1": lambda i: np.append(i, -1),
        "beyond": lambda i: np.append(i, 41),
        "far beyond": lambda i: np.append(i, 2**40),
        "twice": lambda i: np.append(i, i[0]),
        "of floats": lambda i: i.astype(np.float64),
        "2-D": lambda i: np.stack([i, i]),
        "0-D": lambda i: i[0],
        "that are a mask": lambda i: np.isin(np.arange(15), i),
        "above int64": lambda i: np.append(i.astype(np.uint64), np.uint64(2**64 - 1)),
    }
    for split, (name, make) in product(SPLITS, changes.items()):

        def change(arrays: Arrays, _: np.random.Generator, split: str = split, make: Any = make) -> None:
            arrays[f"{split}_idx"] = make(arrays.pop(f"{split}_mask").nonzero()[0])

        yield Damage(f"{split}_idx {name}", f"{split}_idx", change)
    for split, dtype in product(SPLITS, NOT_NUMBERS):

        def other(arrays: Arrays, _: np.random.Generator, split: str = split, dtype: str = dtype) -> None:
            arrays[f"{split}_idx"] = as_objects(arrays.pop(f"{split}_mask").nonzero()[0], dtype)

        yield Damage(f"{split}_idx of {dtype}", f"{split}_idx is", other)
    own: dict[str, Callable[[int], Any]] = {
        "short": lambda n: np.arange(n - 1),
        "long": lambda n: np.arange(n + 1),
        "twice the same": lambda n: np.arange(n) // 2,
        "of floats": lambda n: np.arange(n) + 0.5,
        "of bool": lambda n: np.arange(n) > 3,
        "2-D": lambda n: np.zeros((n, n), int),
        "0-D": lambda n: np.int64(n),
        "of text": lambda n: np.arange(n).astype("U4"),
        "without those of the edges": lambda n: np.arange(n) + 10**6,
    }
    for name, make in own.items():
        change = lambda a, _, make=make: a.update(node_id=make(len(a["x"])))  # noqa: E731
        yield Damage(f"node_id {name}", "node_id", change, ("--relabel",))
    yield Damage(
        "ids of which some rows have none", "--relabel", put("edge_index", lambda e: e * 0 + 3), ("--relabel",)
    )


DAMAGES = [*of_features(), *of_edges(), *of_labels(), *of_masks(), *of_ids()]


def seed_of(damage: Damage) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(damage.name.encode()))


def test_there_are_at_least_300_distinct_ones() -> None:
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES)
    print(f"{len(DAMAGES)} distinct bad inputs")
    assert len(DAMAGES) >= 300


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.name for damage in DAMAGES])
def test_a_damaged_file_is_refused(damage: Damage, tmp_path: Path, refusal: Callable[..., str]) -> None:
    rng = seed_of(damage)
    arrays = random_graph(rng)
    damage.change(arrays, rng)
    np.savez(tmp_path / "graph.npz", **arrays)
    said = refusal("graph.npz", *damage.options)
    assert "graph.npz" in said
    assert damage.says in said
    assert "expected" in said


def read(path: Path, **options: Any) -> Any:
    return open_graph(TrainConfig(dataset=str(path), **options))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), pair=st.tuples(*[st.sampled_from([d for d in DAMAGES if not d.options])] * 2))
def test_two_damages_at_once_are_refused_too(tmp_path: Path, seed: int, pair: tuple[Damage, Damage]) -> None:
    assume(pair[0].name.split("_")[0].split()[0] != pair[1].name.split("_")[0].split()[0])  # one may mend the other
    rng = np.random.default_rng(seed)
    arrays = random_graph(rng)
    for damage in pair:
        with contextlib.suppress(Exception):  # what the other has left cannot always be damaged so
            damage.change(arrays, rng)
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(PygsageError) as caught:
        read(tmp_path / "graph.npz")
    assert caught.value.exit_status == 2
    assert str(tmp_path / "graph.npz") in caught.value.found
    assert "\n" not in str(caught.value)
