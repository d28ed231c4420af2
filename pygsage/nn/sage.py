"""GraphSAGE (Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017):

h_v' = W_l * aggregate(h_u for u in N(v)) + b + W_r * h_v
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn

from pygsage.errors import ConfigError
from pygsage.nn.dropout import activation_dropout
from pygsage.nn.join import activated_join, join
from pygsage.nn.linear import linear, linear_bf16
from pygsage.spelling import whole_number

if TYPE_CHECKING:
    from pygsage.sampling.sample import Block

AGGREGATIONS = ("mean", "sum", "max")
NORMS = ("none", "layer", "batch")
PRECISIONS = ("fp32", "bf16")


class GraphSAGE(torch_geometric.nn.GraphSAGE):
    """PyG's GraphSAGE, which also runs on sampled blocks, with dropout that no batching, rank or thread changes.

    Args:
        in_channels: Number of input features.
        hidden_channels: Width of the hidden layers.
        num_layers: Number of layers, at least 1; one block each.
        out_channels: Width of the output.
        dropout: Share of hidden activations that are dropped, in steps of 1/256 on blocks.
        aggr: `mean`, `sum` or `max` over the neighbours.
        norm: `none`; `layer`: normalisation of each node by itself; `batch`: of each column over the rows at hand.
            A batch of fewer than two rows has no variance: it is normalised by the running statistics and leaves
            them as they are.
        precision: `bf16` multiplies matrices in bfloat16 on blocks while training; all else is as with `fp32`.

    The `state_dict` is that of `torch_geometric.nn.GraphSAGE` with the same arguments (`norm="layer"` with
    `norm_kwargs={"mode": "node"}`), and so is `forward(x, edge_index)`.

    Raises:
        ConfigError: for an unknown `aggr`, `norm` or `precision`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        dropout: float = 0.5,
        aggr: str = "mean",
        norm: str = "none",
        precision: str = "fp32",
    ) -> None:
        if aggr not in AGGREGATIONS:
            raise ConfigError(f"aggr is {aggr!r}; expected one of {', '.join(AGGREGATIONS)}.")
        if norm not in NORMS:
            raise ConfigError(f"norm is {norm!r}; expected one of {', '.join(NORMS)}.")
        if precision not in PRECISIONS:
            raise ConfigError(f"precision is {precision!r}; expected one of {', '.join(PRECISIONS)}.")
        in_channels = whole_number(in_channels, "in_channels")
        hidden_channels, num_layers, out_channels = (
            whole_number(value, name, 1)
            for name, value in (
                ("hidden_channels", hidden_channels),
                ("num_layers", num_layers),
                ("out_channels", out_channels),
            )
        )
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ConfigError(f"dropout is {dropout!r}; expected a number from 0 to 1.")
        # PyG's LayerNorm would else take its mean over all nodes of the batch, which no sampled batch can repeat.
        norm_args: dict[str, Any] = {} if norm == "none" else {"norm": norm}
        if norm == "layer":
            norm_args["norm_kwargs"] = {"mode": "node"}
        super().__init__(
            in_channels, hidden_channels, num_layers, out_channels, dropout=dropout, aggr=aggr, **norm_args
        )
        self.aggr = aggr
        self.precision = precision

    def forward_blocks(
        self,
        x: Tensor,
        blocks: Sequence[Block],
        n_id: Tensor,
        dropout_stream: int | None,
        last_hidden: bool = False,
    ) -> Tensor:
        """The output for the seeds of a sampled batch.

        Args:
            x: What the first layer is fed with. With a block a layer: floating [|T_L|, in_channels], the features of
                all sampled nodes, seeds first. With a block less, because the outermost hop is aggregated already:
                [|T_(L-1)|, 2 in_channels], the aggregate of each target's neighbours and its own features.
            blocks: Outermost first. The targets of a block are the first rows of its input.
            n_id: int64 [|T_(L-1)|] or more: global node ids of the rows of `x`; they key the dropout masks.
            dropout_stream: The step's stream; None drops nothing, nor does a model in `eval()` mode.
            last_hidden: Return the seeds' rows of the last hidden layer, before the last convolution.

        Returns:
            [|T_0|, out_channels], or [|T_0|, hidden_channels] for `last_hidden`. With no seeds it has no rows
            and still depends on every parameter, whose gradients are then zero.
        """
        joined = len(blocks) == self.num_layers - 1 and x.shape[1] == 2 * self.in_channels
        if len(blocks) != self.num_layers and not joined:
            raise ConfigError(
                f"found {len(blocks)} blocks for a model of {self.num_layers} layers; expected one block a layer.",
                "Sample with one fanout a layer.",
            )
        if last_hidden and self.num_layers == 1:
            return x[:, self.in_channels :] if joined else x[: blocks[0].num_dst]
        stream = dropout_stream if self.training else None
        inputs = x if joined else join(x, blocks[0], self.aggr)
        for layer, block in enumerate(blocks if joined else blocks[1:]):
            hidden = self.normalize(layer, self.combine(layer, inputs))
            if last_hidden and layer == self.num_layers - 2:
                return activation_dropout(hidden, self.dropout.p, stream, layer, n_id[: len(hidden)])[: block.num_dst]
            inputs = activated_join(hidden, self.dropout.p, stream, layer, n_id[: len(hidden)], block, self.aggr)
        return self.combine(self.num_layers - 1, inputs).to(self.convs[-1].lin_l.weight.dtype)

    def combine(self, layer: int, inputs: Tensor) -> Tensor:
        """W_l * aggregate + b + W_r * own of one layer as one product: [n, 2 F] to [n, width of the layer]."""
        conv = self.convs[layer]
        weight = torch.cat([conv.lin_l.weight, conv.lin_r.weight], 1)
        product = linear_bf16 if self.training and self.precision == "bf16" else linear
        return product(inputs, weight, conv.lin_l.bias)

    def normalize(self, layer: int, x: Tensor) -> Tensor:
        """The layer's normalisation of [n, hidden_channels]."""
        return normalize(self.norms[layer], x)


def normalize(norm: nn.Module, x: Tensor) -> Tensor:
    """The normalisation of [n, H] by one of PyG's `BatchNorm` and `LayerNorm`, or none: see `GraphSAGE`."""
    if isinstance(norm, torch_geometric.nn.BatchNorm) and norm.training and len(x) < 2:
        own = norm.module
        scale = own.weight / (own.running_var + own.eps).sqrt()
        return (x - own.running_mean) * scale + own.bias
    if not isinstance(norm, torch_geometric.nn.LayerNorm):
        return norm(x)
    # Scaled apart, because torch's own gradient of the scale and shift adds up the rows one by one.
    return F.layer_norm(x, x.shape[1:], eps=norm.eps) * norm.weight + norm.bias
