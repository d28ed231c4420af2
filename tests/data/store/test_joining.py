"""Some graphs of a store as plain tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from pygsage import NeighborLoader
from pygsage.data.store.column_store import ColumnStore
from pygsage.data.store.convert import to_on_disk_dataset
from pygsage.data.store.joining import JoinedGraphs
from pygsage.errors import DatasetError
from tests.data.dataset_contract import molecules, plain, typed


def store_of(graphs: list[Any], folder: Path, **options: Any) -> ColumnStore:
    to_on_disk_dataset(graphs, folder, **options)
    return ColumnStore.open(folder)


@pytest.mark.parametrize("graphs", [plain, molecules])
def test_its_tensors_are_those_of_a_batch(graphs: Any, tmp_path: Path) -> None:
    store = store_of(graphs(), tmp_path / "store")
    ids = [3, 0, 7, 3]
    joined, batch = JoinedGraphs(store, ids), Batch.from_data_list([graphs()[i] for i in ids])
    for key in ("x", "edge_index", "edge_attr", "y"):
        assert torch.equal(joined.tensor(key).nan_to_num(7), batch[key].nan_to_num(7))
    assert joined.node_pointer().tolist() == batch.ptr.tolist()
    assert joined.num_nodes().tolist() == batch.ptr.diff().tolist()
    assert joined.pointer("edge_index").tolist() == batch._slice_dict["edge_index"].tolist()
    assert len(joined) == 4
    joined.tensor("x").zero_()
    assert torch.equal(JoinedGraphs(store, ids).tensor("x"), batch.x)


def test_types_of_nodes_and_edges(tmp_path: Path) -> None:
    store = store_of(typed(), tmp_path / "store")
    joined, batch = JoinedGraphs(store, np.array([4, 2])), Batch.from_data_list([typed()[4], typed()[2]])
    writes = ("author", "writes", "paper")
    assert torch.equal(joined.tensor("edge_index", writes), batch[writes].edge_index)
    assert joined.node_pointer("author").tolist() == [0, 2, 6]
    assert torch.equal(joined.tensor("x", "paper"), batch["paper"].x)


def test_what_is_not_there(tmp_path: Path) -> None:
    graphs = [Data(x=torch.ones(2, 1)), Data(x=torch.ones(1, 1), z=torch.ones(1, 2), s="a")]
    store = store_of(graphs, tmp_path / "store", missing="keep")
    with pytest.raises(DatasetError, match=r"The graphs \[0\] … have no z"):
        JoinedGraphs(store, [0]).tensor("z")
    with pytest.raises(DatasetError, match="Graph 0 has no z, which others of its batch have"):
        JoinedGraphs(store, [1, 0]).tensor("z")
    for key in ("nonsense", "s"):
        with pytest.raises(KeyError):
            JoinedGraphs(store, [1]).tensor(key)
    for ids in ([2], [0, -1]):
        with pytest.raises(IndexError, match="there is no graph"):
            JoinedGraphs(store, ids)
    with pytest.raises(DatasetError, match="A batch of no graphs"):
        JoinedGraphs(store, [])


def test_c087_many_graphs_with_masks_are_one_for_a_neighbour_loader(tmp_path: Path) -> None:
    graphs = []
    for number, train in enumerate(([0, 2], [], [1])):
        mask = torch.zeros(4, dtype=torch.bool)
        mask[train] = True
        ring = torch.stack([torch.arange(4), (torch.arange(4) + 1) % 4])
        graphs.append(Data(x=torch.full((4, 1), float(number)), edge_index=ring, train_mask=mask))
    joined = JoinedGraphs(store_of(graphs, tmp_path / "store"), [0, 1, 2])
    data = Data(**{key: joined.tensor(key) for key in ("x", "edge_index", "train_mask")})
    assert data.train_mask.nonzero().flatten().tolist() == [0, 2, 9]
    seen = []
    for batch in NeighborLoader(data, [2], input_nodes=data.train_mask, batch_size=1):
        seen.append(int(batch.n_id[0]))
        assert len(batch.x.unique()) == 1  # neighbours are of the seed's own graph
        assert batch.num_nodes == 2
    assert seen == [0, 2, 9]
