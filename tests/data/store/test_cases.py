"""Cases from the field, by every way that graphs are written and read: what is refused, and what comes back."""

from __future__ import annotations

import pickle
import shutil
import weakref
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData

from pygsage.data.recipe import Recipe
from pygsage.data.store import database
from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.in_memory import InMemoryGraphs
from pygsage.data.store.on_disk import OnDiskGraphs
from pygsage.errors import DatasetError
from tests.data.dataset_contract import assert_same

BACKENDS = ["columnar", "sqlite", *(["rocksdb"] if find_spec("rocksdict") else [])]
ones = torch.ones(3, 1)


def graph(n: int = 3, e: int = 5, **more: Any) -> Data:
    return Data(x=torch.ones(n, 2), edge_index=torch.zeros(2, e, dtype=torch.int64), **more)


def refused(folder: Path, graphs: list[Any], said: str) -> None:
    """By every backend, by a class that makes them in memory, and by PyG's own `save`; nothing is there to be read."""

    class Made(InMemoryGraphs):
        def graphs(self) -> Iterator[Any]:
            yield from graphs

    for backend in BACKENDS:
        with pytest.raises(DatasetError, match=said):
            to_on_disk_dataset(iter(graphs), folder / backend, backend)
    with pytest.raises(DatasetError, match=said):
        Made(folder / "made")
    with pytest.raises(DatasetError, match=said):
        InMemoryGraphs.save(graphs, str(folder / "saved"))
    for path in (*(folder / backend for backend in BACKENDS), folder / "saved", folder / "made/processed"):
        assert not list(path.rglob("manifest.json"))
        assert path.name == "processed" or not path.exists()


def kept(folder: Path, graphs: list[Any], expected: list[Any] | None = None, **options: Any) -> None:
    """From every backend and from memory, by the dataset that was returned and by the path alone; alone and batched."""
    expected = graphs if expected is None else expected
    for backend in BACKENDS:
        datasets: list[Any] = [to_on_disk_dataset(graphs, folder / backend, backend, **options)]
        datasets.append(OnDiskGraphs(folder / backend))
        if backend == "columnar":
            datasets.append(InMemoryGraphs(folder / backend))
        for dataset in datasets:
            assert len(dataset) == len(expected)
            for found, wanted in zip(dataset, expected, strict=True):
                assert_same(found, wanted)
            assert_same(dataset.batch([1, 0]), Batch.from_data_list([dataset[1], dataset[0]]))


# Four graphs, so that the last of them meets the writer when it knows what to expect.
@pytest.mark.parametrize(
    ("graphs", "said"),
    [
        ([graph(), graph(), graph(), graph(z=ones)], "Graph 3 has z, which no graph before has"),
        ([graph(z=ones), graph()], "Graph 1 has no z, which graphs before have"),
        ([graph(z=ones), graph(z=ones), graph(z=ones), graph()], "Graph 3 has no z"),
    ],
)
def test_c016_an_attribute_of_some_graphs_is_refused(graphs: list[Data], said: str, tmp_path: Path) -> None:
    refused(tmp_path, graphs, said)


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0], [2, 1, 0]])
def test_c016_c049_what_a_batch_has_does_not_depend_on_its_first_graph(order: list[int], tmp_path: Path) -> None:
    """Node and edge types that some graphs lack; PyG's own batch keeps the first graph's of all."""
    first, second, third = HeteroData(), HeteroData(), HeteroData()
    for data in (first, second, third):
        data["a"].x = torch.ones(2, 1)
    second["a", "to", "a"].edge_index = torch.tensor([[0, 1], [1, 0]])
    second["a", "to", "a"].edge_attr = torch.ones(2, 3)
    third["b"].num_nodes = 3
    third["c"].x = torch.ones(1, 4)
    third["c", "of", "a"].edge_index = torch.tensor([[0], [1]])
    graphs = [first, second, third]
    for backend in BACKENDS:
        dataset: Any = to_on_disk_dataset(graphs, tmp_path / backend, backend)
        for found, wanted in zip(dataset, graphs, strict=True):
            assert_same(found, wanted)
        datasets = [dataset, OnDiskGraphs(tmp_path / backend, transform=lambda data: data)]
        datasets += [InMemoryGraphs(tmp_path / backend)] if backend == "columnar" else []
        for dataset in datasets:
            for batch in (dataset.batch(order), next(iter(dataset[order].loader(3)))):
                assert {store._key for store in batch.stores} == {
                    None, "a", "b", "c", ("a", "to", "a"), ("c", "of", "a"),
                }  # fmt: skip
                at = {number: place for place, number in enumerate(order)}
                assert torch.equal(batch["a", "to", "a"].edge_index, second["a", "to", "a"].edge_index + 2 * at[1])
                assert batch["a", "to", "a"].edge_attr.shape == (2, 3)
                assert batch["c", "of", "a"].edge_index.tolist() == [[0], [1 + 2 * at[2]]]
                assert batch["c"].batch.tolist() == [at[2]]
                assert batch["b"].num_nodes == 3
                assert batch["a"].x.shape == (6, 1)


