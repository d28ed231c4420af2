"""Rows of a large file for several askers at once: read in one pass, in pieces, past the page cache."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from pygsage.errors import DatasetError

PIECE_BYTES = 4 << 20
AT_ONCE = 3  # pieces that are under way
_PAGE_BYTES = 4096


class RowFile:
    """A file of rows that follow one another, to be read from the first that is wanted to the last.

    Nothing that it reads stays in the page cache, where the file system can (O_DIRECT).

    Args:
        path: The file; it may be deleted once this is made.
        offset: Where the first row begins.
        num_rows: How many there are.
        width: Numbers a row.
        dtype: Of the numbers.
    """

    def __init__(self, path: Path, offset: int, num_rows: int, width: int, dtype: np.dtype) -> None:
        self.num_rows, self._path, self._offset, self._width, self._dtype = num_rows, path, offset, width, dtype
        self.row_bytes = width * dtype.itemsize
        self._rows_at_once = max(1, PIECE_BYTES // max(1, self.row_bytes))
        try:
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
        except OSError:  # a tmpfs of old, some network file systems
            self._file = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def num_bytes(self) -> int:
        """Of all rows."""
        return self.num_rows * self.row_bytes

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """All rows, piece by piece: the number of the first, and rows [n, F] that are overwritten soon after."""
        return self._read(range(-(-self.num_rows // self._rows_at_once)))

    def read(self, wanted: Sequence[np.ndarray], outs: Sequence[np.ndarray]) -> None:
        """Puts the rows of each of several lists of numbers, int64 [n], ascending, into its array [n, F]; costs 12 MiB.

        Raises:
            DatasetError: when the file was cut short or cannot be read.
        """
        num_pieces = -(-self.num_rows // self._rows_at_once)
        starts = np.arange(num_pieces + 1) * self._rows_at_once
        bounds = np.stack([np.searchsorted(ids, starts) for ids in wanted]) if wanted else np.zeros((0, 1), np.int64)
        needed = np.flatnonzero((np.diff(bounds, axis=1) > 0).any(0)).tolist()
        for first, rows in self._read(needed):
            piece = first // self._rows_at_once
            for ids, out, (begin, end) in zip(wanted, outs, bounds[:, piece : piece + 2].tolist(), strict=True):
                np.take(rows, ids[begin:end] - first, axis=0, out=out[begin:end], mode="clip")

    def _read(self, pieces: Iterable[int]) -> Iterator[tuple[int, np.ndarray]]:
        size = self._rows_at_once * self.row_bytes + 2 * _PAGE_BYTES
        free = [mmap.mmap(-1, -(-size // _PAGE_BYTES) * _PAGE_BYTES) for _ in range(AT_ONCE)]
        waiting: deque[Future[_Piece]] = deque()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="pygsage-scan") as threads:
            for piece in pieces:
                waiting.append(threads.submit(self._one, piece, free.pop()))
                if not free:
                    yield from self._next(waiting, free)
            while waiting:
                yield from self._next(waiting, free)

    def _next(self, waiting: deque[Future[_Piece]], free: list[mmap.mmap]) -> Iterator[tuple[int, np.ndarray]]:
        piece = waiting.popleft().result()
        yield piece.first, piece.rows
        free.append(piece.buffer)

    def _one(self, piece: int, buffer: mmap.mmap) -> _Piece:
        first = piece * self._rows_at_once
        count = min(self._rows_at_once, self.num_rows - first)
        begin = self._offset + first * self.row_bytes
        start = begin // _PAGE_BYTES * _PAGE_BYTES
        need = begin + count * self.row_bytes - start
        got = 0
        while got < need:
            if got % _PAGE_BYTES:  # only the end of a file comes in parts of a page
                raise self._cut_short()
            view = memoryview(buffer)[got : -(-need // _PAGE_BYTES) * _PAGE_BYTES]
            try:
                now = os.preadv(self._file, [view], start + got)
            except OSError as error:
                raise DatasetError(f"{self._path} cannot be read: {error.strerror}.") from None
            finally:
                view.release()
            if now == 0:
                raise self._cut_short()
            got += now
        rows = np.frombuffer(buffer, self._dtype, count * self._width, begin - start).reshape(count, self._width)
        return _Piece(first, rows, buffer)

    def _cut_short(self) -> DatasetError:
        return DatasetError(f"{self._path} was cut short while it was read.", "Make it again.")


@dataclass(frozen=True)
class _Piece:
    first: int
    rows: np.ndarray
    buffer: mmap.mmap


def drop_cached(descriptor: int) -> None:
    """Lets what was synced of a file leave the page cache, where the system can."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
