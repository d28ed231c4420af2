"""What every dataset of many graphs promises, in memory and on disk; each backend's tests inherit these."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Subset
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Constant

from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.stored import StoredGraphs
from pygsage.errors import DatasetError


def assert_same(found: Any, expected: Any) -> None:
    """Compares two graphs or batches: keys, types, dtypes, shapes, values."""
    assert [store._key for store in found.stores] == [store._key for store in expected.stores]
    for ours, theirs in zip(found.stores, expected.stores, strict=True):
        assert list(ours.keys()) == list(theirs.keys())
        for key in ours:
            a, b = ours[key], theirs[key]
            assert type(a) is type(b), (key, a, b)
            if isinstance(a, Tensor):
                assert (a.dtype, a.shape) == (b.dtype, b.shape), (key, a, b)
                assert torch.equal(a.nan_to_num(7), b.nan_to_num(7)) if a.is_floating_point() else torch.equal(a, b)
            else:
                assert a == b or (a != a and b != b), (key, a, b)


def assert_same_batch(found: Any, expected: Any) -> None:
    """Compares two batches, and what PyG needs to take them apart."""
    assert_same(found, expected)
    assert found.num_graphs == expected.num_graphs
    for mine, theirs in ((found._slice_dict, expected._slice_dict), (found._inc_dict, expected._inc_dict)):
        flat, wanted = dict(_flat(mine)), dict(_flat(theirs))
        assert flat.keys() == wanted.keys()
        assert all((flat[k] is None and wanted[k] is None) or torch.equal(flat[k], wanted[k]) for k in flat)


def _flat(nested: dict[Any, Any], *path: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from _flat(value, *path, key)
        else:
            yield (*path, key), value


def edges(num_nodes: int, num_edges: int, generator: torch.Generator) -> Tensor:
    return torch.randint(max(num_nodes, 1), (2, num_edges), generator=generator)


@cache
def plain() -> list[Data]:
    """Every kind of value that a graph may have; graphs without edges, and of one node."""
    g = torch.Generator().manual_seed(0)
    graphs = []
    for i in range(24):
        n, e = (1, 0) if i == 5 else (i % 5 + 1, 0 if i == 7 else i % 4 * 3)
        graphs.append(
            Data(
                x=torch.randn(n, 3, generator=g),
                edge_index=edges(n, e, g) if e else torch.empty(2, 0, dtype=torch.int64),
                edge_attr=torch.randn(e, 2, generator=g).to(torch.bfloat16),
                y=torch.tensor([i % 3]),
                scalar=torch.tensor(i / 3),
                count=i - 3,
                weight=float("nan") if i == 4 else i / 7,
                flag=i % 2 == 0,
                name=f"grün {i}" if i else "",
                none=torch.zeros(n, 0),
                mask=torch.rand(n, generator=g) > 0.5,
                table=torch.randn(1, 2, 2, generator=g),
                tail=torch.arange(i % 3),
                half=torch.randn(n, generator=g).half(),
                pair_index=edges(n, 2, g),
            )
        )
    return graphs


@cache
def molecules() -> list[Data]:
    """As OGB's: whole numbers for features, several labels of which some are missing, an explicit num_nodes."""
    g = torch.Generator().manual_seed(1)
    graphs = []
    for i in range(40):
        n = i % 7 + 2
        y = torch.randint(2, (1, 12), generator=g).float()
        y[0, i % 12] = float("nan")
        x = torch.randint(9, (n, 9), generator=g)
        graphs.append(Data(edge_index=edges(n, 2 * n, g), edge_attr=torch.ones(2 * n, 3).long(), x=x, y=y, num_nodes=n))
    return graphs


