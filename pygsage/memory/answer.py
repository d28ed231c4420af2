"""The whole answer of `estimate-memory`: shape, ways, machine, decision; as a table and as JSON."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pygsage.config import TrainConfig
from pygsage.errors import DatasetError
from pygsage.memory.decide import Decision, decide, size_text
from pygsage.memory.degrees import SampledBatch
from pygsage.memory.estimate import (
    BUILD_BYTES,
    RANK_BYTES,
    Estimate,
    edges_in_use,
    estimate,
    rule_of_thumb_bytes,
)
from pygsage.memory.gpus import read_gpus
from pygsage.memory.hot import hot_rows, is_cold, remote_rows, with_hot_rows
from pygsage.memory.machine import Machine, read_machine
from pygsage.memory.options import EstimateConfig
from pygsage.memory.placement import NO_GPU, PlacementChoice, choose_placement, staging_bytes
from pygsage.memory.rows import PHASES, PLACES
from pygsage.memory.shapes import IN_PYTHON, DatasetShape, shape_from_numbers, shape_of
from pygsage.memory.training import Training, batch_of, resolve
from pygsage.spelling import gpus_of, parse_size

_PLACES = {
    "RAM, shared": "once a machine",
    "RAM, per rank": "the first rank's peak",
    "/dev/shm": "nothing of ours",
    "files, mapped": "pages that the kernel takes back when it must",
    "disk": "files of the dataset, and scratch",
    "GPU": "each",
}


@dataclass(frozen=True)
class MemoryAnswer:
    """Everything that is known before a dataset is read.

    Attributes:
        shape: Counts and dtypes, and where they come from.
        training: The options in force.
        batch: Sizes of a batch.
        memory: Our way in memory.
        disk: Our way on disk.
        pyg: PyG's own way.
        machine: What there is.
        decision: Where to hold it.
        build_bytes: RAM for sorting edges while a graph is built on disk.
        hot_rows: Rows of the features that each rank holds in RAM when it trains from disk.
        typed: The options of `train` that were given, as they are typed; the next command has them too.
        placement: Where features, batches and model lie, and whether that fits the GPUs.
    """

    shape: DatasetShape
    training: Training
    batch: SampledBatch
    memory: Estimate
    disk: Estimate
    pyg: Estimate
    machine: Machine
    decision: Decision
    build_bytes: int = BUILD_BYTES
    hot_rows: int = 0
    typed: str = ""
    placement: PlacementChoice = NO_GPU

    @property
    def exit_status(self) -> int:
        """0 when it fits in memory, 3 on disk only, 4 neither or not on its GPU."""
        return self.decision.exit_status if self.placement.fits else 4

    @property
    def chosen(self) -> Estimate:
        """The estimate of the way that was decided on; in memory when neither fits."""
        return self.disk if self.decision.storage == "disk" else self.memory

    def sentence(self) -> str:
        """One line for a run to print."""
        return f"memory: {self.decision.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; sizes in bytes."""
        shape = {k: v for k, v in vars(self.shape).items() if k not in ("degrees", "mapped", "sizes")}
        return {
            "dataset": {**shape, "notes": list(self.shape.notes), "mapped": sorted(self.shape.mapped)},
            "training": {**asdict(self.training), "fanouts": list(self.training.fanouts)},
            "batch": {
                "nodes": [round(n) for n in self.batch.num_nodes],
                "edges": [round(n) for n in self.batch.num_edges],
                "basis": self.batch.basis,
            },
            "ways": {way.way: _way(way) for way in (self.memory, self.disk, self.pyg)},
            "rule_of_thumb_bytes": rule_of_thumb_bytes(self.shape),
            "machine": {
                "memory_available_bytes": self.decision.available_bytes,
                "memory_available_source": self.decision.available_source,
                "memory_limit_bytes": self.machine.memory_limit_bytes,
                "memory_limit_source": self.machine.memory_limit_source,
                "memory_of_host_bytes": self.machine.memory_of_host_bytes,
                "shm_free_bytes": self.machine.shm_free_bytes,
                "disk_free_bytes": self.machine.disk_free_bytes,
                "num_cores": self.machine.num_cores,
            },
            "decision": self.decision.storage,
            "reason": self.decision.reason,
            "placement": asdict(self.placement),
            "exit_status": self.exit_status,
            "next_command": self.next_command(),
        }

    def next_command(self) -> str:
        """What to type next."""
        if self.shape.name == IN_PYTHON:
            return {"memory": "pygsage.train(dataset)", "disk": 'pygsage.train(dataset, storage="disk")'}.get(
                self.decision.storage, "pygsage.estimate_memory(dataset, batch_size=…, fanouts=…)"
            )
        dataset = self.shape.train_as or self.shape.name
        more = f" {self.typed}" if self.typed else ""
        if self.placement.fits and self.decision.storage == "memory":
            return f"pygsage train {dataset}{more}"
        if self.placement.fits and self.decision.storage == "disk":
            return (
                f"pygsage train {dataset}{more}  # builds it on disk by itself; or first: pygsage convert {dataset} OUT"
            )
        if self.decision.storage == "none" and self.disk.highest_phase() == "evaluate":
            return f"pygsage estimate-memory {self.shape.name}{more} --eval-every 0"
        smaller = max(1, self.training.batch_size // 4)
        fanouts = ",".join(str(k) if k < 0 else str(max(1, k // 2)) for k in self.training.fanouts)
        return f"pygsage estimate-memory {self.shape.name} --batch-size {smaller} --fanouts {fanouts}"

    def text(self) -> str:
        """The table for people."""
        return "\n".join(_text(self))


def answer(
    config: EstimateConfig | TrainConfig,
    *,
    shape: DatasetShape | None = None,
    machine: Machine | None = None,
    base_bytes: int | None = None,
    num_ranks: int | None = None,
    compiled: bool = True,
    gpu_free_bytes: int | None = None,
) -> MemoryAnswer:
    """Estimates and decides; reads headers, takes milliseconds, loads nothing beyond the standard library.

    Args:
        config: The options of `estimate-memory`, or those of a run.
        shape: What the dataset holds, where it is known already; else it is found out from `config.dataset`.
        machine: What there is; read when it is not given.
        base_bytes: What this process, one of the ranks, takes without data, as it has measured; it counts as
            available then. Constants serve when it is not given.
        num_ranks: Ranks of this machine, where a launcher has decided.
        compiled: Whether the native core serves.
        gpu_free_bytes: What the GPU with the least has free; the driver is asked when it is not given.

    Raises:
        DatasetError: when the dataset's size cannot be known beforehand.
    """
    folder = getattr(config, "disk", None) or getattr(config, "run_dir", None) or "."
    machine = machine or read_machine(folder=os.path.expanduser(folder))
    if base_bytes is not None and machine.memory_available_bytes is not None:
        machine = replace(machine, memory_available_bytes=machine.memory_available_bytes + base_bytes)
    shape = shape or _shape(config)
    if shape.num_nodes < 1:
        raise DatasetError(f"{shape.name} has no nodes; expected at least one.", "Look at the shape of its x.")
    unit = "graph" if shape.num_graphs > 1 else "node"
    training = resolve(config, unit, machine.num_cores, gpus_of_driver(), num_ranks)
    limit = parse_size(config.memory_limit, "--memory-limit") if config.memory_limit is not None else None
    available = limit if limit is not None else machine.memory_available_bytes
    x_bytes = shape.num_nodes * shape.num_features * (2 if shape.x_dtype == "float16" else 4)
    cold = shape.num_graphs == 1 and (is_cold(x_bytes, available) or shape.num_parts > 0)
    placement = _placement(config, shape, training, available, gpu_free_bytes)
    training = replace(training, placement=placement.kind)
    build = build_bytes(available, RANK_BYTES if base_bytes is None else base_bytes)
    ways = {
        way: estimate(
            shape,
            training,
            way,
            base_bytes=base_bytes,
            compiled=compiled,
            build_bytes=build,
            cold=cold and (way == "disk" or (way == "memory" and shape.made == "folder")),
        )
        for way in ("memory", "disk", "pyg")
    }
    share = config.memory_share if isinstance(config, EstimateConfig) else 0.5
    decision = decide(ways["memory"], ways["disk"], machine, limit, share)
    num_edges = edges_in_use(shape, training)
    # A cache takes what is left: it decides nothing. A graph of ours is mapped either way.
    hot = 0
    if shape.num_parts:
        hot = remote_rows(shape, ways["disk"], getattr(config, "remote_cache", "0"), available)
    elif decision.storage == "disk" or shape.made == "folder" or getattr(config, "storage", "") == "disk":
        hot = hot_rows(shape, ways["disk"], num_edges, available)
    for way in ("memory", "disk") if shape.made == "folder" else ("disk",):
        ways[way] = with_hot_rows(ways[way], shape, hot)
    return MemoryAnswer(
        shape=shape,
        training=training,
        batch=batch_of(shape, training, num_edges),
        memory=ways["memory"],
        disk=ways["disk"],
        pyg=ways["pyg"],
        machine=machine,
        decision=decision,
        build_bytes=build,
        hot_rows=hot,
        placement=placement,
    )


def _placement(
    config: EstimateConfig | TrainConfig,
    shape: DatasetShape,
    training: Training,
    available: int | None,
    gpu_free_bytes: int | None,
) -> PlacementChoice:
    if not training.num_gpus:
        return NO_GPU
    if gpu_free_bytes is None:
        gpus, told = read_gpus(), gpus_of(config.placement, config.gpus)
        used = [gpus[i] for i in told if i < len(gpus)] if isinstance(told, list) else gpus[:told]
        gpu_free_bytes = min((gpu.free_bytes for gpu in used), default=None)
    kinds = ["cpu-cuda", "pinned-cuda"]
    if shape.num_graphs == 1 and not shape.num_parts and not training.gpu_cache_bytes:
        kinds.append("cuda-cuda")
    if config.placement not in ("auto", *kinds):
        kinds.append(config.placement)
    needs = {kind: estimate(shape, replace(training, placement=kind)).gpu_bytes for kind in kinds}
    pinned = 0
    if shape.num_graphs == 1:
        batch = batch_of(shape, training, edges_in_use(shape, training))
        pinned = training.num_ranks * staging_bytes(shape, replace(training, placement="pinned-cuda"), batch)
    return choose_placement(config.placement, needs, gpu_free_bytes, pinned, available)


def build_bytes(available: int | None, base_bytes: int) -> int:
    """RAM for sorting edges: 256 MiB, less on a small machine, at least 32 MiB."""
    return BUILD_BYTES if available is None else max(32 << 20, min(BUILD_BYTES, (available - base_bytes) // 3))


def gpus_of_driver(root: Path = Path("/")) -> int:
    """How many GPUs NVIDIA's driver tells of; 0 where it tells none."""
    try:
        return sum(1 for _ in (root / "proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return 0


def _shape(config: EstimateConfig | TrainConfig) -> DatasetShape:
    if config.dataset or not isinstance(config, EstimateConfig):
        return shape_of(config.dataset, config.root)
    return shape_from_numbers(
        config.num_graphs or 1,
        config.avg_nodes or 0,
        config.avg_edges or 0,
        config.num_features or 0,
        dtype=config.dtype,
        num_classes=config.num_classes,
        edge_features=config.edge_features,
        degree=None if config.degree == "unknown" else config.degree,
    )


def _way(way: Estimate) -> dict[str, Any]:
    return {
        "peak_bytes": way.peak_bytes,
        "need_bytes": way.need_bytes,
        "disk_bytes": way.disk_bytes,
        "gpu_bytes": way.gpu_bytes,
        "launcher_bytes": way.launcher_bytes,
        "phases": {
            phase: {
                "ram_bytes": way.ram_bytes(phase),
                **{f"{place}_bytes": way.place_bytes(phase, place) for place in PLACES},
                "rows": [
                    {"place": r.place, "what": r.what, "bytes": r.num_bytes, "formula": r.formula, "kind": r.kind}
                    for r in way.rows
                    if r.phase == phase
                ],
            }
            for phase in way.phases()
        },
    }  # fmt: skip


def _text(a: MemoryAnswer) -> list[str]:
    s, t = a.shape, a.training
    graphs = f"{s.num_graphs:,} graphs, " if s.num_graphs > 1 else ""
    lines = [
        f"Memory of {s.name}: {graphs}{s.num_nodes:,} nodes, {s.num_edges:,} edges, {s.num_features:,} features "
        f"({s.x_dtype}), {s.num_classes:,} outputs",
        f"  from {s.source}",
        f"  batch {t.batch_size:,}, fanouts {','.join(map(str, t.fanouts))}, hidden {t.hidden}, {t.num_ranks} "
        f"rank{'s' if t.num_ranks > 1 else ''}, {t.num_gpus or 'no'} GPU{'s' if t.num_gpus > 1 else ''}, "
        f"{t.sampler_threads} sampler thread{'s' if t.sampler_threads > 1 else ''}",
        f"  a batch: {' -> '.join(f'{n:,.0f}' for n in a.batch.num_nodes)} nodes ({a.batch.basis})",
        "",
    ]
    lines += _table(
        ("phase, RAM of all ranks", "in memory", "on disk", "PyG's own"),
        [
            (phase, *(size_text(w.ram_bytes(phase)) if phase in w.phases() else "-" for w in (a.memory, a.disk, a.pyg)))
            for phase in PHASES
            if any(phase in w.phases() for w in (a.memory, a.disk, a.pyg))
        ]
        + [("the most, with the launcher", *(size_text(w.need_bytes) for w in (a.memory, a.disk, a.pyg)))],
    )
    chosen = a.chosen
    peak = max(chosen.phases(), key=chosen.ram_bytes)
    places = {
        "RAM, shared": max(chosen.place_bytes(p, "shared") for p in chosen.phases()),
        "RAM, per rank": max(chosen.place_bytes(p, "rank") for p in chosen.phases()),
        "/dev/shm": max(chosen.place_bytes(p, "shm") for p in chosen.phases()),
        "files, mapped": max(chosen.place_bytes(p, "mapped") for p in chosen.phases()),
        "disk": chosen.disk_bytes,
        "GPU": chosen.gpu_bytes,
    }
    lines += ["", f"By place, {'on disk' if chosen.way == 'disk' else 'in memory'}:"]
    lines += [f"  {name:<14} {_gib(size):>12}   {_PLACES[name]}" for name, size in places.items()]
    lines += ["", f"The highest phase, {peak}, row by row:"]
    lines += [
        f"  {row.place:<7} {size_text(row.num_bytes):>11}   {row.what}: {row.formula}"
        for row in chosen.rows
        if row.phase == peak and row.num_bytes and row.place != "gpu"
    ]
    rule = rule_of_thumb_bytes(s)
    lines += [
        "",
        f"rule of thumb  {size_text(rule)} (nodes x features x 4: without edges, labels, copies, the process); true "
        f"{size_text(chosen.need_bytes)}",
    ]
    have, host = a.decision.available_bytes, a.machine.memory_of_host_bytes
    if have is not None:
        whole = f", of {size_text(host)} in the host" if host is not None else ""
        lines.append(f"machine        {size_text(have)} available ({a.decision.available_source}){whole}")
    if a.placement.reason:
        lines.append(f"placement      {a.placement.reason}")
    lines += [f"note: {note}" for note in s.notes]
    return [*lines, f"decision       {a.decision.reason}", f"next           {a.next_command()}"]


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:,.2f} GiB"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    all_rows = [head, *rows]
    sizes = [max(len(row[i]) for row in all_rows) for i in range(len(head))]
    rule = ["+".join("-" * (size + 2) for size in sizes)]

    def line(row: tuple[str, ...]) -> str:
        cells = [
            f" {cell:<{size}} " if i == 0 else f" {cell:>{size}} "
            for i, (cell, size) in enumerate(zip(row, sizes, strict=True))
        ]
        return "|".join(cells).rstrip()

    return [line(head), *rule, *map(line, rows[:-1]), *rule, line(rows[-1])]
