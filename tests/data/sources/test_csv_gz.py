"""Tables of numbers in .csv.gz, read in pieces."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pygsage.data.sources.csv_gz import read_pieces, read_table
from pygsage.errors import DatasetError


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(text if isinstance(text, bytes) else text.encode()))
    return path


@pytest.fixture
def pieces_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pygsage.data.sources.csv_gz._CHUNK_VALUES", 4)


@pytest.mark.usefixtures("pieces_of_four")
@pytest.mark.parametrize("num_rows", [None, 7])
def test_pieces_make_the_whole(tmp_path: Path, num_rows: int | None) -> None:
    table = np.arange(14).reshape(7, 2)
    path = write(tmp_path, "\n".join(f"{a},{b}" for a, b in table))
    assert [(start, len(piece)) for start, piece in read_pieces(path)] == [(0, 2), (2, 2), (4, 2), (6, 1)]
    for dtype in (None, np.int64, np.float32):
        found = read_table(path, num_rows, dtype=dtype)
        assert np.array_equal(found, table)
        assert found.dtype == (dtype or np.int64)


@pytest.mark.usefixtures("pieces_of_four")
def test_a_number_that_is_missing_makes_floats(tmp_path: Path) -> None:
    found = read_table(write(tmp_path, "1\n2\n3\n4\n5\nnan\n7\n"), 7)
    assert found.dtype == np.float32
    assert np.array_equal(found.ravel(), [1, 2, 3, 4, 5, np.nan, 7], equal_nan=True)


def test_floats_are_those_of_pandas_to_the_last_bit(tmp_path: Path) -> None:
    import pandas as pd

    values = np.random.default_rng(0).normal(size=(50, 3))
    path = write(tmp_path, "\n".join(",".join(map(repr, row)) for row in values.tolist()))
    assert np.array_equal(read_table(path, dtype=np.float32), pd.read_csv(path, header=None).values.astype(np.float32))


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("", {}, "is empty; expected a table of numbers"),
        ("1\n2\n", {"num_rows": 3}, "has 2 rows; expected 3"),
        ("1\n2\n", {"num_rows": 1}, "has more than 1 rows; expected 1"),
        ("1\n2.5\n", {"dtype": np.int64}, "has 2.5 in row 1, column 0; expected whole numbers"),
        ("1,2\n3,\n", {"dtype": np.int64}, "has nan in row 1, column 1; expected whole numbers"),
        ("1,2\n3,x\n", {}, "has 'x' in row 1, column 1; expected a number"),
        ("1,2\n3,4,5\n", {}, "expected a whole table of numbers"),
        (b"\xff\xfe\n\xff", {}, "expected a whole table of numbers"),
        ("99999999999999999999\n", {}, "expected those that int64"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        read_table(write(tmp_path, text), **options)
    assert "table.csv.gz" in caught.value.found


def test_files_that_are_not_there_or_no_gzip_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot be read: No such file"):
        read_table(tmp_path / "nothing.csv.gz")
    (tmp_path / "plain.csv.gz").write_text("1,2\n")
    with pytest.raises(DatasetError, match="is cut short or damaged"):
        read_table(tmp_path / "plain.csv.gz")
    path = write(tmp_path, "".join(f"{n}\n" for n in range(10_000)))
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(DatasetError, match="is cut short or damaged"):
        read_table(path, 10_000)
