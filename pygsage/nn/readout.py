"""One row a graph from the rows of its nodes, and a GraphSAGE that ends in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pygsage.errors import ConfigError
from pygsage.nn.dropout import activation_dropout
from pygsage.nn.join import activated_join, aggregate, join
from pygsage.nn.linear import linear
from pygsage.nn.sage import AGGREGATIONS, GraphSAGE, normalize
from pygsage.sampling.sample import Block


def read_out(x: Tensor, ptr: Tensor, readout: str) -> Tensor:
    """The mean, sum or maximum of the rows of each graph; zero for a graph without nodes.

    Args:
        x: Floating [n, H], the rows of all graphs, one graph after the other.
        ptr: int32 or int64 [k + 1]: where each graph's rows begin, and the end of the last.
        readout: `mean`, `sum` or `max`.

    Returns:
        [k, H], as PyG's `global_mean_pool`, `global_add_pool` and `global_max_pool`. The rows of a graph are added in
        their order, so that its result does not depend on the graphs beside it.
    """
    return aggregate(x, ptr, torch.arange(len(x), dtype=ptr.dtype, device=ptr.device), readout)


class CategoryEmbedding(nn.Module):
    """The sum of a learnt vector for each column's category: [n, columns] to [n, width].

    Hu et al., "Open Graph Benchmark", NeurIPS 2020: its encoder of atoms. The tables lie one below the other in
    `weight`, [sum of the sizes, width], and begin as there (Glorot and Bengio, 2010).

    Args:
        table_sizes: The number of categories of each column.
        width: Of the vectors.
    """

    begins: Tensor

    def __init__(self, table_sizes: Sequence[int], width: int) -> None:
        super().__init__()
        self.table_sizes = tuple(table_sizes)
        self.weight = nn.Parameter(torch.empty(sum(table_sizes), width))
        begins = torch.tensor([0, *table_sizes[:-1]]).cumsum(0)
        self.register_buffer("begins", begins, persistent=False)
        for table in self.weight.data.split(list(table_sizes)):
            nn.init.xavier_uniform_(table)

    def forward(self, x: Tensor) -> Tensor:
        """The vectors of int64 [n, columns], categories from 0.

        On a CPU the gradient is summed in float64, as that of `pygsage.nn.linear` is and for the same reason.
        """
        out: Tensor = _Embedding.apply(x + self.begins, self.weight)
        return out


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.num_rows = len(weight)
        return F.embedding_bag(rows, weight, mode="sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (rows,) = ctx.saved_tensors
        precise = torch.float64 if grad.device.type == "cpu" else grad.dtype
        total = torch.zeros(ctx.num_rows, grad.size(1), dtype=precise, device=grad.device)
        doubled = grad.to(precise)
        for column in rows.unbind(1):
            total.index_add_(0, column, doubled)
        return None, total.to(grad.dtype)


class GraphClassifier(nn.Module):
    """A `GraphSAGE` over all neighbours, a readout, and a linear map: one row of outputs a graph.

    h_g = readout of relu(norm(GraphSAGE(x))) over the nodes of graph g;  out_g = W h_g + b. Dropout follows every ReLU.

    Args:
        in_channels: Features a node; unused with `table_sizes`.
        hidden_channels: Width of all layers.
        num_layers: Layers of the GraphSAGE.
        out_channels: Width of the output.
        readout: `mean`, `sum` or `max`.
        table_sizes: Of columns of categories, which are embedded before the first layer; none for numbers.
        norm: `none`, `layer` or `batch`: after every layer, the last one included.
        **options: Of `GraphSAGE`: `dropout`, `aggr`, `precision`.

    `body` is a `pygsage.GraphSAGE` of `hidden_channels` outputs: its `state_dict` loads into PyG's.

    Raises:
        ConfigError: for an unknown option.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        readout: str = "mean",
        table_sizes: Sequence[int] = (),
        norm: str = "none",
        **options: Any,
    ) -> None:
        super().__init__()
        if readout not in AGGREGATIONS:
            raise ConfigError(f"readout is {readout!r}; expected one of {', '.join(AGGREGATIONS)}.")
        self.readout = readout
        self.embedding = CategoryEmbedding(table_sizes, hidden_channels) if table_sizes else None
        width = hidden_channels if table_sizes else in_channels
        self.body = GraphSAGE(width, hidden_channels, num_layers, hidden_channels, norm=norm, **options)
        self.last_norm: nn.Module = nn.Identity()  # PyG's GraphSAGE has none after its last layer
        if norm == "batch":
            self.last_norm = torch_geometric.nn.BatchNorm(hidden_channels)
        elif norm == "layer":
            self.last_norm = torch_geometric.nn.LayerNorm(hidden_channels, mode="node")
        self.head = nn.Linear(hidden_channels, out_channels)

    def forward(
        self,
        x: Tensor,
        indptr: Tensor,
        indices: Tensor,
        ptr: Tensor,
        n_id: Tensor,
        dropout_stream: int | None = None,
        embeddings: bool = False,
    ) -> Tensor:
        """The outputs of some graphs.

        Args:
            x: Floating [n, in_channels], or int64 [n, columns] of categories.
            indptr, indices: [n + 1] and [E], both int32 or int64: in-neighbours of each node, as rows of `x`.
            ptr: [k + 1]: where each graph's nodes begin.
            n_id: int64 [n]: numbers that key the dropout masks of the nodes, the same for a node in any batch.
            dropout_stream: The step's stream; None drops nothing, nor does a model in `eval()` mode.
            embeddings: Return the readout in place of the output.

        Returns:
            [k, out_channels], or [k, hidden_channels] for `embeddings`. With no graphs it has no rows and still
            depends on every parameter, whose gradients are then zero.
        """
        h = self.embed(x)
        body = self.body
        block, p, last = Block(indptr, indices), body.dropout.p, body.num_layers - 1
        stream = dropout_stream if self.training else None
        inputs = join(h, block, body.aggr)
        if self.training and body.precision == "bf16":  # from here on, as sampled batches of nodes come
            inputs = inputs.bfloat16()
        for layer in range(last):
            h = normalize(body.norms[layer], body.combine(layer, inputs))
            inputs = activated_join(h, p, stream, layer, n_id, block, body.aggr)
        h = normalize(self.last_norm, body.combine(last, inputs).to(self.head.weight.dtype))
        h = activation_dropout(h, p, stream, last, n_id)
        graphs = read_out(h, ptr, self.readout)
        return graphs if embeddings else linear(graphs, self.head.weight, self.head.bias)

    def embed(self, x: Tensor) -> Tensor:
        """What the first layer takes: the embedded categories, or x."""
        if self.embedding is not None:
            embedded: Tensor = self.embedding(x)
            return embedded
        return x.to(self.head.weight.dtype)
