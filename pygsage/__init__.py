"""GraphSAGE on any PyG dataset, on every device, with exact results.

Names are resolved when first used, so that `import pygsage` and `pygsage --help` load no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME_OF = {
    "ConfigError": "pygsage.errors",
    "DatasetError": "pygsage.errors",
    "DistributedSeedSampler": "pygsage.sampling.shard",
    "EnvironmentLimitError": "pygsage.errors",
    "GraphSAGE": "pygsage.nn.sage",
    "InMemoryGraphs": "pygsage.data.store.in_memory",
    "NeighborLoader": "pygsage.sampling.loader",
    "NeighborSampler": "pygsage.sampling.sampler",
    "OnDiskGraphs": "pygsage.data.store.on_disk",
    "PygsageError": "pygsage.errors",
    "Recipe": "pygsage.data.recipe",
    "RunError": "pygsage.errors",
    "Stopped": "pygsage.errors",
    "TrainConfig": "pygsage.config",
    "TrainResult": "pygsage.training.result",
    "TrainingError": "pygsage.errors",
    "estimate_memory": "pygsage.data.memory",
    "layerwise_inference": "pygsage.nn.inference",
    "open_dataset": "pygsage.data.store.recipe_dataset",
    "predict": "pygsage.training.predict",
    "to_on_disk_dataset": "pygsage.data.store.convert",
    "train": "pygsage.training.launch",
}

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'pygsage' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
