"""`pygsage convert`."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from pygsage.cli.parser import parse
from pygsage.config import ConvertConfig, TrainConfig


def run(argv: Sequence[str]) -> int:
    """Parses the options, converts, and says what was written.

    Raises:
        PygsageError: when the dataset cannot be read, or the folder exists.
    """
    config = ConvertConfig(**parse(ConvertConfig, argv, "convert", {}))
    answer = _convert(config)
    if config.json:
        print(json.dumps(answer))
    elif not config.quiet:
        for note in answer["notes"]:
            print(f"note: {note}")
        skipped = f", {len(answer['skipped'])} skipped" if answer["skipped"] else ""
        graphs = "1 graph" if answer["num_graphs"] == 1 else f"{answer['num_graphs']:,} graphs"
        print(f"{graphs}{skipped} in {answer['store']}: {answer['bytes'] / 2**20:,.1f} MiB")
    return 0


def _convert(config: ConvertConfig) -> dict[str, Any]:
    from pygsage.data.names import refuse_inside

    out = Path(os.path.expanduser(config.out))
    refuse_inside(os.path.expanduser(config.dataset), out)
    with _source(config) as source:
        if source is None:
            return _save_graph(config, out)
        from pygsage.data.store.column_store import open_manifest
        from pygsage.data.store.convert import to_on_disk_dataset

        with _progress(config, _count(source)) as progress, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # they are among the notes
            to_on_disk_dataset(
                source,
                out,
                config.backend,
                overwrite=config.overwrite,
                resume=config.resume,
                missing=config.missing,
                on_error=config.on_error,
                progress=progress,
                log=not (config.quiet or config.json),
            )
    manifest = open_manifest(out.absolute())
    told = {name: manifest[name] for name in ("num_graphs", "backend", "skipped", "notes")}
    return {"store": str(out), **told, "bytes": _size(out)}


@contextmanager
def _source(config: ConvertConfig) -> Iterator[Any]:
    """The dataset of many graphs that is named, or None for one graph."""
    from pygsage.data.store.column_store import is_store

    text = os.path.expanduser(config.dataset)
    if os.path.isdir(text) and is_store(text):
        from pygsage.data.store.on_disk import OnDiskGraphs

        yield OnDiskGraphs(text)
        return
    from pygsage.data.names import parse_reference

    reference = parse_reference(config.dataset)
    if reference.kind == "pyg":
        from pygsage.data.sources.pyg import open_pyg

        dataset, _ = open_pyg(reference, config.root, offline=config.offline)
        yield dataset if len(dataset) != 1 else None
    elif reference.kind == "digits-grid":
        from pygsage.data.sources.digits_grid import digits_grid

        yield digits_grid(seed=0)[0]
    elif reference.kind == "ogb-graphs":
        from pygsage.data.sources.ogb_graphs import open_ogb_graphs

        found = open_ogb_graphs(reference, config.root, offline=config.offline, quiet=config.quiet)
        yield found.graphs_with_splits()
    elif reference.kind == "recipe":
        from pygsage.data.sources.recipe import holds_one_graph, open_recipe

        if config.backend == "columnar" and holds_one_graph(reference, config.root):
            yield None
            return
        with open_recipe(reference, config.root) as recipe:
            yield recipe
    else:
        yield None


def _save_graph(config: ConvertConfig, out: Path) -> dict[str, Any]:
    from pygsage.data.names import parse_reference
    from pygsage.data.one_graph.build import build_graph
    from pygsage.data.open import read_source
    from pygsage.data.storage import check_build, fingerprint_of
    from pygsage.errors import ConfigError

    if config.backend != "columnar":
        raise ConfigError(
            f"{config.dataset} is one graph, which --backend {config.backend} does not hold.", "Leave it out."
        )
    shared = {f.name for f in fields(ConvertConfig)} & {f.name for f in fields(TrainConfig)}
    named = TrainConfig(**{name: getattr(config, name) for name in shared})
    budget = check_build(named, out)
    graph = build_graph(
        lambda scratch: read_source(named, scratch),
        named,
        out,
        fingerprint_of(named, parse_reference(named.dataset)),
        need_split=False,
        budget_bytes=budget,
        overwrite=config.overwrite,
        unfinished="resume" if config.resume else "restart" if config.overwrite else "refuse",
    )
    told = {"num_graphs": 1, "backend": "columnar", "skipped": [], "notes": list(graph.notes)}
    return {"store": str(out), **told, "bytes": _size(out)}


@contextmanager
def _progress(config: ConvertConfig, num_graphs: int | None) -> Iterator[Any]:
    """A bar with the rate and the time left, on a terminal."""
    from tqdm import tqdm

    hidden = True if config.quiet or config.json else None  # None: where there is no terminal
    with tqdm(total=num_graphs, unit=" graphs", disable=hidden, smoothing=0.05) as bar:
        first_bytes: list[int] = []

        def show(num_done: int, num_bytes: int) -> None:
            if not first_bytes:
                bar.initial = bar.n = num_done - 1  # those that an interrupted conversion had written
                first_bytes.append(num_bytes)
            if bar.update(num_done - bar.n) and bar.format_dict["elapsed"]:
                rate = (num_bytes - first_bytes[0]) / 1e6 / bar.format_dict["elapsed"]
                bar.set_postfix_str(f"{rate:.0f} MB/s", refresh=False)

        yield show


def _count(source: Any) -> int | None:
    from pygsage.data.recipe import Recipe

    if isinstance(source, Recipe):
        return source.num_graphs
    return len(source) if hasattr(source, "__len__") else None


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