def test_c017_an_attribute_that_is_none_at_first_is_never_dropped(tmp_path: Path) -> None:
    graphs = [Data(x=ones, z=None), Data(x=ones, z=None), Data(x=ones, z=torch.ones(2))]
    refused(tmp_path / "refused", graphs[1:], r"Graph 1 has z, .*\(None counts as missing\)")
    kept(tmp_path, graphs, [Data(x=ones), Data(x=ones), graphs[2]], missing="keep")


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
@pytest.mark.parametrize("num_before", [1, 3])
def test_c019_features_of_another_dtype_promote_no_others(dtype: torch.dtype, num_before: int, tmp_path: Path) -> None:
    graphs = [Data(x=ones) for _ in range(num_before)]
    name = str(dtype).removeprefix("torch.")
    refused(tmp_path, [*graphs, Data(x=ones.to(dtype))], f"Graph {num_before}: x is {name}; expected float32")


@pytest.mark.parametrize("place", [0, 1, 3])
def test_c020_float_edges_of_a_graph_without_any_round_no_id(place: int, tmp_path: Path) -> None:
    large = Data(edge_index=torch.tensor([[2**24 + 1], [2**24 + 3]]), num_nodes=2**24 + 4)
    graphs = [large.clone() for _ in range(3)]
    graphs.insert(place, Data(edge_index=torch.empty(2, 0), num_nodes=1))
    expected = [Data(edge_index=data.edge_index.long(), num_nodes=data.num_nodes) for data in graphs]
    kept(tmp_path, graphs, expected)


@pytest.mark.parametrize("y", [torch.tensor(1), torch.tensor(2.5), torch.tensor(True), 1, 2.5, True])
def test_c021_a_label_without_dimensions_keeps_its_kind(y: Any, tmp_path: Path) -> None:
    kept(tmp_path, [Data(x=ones, y=y) for _ in range(3)])


def test_c021_numbers_of_two_kinds_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, [graph(y=1), graph(y=1), graph(y=2), graph(y=2.5)], "Graph 3: y is a float; expected int")


def test_c022_a_node_type_with_only_its_number_is_read_back(tmp_path: Path) -> None:
    graphs = []
    for num in (4, 2):
        data = HeteroData()
        data["a"].x = torch.ones(num, 1)
        data["b"].num_nodes = num + 1
        data["a", "to", "b"].edge_index = torch.tensor([[num - 1], [num]])
        graphs.append(data)
    kept(tmp_path, graphs)


def test_c023_graphs_of_only_a_number_of_nodes_are_counted(tmp_path: Path) -> None:
    kept(tmp_path, [Data(num_nodes=3), Data(num_nodes=5)])


def test_c024_no_graph_at_all_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, [], "There are no graphs left")


@pytest.mark.parametrize(
    ("graphs", "said"),
    [
        ([graph(items=[])], "Graph 0: items is a list of 0; expected a tensor, str, int"),
        ([graph(items=[1, 2]), graph(items=[3])], "Graph 0: items is a list of 2"),
        ([graph(), graph(), graph(), graph(items=[3])], "Graph 3: items is a list of 1|Graph 3 has items"),
        ([graph(z=ones), graph(z=ones), graph(z=ones), graph(z=[3])], "Graph 3: z is a list"),
        ([graph(other=graph())], "Graph 0: other is a Data; expected a tensor"),
    ],
)
def test_c026_lists_and_pairs_are_refused(graphs: list[Data], said: str, tmp_path: Path) -> None:
    refused(tmp_path, graphs, said)


