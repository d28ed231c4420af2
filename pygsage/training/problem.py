"""What is learnt, as the trainer sees it: nodes of one graph, or whole graphs. All else is the same for both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from pygsage.config import TrainConfig
from pygsage.data.storage import Storage
from pygsage.distributed import World
from pygsage.sampling.homes import SeedHomes
from pygsage.sampling.pipeline import BatchPipeline
from pygsage.sampling.placement import CPU, Placement
from pygsage.sampling.shard import DistributedSeedSampler


class Labelled(Protocol):
    """Labels and who trains on them: what losses and scores are made of."""

    @property
    def name(self) -> str:
        """The dataset as the user named it."""

    @property
    def task(self) -> str:
        """`classes`, `multilabel` or `regression`."""

    @property
    def y(self) -> Tensor:
        """int64 [n] for classes; float32 [n, C] with NaN for missing ones otherwise."""

    @property
    def splits(self) -> dict[str, Tensor]:
        """int64 numbers of rows of `y`, by those of `train`, `val`, `test` that exist."""

    @property
    def num_classes(self) -> int:
        """The highest class plus one; 0 for other tasks."""

    @property
    def num_outputs(self) -> int:
        """Width of a model's output."""


class TrainingData(Labelled, Protocol):
    """A dataset that is ready to train on, and can be handed to other processes as a folder."""

    @property
    def num_features(self) -> int:
        """Number of features a node."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines worth telling the user."""

    @property
    def folder(self) -> Path | None:
        """The folder it was opened from; None when it is only in RAM."""

    def save(self, folder: Path) -> None:
        """Writes it to a new folder, whole or not at all."""


class StepBatch(Protocol):
    """One rank's part of a step, on its device."""

    @property
    def step(self) -> int:
        """The step within its epoch."""

    @property
    def y(self) -> Tensor:
        """Labels of what is scored; possibly no row."""

    @property
    def weight(self) -> float:
        """What the losses of the step, summed over all ranks, are divided by."""

    @property
    def seconds(self) -> dict[str, float]:
        """Time its preparation took in its thread, by phase."""


class About(NamedTuple):
    """A problem in words: the size of the dataset, the model, how neighbours are taken and by what."""

    size: str
    model: str
    neighbours: str
    sampler: str


class Problem(ABC):
    """What is learnt from a dataset: how batches are made, how they are scored, how a whole split is scored."""

    unit: str  # what has a label, in words: `node` or `graph`
    spill: Path | None = None  # a file that a rank may make for what it reads again and again
    storage: Storage | None = None  # how its data are held, as far as that is known
    hot_rows = 0  # rows of features that each rank may hold in RAM when they are read from a file; a choice of speed

    @property
    @abstractmethod
    def data(self) -> TrainingData:
        """The dataset."""

    @abstractmethod
    def check(self, config: TrainConfig) -> None:
        """Refuses options that do not go with this kind of problem.

        Raises:
            ConfigError: see above.
        """

    def missing(self, machines: list[int], machine: int) -> str:
        """What of the dataset is not on this machine and has to be, by the machine of each rank; empty if nothing."""
        return ""

    def join(self, world: World, machines: list[int]) -> None:  # noqa: B027  # most have nothing to do
        """Makes ready to read what lies on other machines; all ranks together."""

    def homes(self) -> SeedHomes | None:
        """Where what is trained on lies, where that differs by machine."""
        return None

    @abstractmethod
    def about(self, config: TrainConfig) -> About:
        """What people want to know before it begins."""

    @abstractmethod
    def build_model(self, config: TrainConfig) -> nn.Module:
        """The model, with weights that are a function of the seed; torch's global generator is left alone."""

    @abstractmethod
    def batches(
        self,
        config: TrainConfig,
        shards: DistributedSeedSampler,
        seed_weights: Tensor | None,
        num_threads: int,
        placement: Placement = CPU,
    ) -> BatchPipeline[Any]:
        """The batches of an epoch, prepared by threads.

        Args:
            shards: Says which positions of the training split are this rank's.
            seed_weights: float64 [training split]: what each counts for in a step's mean; None counts each as one.
            placement: Where features and batches lie.
        """

    def ready(self) -> list[str]:
        """Lines worth telling the user once batches can be made."""
        return []

    def cache_counts(self) -> tuple[int, int]:
        """Rows of features that were found in the cache of hot rows, and that were not, since the last call."""
        return 0, 0

    @property
    def remote_row_bytes(self) -> int:
        """What a row that was not in the cache takes to come from another machine; 0 where it does not."""
        return 0

    @abstractmethod
    def scores(self, model: nn.Module, batch: Any) -> Tensor:
        """The outputs [n, C] for what a batch has labels of, with dropout where the model trains."""

    @abstractmethod
    def predictor(
        self,
        model: nn.Module,
        world: World,
        scratch: Path | None = None,
        *,
        embeddings: bool = False,
        wanted: Tensor | None = None,
    ) -> Callable[[Tensor | slice], Tensor]:
        """A function from int64 numbers [n], or a slice of all, to outputs [n, C], or embeddings [n, hidden].

        Nothing is dropped, all neighbours count.
        All ranks have to call this; what it returns is called by each for itself.

        Args:
            scratch: A folder that the ranks of this machine share; needed when there are several.
            wanted: int64 numbers [n], the same on every rank: no others will be asked for.
        """


def seeded(config: TrainConfig, build: Callable[[], nn.Module]) -> nn.Module:
    """What `build` returns, its random numbers drawn from the run's seed and none from torch's global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return build()
