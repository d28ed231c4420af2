"""From `--gpus`, `--placement` and `--gpu-cache-size` to devices and a placement that fits on them."""

from __future__ import annotations

from dataclasses import replace

import torch

from pygsage.config import TrainConfig
from pygsage.data.many_graphs.graph_set import GraphSet
from pygsage.data.storage import Storage
from pygsage.devices import choose_devices
from pygsage.distributed import World
from pygsage.errors import EnvironmentLimitError
from pygsage.memory.answer import answer
from pygsage.memory.placement import NO_GPU, PlacementChoice
from pygsage.memory.shapes import shape_from_numbers
from pygsage.sampling.placement import Placement
from pygsage.spelling import gpus_of, parse_size
from pygsage.training.problem import Problem


def devices_of(config: TrainConfig) -> list[torch.device]:
    """The devices of this machine's processes, by local rank, as `choose_devices`.

    Raises:
        EnvironmentLimitError: as there, and when a placement or a cache wants a GPU and there is none.
    """
    devices = choose_devices(gpus_of(config.placement, config.gpus), config.procs)
    told = f"--placement {config.placement}" if config.placement.endswith("-cuda") else "--gpu-cache-size"
    if devices[0].type == "cpu" and (config.gpu_cache_size is not None or config.placement.endswith("-cuda")):
        built = "" if torch.version.cuda or torch.version.hip else ": it was built without CUDA"
        raise EnvironmentLimitError(
            f"{told} needs a GPU, and torch finds none{built}.", "Leave it out to train on the CPU."
        )
    return devices


def on_devices(config: TrainConfig, world: World) -> TrainConfig:
    """The same options where `--gpus auto` has found none: the driver may tell of some that torch cannot use."""
    return replace(config, gpus="0") if world.device.type == "cpu" and config.gpus == "auto" else config


def free_on_gpus(world: World) -> int | None:
    """What the GPU with the least memory free among all ranks' has, in bytes; None without. Collective."""
    own = torch.cuda.mem_get_info(world.device)[0] if world.device.type == "cuda" else None
    free: list[int] = [each for each in world.gather(own) if each is not None]
    return min(free, default=None)


def checked_placement(
    config: TrainConfig, world: World, storage: Storage | None, free_bytes: int | None, problem: Problem | None = None
) -> PlacementChoice | None:
    """The placement of this machine's ranks; None as long as the size of the dataset is not known.

    Args:
        storage: With the estimate, where there is one.
        free_bytes: From `free_on_gpus`.
        problem: The dataset, once it is open.

    Raises:
        EnvironmentLimitError: when it does not fit on a GPU; exit status 4.
    """
    if world.device.type == "cpu":
        return NO_GPU
    if storage is not None and storage.told is not None:
        choice = storage.told.placement
    elif problem is not None:
        choice = _of_data(on_devices(config, world), world, problem, free_bytes)
    else:
        return None
    if choice.fits:
        return choice
    advice = "Change --batch-size, --fanouts or --hidden, or type --gpus 0 to use the CPU."
    if config.gpu_cache_size is not None:
        advice = f"Type a smaller --gpu-cache-size than {config.gpu_cache_size}."
    elif config.placement not in ("auto", "cpu-cuda"):
        advice = "Leave --placement out to take what fits, or change --batch-size or --fanouts."
    error = EnvironmentLimitError(f"Training on {config.dataset} does not fit. {choice.reason}", advice)
    error.exit_status = 4
    raise error


def _of_data(config: TrainConfig, world: World, problem: Problem, free_bytes: int | None) -> PlacementChoice:
    data = problem.data
    num_graphs, dtype = 1, "float32"
    if isinstance(data, GraphSet):
        num_graphs = data.num_graphs
    elif getattr(data, "x", torch.empty(0)).dtype == torch.float16:
        dtype = "float16"
    nodes, edges = (getattr(data, name) / max(1, num_graphs) for name in ("num_nodes", "num_edges"))
    shape = shape_from_numbers(
        num_graphs, nodes, edges, data.num_features, dtype=dtype, num_classes=max(1, data.num_outputs)
    )
    return answer(config, shape=shape, num_ranks=world.local_size, gpu_free_bytes=free_bytes).placement


def placement(config: TrainConfig, kind: str, device: torch.device) -> Placement:
    """The placement of one rank."""
    cache = parse_size(config.gpu_cache_size, "--gpu-cache-size") if config.gpu_cache_size is not None else 0
    return Placement(kind, device, cache)
