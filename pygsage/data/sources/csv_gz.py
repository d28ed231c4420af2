"""Tables of numbers in `.csv.gz` without a header, as OGB has them, read in pieces into one array."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pygsage.data.sources.npz_members import made
from pygsage.errors import DatasetError, in_words

_CHUNK_VALUES = 1 << 22
_TABLE = "a whole table of numbers, packed by gzip"
_AGAIN = "If it was cut short on its way here, fetch it again."


def read_table(
    path: Path, num_rows: int | None = None, *, dtype: Any = None, scratch: Path | None = None
) -> np.ndarray:
    """All of a file, `[rows, columns]`; one array and one piece of 4M values are all that it holds at a time.

    Args:
        scratch: A folder; where the number of rows and the dtype are told, the array is mapped from a file there.
        num_rows: How many rows there have to be; None for any number.
        dtype: int64, or float32, where empty cells and `nan` are NaN; None for int64 if all are whole, else float32.

    Raises:
        DatasetError: when the file is cut short, is not of numbers, or has another number of rows.
    """
    table = np.empty((0, 0), dtype=np.int64 if dtype is None else dtype)
    have = 0
    for start, piece in read_pieces(path):
        if dtype is not None and np.issubdtype(dtype, np.integer):
            piece = _whole(path, start, piece)
        if start == 0:
            place = scratch if num_rows and dtype is not None else None
            kind = np.dtype(_kind(piece) if dtype is None else dtype)
            table = made(place, path.name, kind, (num_rows or len(piece), piece.shape[1]))
        elif dtype is None and table.dtype == np.int64 and piece.dtype.kind == "f":
            table = table.astype(np.float32)
        have = start + len(piece)
        if num_rows is None and have > len(table):
            table = np.resize(table, (max(have, 2 * len(table)), table.shape[1]))
        if have > len(table):
            raise DatasetError(f"{path} has more than {num_rows} rows; expected {num_rows}.")
        with np.errstate(over="ignore"):  # becomes infinite, which the door refuses
            table[start:have] = piece
    if num_rows is not None and have != num_rows:
        raise DatasetError(f"{path} has {have} rows; expected {num_rows}.", _AGAIN)
    return table[:have]


def read_pieces(path: Path) -> Iterator[tuple[int, np.ndarray]]:
    """The rows of a file by and by, as the number of rows before and an int64 or float64 array `[rows, columns]`.

    Numbers are read by pandas with its defaults, as OGB's own loaders do, so that they are the same to the last bit.

    Raises:
        DatasetError: when the file is missing, cut short, or is not of numbers.
    """
    import pandas as pd

    start = 0
    try:
        with gzip.open(path, "rb") as file:
            first = file.readline()
            rows = max(1, _CHUNK_VALUES // (first.count(b",") + 1))
            file.seek(0)
            if not first.strip():
                raise DatasetError(f"{path} is empty; expected a table of numbers.")
            with pd.read_csv(io.BufferedReader(file), header=None, chunksize=rows) as pieces:
                for piece in pieces:
                    values = piece.to_numpy()
                    if values.dtype.kind not in "if":
                        raise _not_numbers(path, start, values)
                    yield start, values
                    start += len(values)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DatasetError(f"{path} is cut short or damaged ({in_words(error)}); expected {_TABLE}.", _AGAIN) from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}; expected {_TABLE}.") from None
    except (ValueError, OverflowError) as error:  # pandas: rows of different length, text that is no UTF-8
        reason = " ".join(str(error).split())[:160].rstrip(".")
        raise DatasetError(f"{path} is damaged ({reason}); expected {_TABLE}.", _AGAIN) from None


def _kind(piece: np.ndarray) -> Any:
    return np.int64 if piece.dtype.kind == "i" else np.float32


def _whole(path: Path, start: int, piece: np.ndarray) -> np.ndarray:
    if piece.dtype.kind == "f":
        odd = ~np.isfinite(piece) | (piece != np.round(piece))
        if odd.any():
            row, column = np.argwhere(odd)[0]
            raise DatasetError(
                f"{path} has {piece[row, column]:g} in row {start + row}, column {column}; expected whole numbers."
            )
    return piece.astype(np.int64)


def _not_numbers(path: Path, start: int, values: np.ndarray) -> DatasetError:
    for row, cells in enumerate(values):
        for column, cell in enumerate(cells):
            try:
                float(cell)
            except (TypeError, ValueError):
                return DatasetError(
                    f"{path} has {str(cell)[:40]!r} in row {start + row}, column {column}; expected a number."
                )
    return DatasetError(f"{path} holds numbers that are too large; expected those that int64 and float64 can hold.")
