"""Where a rank's features and batches lie, and what follows for how its batches are made and sent."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pygsage.data.one_graph.feature_rows import FeatureRows
from pygsage.data.one_graph.graph import Graph
from pygsage.sampling.first_layer import FirstLayer, OnDevice, OnDeviceCached, input_dtype, to_device
from pygsage.sampling.hot_rows import hot_rows
from pygsage.sampling.library import StepSampler
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.sampling.transfer import Carrier, PageableCarrier, StagingCarrier, copy_stream


@dataclass(frozen=True)
class Placement:
    """Where the features lie, then where the model is. Edges are sampled on the CPU in all of them.

    Attributes:
        kind: `cpu-cpu`; `cpu-cuda`: a batch is copied when its step begins; `pinned-cuda`: it is copied beside the step
            before, from reused pinned buffers; `cuda-cuda`: the device holds all features, ids are sent so.
        device: Where the model is.
        cache_bytes: What the device holds of the hottest rows.
    """

    kind: str
    device: torch.device
    cache_bytes: int = 0

    def carrier(self, num_threads: int) -> Carrier:
        """What brings the batches that so many threads prepare to the device."""
        if self.kind in ("cpu-cpu", "cpu-cuda"):
            return PageableCarrier(self.device)
        return StagingCarrier(copy_stream(self.device), num_threads + 1)

    @property
    def gathers(self) -> bool:
        """Whether the device makes the first layer's input."""
        return self.kind == "cuda-cuda" or self.cache_bytes > 0

    def first_layer(
        self,
        graph: Graph,
        rows: FeatureRows,
        sampler: StepSampler,
        shards: DistributedSeedSampler,
        aggr: str,
        dtype: torch.dtype | None,
    ) -> FirstLayer | None:
        """What makes the first layer's input on the device, with what is to be held there; None: the CPU does."""
        wanted = input_dtype(graph.x, dtype)
        if self.kind == "cuda-cuda":
            return OnDevice(sampler, to_device(graph.x, rows, self.device), aggr, wanted)
        if not self.cache_bytes:
            return None
        row_bytes = max(1, graph.x.element_size() * graph.num_features)
        num_rows = min(graph.num_nodes, self.cache_bytes // row_bytes)
        held = hot_rows(graph, graph.splits["train"], sampler, shards, num_rows)
        return OnDeviceCached(sampler, rows, held, graph.num_features, graph.x.dtype, aggr, wanted, self.device)


CPU = Placement("cpu-cpu", torch.device("cpu"))