@pytest.mark.filterwarnings("ignore:.*has a name with 'index'")
@pytest.mark.parametrize("num_before", [1, 3])
def test_c027_an_index_of_another_length_is_refused(num_before: int, tmp_path: Path) -> None:
    graphs = [graph(user_index=torch.zeros(3, 2)) for _ in range(num_before)]
    said = rf"Graph {num_before}: user_index has shape \[2, 2\]; expected \[3, \*\].*rename it"
    refused(tmp_path, [*graphs, graph(user_index=torch.zeros(2, 2))], said)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_c028_a_sparse_adjacency_is_refused(tmp_path: Path) -> None:
    class SparseTensor:  # as torch-sparse's, which need not be installed
        pass

    refused(tmp_path / "0", [graph(adj=torch.eye(3).to_sparse())], "Graph 0: adj is a sparse tensor; .*edge_index")
    refused(tmp_path / "1", [graph(adj=torch.eye(3).to_sparse_csr())], "Graph 0: adj is a sparse tensor")
    refused(tmp_path / "2", [graph(adj_t=SparseTensor())], "Graph 0: adj_t is a SparseTensor")
    dense = [graph(adj=torch.eye(3)) for _ in range(3)]
    refused(tmp_path / "3", [*dense, graph(adj=torch.eye(3).to_sparse())], "Graph 3: adj is a sparse tensor")


@pytest.mark.parametrize("sizes", [(3, 3), (3, 7), (3, 3, 3, 6)])
def test_c029_several_labels_of_a_graph_need_an_axis_for_it(sizes: tuple[int, ...], tmp_path: Path) -> None:
    graphs = [graph(n, 5, y=torch.ones(4)) for n in sizes]
    refused(tmp_path / "refused", graphs, r"Graph \d: y has shape \[4\], which is neither one label.*y\.unsqueeze\(0\)")
    graphs = [graph(n, 5, y=torch.ones(1, 4)) for n in sizes]
    kept(tmp_path, graphs)
    assert OnDiskGraphs(tmp_path / "columnar").batch([0, 1]).y.shape == (2, 4)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_c051_two_splits_of_one_root_are_not_taken_for_each_other(backend: str | None, tmp_path: Path) -> None:
    """Train of 3 and then test of 1 with the same root: the second must not read the first."""
    kind: type[Any] = OnDiskGraphs if backend else InMemoryGraphs
    options = {"backend": backend} if backend else {}

    class Split(kind):  # type: ignore[misc, valid-type]
        def __init__(self, root: Path, split: str, **more: Any) -> None:
            self.split, self.folder, self.ratio = split, root / split, 0.5
            super().__init__(root, **options, **more)

        def graphs(self) -> Iterator[Data]:
            for number in range({"train": 3, "test": 1}[self.split]):
                yield Data(x=torch.full((1, 1), float(number)))

    assert len(Split(tmp_path / "a", "train")) == 3
    with pytest.raises(DatasetError, match=r"with self.folder 'ROOT/train'; now it is 'ROOT/test'.*another root"):
        Split(tmp_path / "a", "test")
    shutil.move(tmp_path / "a", tmp_path / "b")  # the same, elsewhere
    assert len(Split(tmp_path / "b", "train")) == 3
    assert len(Split(tmp_path / "b", "test", force_reload=True)) == 1


@pytest.mark.parametrize("num_before", [1, 3])
def test_c055_narrow_ids_are_widened_and_wide_ones_never_cut(num_before: int, tmp_path: Path) -> None:
    wide = [Data(x=ones, edge_index=torch.tensor([[0, 1], [1, 2]])) for _ in range(num_before)]
    narrow = [Data(x=ones, edge_index=torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)) for _ in range(num_before)]
    kept(tmp_path, [*wide, narrow[0]], [*wide, Data(x=ones, edge_index=torch.tensor([[0, 1], [1, 0]]))])
    beyond = Data(edge_index=torch.tensor([[0], [2**40]]), x=ones)
    refused(tmp_path / "refused", [*narrow, beyond], f"Graph {num_before}: edge_index has ids up to 1099511627776")


def test_c056_an_attribute_of_later_graphs_is_refused(tmp_path: Path) -> None:
    graphs = [*(Data(x=ones) for _ in range(3)), Data(x=ones, y=torch.tensor([1]))]
    refused(tmp_path / "refused", graphs, "Graph 3 has y, which no graph before has.*missing='keep'")
    kept(tmp_path, graphs, missing="keep")


@pytest.mark.parametrize("backend", BACKENDS)
def test_c057_a_schema_never_changes_once_it_is_written(backend: str, tmp_path: Path) -> None:
    graphs = [Data(x=torch.arange(6.0).reshape(2, 3) + i, object=f"{i}") for i in range(3)]
    dataset = to_on_disk_dataset(graphs, tmp_path / "store", backend)
    told, schema = (tmp_path / "store/manifest.json").read_bytes(), pickle.dumps(dataset.schema)
    for _ in range(2):  # in the process that wrote it, then opened again
        for found, expected in zip(dataset, graphs, strict=True):
            assert_same(found, expected)
        assert pickle.dumps(dataset.schema) == schema
        dataset = pickle.loads(pickle.dumps(OnDiskGraphs(tmp_path / "store")))
    assert (tmp_path / "store/manifest.json").read_bytes() == told