@cache
def typed() -> list[HeteroData]:
    """Node and edge types; a node type of which only the number is known; graph attributes; types that vary in size."""
    g = torch.Generator().manual_seed(2)
    graphs = []
    for i in range(20):
        data, p, a = HeteroData(), i % 3 + 1, i % 4 + 2
        data.y = torch.tensor([i % 2])
        data.title = f"t{i}"
        data["paper"].x = torch.randn(p, 4, generator=g)
        data["paper"].y = torch.randint(3, (p,), generator=g)
        data["author"].num_nodes = a
        data["author", "writes", "paper"].edge_index = torch.stack(
            [torch.randint(a, (i % 5,), generator=g), torch.randint(p, (i % 5,), generator=g)]
        )
        data["author", "writes", "paper"].edge_attr = torch.randn(i % 5, 2, generator=g)
        data["paper", "cites", "paper"].edge_index = edges(p, 3, g)
        graphs.append(data)
    return graphs


SOURCES: dict[str, Callable[[Path], list[Any]]] = {
    "plain": lambda folder: plain(),
    "molecules": lambda folder: molecules(),
    "typed": lambda folder: typed(),
}


class ReadingContract:
    """The promises of a dataset that is read. A subclass says by which class, from which backend, and which graphs."""

    backend = "columnar"
    kind: type[Any]
    sources = SOURCES

    @pytest.fixture(params=SOURCES)
    def source(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def graphs(self, source: str, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
        folder = tmp_path_factory.getbasetemp() / "sources"
        folder.mkdir(exist_ok=True)
        return self.sources[source](folder)

    @pytest.fixture
    def store(self, source: str, graphs: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.getbasetemp() / f"store-{source}-{self.backend}"
        if not folder.exists():
            to_on_disk_dataset(graphs, folder, self.backend)
        return folder

    @pytest.fixture
    def dataset(self, store: Path) -> Any:
        return self.kind(store)

    def test_items_are_those_that_were_written(self, dataset: Any, graphs: list[Any]) -> None:
        assert isinstance(dataset, StoredGraphs)
        assert len(dataset) == len(graphs)
        for i in range(0, len(graphs), max(1, len(graphs) // 60)):
            assert_same(dataset[i], graphs[i])
        for idx in (-1, np.int64(3), torch.tensor(2)):
            assert_same(dataset[idx], graphs[int(idx)])
        assert len(list(dataset)) == len(graphs)

    def test_c065_subsets_have_their_own_graphs_by_every_way(self, dataset: Any, graphs: list[Any]) -> None:
        n = len(graphs)
        mask = torch.arange(n) % 3 == 1
        chosen = {
            "slice": (slice(8, 16), range(8, 16)),
            "stride": (slice(None, None, -2), range(n - 1, -1, -2)),
            "share": (slice(0.5, None), range(round(0.5 * n), n)),
            "mask": (mask, mask.nonzero().flatten().tolist()),
            "ids": ([5, 3, 5], [5, 3, 5]),
            "array": (np.array([1, 0]), [1, 0]),
            "tensor": (torch.tensor([2, -1]), [2, n - 1]),
        }
        for how, (idx, numbers) in chosen.items():
            subset, expected = dataset[idx], [graphs[i] for i in numbers]
            assert len(subset) == len(expected), how
            assert_same(subset[len(expected) - 1], expected[-1])
            for found, wanted in zip(subset.__getitems__([0, 1]), expected, strict=False):
                assert_same(found, wanted)
            assert_same_batch(subset.batch([1, 0]), Batch.from_data_list([expected[1], expected[0]]))
        assert_same(dataset[8:16][2:4][1], graphs[11])
        for batch in DataLoader(dataset[8:16], batch_size=8):
            assert_same_batch(batch, Batch.from_data_list(graphs[8:16]))
        for batch in DataLoader(Subset(dataset[8:16], [5, 2]), batch_size=2):
            assert_same_batch(batch, Batch.from_data_list([graphs[13], graphs[10]]))
        shuffled, perm = dataset.shuffle(return_perm=True)
        assert_same(shuffled[0], graphs[int(perm[0])])

    def test_c064_a_transform_is_applied_by_every_way(self, store: Path, graphs: list[Any]) -> None:
        dataset = self.kind(store, transform=mark)
        expected = [mark(copy.copy(graph)) for graph in graphs[:4]]
        assert_same(dataset[1], expected[1])
        assert_same(dataset.__getitems__([1])[0], expected[1])
        assert_same(dataset[1:2][0], expected[1])
        assert_same(Subset(dataset, [3, 1])[1], expected[1])
        if hasattr(dataset, "multi_get"):
            assert_same(dataset[1:].multi_get([2, 0])[1], expected[1])
        for loader in (DataLoader(dataset[:4], batch_size=4), dataset[:4].loader(4)):
            for batch in loader:
                assert_same_batch(batch, Batch.from_data_list(expected))

    def test_batches_are_pygs(self, dataset: Any, graphs: list[Any]) -> None:
        n = len(graphs)
        for ids in ([0], [3, 1, n - 1, 1], range(n - min(n, 150), n), torch.tensor([7, 5])):
            numbers = ids.tolist() if isinstance(ids, Tensor) else ids
            batch, expected = dataset.batch(ids), Batch.from_data_list([graphs[i] for i in numbers])
            assert_same_batch(batch, expected)
            if isinstance(graphs[0], HeteroData) and dataset._columns is not None:
                assert_same(batch.get_example(0), graphs[numbers[0]])  # where PyG's own raises KeyError (C022)
            elif not isinstance(graphs[0], HeteroData):
                assert_same(batch.get_example(0), expected.get_example(0))
        dataset, graphs = dataset[-100:], graphs[-100:]
        whole = list(dataset.loader(16))
        assert_same_batch(whole[-1], Batch.from_data_list(graphs[len(whole) * 16 - 16 :]))
        drawn = [batch.num_graphs for batch in dataset.loader(16, shuffle=True, drop_last=True)]
        assert drawn == [16] * (len(graphs) // 16)

    def test_c070_an_index_that_is_not_there_is_an_index_error(self, dataset: Any, graphs: list[Any]) -> None:
        n = len(graphs)
        for ask in (
            lambda: dataset.get(n),
            lambda: dataset.get(-1),
            lambda: dataset[n],
            lambda: dataset[-n - 1],
            lambda: dataset.__getitems__([0, 1, n]),
            lambda: dataset.batch([0, n]),
            lambda: dataset[:3][3],
        ):
            with pytest.raises(IndexError):
                ask()
        with pytest.raises(IndexError, match=f"there is no graph {n}; expected 0 to {n - 1}"):
            dataset.get(n)

    def test_an_item_that_is_changed_changes_nothing_else(self, dataset: Any, graphs: list[Any]) -> None:
        before = copy.deepcopy(graphs[3])
        for item in (dataset[3], dataset.batch([3])):
            for storage in item.stores:
                for value in storage.values():
                    if isinstance(value, Tensor):
                        value.zero_()
            item.stores[-1]["more"] = 1
        assert_same(dataset[3], before)
        assert_same(self.kind(dataset.store_path)[3], before)

    def test_it_is_pickled_as_a_path(self, dataset: Any, graphs: list[Any]) -> None:
        dataset[0]
        for shown in (dataset, dataset[2:9]):
            content = pickle.dumps(shown)
            assert len(content) < 1500
            again = pickle.loads(content)
            assert len(again) == len(shown)
            assert_same(again[1], shown[1])
        assert_same(copy.copy(dataset)[1], graphs[1])

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_forked_workers(self, dataset: Any, graphs: list[Any]) -> None:
        dataset, graphs = dataset[:24], graphs[:24]
        dataset[0]  # opened before
        for loader in (
            DataLoader(dataset, batch_size=7, num_workers=2, multiprocessing_context="fork"),
            dataset.loader(7, num_workers=2, multiprocessing_context="fork"),
        ):
            for number, batch in enumerate(loader):
                assert_same(batch, Batch.from_data_list(graphs[7 * number : 7 * number + 7]))

    @pytest.mark.filterwarnings("ignore:Found floating-point labels")
    def test_what_pyg_asks_of_a_dataset(self, dataset: Any, graphs: list[Any]) -> None:
        if isinstance(graphs[0], HeteroData):
            assert dataset.num_node_features == graphs[0].num_node_features
            return

        class Peer(InMemoryDataset):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(None)
                self.data, self.slices = self.collate(graphs)

        peer = Peer()
        assert dataset.num_features == peer.num_features
        assert dataset.num_edge_features == peer.num_edge_features
        assert dataset.num_classes == peer.num_classes

    def test_c051_a_subset_is_written_to_a_store_of_its_own(
        self, dataset: Any, graphs: list[Any], tmp_path: Path
    ) -> None:
        converted = dataset[3:6].to_on_disk_dataset(tmp_path / "part")
        assert len(converted) == 3
        assert_same(converted[2], graphs[5])
        with pytest.raises(TypeError, match="root"):
            dataset.to_on_disk_dataset()


class DatasetContract(ReadingContract):
    """Those, and the promises of a class that makes its graphs."""

    @pytest.fixture
    def made(self) -> type[Any]:
        class Made(self.kind):  # type: ignore[misc, name-defined]
            calls = 0

            def graphs(self) -> Iterator[Data]:
                type(self).calls += 1
                for i in range(12):
                    yield Data(x=torch.full((i + 1, 1), float(i)), y=torch.tensor([i]))

        return Made

    def options(self) -> dict[str, Any]:
        return {}

    def test_pre_filter_and_pre_transform_are_applied_once(self, made: type[Any], tmp_path: Path) -> None:
        for _ in range(2):
            dataset = made(tmp_path, pre_filter=is_odd, pre_transform=mark, **self.options())
            assert [int(data.y) for data in dataset] == [1, 3, 5, 7, 9, 11]
            assert dataset[2].marked == 1
        assert made.calls == 1
        assert not list(tmp_path.rglob("*.pt"))

    def test_c041_other_options_are_refused(self, made: type[Any], tmp_path: Path) -> None:
        made(tmp_path, pre_transform=Constant(2.0), **self.options())
        with pytest.raises(DatasetError, match=r"with pre_transform .*Constant.* now it is none.*force_reload"):
            made(tmp_path, **self.options())
        with pytest.raises(DatasetError, match="pre_transform"):
            made(tmp_path, pre_transform=Constant(3.0), **self.options())
        with pytest.raises(DatasetError, match="pre_filter"):
            made(tmp_path, pre_transform=Constant(2.0), pre_filter=is_odd, **self.options())
        assert made.calls == 1
        dataset = made(tmp_path, force_reload=True, **self.options())
        assert (made.calls, dataset[0].x.shape) == (2, (1, 1))
        made(tmp_path, **self.options())
        assert made.calls == 2

    def test_c024_a_filter_that_leaves_nothing(self, made: type[Any], tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match=r"There are no graphs left; .*pre_filter"):
            made(tmp_path, pre_filter=lambda data: False, **self.options())

    def test_c052_what_was_interrupted_is_gone_on_with(self, made: type[Any], tmp_path: Path) -> None:
        class Failing(made):  # type: ignore[misc]
            fail = True

            def graphs(self) -> Iterator[Data]:
                for number, data in enumerate(super().graphs()):
                    if self.fail and number == 7:
                        raise RuntimeError("pulled the plug")
                    yield data

        with pytest.raises(RuntimeError, match="pulled the plug"):
            Failing(tmp_path, **self.options())
        with pytest.raises(DatasetError, match="holds no store"):
            self.kind(tmp_path / "processed" / f"graphs-{self.backend}")
        Failing.fail = False
        assert [int(data.y) for data in Failing(tmp_path, **self.options())] == list(range(12))

    def test_c058_a_class_of_another_name_reads_the_same(self, made: type[Any], tmp_path: Path) -> None:
        made(tmp_path, **self.options())
        renamed = type("Renamed", (made,), {})
        assert len(renamed(tmp_path, **self.options())) == 12
        assert made.calls == 1

    def test_of_several_that_need_it_one_makes_it(self, made: type[Any], tmp_path: Path) -> None:
        with ThreadPoolExecutor(3) as pool:
            datasets = list(pool.map(lambda _: made(tmp_path, **self.options()), range(3)))
        assert [len(dataset) for dataset in datasets] == [12, 12, 12]
        assert made.calls == 1

    def test_no_store_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="holds no store of graphs"):
            self.kind(tmp_path)


def mark(data: Any) -> Any:
    data.marked = 1
    return data


def is_odd(data: Any) -> bool:
    return int(data.y) % 2 == 1
