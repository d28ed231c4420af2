"""Estimated against measured peak of `pygsage train`: `python tools/bench/estimate_accuracy.py`.

Each shape is written as an `.npz`, estimated from its headers, and trained in a process of its own; what is compared
is `peak_bytes` of its result (RssAnon + RssShmem). The bar is 10 % or 32 MiB. --phases compares phase by phase, each
wrapped from outside in `PeakMemory.phase`; --baseline measures the process without data; --only NAME,… picks shapes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20
BAR, BAR_BYTES = 0.10, 32 * MIB


@dataclass(frozen=True)
class Shape:
    """A graph to be made, and the options it is trained with. `hubs` draws destinations from a steep curve."""

    nodes: int
    degree: int
    features: int
    dtype: str = "float32"
    classes: int = 10
    hubs: bool = False
    compressed: bool = False
    train: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)


SHAPES = {
    "tiny": Shape(500, 4, 8),
    "small": Shape(10_000, 10, 64, options={"fanouts": (10, 10)}),
    "many features": Shape(20_000, 5, 2_000, options={"fanouts": (5, 5), "batch_size": 512}),
    "many edges": Shape(50_000, 80, 32, options={"fanouts": (10, 5), "hidden": 64}),
    "hubs": Shape(100_000, 14, 64, hubs=True, options={"fanouts": (15, 10), "hidden": 128}),
    "float16": Shape(150_000, 6, 256, dtype="float16", options={"fanouts": (5, 5), "hidden": 64}),
    "float64": Shape(100_000, 6, 256, dtype="float64", options={"fanouts": (5, 5), "hidden": 64}),
    "int8 packed": Shape(120_000, 8, 300, dtype="int8", compressed=True, options={"fanouts": (5, 5), "hidden": 32}),
    "middle": Shape(200_000, 10, 128, options={"fanouts": (10, 10)}),
    "three layers": Shape(100_000, 12, 100, options={"fanouts": (10, 10, 10), "hidden": 128}),
    "wide model": Shape(30_000, 10, 128, options={"fanouts": (10, 10), "hidden": 1_024}),
    "all neighbours": Shape(40_000, 6, 64, options={"fanouts": (-1, -1), "hidden": 128, "batch_size": 256}),
    "many classes": Shape(60_000, 8, 64, classes=1_000, options={"fanouts": (5, 5), "hidden": 64}),
    "large batches": Shape(
        100_000, 10, 64, train=0.5, options={"fanouts": (10, 5), "batch_size": 16_384, "hidden": 64}
    ),
    "undirected": Shape(80_000, 10, 64, options={"fanouts": (10, 10), "hidden": 64, "undirected": True}),
    "two ranks": Shape(150_000, 10, 128, options={"fanouts": (10, 10), "hidden": 128, "procs": 2}),
    "two small ranks": Shape(5_000, 8, 32, options={"fanouts": (5, 5), "procs": 2}),
}


def write(shape: Shape, path: Path) -> None:
    """Makes the graph: the same for the same shape."""
    import numpy as np

    rng = np.random.default_rng(0)
    num_edges = shape.nodes * shape.degree
    ends = rng.random((2, num_edges))
    if shape.hubs:
        ends **= 3
    edges = (ends * shape.nodes).astype(np.int64)
    x = rng.standard_normal((shape.nodes, shape.features), dtype=np.float32)
    x = (x * 20).astype(shape.dtype) if shape.dtype.startswith("int") else x.astype(shape.dtype)
    u = rng.random(shape.nodes)
    masks = {"train_mask": u < shape.train, "val_mask": (u >= shape.train) & (u < shape.train + 0.1)}
    masks["test_mask"] = ~(masks["train_mask"] | masks["val_mask"])
    y = rng.integers(0, shape.classes, shape.nodes)
    save = np.savez_compressed if shape.compressed else np.savez
    save(path, x=x, edge_index=edges, y=y, **masks)


def main() -> None:
    """Prints the table, and how many shapes meet the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=None, help="names of shapes, separated by commas")
    parser.add_argument("--phases", action="store_true", help="phase by phase (one process)")
    parser.add_argument("--baseline", action="store_true", help="measure the process without data")
    parser.add_argument("--run-phases", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.run_phases is not None:
        print(json.dumps(run_phases(told.run_phases)))
        return
    print(_versions(), flush=True)
    if told.baseline:
        print_baseline()
        return
    names = [name for name in SHAPES if told.only is None or name in told.only.split(",")]
    good = 0
    head = f"{'shape':<18} {'bound or degrees':<17}"
    print(f"{head} {'estimated':>10} {'measured':>10} {'ratio':>6} {'difference':>11}   in MiB", flush=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            good += compare(name, SHAPES[name], Path(folder), told.phases)
    print(f"{good} of {len(names)} within {BAR:.0%} or {BAR_BYTES // MIB} MiB")


def compare(name: str, shape: Shape, folder: Path, phases: bool) -> bool:
    """Estimates and trains one shape; prints a line, with `phases` one for each phase besides."""
    from pygsage.data.memory import estimate_memory

    path = folder / "graph.npz"
    write(shape, path)
    told = estimate_memory(str(path), gpus="0", **shape.options)
    words = [
        "train",
        str(path),
        "--gpus",
        "0",
        "--epochs",
        "2",
        "--max-steps",
        "30",
        "--seed",
        "1",
        "--json",
        "--quiet",
    ]
    for option, value in shape.options.items():
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{option.replace('_', '-')}"] if value is True else [f"--{option.replace('_', '-')}={shown}"]
    words += ["--run-dir", str(folder / "run")]
    apart = phases and told.training.num_ranks == 1
    command = (
        [sys.executable, __file__, "--run-phases", *words[1:]] if apart else [sys.executable, "-m", "pygsage", *words]
    )
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    basis = told.batch.basis.partition(":")[0].removesuffix(" distribution")
    met = _line(name, basis, told.memory.peak_bytes, result["peak_bytes"])
    for phase, measured in result.get("phases", {}).items():
        _line(f"  {phase}", "", told.memory.first_rank_bytes(phase), measured)
    return met


def _line(name: str, basis: str, estimated: int, measured: int) -> bool:
    difference = estimated - measured
    met = abs(difference) <= max(BAR * measured, BAR_BYTES)
    numbers = f"{estimated / MIB:10.1f} {measured / MIB:10.1f} {estimated / measured:6.2f} {difference / MIB:+11.1f}"
    print(f"{name:<18} {basis:<17} {numbers}   {'' if met else 'MISSED'}".rstrip(), flush=True)
    return met


def run_phases(words: list[str]) -> dict[str, Any]:
    """Trains in this process and notes the peak of each phase, entered where the trainer calls the next thing."""
    from pygsage.cli.train import resolve
    from pygsage.data import open as opening
    from pygsage.memory.peak import PeakMemory
    from pygsage.training import launch, loop

    memory = PeakMemory(interval_s=0.005)

    def wrap(home: Any, name: str, phase: str) -> None:
        function = getattr(home, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            with memory.phase(phase):
                return function(*arguments, **options)

        setattr(home, name, wrapped)

    for name in ("read_source", "check_features"):
        wrap(opening, name, "read")
    # One by one: when the first of them is called, features as they were stored are gone.
    for name in ("check_edges", "check_targets", "to_undirected", "add_self_loops", "build_csc"):
        wrap(opening, name, "process")
    wrap(loop.Trainer, "_train_epoch", "train")
    wrap(loop.Trainer, "evaluate", "evaluate")
    with memory:
        launch.train(resolve(words))
    phases = ("read", "process", "train", "evaluate")
    return {
        "peak_bytes": memory.peak_bytes,
        "phases": {p: memory.phase_bytes[p] for p in phases if p in memory.phase_bytes},
    }


def print_baseline() -> None:
    """What a rank takes without data: a graph of 50 nodes, one step; alone and as one of two."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.npz"
        write(Shape(50, 4, 4), path)
        for procs in (1, 2):
            words = ["train", str(path), "--gpus", "0", "--procs", str(procs), "--fanouts", "2,2", "--hidden", "8"]
            words += ["--max-steps", "1", "--json", "--quiet", "--run-dir", f"{folder}/run{procs}"]
            done = subprocess.run(
                [sys.executable, "-m", "pygsage", *words], stdout=subprocess.PIPE, text=True, check=True
            )
            peak = json.loads(done.stdout.splitlines()[-1])["peak_bytes"]
            print(f"{procs} rank{'s' if procs > 1 else ' '}: {peak / procs / MIB:.1f} MiB each")


def _versions() -> str:
    import torch
    import torch_geometric

    from pygsage.memory.machine import read_machine

    machine = read_machine()
    torches = f"torch {torch.__version__}, PyG {torch_geometric.__version__}"
    memory = (machine.memory_of_host_bytes or 0) / 2**30
    return (
        f"{torches}, Python {platform.python_version()}, {os.cpu_count()} cores, {memory:.1f} GiB, {platform.machine()}"
    )


if __name__ == "__main__":
    main()
