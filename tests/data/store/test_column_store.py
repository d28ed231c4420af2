"""The store of many graphs: written whole or not at all, and never taken for what it is not."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from pygsage.data.files.streams import HEADER_BYTES, Stream, header
from pygsage.data.store import writer as store_writer
from pygsage.data.store.column_store import ColumnStore, is_store, open_manifest
from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.database import open_database
from pygsage.data.store.derive import select
from pygsage.data.store.writer import GraphWriter, manifest_checksum
from pygsage.errors import DatasetError
from tests.data.dataset_contract import assert_same, plain, typed


def write(folder: Path, graphs: Any = None, **options: Any) -> Path:
    with GraphWriter(folder, **options) as writer:
        for data in (plain() if graphs is None else graphs)[writer.num_done :]:
            writer.add(data)
        writer.finish()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "store")


def test_files_are_plain_npy(folder: Path) -> None:
    x, slices = np.load(folder / "x.npy"), np.load(folder / "nodes.slices.npy")
    assert x.shape == (sum(len(data.x) for data in plain()), 3)
    assert np.array_equal(x[slices[3] : slices[4]], plain()[3].x.numpy())
    assert np.load(folder / "edge_index.npy").shape[1] == 2
    assert np.load(folder / "edge_attr.npy").dtype == np.uint16
    assert sorted(path.name for path in folder.parent.iterdir()) == ["store"]
    assert not list(folder.glob("*.present.npy"))


@given(
    st.lists(st.integers(0, 2**40), max_size=4), st.sampled_from(["bool", "uint8", "float16", "complex128", "int64"])
)
def test_headers_are_numpys(shape: list[int], dtype: str) -> None:
    import io

    content = header(np.dtype(dtype), tuple(shape))
    assert len(content) == HEADER_BYTES
    file = io.BytesIO(content)
    assert np.lib.format.read_magic(file) == (1, 0)
    assert np.lib.format.read_array_header_1_0(file) == (tuple(shape), False, np.dtype(dtype))
    assert file.read() == b""


@pytest.mark.parametrize("graphs", [plain, typed])
def test_c046_c047_the_bytes_are_those_of_the_values(graphs: Any, tmp_path: Path) -> None:
    big = torch.zeros(100_000, 3)
    sliced = [Data(x=big[10 * i : 10 * i + 10]) for i in range(4)]
    assert (write(tmp_path / "sliced", sliced) / "x.npy").stat().st_size == HEADER_BYTES + 4 * 10 * 3 * 4
    store = ColumnStore.open(write(tmp_path / "store", graphs()))
    store.verify()
    again = pickle.loads(pickle.dumps(select(store, [3, 1])))
    assert_same(again.get(0), graphs()[3])


def test_c045_opening_costs_the_same_for_any_number_of_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [Data(x=torch.ones(i % 2 + 1, 1)) for i in range(5)]
    many = [Data(x=torch.ones(i % 3, 1)) for i in range(3000)]
    real, costs = np.load, {}
    for name, graphs in (("few", few), ("many", many)):
        folder, opened = write(tmp_path / name, graphs), []
        monkeypatch.setattr(np, "load", lambda path, **how: (opened.append(path.name), real(path, **how))[1])  # noqa: B023
        store = ColumnStore.open(folder)
        costs[name] = (sorted(opened), len(os.listdir(folder)), len(pickle.dumps(store)) - len(str(folder)))
    assert costs["few"] == costs["many"]
    assert costs["few"][1] == 3


def test_a_writer_holds_a_buffer_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "BUFFER_BYTES", 10_000)
    with GraphWriter(tmp_path / "store") as writer:
        for _ in range(300):
            writer.add(Data(x=torch.ones(10, 10)))
            assert writer._sink.num_buffered_bytes < 10_000
            assert sum(len(b) for s in writer._sink._streams.values() for b in s.buffered) < 10_000  # type: ignore[attr-defined]
        writer.finish()


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours catches it, and no file is tidied up."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Ends the process's work at that call which changes the disk: fsync, rename, cut, delete or append."""
    count = [0]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            if count[0] == moment:
                raise Killed
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(os, "fsync", counted(lambda descriptor: None))
    for name in ("replace", "truncate"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    monkeypatch.setattr(Stream, "flush", counted(Stream.flush))


@pytest.mark.parametrize("overwrite", [False, True])
def test_c052_killed_at_any_moment_it_resumes_to_the_same_bytes(
    overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(store_writer, "BUFFER_BYTES", 150)
    monkeypatch.setattr(store_writer, "CHECKPOINT_BYTES", 20)
    graphs = [Data(x=torch.full((i % 3 + 1, 2), float(i))) for i in range(6)]
    graphs[3].late = "one of them has it"
    options: dict[str, Any] = {"fingerprint": {"a": 1}, "missing": "keep", "overwrite": overwrite}
    whole = contents(write(tmp_path / "whole", graphs, **options))
    old = contents(write(tmp_path / "old", graphs[:2]))
    num_resumed = moment = 0
    while True:
        moment += 1
        folder, partial = tmp_path / f"at-{moment}", tmp_path / f".at-{moment}.partial"
        if overwrite:
            shutil.copytree(tmp_path / "old", folder)
        with monkeypatch.context() as patch:
            kill_at(patch, moment)
            try:
                write(folder, graphs, **options)
                break
            except Killed:
                pass
        if overwrite or folder.exists():
            assert contents(folder) in ([old, whole] if overwrite else [whole])
        if partial.exists() and not (partial / "manifest.json").exists():
            with pytest.raises(DatasetError, match="never finished"):
                ColumnStore.open(partial)
        if not folder.exists() or contents(folder) != whole:
            with GraphWriter(folder, **options, unfinished="auto") as writer:
                num_resumed += 0 < writer.num_done < len(graphs)
                if not writer.is_whole:
                    for data in graphs[writer.num_done :]:
                        writer.add(data)
                writer.finish()
        assert contents(folder) == whole
    assert moment > 60
    assert num_resumed > 20


@pytest.mark.parametrize("backend", ["columnar", "sqlite"])
def test_c052_killed_before_the_last_rename_it_is_whole(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace

    def replace(source: Any, target: Any) -> None:
        if Path(target) == tmp_path / "store":
            raise Killed
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(Killed):
            write(tmp_path / "store", backend=backend)
    before = contents(tmp_path / ".store.partial")
    with pytest.raises(DatasetError, match="holds an unfinished store"):
        write(tmp_path / "store", backend=backend)
    with GraphWriter(tmp_path / "store", backend, unfinished="resume") as writer:
        assert writer.is_whole
        writer.finish()
    assert contents(tmp_path / "store") == {name: before[name] for name in before if name != "lock"}
    database = open_database(tmp_path / "store")
    database.verify()
    assert_same(database.get(3), plain()[3])


def test_c052_killed_when_the_old_one_was_not_yet_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*args: Any, **options: Any) -> None:
        raise Killed

    write(tmp_path / "store", plain()[:2])
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            write(tmp_path / "store", plain()[:5], overwrite=True)
    assert ColumnStore.open(tmp_path / "store").num_graphs == 5
    write(tmp_path / "store", plain()[:5], overwrite=True, unfinished="auto")
    assert ColumnStore.open(tmp_path / "store").num_graphs == 5
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    with GraphWriter(tmp_path / "store") as writer:
        writer.add(plain()[0])
        with pytest.raises(DatasetError, match="is being written by another process"):
            GraphWriter(tmp_path / "store", overwrite=True)
        writer.finish()
    assert is_store(tmp_path / "store")


def test_what_was_begun_is_refused_resumed_or_begun_anew(tmp_path: Path) -> None:
    def begin(**options: Any) -> int:
        with GraphWriter(tmp_path / "store", fingerprint={"of": 1}, **options) as writer:
            done = int(writer.num_done)
            writer.add(plain()[done])
            writer.checkpoint()
        return done

    assert begin() == 0
    with pytest.raises(DatasetError, match=r"holds an unfinished store; .*Resume it \(--resume, resume=True\)"):
        begin()
    assert begin(unfinished="resume") == 1
    with pytest.raises(DatasetError, match="was begun from another dataset or with other options"):
        begin(unfinished="resume", missing="keep")
    assert begin(unfinished="auto") == 2
    assert begin(unfinished="restart") == 0


def test_a_target_that_exists_is_kept_unless_told(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(DatasetError, match="exists already; expected a new folder"):
        write(folder)
    assert contents(folder) == before
    write(folder, plain()[:3], overwrite=True)
    assert ColumnStore.open(folder).num_graphs == 3
    (folder.parent / "mine").mkdir()
    (folder.parent / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(DatasetError, match="holds other files; expected a new folder, or one that pygsage wrote"):
        write(folder.parent / "mine", overwrite=True)
    (folder.parent / "empty").mkdir()
    write(folder.parent / "empty")


@pytest.mark.parametrize("name", ["x.npy", "nodes.slices.npy", "none.npy", "name.npy"])
def test_a_missing_truncated_or_foreign_file_is_found_at_opening(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    for bad in (content[:-1], content + b"x", b"x" * len(content)):
        (folder / name).write_bytes(bad)
        with pytest.raises(DatasetError, match="is damaged: .*npy (has|does not begin as)"):
            ColumnStore.open(folder)
    (folder / name).unlink()
    with pytest.raises(DatasetError, match="is damaged: .*npy: no such file or directory"):
        ColumnStore.open(folder)


def test_a_flipped_bit_anywhere_is_found(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for path in sorted(folder.iterdir()):
        content = bytearray(path.read_bytes())
        for place in {0, len(content) - 1, HEADER_BYTES - 2, *rng.integers(len(content), size=5).tolist()}:
            if place >= len(content):
                continue
            flipped = bytearray(content)
            flipped[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(flipped)
            with pytest.raises(DatasetError):
                ColumnStore.open(folder).verify()
        path.write_bytes(content)
    ColumnStore.open(folder).verify()


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest["checksum"] = manifest_checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "of version 9; this pygsage reads version 1": lambda m: m.update(version=9),
    "was not written by pygsage": lambda m: m.update(format="other"),
    "names the file '../x.npy'": lambda m: m["arrays"]["x"].update(file="../x.npy"),
    "names the file '../y'": lambda m: m["arrays"].update({"../y": m["arrays"]["y"]}),
    "'x' is missing": lambda m: m["arrays"].pop("x"),
    "'nodes.slices' is missing": lambda m: m["arrays"].pop("nodes.slices"),
    "slices do not fit": lambda m: m.update(num_graphs=7),
    "is described as": lambda m: m["schema"]["columns"][0].update(dtype="object"),
    "does not begin as float64": lambda m: m["arrays"]["x"].update(dtype="float64"),
    "two columns have the same name": lambda m: m["schema"]["columns"].append(m["schema"]["columns"][0]),
    "an entry is of another kind": lambda m: m.update(schema=3),
    "of the backend sqlite; expected columnar": lambda m: m.update(backend="sqlite"),
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_manifest_that_was_tampered_with_is_refused(folder: Path, said: str) -> None:
    edit(folder, CHANGES[said])
    with pytest.raises(DatasetError, match=said):
        ColumnStore.open(folder)


def test_a_file_that_leads_out_of_the_store_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "x.npy", tmp_path / "elsewhere.npy")
    (folder / "x.npy").symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(DatasetError, match=r"x\.npy leads out of the folder"):
        ColumnStore.open(folder)


def test_no_store_is_refused(tmp_path: Path) -> None:
    assert not is_store(tmp_path)
    with pytest.raises(DatasetError, match="is not a folder"):
        ColumnStore.open(tmp_path / "missing")
    with pytest.raises(DatasetError, match="never finished"):
        open_manifest(tmp_path)
    with pytest.raises(DatasetError, match="no backend 'lmdb'"):
        GraphWriter(tmp_path / "store", "lmdb")


LOOP = """
import sys
from pygsage import DatasetError, to_on_disk_dataset
from torch_geometric.data import Data
import torch
graphs = [Data(x=torch.ones(2, 1), edge_index=torch.zeros(2, 1).long()) for _ in range(5)]
for _ in range(60):
    try:
        to_on_disk_dataset(graphs, sys.argv[1], overwrite=True)
    except DatasetError as error:
        assert "another process" in str(error), error
"""


def test_two_jobs_that_write_one_store_leave_it_whole(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    jobs = [subprocess.Popen([sys.executable, "-c", LOOP, str(folder)], stderr=subprocess.PIPE) for _ in range(2)]
    errors = [job.communicate(timeout=100)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], errors
    assert len(ColumnStore.open(folder).get(4).x) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_link_is_replaced_where_it_leads(tmp_path: Path) -> None:
    graphs = [Data(x=torch.ones(n, 1), edge_index=torch.zeros(2, 1).long()) for n in (1, 2)]
    to_on_disk_dataset(graphs[:1], tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    to_on_disk_dataset(graphs, tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert ColumnStore.open(tmp_path / "real").num_graphs == 2
    with pytest.raises(DatasetError, match="expected the name of a new folder"):
        to_on_disk_dataset(graphs, "/")
