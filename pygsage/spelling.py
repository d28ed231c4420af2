"""How options are spelled: text to numbers and back. Standard library only."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable
from dataclasses import fields
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from pygsage.errors import ConfigError

LEAST_BARE_BYTES = 1 << 20  # nobody counts less in single bytes: a smaller number lacks its unit


def flag(name: str) -> str:
    """The command-line spelling of a field: `batch_size` is `--batch-size`."""
    return "--" + name.replace("_", "-")


def whole_number(value: Any, name: str, least: int | None = None) -> int:
    """An argument that counts something, from what any library calls an integer.

    Raises:
        ConfigError: when it is none, or below `least`.
    """
    expected = "a whole number" if least is None else f"a whole number of {least} or more"
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name} is {value!r}; expected {expected}.") from None
    if least is not None and number < least:
        raise ConfigError(f"{name} is {value!r}; expected {expected}.")
    return number


def parse_fanouts(text: str) -> tuple[int, ...]:
    """Reads `10,10,10`.

    Raises:
        ConfigError: when it is not a list of integers.
    """
    try:
        return tuple(int(part) for part in text.replace(" ", "").split(","))
    except ValueError:
        raise ConfigError(
            f"--fanouts is {text!r}; expected integers separated by commas.", "Type for example --fanouts 10,10."
        ) from None


def parse_gpus(text: str) -> int | list[int] | None:
    """Reads `--gpus`: None for auto, a count, or a list of device ids.

    Raises:
        ConfigError: when it is neither, or an id is named twice.
    """
    if text == "auto":
        return None
    try:
        ids = [int(part) for part in text.replace(" ", "").rstrip(",").split(",")]
    except ValueError:
        ids = [-1]
    if min(ids) < 0:
        raise ConfigError(
            f"--gpus is {text!r}; expected auto, a number of GPUs, or a list of ids.",
            "Type for example --gpus 4, --gpus 0,2, or --gpus 0 for the CPU.",
        )
    if len(set(ids)) < len(ids):
        raise ConfigError(f"--gpus {text} names a GPU twice.", "Each process needs a GPU of its own.")
    return ids if "," in text else ids[0]


def parse_split(text: str) -> tuple[str, tuple[float, ...]]:
    """Reads `--split`: its kind (`public`, `random`, `per-class` or `folds`) and its numbers.

    Raises:
        ConfigError: when the kind is unknown or the numbers cannot be a split.
    """
    kind, _, rest = text.partition(":")
    try:
        numbers = tuple(float(part) for part in rest.split("/")) if rest else ()
    except ValueError:
        numbers = (math.nan,)
    good = (
        (kind == "public" and not rest)
        or (kind == "random" and len(numbers) == 3 and all(n > 0 for n in numbers) and sum(numbers) <= 1 + 1e-9)
        or (kind == "folds" and len(numbers) == 1 and numbers[0] >= 3 and numbers[0].is_integer())
        or (kind == "per-class" and len(numbers) == 2 and all(n >= 1 and n.is_integer() for n in numbers))
    )
    if not good:
        raise ConfigError(
            f"--split is {text!r}; expected public, random:TRAIN/VAL/TEST with positive shares that add up to at "
            "most 1, per-class:TRAIN/VAL with whole numbers, or folds:K with K of at least 3.",
            "Type for example --split random:.6/.2/.2, --split per-class:20/30 or --split folds:10 --split-id 0.",
        )
    return kind, numbers


def parse_size(text: str, name: str) -> int:
    """Reads `8GiB`, `512 MiB` or a number of bytes; `name` is the option's, for the error.

    Raises:
        ConfigError: when it is no size above zero, or a number that is no sensible count of bytes and has no unit.
    """
    words = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])iB)?\s*", text, re.IGNORECASE)
    size = int(float(words[1]) * 1024 ** " KMGT".index((words[2] or " ").upper())) if words else 0
    if size < 1:
        decimal = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT])B?\s*", text, re.IGNORECASE)
        meant = f"Type {name} {decimal[1]}{decimal[2].upper()}iB." if decimal and name.startswith("--") else ""
        raise ConfigError(f"{name} is {text!r}; expected a size such as 8GiB, 512MiB or a number of bytes.", meant)
    if words and not words[2] and size < LEAST_BARE_BYTES:
        raise ConfigError(
            f"{name} is {text!r}, which has no unit and would be {size} bytes; expected a size such as 8GiB or 512MiB.",
            f"Type {name} {words[1]}GiB or {name} {words[1]}MiB." if name.startswith("--") else "",
        )
    return size


def limit_of(value: int | str | None, name: str) -> int | None:
    """An argument that is a size, as callers in Python give it: bytes, or text as `parse_size` reads it.

    Raises:
        ConfigError: when it is neither.
    """
    if value is None or isinstance(value, str):
        return None if value is None else parse_size(value, name)
    try:
        if not isinstance(value, bool):
            return whole_number(value, name, 1)
    except ConfigError:
        pass
    raise ConfigError(f"{name} is {value!r}; expected a size such as '8GiB', or a number of bytes.")


def parse_share(text: str, name: str) -> tuple[float, int]:
    """Reads `15%`, or a size as `parse_size` does: a share of all, and bytes, one of which is zero; 0 is neither.

    Raises:
        ConfigError: when it is neither, or a share above 100 %.
    """
    words = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    if words and words[2] and float(words[1]) <= 100:
        return float(words[1]) / 100, 0
    if words and not words[2] and float(words[1]) == 0:
        return 0.0, 0
    if words and not words[2] and float(words[1]) < LEAST_BARE_BYTES:
        share = float(words[1]) * 100 if float(words[1]) < 1 else float(words[1])
        as_share = f"{name} {share:g}%" if share <= 100 else f"{name} {words[1]}MiB"
        raise ConfigError(
            f"{name} is {text!r}, which has no unit; expected a share such as 15%, a size such as 2GiB, or 0.",
            f"Type {as_share} or {name} {words[1]}GiB.",
        )
    if not words:
        try:
            return 0.0, parse_size(text, name)
        except ConfigError:
            pass
    elif not words[2]:
        return 0.0, parse_size(text, name)
    raise ConfigError(f"{name} is {text!r}; expected a share such as 15%, a size such as 2GiB, or 0.")


def size_text(num_bytes: int) -> str:
    """`1.50 GiB`: a unit of 1,024 for people, GiB from a hundredth of one on."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.2f} {unit}" if unit == "GiB" else f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} B"


