"""`pygsage info`: describes a dataset or a run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pygsage.cli.parser import parse
from pygsage.cli.stores import describe_store, size_text, store_text
from pygsage.config import LOWER_IS_BETTER, InfoConfig, TrainConfig, read_config_file
from pygsage.errors import RunError, in_words

if TYPE_CHECKING:
    from torch import Tensor

    from pygsage.data.many_graphs.graph_set import GraphSet
    from pygsage.data.one_graph.graph import Graph

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
    elif os.path.isfile(folder / "manifest.json"):
        answer = describe_folder(folder, config.verify)
        text = store_text(answer) if answer["kind"] == "store" else dataset_text(answer)
    else:
        answer = describe_dataset(config)
        text = dataset_text(answer)
    print(json.dumps(answer, allow_nan=False) if config.json else text)
    return 0


def describe_run(folder: Path) -> dict[str, Any]:
    """What a run directory says of its run, as plain values: dataset, config, epochs, metric, best epoch, scores.

    Raises:
        RunError: when it has no config, or its metrics cannot be read.
    """
    if not (folder / "config.yaml").is_file():
        raise RunError(f"{folder} has no config.yaml; expected a run directory.")
    options = read_config_file(folder / "config.yaml")
    events = _read_events(folder / "metrics.jsonl")
    validations = [event for event in events if event["event"] == "val"]
    tests = [event for event in events if event["event"] == "test"]
    metric = _metric(options, [*validations, *tests])
    best = max(
        validations, key=lambda event: _score(event, metric), default=None
    )  # the first of equals, as in training
    return {
        "kind": "run",
        "run_dir": str(folder),
        "dataset": options.get("dataset"),
        "config": options,
        "epochs": max((int(event["epoch"]) for event in events if event["event"] == "epoch"), default=0),
        "metric": metric,
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
        lines.append(f"best epoch   {answer['best_epoch']} (on validation, by {answer['metric']})")
    for split in ("val", "test"):
        if answer[split]:
            shown = ", ".join(f"{name} {_number(value)}" for name, value in answer[split].items())
            lines.append(f"{split:<12} {shown}")
    if not answer["test"]:
        lines.append("test         no score yet")
    lines.append("config")
    lines += [f"  {name}: {_option(value)}" for name, value in answer["config"].items()]
    return "\n".join(lines)


def describe_folder(folder: Path, verify: bool = False) -> dict[str, Any]:
    """What the folder of a store of many graphs holds, as `describe_store`, or of one graph, as `describe_dataset`.

    Raises:
        DatasetError: when it is damaged or another's.
    """
    from pygsage.data.one_graph.graph import Graph
    from pygsage.data.store.column_store import is_store

    if is_store(folder):
        return describe_store(folder, verify)
    if verify:
        Graph.verify(folder)
    return {**_describe(Graph.open(folder)), "folder": str(folder), **({"verified": True} if verify else {})}


def describe_dataset(config: InfoConfig) -> dict[str, Any]:
    """What a dataset holds, as plain values: counts, degrees, splits, labels, bytes, notes.

    Raises:
        DatasetError: when it cannot be read or is malformed.
    """
    from contextlib import ExitStack

    from pygsage.data.many_graphs.graph_set import GraphSet
    from pygsage.data.open_many import open_data

    wanted = TrainConfig(
        dataset=config.target, root=config.root, offline=config.offline, trust_pickle=config.trust_pickle
    )
    with ExitStack() as stack:
        found, _ = open_data(wanted, stack, need_split=False)
        return _describe_graphs(found) if isinstance(found, GraphSet) else _describe(found)


def _describe_graphs(graphs: GraphSet) -> dict[str, Any]:
    labels = {"all": graphs.y} | {name: graphs.y[ids] for name, ids in graphs.splits.items()}
    known = graphs.y >= 0 if graphs.task == "classes" else ~graphs.y.isnan().all(1)
    counts = ("num_graphs", "num_nodes", "num_edges", "num_features", "task", "num_outputs", "num_classes")
    sizes = {
        name: {"min": int(size.min()), "mean": float(size.mean()), "max": int(size.max())}
        for name, size in (
            ("nodes", graphs.nodes[1:] - graphs.nodes[:-1]),
            ("edges", graphs.edges[1:] - graphs.edges[:-1]),
        )
    }
    return {
        "kind": "dataset",
        "dataset": graphs.name,
        **{name: getattr(graphs, name) for name in counts},
        "features": graphs.features.kind,
        "num_labelled": int(known.sum()),
        "sizes": sizes,
        "splits": {name: len(ids) for name, ids in graphs.splits.items()},
        **_labels(graphs, labels),
        "notes": list(graphs.notes),
    }


def _describe(graph: Graph) -> dict[str, Any]:
    degrees = graph.indptr.diff()
    connected = degrees > 0
    connected[graph.indices.long()] = True
    labels = {"all": graph.y} | {name: graph.y[ids] for name, ids in graph.splits.items()}
    known = graph.y >= 0 if graph.task == "classes" else ~graph.y.isnan().all(1)
    arrays = graph.arrays()
    return {
        "kind": "dataset",
        "dataset": graph.name,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "task": graph.task,
        "num_outputs": graph.num_outputs,
        "num_classes": graph.num_classes,
        "num_labelled": int(known.sum()),
        "in_degree": {
            "min": int(degrees.min()),
            "mean": graph.num_edges / graph.num_nodes,
            "max": int(degrees.max()),
            "none": int((degrees == 0).sum()),
        },
        "num_isolated": int((~connected).sum()),
        "splits": {name: len(ids) for name, ids in graph.splits.items()},
        **_labels(graph, labels),
        "arrays": {
            name: {
                "dtype": str(array.dtype).removeprefix("torch."),
                "shape": list(array.shape),
                "bytes": array.nbytes,
            }
            for name, array in arrays.items()
        },
        "bytes": sum(array.nbytes for array in arrays.values()),
        **(graph.parts.describe() if graph.parts is not None else {}),
        "notes": list(graph.notes),
    }


def _labels(graph: Graph | GraphSet, labels: dict[str, Tensor]) -> dict[str, Any]:
    """A row for each class, label or target, with a cell for all nodes and for each split."""
    if graph.task == "classes":
        counts = {name: y[y >= 0].bincount(minlength=graph.num_classes).tolist() for name, y in labels.items()}
        return {"classes": [{name: counts[name][label] for name in counts} for label in range(graph.num_classes)]}
    describe = _positives if graph.task == "multilabel" else _spread
    cells = {name: [describe(column) for column in y.unbind(1)] for name, y in labels.items()}
    rows = [{name: cells[name][column] for name in cells} for column in range(graph.num_outputs)]
    return {"classes": [], "labels" if graph.task == "multilabel" else "targets": rows}


def _positives(column: Tensor) -> dict[str, int]:
    known = column[~column.isnan()]
    return {"known": len(known), "positive": int(known.double().sum())}


def _spread(column: Tensor) -> dict[str, Any]:
    known = column[~column.isnan()].double()
    if not len(known):
        return {"known": 0, "min": None, "mean": None, "max": None, "std": None}
    found = {"min": known.min(), "mean": known.mean(), "max": known.max(), "std": known.std(correction=0)}
    return {"known": len(known), **{name: float(value) for name, value in found.items()}}


def dataset_text(answer: dict[str, Any]) -> str:
    """A dataset's description for people."""
    if "num_graphs" in answer:
        return _graphs_text(answer)
    degree = answer["in_degree"]
    lines = [
        f"dataset      {answer['dataset']}",
        f"nodes        {answer['num_nodes']:,} ({answer['num_isolated']:,} isolated)",
        f"edges        {answer['num_edges']:,} directed",
        f"in-degree    {degree['min']:,} to {degree['max']:,}, mean {degree['mean']:.1f}; {degree['none']:,} without",
        f"features     {answer['num_features']:,}",
        f"labels       {answer['num_labelled']:,} nodes, {_kinds(answer)}",
    ]
    shown = ", ".join(f"{name} {size:,}" for name, size in answer["splits"].items())
    lines.append(f"splits       {shown or 'none'}")
    lines.append(f"memory       {size_text(answer['bytes'])}")
    for name, array in answer["arrays"].items():
        shape = " x ".join(f"{n:,}" for n in array["shape"])
        lines.append(f"  {name:<11} {array['dtype']} {shape}, {size_text(array['bytes'])}")
    if "parts" in answer:
        from pygsage.data.one_graph.parts import parts_text

        lines += parts_text(answer)
    lines += _table(answer)
    lines += [f"note: {note}" for note in answer["notes"]]
    if answer.get("verified"):
        here = all(part["here"] for part in answer.get("parts", ()))
        lines.append(f"verified     every byte {'is' if here else 'that is here is'} as it was written")
    return "\n".join(lines)


