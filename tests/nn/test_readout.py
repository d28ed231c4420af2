from __future__ import annotations

import pytest
import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

from pygsage.data.one_graph.csc import build_csc
from pygsage.errors import ConfigError
from pygsage.nn.readout import CategoryEmbedding, GraphClassifier, read_out

POOLS = {"mean": global_mean_pool, "sum": global_add_pool, "max": global_max_pool}


def _graphs() -> list[Data]:
    """Of 3 to 9 nodes, one of a single node, one without edges."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for num_nodes, num_edges in ((5, 12), (1, 0), (9, 30), (3, 0), (4, 6)):
        edges = torch.randint(num_nodes, (2, num_edges), generator=generator)
        made.append(Data(x=torch.randn(num_nodes, 6, generator=generator), edge_index=edges))
    return made


def _inputs(batch: Data) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    indptr, indices, _ = build_csc(batch.edge_index, batch.num_nodes)
    return batch.x, indptr, indices.long(), batch.ptr, torch.arange(batch.num_nodes)


@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
def test_readouts_are_pygs(readout: str) -> None:
    batch = Batch.from_data_list(_graphs())
    ours = read_out(batch.x, batch.ptr, readout)
    torch.testing.assert_close(ours, POOLS[readout](batch.x, batch.batch))


@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
@pytest.mark.parametrize("ptr", [[0, 0, 3, 3, 5, 5], [0, 0], [0]])
def test_c032_graphs_without_nodes_are_zero_and_have_a_gradient(readout: str, ptr: list[int]) -> None:
    x = torch.randn(ptr[-1], 4, requires_grad=True)
    out = read_out(x, torch.tensor(ptr), readout)
    assert out.shape == (len(ptr) - 1, 4)
    sizes = torch.tensor(ptr).diff()
    assert (out[sizes == 0] == 0).all()
    out.sum().backward()
    assert torch.isfinite(x.grad).all()  # type: ignore[arg-type]


def test_max_of_negative_rows_is_negative() -> None:
    assert read_out(-torch.ones(3, 2), torch.tensor([0, 1, 3]), "max").eq(-1).all()


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
def test_the_whole_is_pygs_graphsage_a_pool_and_a_linear_map(norm: str, readout: str) -> None:
    model = GraphClassifier(6, 8, 3, 2, readout, dropout=0.5, norm=norm)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand_like(tensor) + 0.1)
    theirs = torch_geometric.nn.GraphSAGE(6, 8, 3, 8, dropout=0.5, **({} if norm == "none" else {"norm": norm}))
    theirs.load_state_dict(model.body.state_dict())
    batch = Batch.from_data_list(_graphs())
    model.eval()
    hidden = model.last_norm(theirs.eval()(batch.x, batch.edge_index)).relu()
    expected = POOLS[readout](hidden, batch.batch) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(*_inputs(batch)), expected)
    torch.testing.assert_close(model(*_inputs(batch), embeddings=True), POOLS[readout](hidden, batch.batch))


def test_a_graph_has_the_same_output_and_dropout_in_any_company() -> None:
    model = GraphClassifier(6, 8, 2, 2, dropout=0.5)
    graphs = _graphs()
    x, indptr, indices, ptr, n_id = _inputs(Batch.from_data_list(graphs))
    together = model(x, indptr, indices, ptr, n_id + 100, 7)
    first = 100
    for number, graph in enumerate(graphs):
        alone = _inputs(Batch.from_data_list([graph]))
        torch.testing.assert_close(model(*alone[:4], alone[4] + first, 7)[0], together[number])
        first += graph.num_nodes
    assert not torch.allclose(together, model(x, indptr, indices, ptr, n_id, 7))


def test_no_graphs_give_no_rows_and_zero_gradients() -> None:
    model = GraphClassifier(0, 8, 2, 3, table_sizes=(4, 2), norm="batch")
    nothing = torch.zeros(1, dtype=torch.int64)
    out = model(torch.empty(0, 2, dtype=torch.int64), nothing, nothing[:0], nothing, nothing[:0], 1)
    assert out.shape == (0, 3)
    out.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_embeddings_are_sums_of_a_table_a_column() -> None:
    embedding = CategoryEmbedding((3, 1, 5), 4)
    x = torch.tensor([[0, 0, 4], [2, 0, 0], [2, 0, 4]])
    tables = embedding.weight.detach().split([3, 1, 5])
    expected = sum(table[x[:, column]] for column, table in enumerate(tables))
    torch.testing.assert_close(embedding(x).detach(), expected)
    (embedding(x) * torch.arange(1.0, 4)[:, None]).sum().backward()
    counts = torch.tensor([1.0, 0, 5, 6, 2, 0, 0, 0, 4])
    torch.testing.assert_close(embedding.weight.grad, counts[:, None].expand(-1, 4))


def test_an_unknown_readout_is_refused() -> None:
    with pytest.raises(ConfigError, match="readout is 'median'; expected one of mean, sum, max"):
        GraphClassifier(2, 2, 2, 2, "median")
