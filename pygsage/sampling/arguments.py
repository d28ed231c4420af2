"""The arguments of PyG's `NeighborLoader`: which seeds they name, and which of them our loader does not take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pygsage.errors import ConfigError, DatasetError
from pygsage.sampling.sampler import NeighborSampler

# What can be passed only with the value that changes nothing.
_FIXED: dict[str, tuple[Any, str]] = {
    "replace": (False, "it draws without replacement"),
    "disjoint": (False, "the seeds of a batch share one subgraph"),
    "subgraph_type": ("directional", "it returns the edges that it drew"),
    "directed": (True, "it returns the edges that it drew"),
    "temporal_strategy": ("uniform", "it draws uniformly"),
    "time_attr": (None, "it does not look at time"),
    "input_time": (None, "it does not look at time"),
    "weight_attr": (None, "it draws uniformly"),
}


def refuse_options(options: Mapping[str, Any]) -> None:
    """Refuses what the sampler would ignore.

    Raises:
        ConfigError: for an option of PyG's loader that is not supported, or of torch's that `batch_sampler` replaces.
    """
    for name, (only, reason) in _FIXED.items():
        value = options.get(name, only)
        value = getattr(value, "value", value)  # SubgraphType is an enum
        if value is not only and value != only:
            raise ConfigError(
                f"NeighborLoader was given {name}={value!r}, which our sampler does not do: {reason}.",
                "Leave it out, or use torch_geometric.loader.NeighborLoader with pyg-lib.",
            )
    for name in ("sampler", "drop_last"):
        if options.get(name):
            raise ConfigError(
                f"NeighborLoader was given {name}, but its seeds come from a DistributedSeedSampler, which drops none.",
                "Leave it out, or pass batch_sampler=DistributedSeedSampler(…).",
            )


def refuse_both(decides: Mapping[str, Any]) -> None:
    """Refuses what `batch_sampler` decides, where it is given beside it.

    Raises:
        ConfigError: when any is not None.
    """
    given = [f"{name}={value!r}" for name, value in decides.items() if value is not None]
    if given:
        raise ConfigError(
            f"NeighborLoader was given {', '.join(given)} beside a batch_sampler, which decides that.",
            "Give it to the DistributedSeedSampler instead.",
        )


def seeds_of(sampler: NeighborSampler, input_nodes: Any) -> tuple[str | None, Tensor]:
    """The seeds that `input_nodes` names, and their node type in a heterogeneous graph.

    Args:
        input_nodes: Ids, a bool mask, or None for all nodes; in a heterogeneous graph a node type, or a pair of one
            and any of these.

    Returns:
        The node type or None, and int64 ids, or the mask.

    Raises:
        ConfigError: when it is none of these, names no node type of the graph, or an id is out of range.
    """
    node_type, num_nodes = None, sampler.num_nodes
    if isinstance(num_nodes, dict):
        pair = isinstance(input_nodes, (tuple, list)) and len(input_nodes) == 2 and isinstance(input_nodes[0], str)
        node_type, input_nodes = input_nodes if pair else (input_nodes, None)
        if not isinstance(node_type, str) or node_type not in num_nodes:
            raise ConfigError(
                f"input_nodes names {'no node type' if not isinstance(node_type, str) else repr(node_type)}; expected "
                f"one of {list(num_nodes)}, or a pair of one and its seeds.",
                f"Type for example: input_nodes=({next(iter(num_nodes))!r}, mask).",
            )
        num_nodes = num_nodes[node_type]
    if input_nodes is None:
        return node_type, torch.arange(num_nodes)
    try:
        nodes = torch.as_tensor(input_nodes)
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(
            f"input_nodes is a {type(input_nodes).__name__}; expected node ids, a bool mask, or None."
        ) from None
    if nodes.numel() == 0 and nodes.dtype != torch.bool:
        nodes = nodes.to(torch.int64)  # an empty list makes an empty float tensor
    if nodes.dim() != 1 or nodes.is_floating_point() or nodes.is_complex():
        raise ConfigError(
            f"input_nodes is {nodes.dtype} of shape {list(nodes.shape)}; expected node ids [n], or a bool mask "
            f"[{num_nodes}]."
        )
    if nodes.dtype == torch.bool:
        if len(nodes) != num_nodes:
            raise ConfigError(f"input_nodes is a mask of {len(nodes)} elements; expected one for each of {num_nodes}.")
        return node_type, nodes
    nodes = nodes.to(torch.int64)
    if len(nodes) and not 0 <= int(nodes.min()) <= int(nodes.max()) < num_nodes:
        bad = int(nodes[(nodes < 0) | (nodes >= num_nodes)][0])
        raise DatasetError(f"input_nodes has the id {bad}; expected node ids from 0 to below {num_nodes}.")
    return node_type, nodes
