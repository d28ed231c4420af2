from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor

from pygsage.errors import ConfigError
from pygsage.nn.join import aggregate
from pygsage.nn.sage import GraphSAGE
from pygsage.sampling.keys import stream_of
from pygsage.sampling.sample import Block

STREAM = stream_of(0, 0, 5)
AGGRS = ("mean", "sum", "max")


def random_graph(num_nodes: int, most: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A CSC graph whose nodes have from 0 to `most` in-neighbours."""
    generator = torch.Generator().manual_seed(seed)
    degree = torch.randint(0, most + 1, (num_nodes,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return indptr, torch.randint(0, num_nodes, (int(indptr[-1]),), generator=generator)


def edges_of(indptr: Tensor, indices: Tensor) -> Tensor:
    targets = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    return torch.stack([indices, targets])


def sample(indptr: Tensor, indices: Tensor, seeds: Tensor, fanout: int, num_layers: int) -> tuple[Tensor, list[Block]]:
    """Layered blocks of each node's first neighbours, and the global ids of their rows."""
    nodes, blocks = seeds, []
    for _ in range(num_layers):
        degree = indptr[nodes + 1] - indptr[nodes]
        if fanout >= 0:
            degree = degree.clamp(max=fanout)
        ends = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
        positions = torch.repeat_interleave(indptr[nodes] - ends[:-1], degree) + torch.arange(int(ends[-1]))
        neighbours = indices[positions]
        row = torch.full((len(indptr) - 1,), -1)
        row[nodes] = torch.arange(len(nodes))
        new = neighbours[row[neighbours] < 0].unique()
        row[new] = len(nodes) + torch.arange(len(new))
        nodes = torch.cat([nodes, new])
        blocks.insert(0, Block(ends, row[neighbours]))
    return nodes, blocks


def test_the_aggregate_by_hand() -> None:
    x = torch.tensor([[1.0, -5.0], [3.0, -1.0], [7.0, 0.25]])
    indptr, indices = torch.tensor([0, 2, 2, 6]), torch.tensor([0, 1, 1, 2, 2, 1])
    assert aggregate(x, indptr, indices, "mean").tolist() == [[2.0, -3.0], [0.0, 0.0], [5.0, -0.375]]
    assert aggregate(x, indptr, indices, "sum").tolist() == [[4.0, -6.0], [0.0, 0.0], [20.0, -1.5]]
    assert aggregate(x, indptr, indices, "max").tolist() == [[3.0, -1.0], [0.0, 0.0], [7.0, 0.25]]


@pytest.mark.parametrize("aggr", AGGRS)
@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_blocks_of_all_neighbours_give_the_full_batch_output_of_pyg(aggr: str, norm: str, num_layers: int) -> None:
    torch.manual_seed(0)
    model = GraphSAGE(7, 16, num_layers, 4, aggr=aggr, norm=norm).eval()
    norm_args: dict[str, Any] = {} if norm == "none" else {"norm": norm}
    if norm == "layer":
        norm_args["norm_kwargs"] = {"mode": "node"}
    theirs = torch_geometric.nn.GraphSAGE(7, 16, num_layers, 4, aggr=aggr, **norm_args).eval()
    theirs.load_state_dict(model.state_dict())
    assert list(model.state_dict()) == list(theirs.state_dict())
    indptr, indices = random_graph(200, 6)
    x = torch.randn(200, 7)
    n_id, blocks = sample(indptr, indices, torch.tensor([5, 199, 0, 17]), -1, num_layers)
    expected = theirs(x, edges_of(indptr, indices))
    assert torch.allclose(model(x, edges_of(indptr, indices)), expected, atol=1e-6)
    found = model.forward_blocks(x[n_id], blocks, n_id, STREAM)  # in eval mode nothing is dropped
    assert torch.allclose(found, expected[n_id[:4]], atol=1e-5)
    if norm != "batch":
        assert torch.equal(model.train().forward_blocks(x[n_id], blocks, n_id, None), found)


def test_the_last_hidden_layer_of_the_seeds() -> None:
    model = GraphSAGE(7, 16, 2, 4)
    indptr, indices = random_graph(50, 6)
    n_id, blocks = sample(indptr, indices, torch.tensor([3, 4]), -1, 2)
    x = torch.randn(50, 7)
    hidden = model.forward_blocks(x[n_id], blocks, n_id, None, last_hidden=True)
    full = model.convs[0](x, edges_of(indptr, indices)).relu()
    assert torch.allclose(hidden, full[[3, 4]], atol=1e-5)


def gradients(
    model: GraphSAGE, graph: tuple[Tensor, Tensor], x: Tensor, y: Tensor, seeds: Tensor, pieces: int
) -> tuple[float, dict[str, Tensor]]:
    model.zero_grad()
    loss = 0.0
    for some in seeds.tensor_split(pieces):
        n_id, blocks = sample(*graph, some, 10, model.num_layers)
        scores = model.forward_blocks(x[n_id], blocks, n_id, STREAM)
        part = F.cross_entropy(scores, y[some], reduction="sum") / len(seeds)
        part.backward()
        loss += part.item()
    return loss, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("aggr", "norm"), [("mean", "layer"), ("sum", "none"), ("max", "none")])