def test_c060_unusual_values_come_back_or_are_refused(tmp_path: Path) -> None:
    half = ones.to(torch.bfloat16)
    kept(tmp_path / "kept", [Data(x=torch.ones(3, 0), z=half), Data(x=torch.ones(2, 0), z=half * 2)])
    with pytest.warns(UserWarning, match="x is kept without its gradient"):
        dataset = to_on_disk_dataset([Data(x=ones.clone().requires_grad_())], tmp_path / "grad")
    assert_same(dataset[0], Data(x=ones))
    assert not dataset[0].x.requires_grad
    refused(tmp_path / "0", [graph(y=2**64)], "Graph 0: y is 18446744073709551616; expected an int of 64 bits")
    refused(tmp_path / "3", [graph(y=1), graph(y=-(2**63)), graph(y=2**63 - 1), graph(y=2**63)], "Graph 3: y is 922")
    kept(tmp_path / "limits", [Data(x=ones, y=2**63 - 1), Data(x=ones, y=-(2**63))])


@pytest.mark.parametrize(("key", "value"), [("s", "a"), ("k", 3), ("w", 0.5)])
def test_c061_a_plain_value_that_is_none_later_is_refused_or_kept_so(key: str, value: Any, tmp_path: Path) -> None:
    graphs = [Data(x=ones, **{key: value}) for _ in range(3)]
    refused(tmp_path / "refused", [*graphs, Data(x=ones, **{key: None})], f"Graph 3 has no {key}")
    kept(tmp_path, [*graphs, Data(x=ones, **{key: None})], [*graphs, Data(x=ones)], missing="keep")
    kept(tmp_path / "nan", [Data(x=ones, w=float("nan")), Data(x=ones, w=float("inf"))])  # a value, not a missing one


@pytest.mark.parametrize("backend", BACKENDS)
def test_c062_one_graph_is_held_at_a_time(backend: str, tmp_path: Path) -> None:
    alive: weakref.WeakSet[Data] = weakref.WeakSet()
    most = 0

    class Counted(Data):  # type: ignore[misc]
        __hash__ = object.__hash__

    def made() -> Iterator[Data]:
        nonlocal most
        for number in range(150):
            data = Counted(x=torch.full((2, 1), float(number)))
            alive.add(data)
            most = max(most, len(alive))
            yield data

    class Mine(Recipe):
        num_graphs = 150

        def graphs(self) -> Iterator[Data]:
            yield from made()

    class Listed(torch.utils.data.Dataset[Data]):
        def __len__(self) -> int:
            return 150

        def __getitem__(self, number: int) -> Data:
            data = next(made())
            return data.update({"x": torch.full((2, 1), float(number))})  # type: ignore[no-any-return]

    for name, source in (("iterator", made()), ("recipe", Mine(tmp_path)), ("dataset", Listed())):
        most = 0
        assert len(to_on_disk_dataset(source, tmp_path / name, backend)) == 150
        assert 0 < most <= 3, name


def test_c069_opening_a_database_on_a_network_file_system_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_on_disk_dataset([graph(), graph()], tmp_path / "store", "sqlite")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nhost:/x {tmp_path.resolve()} nfs rw 0 0\n")
    real = database.warn_of_network
    monkeypatch.setattr(database, "warn_of_network", lambda folder: real(folder, mounts))
    dataset = OnDiskGraphs(tmp_path / "store")
    with pytest.warns(UserWarning, match=r"network file system \(nfs\).*copy the folder to a local disk"):
        assert_same(dataset[0], graph())
    assert_same(dataset[1], graph())  # once is enough: a warning here is an error


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_c045_opening_and_one_graph_read_no_more_of_a_larger_store(backend: str, tmp_path: Path) -> None:
    costs = []
    for num in (20, 3000):
        folder = tmp_path / f"{num}"
        to_on_disk_dataset([Data(x=torch.ones(i % 2 + 1, 8)) for i in range(num)], folder, backend)
        before = bytes_read()
        dataset = OnDiskGraphs(folder)
        assert len(dataset[num - 1].x) == 2
        costs.append(bytes_read() - before)
    assert costs[1] < costs[0] + (64 << 10) < (tmp_path / "3000").stat().st_size + (256 << 10)