def _graphs_text(answer: dict[str, Any]) -> str:
    sizes = {
        name: f"{size['min']:,} to {size['max']:,} a graph, mean {size['mean']:.1f}"
        for name, size in answer["sizes"].items()
    }
    splits = ", ".join(f"{name} {size:,}" for name, size in answer["splits"].items())
    lines = [
        f"dataset      {answer['dataset']}",
        f"graphs       {answer['num_graphs']:,}",
        f"nodes        {answer['num_nodes']:,}; {sizes['nodes']}",
        f"edges        {answer['num_edges']:,} directed; {sizes['edges']}",
        f"features     {answer['num_features']:,} ({answer['features']})",
        f"labels       {answer['num_labelled']:,} graphs, {_kinds(answer)}",
        f"splits       {splits or 'none'}",
        *_table(answer),
    ]
    return "\n".join(lines + [f"note: {note}" for note in answer["notes"]])


def _kinds(answer: dict[str, Any]) -> str:
    """What the labels are, such as `7 classes`."""
    if answer["task"] == "classes":
        return f"{answer['num_classes']:,} classes"
    plural = "s" if answer["num_outputs"] > 1 else ""
    what = "label" if answer["task"] == "multilabel" else "target"
    return f"{answer['num_outputs']:,} {what}{plural}, {answer['task']}"