def test_a_batch_in_one_piece_or_three_has_the_same_gradients(aggr: str, norm: str) -> None:
    torch.manual_seed(0)
    graph = random_graph(5000, 12)
    x, y = torch.randn(5000, 40), torch.randint(0, 10, (5000,))
    seeds = torch.randperm(5000)[:4097]
    model = GraphSAGE(40, 48, 3, 10, aggr=aggr, norm=norm)
    for dtype, bar in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        model.to(dtype)
        loss, whole = gradients(model, graph, x.to(dtype), y, seeds, 1)
        again = gradients(model, graph, x.to(dtype), y, seeds, 1)[1]
        loss_3, parts = gradients(model, graph, x.to(dtype), y, seeds, 3)
        assert abs(loss_3 - loss) / loss < bar
        assert len(whole) == len(list(model.parameters()))
        for name, gradient in whole.items():
            assert torch.equal(gradient, again[name])  # to the last bit
            assert (parts[name] - gradient).norm() / gradient.norm() < bar


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("aggr", AGGRS)
@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_a_rank_without_seeds_has_zero_gradients(dtype: torch.dtype, aggr: str, norm: str) -> None:
    model = GraphSAGE(7, 16, 3, 4, aggr=aggr, norm=norm).to(dtype)
    empty = torch.zeros(0, dtype=torch.int64)
    blocks = [Block(torch.zeros(1, dtype=torch.int64), empty)] * 3
    out = model.forward_blocks(torch.zeros(0, 7, dtype=dtype), blocks, empty, STREAM)
    assert out.shape == (0, 4)
    (F.cross_entropy(out, empty, reduction="sum") / 5).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_batch_norm_in_training_is_that_of_pyg() -> None:
    torch.manual_seed(0)
    model = GraphSAGE(7, 16, 2, 4, dropout=0.0, norm="batch")
    theirs = torch_geometric.nn.GraphSAGE(7, 16, 2, 4, norm="batch")
    theirs.load_state_dict(model.state_dict())
    indptr, indices = random_graph(50, 6)
    x, n_id = torch.randn(50, 7), torch.arange(50)
    found = model.forward_blocks(x, [Block(indptr, indices)] * 2, n_id, STREAM)
    assert torch.allclose(found, theirs(x, edges_of(indptr, indices)), atol=1e-5)
    for name, tensor in theirs.state_dict().items():
        assert torch.allclose(model.state_dict()[name], tensor)


@pytest.mark.parametrize("num_rows", [0, 1])
def test_c108_fewer_than_two_rows_are_normalised_by_the_running_statistics(num_rows: int) -> None:
    torch.manual_seed(0)
    model = GraphSAGE(7, 16, 2, 4, dropout=0.0, norm="batch")
    model.norms[0].module.running_mean.normal_()
    n_id = torch.arange(num_rows)
    blocks = [Block(torch.zeros(num_rows + 1, dtype=torch.int64), n_id[:0])] * 2
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = model.forward_blocks(torch.ones(num_rows, 7), blocks, n_id, STREAM)
    assert torch.allclose(found, model.eval().forward_blocks(torch.ones(num_rows, 7), blocks, n_id, STREAM), atol=1e-6)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("aggr", AGGRS)
def test_bf16_is_near_to_fp32_with_weights_gradients_and_evaluation_in_fp32(aggr: str) -> None:
    torch.manual_seed(0)
    models = [GraphSAGE(40, 48, 3, 10, aggr=aggr, norm="layer", precision=precision) for precision in ("fp32", "bf16")]
    models[1].load_state_dict(models[0].state_dict())
    graph, x, y, seeds = random_graph(500, 12), torch.randn(500, 40), torch.randint(0, 10, (500,)), torch.arange(300)
    (loss, whole), (near, found) = (gradients(model, graph, x, y, seeds, 1) for model in models)
    assert 0 < abs(loss - near) < 0.02 * loss
    for name, gradient in whole.items():
        assert found[name].dtype == torch.float32
        assert (found[name] - gradient).norm() / gradient.norm() < 0.15  # a maximum or a ReLU may tip over
    edge_index = edges_of(*graph)
    outputs = [model.eval()(x, edge_index) for model in models]
    assert torch.equal(*outputs)
    n_id, blocks = sample(*graph, seeds, 5, 3)
    assert torch.equal(*(model.forward_blocks(x[n_id], blocks, n_id, None) for model in models))


@pytest.mark.parametrize("aggr", AGGRS)
def test_c040_no_edges_zero_features_and_normalisation_are_finite(aggr: str) -> None:
    model = GraphSAGE(7, 16, 2, 4, aggr=aggr, norm="layer")
    n_id = torch.arange(3)
    blocks = [Block(torch.zeros(4, dtype=torch.int64), n_id[:0])] * 2
    out = model.forward_blocks(torch.zeros(3, 7), blocks, n_id, STREAM)
    out.square().sum().backward()
    assert torch.isfinite(out).all()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    # PyG's own l2 normalisation, in a convolution of the same weights
    conv = torch_geometric.nn.SAGEConv(7, 4, aggr=aggr, normalize=True, bias=False)
    assert torch.isfinite(conv(torch.zeros(3, 7), torch.zeros(2, 0, dtype=torch.int64))).all()


def test_what_cannot_be_built_is_refused() -> None:
    for arguments in ({"aggr": "lstm"}, {"norm": "graph"}, {"precision": "fp16"}):
        with pytest.raises(ConfigError, match="expected one of"):
            GraphSAGE(7, 16, 2, 4, **arguments)
    with pytest.raises(ConfigError, match="num_layers is 0; expected a whole number of 1 or more"):
        GraphSAGE(7, 16, 0, 4)
    with pytest.raises(ConfigError, match="one block a layer"):
        GraphSAGE(7, 16, 2, 4).forward_blocks(torch.zeros(1, 7), [], torch.zeros(1, dtype=torch.int64), None)
