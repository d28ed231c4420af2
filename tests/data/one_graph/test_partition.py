"""Splitting the features of a graph over machines."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pygsage.data.one_graph.csc import build_csc
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.mapped import open_stores
from pygsage.data.one_graph.partition import partition_graph, share_both_ways
from pygsage.data.one_graph.parts import parts_text
from pygsage.errors import DatasetError, EnvironmentLimitError
from pygsage.memory.machine import read_machine
from pygsage.memory.partition import PartitionConfig, metis_bytes

NUM_NODES = 400


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four groups of nodes, mixed up, with nine edges in ten inside, and most training nodes in one."""
    rng = np.random.default_rng(0)
    group = rng.permutation(NUM_NODES) % 4
    members = [np.flatnonzero(group == g) for g in range(4)]
    source = rng.integers(0, NUM_NODES, 4000)
    inside = np.asarray([members[group[s]][rng.integers(100)] for s in source])
    target = np.where(rng.random(4000) < 0.9, inside, rng.integers(0, NUM_NODES, 4000))
    indptr, indices, perm = build_csc(torch.from_numpy(np.stack([source, target])), NUM_NODES)
    train = np.concatenate([members[0][:60], members[1][:20], members[2][:10], members[3][:10]])
    graph = Graph(
        name="groups",
        indptr=indptr,
        indices=indices,
        edge_id=perm,
        x=torch.from_numpy(rng.normal(size=(NUM_NODES, 5)).astype(np.float32)),
        y=torch.from_numpy(group),
        splits={"train": torch.from_numpy(rng.permutation(train)), "val": torch.from_numpy(members[2][50:])},
        num_classes=4,
    )
    graph.save(tmp_path / "store")
    return tmp_path / "store"


def partitioned(store: Path, out: Path, parts: int = 2, method: str = "metis", **how: str) -> Graph:
    return partition_graph(PartitionConfig(str(store), str(out), parts, method=method, **how))  # type: ignore[arg-type]


@pytest.mark.parametrize(("parts", "method"), [(2, "metis"), (3, "metis"), (4, "range"), (1, "metis")])
def test_every_row_is_in_its_part_and_all_else_is_as_it_was(
    store: Path, tmp_path: Path, parts: int, method: str
) -> None:
    whole, split = Graph.open(store), partitioned(store, tmp_path / "out", parts, method)
    found = split.parts
    assert found is not None
    assert split.x.shape == whole.x.shape
    assert split.x.dtype == whole.x.dtype
    for name, array in whole.arrays().items():
        if name != "x":
            assert torch.equal(split.arrays()[name], array), name
    rows = np.concatenate([found.open(part) for part in range(parts)])
    np.testing.assert_array_equal(rows[found.place.numpy()], whole.x.numpy())
    out = np.empty((3, 5), np.float32)
    found.read(found.place[[7, 399, 0]].numpy().astype(np.int64), out, np.asarray([2, 0, 1]))
    np.testing.assert_array_equal(out[[2, 0, 1]], whole.x[[7, 399, 0]].numpy())
    part = found.of_nodes(torch.arange(NUM_NODES))
    for number in range(parts):  # within a part in the order of ids
        assert (np.diff(found.place.numpy()[part == number]) > 0).all()
    assert found.num_train == tuple(np.bincount(part[whole.splits["train"]], minlength=parts))
    target = np.repeat(np.arange(NUM_NODES), np.diff(whole.indptr))
    cut = float((part[whole.indices] != part[target]).mean())
    assert found.about == {"method": method, "seed": 0, "edge_cut": pytest.approx(cut)}
    if parts > 1:
        # A part may have a tenth more or less of the weight, of which the training nodes are two thirds.
        assert max(found.num_train) <= 1.2 * 100 / parts + 5
        assert cut < 0.35 if method == "metis" else cut > 0.6
    Graph.verify(tmp_path / "out")


@pytest.mark.parametrize("parts", [3, 7, 400])
def test_ranges_share_out_training_nodes_and_all_nodes_evenly(store: Path, tmp_path: Path, parts: int) -> None:
    graph = Graph.open(store).split_anew({"train": torch.arange(101)}, ())  # the first, as in many a dataset
    graph.save(tmp_path / "first")
    found = partitioned(tmp_path / "first", tmp_path / "out", parts, "range").parts
    assert found is not None
    for counts in (found.num_train, np.diff(found.begins)):
        assert max(counts) - min(counts) <= 1
    assert sum(found.num_train) == 101