def check_placement(placement: str, gpu_cache_size: str | None, gpus: str) -> None:
    """Refuses a placement that contradicts the devices or the cache.

    Raises:
        ConfigError: see above.
    """
    told = parse_gpus(gpus)
    if placement == "cpu-cpu" and told:
        raise ConfigError(
            f"--placement cpu-cpu computes on the CPU, and --gpus {gpus} asks for GPUs.",
            "Leave one of them out, or type --gpus 0.",
        )
    wants_gpu = f"--placement {placement}" if placement.endswith("-cuda") else ""
    if gpu_cache_size is not None:
        parse_size(gpu_cache_size, "--gpu-cache-size")
        wants_gpu = wants_gpu or "--gpu-cache-size"
        if placement in ("cpu-cpu", "cuda-cuda"):
            why = "uses no GPU" if placement == "cpu-cpu" else "holds all features on the GPU"
            raise ConfigError(f"--placement {placement} {why}: it has no --gpu-cache-size.", "Leave one of them out.")
    if wants_gpu and told == 0:
        raise ConfigError(f"{wants_gpu} needs a GPU, and --gpus is 0.", "Leave one of them out.")


def gpus_of(placement: str, gpus: str) -> int | list[int] | None:
    """The GPUs that the options ask for, as `parse_gpus`: none for `cpu-cpu`."""
    return 0 if placement == "cpu-cpu" else parse_gpus(gpus)


def check_names(given: Iterable[str], options: Any, origin: str) -> None:
    """Refuses names that a dataclass of options does not have; `origin` gave them.

    Raises:
        ConfigError: with the name that was probably meant.
    """
    from difflib import get_close_matches

    known = [f.name for f in fields(options)]
    for name in given:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            raise ConfigError(
                f"{origin} was given {name!r}; expected an option that it has.",
                f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(known)}.",
            )


def check_choice(value: Any, name: str, choices: Iterable[str]) -> None:
    """Refuses an argument that is none of some words.

    Raises:
        ConfigError: see above.
    """
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name} is {value!r}; expected one of {', '.join(choices)}.")


def path_of(value: Any, name: str) -> Path:
    """An argument that is a path.

    Raises:
        ConfigError: when it is no text and no path.
    """
    if not isinstance(value, (str, PathLike)) or isinstance(fspath(value), bytes):
        raise ConfigError(
            f"{name} is {value!r} of type {type(value).__name__}; expected a path, such as 'folder/name'."
        )
    return Path(fspath(value))


def check_types(options: Any) -> None:
    """Refuses fields of a dataclass of options whose values are of the wrong type; see `check_type`."""
    for f in fields(options):
        check_type(f.name, getattr(options, f.name), str(f.type))


def check_type(name: str, value: Any, annotation: str) -> None:
    """Refuses a value of the wrong type, as a config file or a caller may give; ints serve as floats."""
    if annotation.startswith("Literal["):
        choices = [part.strip(" '\"") for part in annotation[8:-1].split(",")]
        if value not in choices:
            raise ConfigError(f"{flag(name)} is {value!r}; expected one of {', '.join(choices)}.")
        return
    if annotation.startswith("tuple"):
        return
    expected = annotation.split(" | ")
    good = (
        (value is None and "None" in expected)
        or (isinstance(value, bool) and "bool" in expected)
        or (isinstance(value, int) and not isinstance(value, bool) and bool({"int", "float"} & set(expected)))
        or (isinstance(value, float) and "float" in expected)
        or (isinstance(value, str) and "str" in expected)
    )
    if not good:
        raise ConfigError(f"{flag(name)} is {value!r} of type {type(value).__name__}; expected {annotation}.")
