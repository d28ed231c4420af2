"""Arrays of an `.npz` larger than RAM: mapped where they lie in the file, or unpacked once, in pieces."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from pygsage.data.files.arrays import map_pages, new_array

_CHUNK_BYTES = 1 << 20  # zipfile holds a piece up to four times
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip's member: then its name and extra field, whose lengths these are


def read_member(path: Path, key: str, scratch: Path | None = None) -> np.ndarray:
    """One array of an `.npz`: copy-on-write on the file if it is stored as it is, else in RAM, never twice.

    float16 and float64 that have to be unpacked in RAM are made float32 on the way.

    Args:
        scratch: A folder; what has to be unpacked is mapped from a file there instead.

    Raises:
        KeyError: when there is no such array.
        ValueError, zipfile.BadZipFile, zlib.error, EOFError, OSError: when the file is damaged, or the array is one
            of Python objects.
    """
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{key}.npy")
        with archive.open(member) as file:
            shape, fortran_order, dtype = _read_header(file)
            if dtype.hasobject:
                raise ValueError("it is an array of Python objects, which can run code when it is read")
            header_bytes = file.tell()
            num_bytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
            if num_bytes != member.file_size - header_bytes:
                raise ValueError(f"it has {member.file_size - header_bytes} bytes; its shape {shape} needs {num_bytes}")
            if member.compress_type == zipfile.ZIP_STORED and num_bytes:
                start = _start(path, member) + header_bytes
                order: Any = "F" if fortran_order else "C"
                with open(path, "rb") as whole:
                    return np.ndarray(shape, dtype, map_pages(whole), start, order=order)
            narrowed = scratch is None and dtype.kind == "f" and dtype.itemsize != 4
            flat = made(scratch, key, np.dtype(np.float32) if narrowed else dtype, (int(np.prod(shape)),))
            _unpack(file, flat, dtype)
            return flat.reshape(shape, order="F" if fortran_order else "C")


def made(scratch: Path | None, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A new array: in RAM, or mapped from a new file in the folder `scratch`."""
    if scratch is None or 0 in shape:
        return np.empty(shape, dtype)
    return new_array(scratch / f"{name}.npy", dtype, shape)


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)


def _start(path: Path, member: zipfile.ZipInfo) -> int:
    with open(path, "rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER.size)
    name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    return member.header_offset + _LOCAL_HEADER.size + int(name_bytes) + int(extra_bytes)


def _unpack(file: IO[bytes], flat: np.ndarray, dtype: np.dtype) -> None:
    step = max(1, _CHUNK_BYTES // dtype.itemsize)
    for start in range(0, len(flat), step):
        count = min(step, len(flat) - start)
        piece = file.read(count * dtype.itemsize)
        if len(piece) < count * dtype.itemsize:
            raise EOFError("it is cut short")
        flat[start : start + count] = np.frombuffer(piece, dtype)
    if file.read(1):  # makes zipfile compare the checksum
        raise ValueError("it is longer than its header says")