@pytest.mark.parametrize(("target", "where"), [("store/out", "inside"), ("store/split/out", "inside"), (".", "around")])
def test_a_folder_inside_or_around_the_store_is_refused(store: Path, target: str, where: str) -> None:
    before = sorted(store.parent.rglob("*"))
    with pytest.raises(
        DatasetError, match=f"lies {where} .*store, which it is to be made from; .* such as .*store_new"
    ):
        partitioned(store, store.parent / target, method="range")
    assert sorted(store.parent.rglob("*")) == before


def test_many_parts_are_summed_up(store: Path, tmp_path: Path) -> None:
    few, many = (partitioned(store, tmp_path / f"{n}", n, "range").parts for n in (16, 17))
    assert few is not None
    assert many is not None
    assert len(parts_text(few.describe())) == 17
    said = parts_text(many.describe())
    assert said[1:] == [
        "  a part     23 to 24 nodes, 5 to 6 to train, 0.0 to 0.0 MiB",
        "             (--json lists each)",
    ]
    shutil.rmtree(tmp_path / "17" / "part-3")
    assert "MiB; 1 not here" in parts_text(many.describe())[1]


def test_what_is_in_common_is_linked_and_a_machine_needs_its_own_part_alone(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    partitioned(store, out)
    assert (out / "indices.npy").samefile(store / "indices.npy")
    shutil.rmtree(store)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(out, elsewhere, ignore=shutil.ignore_patterns("part-0"))
    Graph.verify(elsewhere)
    parts = Graph.open(elsewhere).parts
    assert parts is not None
    assert [parts.is_here(part) for part in range(2)] == [False, True]
    np.testing.assert_array_equal(parts.open(1), np.load(out / "part-1" / "x.npy"))
    with pytest.raises(DatasetError, match="has no part-0, one of its 2 parts; expected it on the machine"):
        parts.open(0)


@pytest.mark.parametrize("harm", ["flip", "cut", "lead out", "place", "sizes", "numbers"])
def test_damage_is_told(store: Path, tmp_path: Path, harm: str) -> None:
    out = tmp_path / "out"
    partitioned(store, out)
    file, manifest = out / "part-1" / "x.npy", json.loads((out / "manifest.json").read_text())
    content = file.read_bytes()
    if harm == "flip":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif harm == "cut":
        file.write_bytes(content[:-4])
    elif harm == "lead out":
        manifest["parts"][1]["x"]["file"] = "../../secret.npy"
    elif harm == "place":
        (out / "place.npy").unlink()
    elif harm == "sizes":
        manifest["parts"][1]["x"]["shape"][0] += 1
    else:
        manifest["parts"][1]["num_train"] += 1
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match="is damaged") as told:
        Graph.verify(out)
    assert f"pygsage partition {store} {out} --parts 2 --method metis" in told.value.advice
    assert "Error" not in str(told.value)


def test_a_graph_that_metis_cannot_hold_is_refused_with_the_figure(store: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLimitError, match=r"METIS would take about [\d.]+ MiB for 400 nodes") as refused:
        partitioned(store, tmp_path / "out", memory_limit="50MiB")
    assert refused.value.exit_status == 4
    assert "--method range" in refused.value.advice
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    partitioned(store, tmp_path / "out", method="range", memory_limit="50MiB")


def test_the_estimate_counts_edges_that_run_both_ways_once(store: Path) -> None:
    graph = Graph.open(store)
    assert share_both_ways(graph) < 0.5
    indptr, indices = graph.indptr, graph.indices.long()
    target = torch.repeat_interleave(indptr.diff())
    both = torch.stack([torch.cat([indices, target]), torch.cat([target, indices])])
    csc = build_csc(both, NUM_NODES)
    doubled = Graph("both", *csc, graph.x, graph.y, graph.splits, 4)
    assert share_both_ways(doubled) == 1.0
    assert metis_bytes(NUM_NODES, 8000, 1.0) == metis_bytes(NUM_NODES, 4000, 0.0)
    assert read_machine().memory_available_bytes != 0


def test_what_cannot_be_partitioned(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with pytest.raises(DatasetError, match="at least one for each of 401 parts"):
        partitioned(store, out, 401)
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(DatasetError, match="exists already and is not empty"):
        partitioned(store, out)
    (out / "mine").unlink()
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(EnvironmentLimitError, match="pymetis, which calls METIS, cannot be loaded") as refused:
        partitioned(store, out)
    assert refused.value.advice == "Type: pip install pymetis, or add --method range."
    assert not list(out.iterdir())
    partitioned(store, out, method="range")
    with pytest.raises(DatasetError, match="is in 2 parts already"):
        partitioned(out, tmp_path / "again", method="range")
    with pytest.raises(DatasetError, match="is in parts, which only pygsage train"):
        open_stores(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]