def _table(answer: dict[str, Any]) -> list[str]:
    title, key, cell = {
        "classes": ("class", "classes", lambda value: f"{value:,}"),
        "multilabel": ("label", "labels", lambda value: f"{value['positive']:,} of {value['known']:,}"),
        "regression": ("target", "targets", _mean_and_spread),
    }[answer["task"]]
    rows = answer[key]
    shown = [[cell(value) for value in row.values()] for row in rows[:_MOST_CLASSES]]
    width = max(5, *(len(text) for row in shown for text in row))
    lines = [f"{title:<13}" + "  ".join(f"{name:>{width}}" for name in rows[0])]
    lines += [f"  {number:<11}" + "  ".join(f"{text:>{width}}" for text in row) for number, row in enumerate(shown)]
    if len(rows) > _MOST_CLASSES:
        lines.append(f"  … {len(rows) - _MOST_CLASSES:,} more: see --json")
    return lines


def _mean_and_spread(value: dict[str, Any]) -> str:
    return f"{value['mean']:.4g} ± {value['std']:.4g} of {value['known']:,}" if value["known"] else "none"


def _read_events(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read: {in_words(error)}.") from None
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


def _metric(options: dict[str, Any], scored: list[dict[str, Any]]) -> str:
    """The score that chose the best epoch: what training wrote beside the scores, or what it was told."""
    told = str(options.get("metric", "auto"))
    written = next((str(event["metric"]) for event in reversed(scored) if "metric" in event), told)
    return "accuracy" if written == "auto" else written


def _score(event: dict[str, Any], metric: str) -> float:
    """The higher the better."""
    try:
        score = float(event.get(metric, math.nan))
    except (TypeError, ValueError):
        score = math.nan
    return -math.inf if math.isnan(score) else -score if metric in LOWER_IS_BETTER else score


def _metrics(event: dict[str, Any] | None) -> dict[str, Any]:
    kept = {name: value for name, value in (event or {}).items() if name not in ("event", "epoch", "metric", "seconds")}
    # JSON has no NaN.
    return {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in kept.items()}


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _option(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
