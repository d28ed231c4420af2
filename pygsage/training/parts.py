"""Learning the labels of nodes of one graph whose features lie in parts, on one machine or on several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from pygsage.config import TrainConfig
from pygsage.data.one_graph.graph import Graph
from pygsage.data.one_graph.parts import Parts, name_of
from pygsage.distributed import World
from pygsage.errors import ConfigError, DatasetError
from pygsage.memory.decide import size_text
from pygsage.sampling.exchange import Exchange, owners, servers
from pygsage.sampling.homes import SeedHomes
from pygsage.sampling.hot_rows import hot_rows
from pygsage.sampling.library import step_sampler
from pygsage.sampling.part_batches import PartBatches
from pygsage.sampling.pipeline import Batch, BatchPipeline
from pygsage.sampling.placement import CPU, Placement
from pygsage.sampling.remote_rows import RemoteRows
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.nodes import NodeProblem


class PartProblem(NodeProblem):
    """Labels of nodes of a graph in parts.

    Ids are those of the whole graph everywhere, so that neighbours, dropout and results are too: only where a row of
    features is read from differs. A machine reads the parts of its home from its own files, and asks others for the
    rest.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        assert graph.parts is not None
        self.parts: Parts = graph.parts
        self._remote: RemoteRows | None = None
        self._homes: SeedHomes | None = None

    def check(self, config: TrainConfig) -> None:
        """As `NodeProblem.check`; no GPU holds features that lie in parts.

        Raises:
            ConfigError: for a placement that wants it.
        """
        super().check(config)
        if config.placement == "cuda-cuda" or config.gpu_cache_size is not None:
            told = "--placement cuda-cuda" if config.placement == "cuda-cuda" else "--gpu-cache-size"
            raise ConfigError(
                f"{told} is for a graph in one piece, and {self.graph.name} is in parts.",
                "Type --placement pinned-cuda." if config.placement == "cuda-cuda" else "Leave it out.",
            )

    def missing(self, machines: list[int], machine: int) -> str:
        """As `Problem.missing`: the first part of this machine that is not here."""
        of_ranks, of_parts = owners(machines, len(self.parts))
        home = of_ranks[machines.index(machine)]
        for part, its_home in enumerate(of_parts):
            if its_home != home:
                continue
            if not self.parts.is_here(part):
                number = sorted(set(machines)).index(machine)
                who = f"machine {number} of {len(set(machines))}" if len(set(machines)) > 1 else "the only machine"
                return f"{self.parts.folder} has no {name_of(part)}, which {who} trains on"
            self.parts.open(part)  # a damaged one is refused before a run directory is made
        return ""

    def join(self, world: World, machines: list[int]) -> None:
        """As `Problem.join`."""
        of_ranks, of_parts = owners(machines, len(self.parts))
        if len(set(of_ranks)) == 1:
            for part in range(len(self.parts)):
                self.parts.open(part)
            return
        asked = servers(world.rank, of_ranks, of_parts)
        self._rows = self._remote = RemoteRows(self.parts, Exchange(world, self.parts.row_bytes), asked)
        homes = torch.tensor(of_parts)[torch.from_numpy(self.parts.of_nodes(self.graph.splits["train"]))]
        self._homes = SeedHomes(homes, tuple(of_ranks))

    def homes(self) -> SeedHomes | None:
        """As `Problem.homes`."""
        return self._homes

    def batches(
        self,
        config: TrainConfig,
        shards: DistributedSeedSampler,
        seed_weights: Tensor | None,
        num_threads: int,
        placement: Placement = CPU,
    ) -> BatchPipeline[Batch]:
        """As `NodeProblem.batches`; rows of other machines come in the order of the steps, several ahead."""
        if self._remote is None:
            self.hot_rows = 0  # all rows are here
            return super().batches(config, shards, seed_weights, num_threads, placement)
        graph, train = self.graph, self.graph.splits["train"]
        sampler = step_sampler(graph, config.fanouts, config.seed, config.sampler)
        if self.hot_rows:
            self._remote.hold(hot_rows(graph, train, sampler, shards, self.hot_rows, self._remote.is_remote()))
        else:
            self._remote.finish()  # others may fill theirs
        dtype = torch.bfloat16 if config.precision == "bf16" else None
        carrier = placement.carrier(1)  # one thread sends
        make = PartBatches(graph, train, sampler, seed_weights, config.aggr, dtype, self._remote, carrier)
        return BatchPipeline(make.draft, shards, num_threads, make.complete)

    def ready(self) -> list[str]:
        """Which parts are read here, and how many rows of others are held in RAM."""
        if self._remote is None:
            return [f"features: in {len(self.parts)} parts, all of them on this machine"]
        rows = self._remote
        share = rows.num_held / max(1, self.graph.num_nodes)
        told = f"{rows.num_held:,} rows of others ({share:.0%}) in RAM, {size_text(rows.num_bytes)} a process"
        return [f"features: in {len(self.parts)} parts on {len(set(self._of_ranks))} machines; {told}"]

    @property
    def _of_ranks(self) -> tuple[int, ...]:
        return self._homes.of_ranks if self._homes is not None else ()

    @property
    def remote_row_bytes(self) -> int:
        """As `Problem.remote_row_bytes`: its features, and the number that asks for it."""
        return self.parts.row_bytes + 8 if self._remote is not None else 0

    def predictor(
        self,
        model: nn.Module,
        world: World,
        scratch: Path | None = None,
        *,
        embeddings: bool = False,
        wanted: Tensor | None = None,
    ) -> Callable[[Tensor | slice], Tensor]:
        """As `NodeProblem.predictor`."""
        if embeddings and cast(int, model.num_layers) == 1:  # there is no hidden layer: they are the features
            everyone = torch.arange(self.graph.num_nodes)
            return lambda nodes: self._rows.read(everyone[nodes]).to(next(model.parameters()).dtype)
        return super().predictor(model, world, scratch, embeddings=embeddings, wanted=wanted)

    def _evaluates_together(self) -> bool:
        """Where a machine would ask the others for its neighbours' features, for all nodes."""
        return self._remote is not None

    def _x(self) -> Tensor:
        """The shape and the dtype of the features; what must be read is read from `_rows`, and this is NaN."""
        x = self.graph.x
        return torch.full((1, 1), torch.nan, dtype=x.dtype).expand(x.shape)


def refuse_together(missing: list[str]) -> None:
    """Raises on every rank what one machine lacks.

    Raises:
        DatasetError: when there is something.
    """
    found = next(filter(None, missing), "")
    if found:
        raise DatasetError(
            f"{found}; expected it there.",
            "Copy it from the folder that pygsage partition wrote, or start all machines.",
        )
