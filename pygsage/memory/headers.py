"""What files hold, from their headers alone: `.npy`, the members of an `.npz`, and the tensors in a `.pt`.

Nothing is unpickled: of a `.pt` the pickle's opcodes are followed as far as tensors need it. A compressed file says
nothing about what it becomes in memory, so its size is never used.
"""

from __future__ import annotations

import ast
import pickletools
import struct
import zipfile
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

from pygsage.errors import DatasetError, in_words

_DTYPES = {
    "b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8", "u2": "uint16",
    "u4": "uint32", "u8": "uint64", "f2": "float16", "f4": "float32", "f8": "float64",
}  # fmt: skip
_STORAGES = {
    "BoolStorage": "bool", "CharStorage": "int8", "ByteStorage": "uint8", "ShortStorage": "int16",
    "IntStorage": "int32", "LongStorage": "int64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32", "DoubleStorage": "float64",
}  # fmt: skip
ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
INTEGER_CODES = {
    "bool": "B", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
    "uint64": "Q",
}  # fmt: skip
_MOST_UNPACKED_BYTES = 4 << 20
_MOST_PICKLE_BYTES = 64 << 20  # the part of a .pt beside its tensors; what lists of Python objects make it


@dataclass(frozen=True)
class Header:
    """An array that lies in a file.

    Attributes:
        name: Its key; of nested containers the keys joined with dots.
        shape: Its shape.
        dtype: Its dtype by NumPy's name.
        offset: Where its data begin in the file; None when they are compressed.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes in memory, as stored."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


def read_npy(path: Path) -> Header:
    """The header of an `.npy` file.

    Raises:
        DatasetError: when it is none.
    """
    try:
        with open(path, "rb") as file:
            shape, dtype = _npy_header(file)
            return Header(path.stem, shape, dtype, file.tell())
    except _NoNumbersError as error:
        raise _no_numbers(f"{path}", error) from None
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} is no .npy file that can be read ({in_words(error)}).") from None


def read_npz(path: Path) -> dict[str, Header]:
    """The arrays of an `.npz` by name; reads a few hundred bytes of each, compressed or not.

    Raises:
        DatasetError: when it is none, or an array's header is damaged.
    """
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(".npy"):
                    continue
                name = member.filename[:-4]
                with archive.open(member) as file:
                    try:
                        shape, dtype = _npy_header(file)
                    except _NoNumbersError as error:
                        raise _no_numbers(f"{path}: {name}", error) from None
                    start = file.tell()
                promised = start + prod(shape) * ITEM_BYTES[dtype]
                if member.file_size < promised:
                    raise ValueError(f"{name} has {member.file_size:,} bytes, and its header promises {promised:,}")
                stored = member.compress_type == zipfile.ZIP_STORED
                found[name] = Header(name, shape, dtype, _data_start(path, member) + start if stored else None)
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DatasetError(f"{path} is damaged ({in_words(error)}).", "Write it with numpy.savez.") from None
    return found


def read_ints(path: Path, header: Header, count: int) -> array[int]:
    """The first `count` integers of an array of an `.npz` or `.npy`; of a packed one none when it takes over 4 MiB.

    Raises:
        DatasetError: when the file is damaged.
    """
    values = array(INTEGER_CODES[header.dtype])
    try:
        if header.offset is not None:
            with open(path, "rb") as file:
                file.seek(header.offset)
                values.frombytes(file.read(count * values.itemsize))
        elif path.suffix == ".npz" and header.num_bytes <= _MOST_UNPACKED_BYTES:
            with zipfile.ZipFile(path) as archive, archive.open(f"{header.name}.npy") as file:
                _npy_header(file)
                values.frombytes(file.read(count * values.itemsize))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DatasetError(f"{path}: {header.name} is damaged ({in_words(error)}).") from None
    return values


class _NoNumbersError(Exception):
    """An array whose header tells another dtype than those of numbers."""


def _no_numbers(what: str, error: Exception) -> DatasetError:
    return DatasetError(
        f"{what} is of dtype {error}; expected numbers.", "Write it once more, from x.astype('float32') say."
    )


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], str]:
    magic = file.read(8)
    if magic[:6] != b"\x93NUMPY":
        raise ValueError("it does not begin as a NumPy array")
    size = struct.unpack("<H", file.read(2))[0] if magic[6] == 1 else struct.unpack("<I", file.read(4))[0]
    text = file.read(min(size, 1 << 16)).decode("latin-1").strip()
    try:
        told = ast.literal_eval(text)
        shape, kind = tuple(int(n) for n in told["shape"]), str(told["descr"]).lstrip("<>=|")
    except (SyntaxError, TypeError, KeyError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"its header is {text[:60]!r}") from error
    if any(n < 0 for n in shape):
        raise ValueError(f"its shape is {shape}")
    if kind not in _DTYPES:
        if "O" in kind:
            raise _NoNumbersError(f"{told['descr']!r}, which are objects of Python")
        raise _NoNumbersError(f"{told['descr']!r}")
    return shape, _DTYPES[kind]


def _data_start(path: Path, member: zipfile.ZipInfo) -> int:
    with open(path, "rb") as file:
        file.seek(member.header_offset + 26)
        name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
    return member.header_offset + 30 + int(name_bytes) + int(extra_bytes)


def read_pt(path: Path) -> dict[str, Header]:
    """The tensors in a file of `torch.save`, by the keys that lead to them; no code of the file is run.

    Raises:
        DatasetError: when it is of another format, damaged, or mostly Python objects.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            member = next(m for m in archive.infolist() if m.filename.endswith("/data.pkl"))
            if member.file_size > _MOST_PICKLE_BYTES:
                raise DatasetError(
                    f"{path} holds {member.file_size / 2**20:.0f} MiB beside its tensors: a list of many graphs.",
                    "Type the numbers instead: --num-graphs … --avg-nodes … --avg-edges … --num-features …",
                )
            content = archive.read(member)
        found = {".".join(keys): tensor for keys, tensor in _tensors(_follow(content), ())}
    except StopIteration:
        raise DatasetError(f"{path} is a zip file, but not of torch.save.") from None
    except zipfile.BadZipFile:
        raise DatasetError(
            f"{path} is not of the zip format that torch.save writes since torch 1.6.",
            "Type the numbers instead: --num-graphs … --avg-nodes … --avg-edges … --num-features …",
        ) from None
    except (OSError, ValueError, IndexError, KeyError, TypeError, zlib.error) as error:
        raise DatasetError(f"{path} is damaged ({in_words(error)}).") from None
    return {name: Header(name, shape, dtype) for name, (shape, dtype) in found.items()}


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    dtype: str


