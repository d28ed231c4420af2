"""What a processed dataset was made from: options and raw files, so that a change is never missed."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pygsage.data.files.arrays import write_synced
from pygsage.errors import DatasetError

OPTIONS = "options.json"


def describe_callable(function: Callable[..., Any] | None) -> str:
    """What can be told of a transform or filter: its text, or for a function its name and a checksum of its code."""
    if function is None:
        return "none"
    code = getattr(function, "__code__", None)
    if code is not None:
        content = code.co_code + repr([c for c in code.co_consts if not hasattr(c, "co_code")]).encode()
        kept = [repr(cell.cell_contents) for cell in getattr(function, "__closure__", None) or ()]
        told = f"{function.__module__}.{function.__qualname__} {zlib.crc32(content):08x} {kept or ''}"
    else:
        told = f"{type(function).__module__}.{type(function).__qualname__} {function!r}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", told).strip()


def describe_settings(held: Mapping[str, Any], root: str | Path | None, but: Collection[str] = ()) -> dict[str, str]:
    """The plain values among what a user's class was made with, such as the split it is of, as `self.NAME` and a text.

    Args:
        root: A folder that may move: where a value is a path below it, only the rest counts.
        but: Names that are no settings.
    """
    folder = None if root is None else str(root)
    return {
        f"self.{name}": repr(_moved(value, folder))
        for name, value in held.items()
        if name not in but and _is_plain(value)
    }


def _moved(value: Any, folder: str | None) -> Any:
    if isinstance(value, Mapping):
        return {key: _moved(each, folder) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_moved(each, folder) for each in value]
    if not isinstance(value, (str, Path)):
        return value
    text = str(value)
    if folder and (text == folder or text.startswith(folder + os.sep)):
        return "ROOT" + text.removeprefix(folder)
    return text


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple)):  # a set has no order that is the same in each process
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float, Path))


def describe_raw(paths: Iterable[str], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Size, time of change and CRC-32 of each raw file that exists, by its name.

    Args:
        before: An earlier answer: a file of the same size and time keeps its checksum; others are read.
    """
    told: dict[str, Any] = {}
    for text in paths:
        path = Path(text)
        if not path.is_file():
            continue
        status = path.stat()
        known = (before or {}).get(path.name)
        if known and (known["bytes"], known["mtime_ns"]) == (status.st_size, status.st_mtime_ns):
            told[path.name] = known
            continue
        crc = 0
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                crc = zlib.crc32(piece, crc)
        told[path.name] = {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "crc32": crc}
    return told


def read_options(folder: str | Path) -> dict[str, Any] | None:
    """What `write_options` wrote, or None."""
    try:
        told = json.loads((Path(folder) / OPTIONS).read_bytes())
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def write_options(folder: str | Path, options: Mapping[str, Any]) -> None:
    """Writes the options beside processed files, whole or not at all."""
    path = Path(folder) / OPTIONS
    text = json.dumps(options, indent=1).encode()
    write_synced(path.with_name(f"{OPTIONS}.new"), lambda file: file.write(text))
    os.replace(path.with_name(f"{OPTIONS}.new"), path)


def check_options(folder: str | Path, told: Mapping[str, Any] | None, options: Mapping[str, Any]) -> None:
    """Compares what processed files were made from with what is asked for now.

    Raises:
        DatasetError: naming what differs. Raw files that are no longer there are not compared.
    """
    advice = "Pass force_reload=True to process it again, or use another root."
    if told is None:
        raise DatasetError(f"{folder} holds processed files, and nothing says what they were made from.", advice)
    for name in sorted((options.keys() | told.keys()) - {"raw"}):
        before, now = (held.get(name, "not set") for held in (told, options))
        if before != now:
            raise DatasetError(f"{folder} was processed with {name} {before}; now it is {now}.", advice)
    for name, file in options["raw"].items():
        known = told.get("raw", {}).get(name, {})
        if (known.get("bytes"), known.get("crc32")) != (file["bytes"], file["crc32"]):
            raise DatasetError(f"{folder} was processed from another raw file {name} than there is now.", advice)
