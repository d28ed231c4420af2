"""Arrays that are appended to while they are made, in bounded memory, and become `.npy` files at the end."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

HEADER_BYTES = 128  # as NumPy writes it for all but very long shapes; a multiple of 64, so that rows are aligned


LARGE_BYTES = 4 << 20  # as much as a writer keeps before it flushes: what is as large never waits


class Large:
    """An array that is too large to be copied as a whole: it is handed on in pieces of some MiB."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __len__(self) -> int:
        return self._array.nbytes

    def pieces(self) -> Iterator[memoryview]:
        """Its bytes in C order."""
        rows = max(1, LARGE_BYTES * len(self._array) // self._array.nbytes)
        for start in range(0, len(self._array), rows):
            piece = np.ascontiguousarray(self._array[start : start + rows])
            yield piece.reshape(-1).view(np.uint8).data


Content = bytes | memoryview | Large


def pieces(content: Content) -> Iterable[bytes | memoryview]:
    """The bytes of a value, in one piece or several."""
    return content.pieces() if isinstance(content, Large) else (content,)


class Stream:
    """One array, appended to; what was flushed is in its file behind room for the header.

    Args:
        state: What `state()` returned, to go on from there: what was written after it is cut off.
    """

    def __init__(
        self, folder: Path, name: str, dtype: str, shape: tuple[int, ...], state: Mapping[str, int] | None = None
    ) -> None:
        self.path = folder / f"{name}.npy"
        self.dtype, self.shape = np.dtype(dtype), shape
        self.buffered: list[Content] = []
        self.row_bytes = self.dtype.itemsize * math.prod(shape)
        self._num_rows = state["rows"] if state else 0  # counted, as rows may have no bytes
        self._checksum = state["crc32"] if state else 0
        if state is None:
            self.path.write_bytes(bytes(HEADER_BYTES))
        else:
            os.truncate(self.path, HEADER_BYTES + self._num_rows * self.row_bytes)

    def add(self, content: Content, rows: int) -> None:
        """Appends rows; they are kept until `flush`."""
        self.buffered.append(content)
        self._num_rows += rows

    def extend(self, contents: Iterable[Content], rows: int) -> None:
        """Appends what several pieces hold, so many rows together."""
        self.buffered.extend(contents)
        self._num_rows += rows

    def fill(self, rows: int) -> None:
        """Appends rows of zeros."""
        if rows:
            self.add(bytes(rows * self.row_bytes), rows)

    def flush(self) -> None:
        """Hands what is kept to the operating system."""
        parts: Iterable[bytes | memoryview] = chain.from_iterable(map(pieces, self.buffered))
        if len(self.buffered) > 1 and not any(isinstance(content, Large) for content in self.buffered):
            parts = (b"".join(parts),)
        with open(self.path, "ab") as file:
            for part in parts:
                if part:
                    self._checksum = zlib.crc32(part, self._checksum)
                    file.write(part)
        self.buffered.clear()

    def sync(self) -> None:
        """Waits until what was flushed is on the disk."""
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())

    def state(self) -> dict[str, int]:
        """How far it is, for a stream that was flushed."""
        return {"rows": self._num_rows, "crc32": self._checksum}

    def finish(self) -> dict[str, Any]:
        """Writes the header, synced, and returns what a manifest says of the file."""
        self.flush()
        shape = (self._num_rows, *self.shape)
        with open(self.path, "r+b") as file:
            file.write(header(self.dtype, shape))
            file.flush()
            os.fsync(file.fileno())
        return {
            "file": self.path.name,
            "dtype": self.dtype.name,
            "shape": list(shape),
            "bytes": self.path.stat().st_size,
            "crc32": self._checksum,
        }


def header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The header of an `.npy` file of version 1.0 in C order, `HEADER_BYTES` long."""
    described = f"{{'descr': {dtype.newbyteorder('<').str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    room = HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + room.to_bytes(2, "little") + described.ljust(room - 1).encode("latin1") + b"\n"


def checksum(path: Path) -> int:
    """The CRC-32 of what is behind a file's header. Reads it all, in pieces of 1 MiB."""
    crc = 0
    with open(path, "rb") as file:
        file.seek(HEADER_BYTES)
        while piece := file.read(1 << 20):
            crc = zlib.crc32(piece, crc)
    return crc