@dataclass
class _Made:
    """An object of a class that the pickle names; nothing of it is made but its name, arguments and state."""

    name: str
    arguments: Any = ()
    state: Any = None


class _Mark:
    pass


def _follow(content: bytes) -> Any:
    """What a pickle would make, with strings, numbers, containers and tensors' shapes; every other object a `_Made`."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def to_mark() -> list[Any]:
        items: list[Any] = []
        while not isinstance(stack[-1], _Mark):
            items.append(stack.pop())
        stack.pop()
        return items[::-1]

    value: Any
    for op, value, _ in pickletools.genops(content):
        name = op.name
        if name in ("PROTO", "FRAME"):
            pass
        elif name == "STOP":
            return stack.pop()
        elif name == "MARK":
            stack.append(_Mark())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[int(value)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(value)])
        elif name in ("NONE", "NEWTRUE", "NEWFALSE"):
            stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "EMPTY_SET"):
            stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": list}[name]())
        elif name == "TUPLE":
            stack.append(tuple(to_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "LIST":
            stack.append(to_mark())
        elif name == "DICT":
            items = to_mark()
            stack.append(_pairs(items))
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            items = [stack.pop()] if name == "APPEND" else to_mark()
            if isinstance(stack[-1], list):
                stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else to_mark()
            if isinstance(stack[-1], dict):
                stack[-1].update(_pairs(items))
        elif name == "GLOBAL":
            stack.append(_Made(str(value).replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_Made(f"{module}.{attribute}"))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, made = stack.pop(), stack.pop()
            stack.append(_reduced(made, arguments))
        elif name == "NEWOBJ_EX":
            _, arguments, made = stack.pop(), stack.pop(), stack.pop()
            stack.append(_reduced(made, arguments))
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], _Made):
                stack[-1].state = state
        elif name == "BINPERSID":
            stack.append(("storage", stack.pop()))
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            to_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        elif op.stack_after and not op.stack_before:
            stack.append(value)  # a number or a string
        else:
            raise ValueError(f"its pickle uses {name}")
    raise ValueError("its pickle has no end")


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return {
        key if isinstance(key, (str, int)) else str(key): value
        for key, value in zip(items[::2], items[1::2], strict=True)
    }


def _reduced(made: Any, arguments: Any) -> Any:
    name = made.name if isinstance(made, _Made) else ""
    if name == "torch._utils._rebuild_tensor_v2":
        (_, told), _, shape = arguments[:3]
        return _Tensor(tuple(int(n) for n in shape), _STORAGES[told[1].name.rpartition(".")[2]])
    if name == "collections.OrderedDict":
        return {}
    return _Made(name, arguments)


def _tensors(
    value: Any, keys: tuple[str, ...], depth: int = 0
) -> Iterator[tuple[tuple[str, ...], tuple[tuple[int, ...], str]]]:
    if depth > 12:
        return
    if isinstance(value, _Tensor):
        yield keys, (value.shape, value.dtype)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("_parent", "_global_store"):  # PyG's objects: ways back to where one came from
                yield from _tensors(inner, keys if key in ("_mapping", "_store") else (*keys, str(key)), depth + 1)
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(value):
            yield from _tensors(inner, (*keys, str(place)), depth + 1)
    elif isinstance(value, _Made):
        yield from _tensors(value.state, keys, depth + 1)
