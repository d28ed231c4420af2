"""Downloads that break off, go on, and are whole or not there."""

from __future__ import annotations

import email.message
import fcntl
import io
import re
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pygsage.data.sources.download import download, extract
from pygsage.errors import DatasetError

CONTENT = bytes(range(256)) * 20_000  # 5 MB: several pieces
URL = "http://nowhere.example/data.zip"


class Server:
    """Answers as a web server would; `breaks_after` bytes of an answer the connection is lost."""

    def __init__(self, content: bytes = CONTENT, tag: str = '"one"') -> None:
        self.content, self.tag = content, tag
        self.breaks_after: int | None = None
        self.asked: list[str | None] = []

    def __call__(self, request: urllib.request.Request, timeout: float) -> Any:
        assert timeout > 0
        wanted = request.get_header("Range")
        self.asked.append(wanted)
        start = 0
        if wanted and request.get_header("If-range") == self.tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(self.content):
                raise urllib.error.HTTPError(URL, 416, "Range Not Satisfiable", email.message.Message(), None)
        body = io.BytesIO(self.content[start:][: self.breaks_after])
        body.headers = {"Content-Length": str(len(self.content) - start), "ETag": self.tag}  # type: ignore[attr-defined]
        body.status = 206 if start else 200  # type: ignore[attr-defined]
        return body


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(urllib.request, "urlopen", made)
    return made


def broken(target: Path, said: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        download(URL, target)
    assert URL in caught.value.found or "another process" in said
    assert not target.exists()


def test_a_file_comes_whole(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    download(URL, tmp_path / "data.zip", progress=lambda *counts: seen.append(counts))
    assert (tmp_path / "data.zip").read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["data.zip"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert len(seen) > 3


def test_c134_a_download_that_broke_off_goes_on(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "data.zip"
    server.breaks_after = 2_000_000
    broken(target, "the connection ended after 2,000,000 of 5,120,000 bytes. Its first 2,000,000 bytes are kept")
    server.breaks_after = None
    download(URL, target)
    assert server.asked == [None, "bytes=2000000-"]
    assert target.read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir()] == ["data.zip"]


def test_a_file_that_changed_on_the_server_begins_anew(server: Server, tmp_path: Path) -> None:
    server.breaks_after = 2_000_000
    broken(tmp_path / "data.zip", "the connection ended")
    server.breaks_after, server.tag, server.content = None, '"two"', CONTENT[::-1]
    download(URL, tmp_path / "data.zip")
    assert (tmp_path / "data.zip").read_bytes() == CONTENT[::-1]


def test_a_part_without_a_tag_is_not_trusted(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.zip.part").write_bytes(b"something else")
    download(URL, tmp_path / "data.zip")
    assert server.asked == [None]
    assert (tmp_path / "data.zip").read_bytes() == CONTENT


def test_a_part_that_is_whole_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.zip.part").write_bytes(CONTENT)
    (tmp_path / "data.zip.part.etag").write_text('"one"')
    download(URL, tmp_path / "data.zip")
    assert (tmp_path / "data.zip").read_bytes() == CONTENT


def test_without_a_network_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError("no such host")

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    broken(tmp_path / "data.zip", "could not be downloaded: no such host.")
    assert list(tmp_path.iterdir()) == []


def test_two_do_not_write_one_file(server: Server, tmp_path: Path) -> None:
    with open(tmp_path / "data.zip.part", "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        broken(tmp_path / "data.zip", "is being downloaded by another process")


def test_a_full_disk_is_said_before(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1))
    broken(tmp_path / "data.zip", f"it has 5,120,000 bytes, and {tmp_path} has 1 free")
    with zipfile.ZipFile(tmp_path / "made.zip", "w") as archive:
        archive.writestr("one/a.txt", "text")
    with pytest.raises(DatasetError, match="needs 4 bytes to be unpacked"):
        extract(tmp_path / "made.zip", "one", tmp_path / "target")


def test_one_folder_is_taken_out_of_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "made.zip", "w") as archive:
        archive.writestr("one/a.txt", "text")
        archive.writestr("one/../../escaped.txt", "text")
        archive.writestr("other/b.txt", "text")
    (tmp_path / "data").mkdir()
    extract(tmp_path / "made.zip", "one", tmp_path / "data" / "target")
    assert (tmp_path / "data" / "target" / "a.txt").read_text() == "text"
    assert [p.name for p in (tmp_path / "data").iterdir()] == ["target"]
    assert not (tmp_path / "escaped.txt").exists()
    with pytest.raises(DatasetError, match="has no folder two"):
        extract(tmp_path / "made.zip", "two", tmp_path / "data" / "other")
