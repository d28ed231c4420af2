"""`pygsage info`: describes a dataset or a run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pygsage.cli.parser import parse
from pygsage.config import InfoConfig, TrainConfig, read_config_file
from pygsage.errors import RunError

_MOST_CLASSES = 40  # lines of the table; --json has every class


def run(argv: Sequence[str]) -> int:
    """Parses the options, looks, and prints.

    Raises:
        PygsageError: when the target is neither a dataset that can be read nor a run.
    """
    config = InfoConfig(**parse(InfoConfig, argv, "info", {}))
    folder = Path(os.path.expanduser(config.target))
    if any(os.path.isfile(folder / name) for name in ("config.yaml", "metrics.jsonl")):
        answer = describe_run(folder)
        text = run_text(answer)
    else:
        answer = describe_dataset(config)
        text = dataset_text(answer)
    print(json.dumps(answer, allow_nan=False) if config.json else text)
    return 0


def describe_run(folder: Path) -> dict[str, Any]:
    """What a run directory says of its run, as plain values: dataset, config, epochs, best epoch, scores.

    Raises:
        RunError: when it has no config, or its metrics cannot be read.
    """
    if not (folder / "config.yaml").is_file():
        raise RunError(f"{folder} has no config.yaml; expected a run directory.")
    options = read_config_file(folder / "config.yaml")
    events = _read_events(folder / "metrics.jsonl")
    validations = [event for event in events if event["event"] == "val"]
    best = max(validations, key=lambda event: _score(event), default=None)  # the first of equals, as in training
    tests = [event for event in events if event["event"] == "test"]
    return {
        "kind": "run",
        "run_dir": str(folder),
        "dataset": options.get("dataset"),
        "config": options,
        "epochs": max((int(event["epoch"]) for event in events if event["event"] == "epoch"), default=0),
        "best_epoch": best["epoch"] if best else None,
        "val": _metrics(best),
        "test": _metrics(tests[-1] if tests else None),
        "finished": bool(tests),
    }


def run_text(answer: dict[str, Any]) -> str:
    """A run's description for people."""
    lines = [f"run          {answer['run_dir']}", f"dataset      {answer['dataset']}"]
    lines.append(f"epochs       {answer['epochs']}")
    if answer["best_epoch"] is not None:
        lines.append(f"best epoch   {answer['best_epoch']} (on validation)")
    for split in ("val", "test"):
        if answer[split]:
            shown = ", ".join(f"{name} {_number(value)}" for name, value in answer[split].items())
            lines.append(f"{split:<12} {shown}")
    if not answer["test"]:
        lines.append("test         no score yet")
    lines.append("config")
    lines += [f"  {name}: {_option(value)}" for name, value in answer["config"].items()]
    return "\n".join(lines)


def describe_dataset(config: InfoConfig) -> dict[str, Any]:
    """What a dataset holds, as plain values: counts, degrees, splits, classes, bytes, notes.

    Raises:
        DatasetError: when it cannot be read or is malformed.
    """
    import torch

    from pygsage.data.open import open_graph

    wanted = TrainConfig(dataset=config.target, root=config.root, offline=config.offline)
    graph = open_graph(wanted, need_split=False)
    degrees = graph.indptr.diff()
    connected = degrees > 0
    connected[graph.indices.long()] = True
    labels = {"all": graph.y[graph.y >= 0]} | {name: graph.y[ids] for name, ids in graph.splits.items()}
    counts = {name: torch.bincount(y, minlength=graph.num_classes).tolist() for name, y in labels.items()}
    arrays = graph.arrays()
    return {
        "kind": "dataset",
        "dataset": graph.name,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "num_labelled": len(labels["all"]),
        "in_degree": {
            "min": int(degrees.min()),
            "mean": graph.num_edges / graph.num_nodes,
            "max": int(degrees.max()),
            "none": int((degrees == 0).sum()),
        },
        "num_isolated": int((~connected).sum()),
        "splits": {name: len(ids) for name, ids in graph.splits.items()},
        "classes": [{name: counts[name][label] for name in counts} for label in range(graph.num_classes)],
        "arrays": {
            name: {
                "dtype": str(array.dtype).removeprefix("torch."),
                "shape": list(array.shape),
                "bytes": array.nbytes,
            }
            for name, array in arrays.items()
        },
        "bytes": sum(array.nbytes for array in arrays.values()),
        "notes": list(graph.notes),
    }


def dataset_text(answer: dict[str, Any]) -> str:
    """A dataset's description for people."""
    degree = answer["in_degree"]
    lines = [
        f"dataset      {answer['dataset']}",
        f"nodes        {answer['num_nodes']:,} ({answer['num_isolated']:,} isolated)",
        f"edges        {answer['num_edges']:,} directed",
        f"in-degree    {degree['min']:,} to {degree['max']:,}, mean {degree['mean']:.1f}; {degree['none']:,} without",
        f"features     {answer['num_features']:,}",
        f"labels       {answer['num_labelled']:,} nodes, {answer['num_classes']:,} classes",
    ]
    shown = ", ".join(f"{name} {size:,}" for name, size in answer["splits"].items())
    lines.append(f"splits       {shown or 'none'}")
    lines.append(f"memory       {_size(answer['bytes'])}")
    for name, array in answer["arrays"].items():
        shape = " x ".join(f"{n:,}" for n in array["shape"])
        lines.append(f"  {name:<11} {array['dtype']} {shape}, {_size(array['bytes'])}")
    names = list(answer["classes"][0])
    width = max(len(f"{answer['num_nodes']:,}"), 5)
    lines.append("class        " + "  ".join(f"{name:>{width}}" for name in names))
    for label, row in enumerate(answer["classes"][:_MOST_CLASSES]):
        lines.append(f"  {label:<11}" + "  ".join(f"{row[name]:>{width},}" for name in names))
    if len(answer["classes"]) > _MOST_CLASSES:
        lines.append(f"  … {len(answer['classes']) - _MOST_CLASSES:,} more: see --json")
    lines += [f"note: {note}" for note in answer["notes"]]
    return "\n".join(lines)


def _read_events(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from None
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            known = isinstance(event, dict) and "event" in event and "epoch" in event
        except ValueError:
            known = False
        if known:
            events.append(event)
        elif number < len(lines):  # the last line of a run that was killed may be cut short
            raise RunError(f"{path} is damaged at line {number}; expected one JSON object a line.")
    return events


def _score(event: dict[str, Any]) -> float:
    score = float(event.get("accuracy", math.nan))
    return -math.inf if math.isnan(score) else score


def _metrics(event: dict[str, Any] | None) -> dict[str, Any]:
    kept = {name: value for name, value in (event or {}).items() if name not in ("event", "epoch", "seconds")}
    # JSON has no NaN.
    return {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in kept.items()}


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _option(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _size(num_bytes: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} B"
