"""What one process of a job does, from opening the dataset to the result."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pygsage import native
from pygsage.config import LOWER_IS_BETTER, TrainConfig
from pygsage.data.graph import Graph
from pygsage.data.open import open_graph
from pygsage.distributed import World, cores_per_process
from pygsage.errors import ConfigError, RunError, Stopped
from pygsage.memory.machine import read_machine
from pygsage.memory.peak import PeakMemory
from pygsage.native.memory import prefer_huge_pages
from pygsage.nn.sage import GraphSAGE
from pygsage.sampling.pipeline import BatchPipeline
from pygsage.sampling.sampler import NeighborSampler, resolve_backend
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.checkpoint import load_checkpoint, load_weights, write_atomically
from pygsage.training.forecast import forecast, sentence_of, write_comparison
from pygsage.training.loop import Progress, Trainer
from pygsage.training.losses import build_loss
from pygsage.training.metrics import choose_metric
from pygsage.training.ogb import ogb_metric
from pygsage.training.report import Report
from pygsage.training.result import TrainResult
from pygsage.training.run import BEST_KEYS, Run, fresh_scratch
from pygsage.training.signals import StopRequest, stop_requests


def train_rank(config: TrainConfig, world: World, opened: Callable[[], Graph] | None = None) -> TrainResult:
    """Trains as one rank of a job; every rank returns the same result.

    Args:
        opened: Gives the graph, where it is not the one that `config.dataset` names; called on each machine once.

    Raises:
        PygsageError: what `open_graph`, `Run.open` and `Trainer.fit` raise.
    """
    start = time.perf_counter()
    report = Report(world.is_main, config.quiet, config.json)
    num_threads = _threads_of(world)
    with ExitStack() as stack:
        stack.enter_context(_torch_threads(num_threads))
        memory = stack.enter_context(PeakMemory())
        stop = stack.enter_context(stop_requests())
        # The first rank of each machine opens the dataset, so that a mistake is found before anything is made.
        if world.is_main:
            Run.check(config)
        graph, told = None, None
        if world.is_local_main:
            told = forecast(config, world.local_size) if opened is None else None
            with memory.phase("read"):
                graph = opened() if opened else open_graph(config)
            check_options(config, graph)
            if told is not None:
                report.line(sentence_of(told))
        world.barrier()
        run = Run.open(config) if world.is_main else None
        if run is not None:
            stack.callback(run.close)
            if graph is not None and graph.node_id is not None:
                _save_node_ids(run.path / "node_id.npy", graph.node_id)
        path = Path(world.broadcast(str(run.path) if run else ""))
        scratch = None
        if world.local_size > 1:
            scratch = path / f".scratch-{world.machine}"
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
            graph = _shared(graph, scratch, world)
        assert graph is not None
        trainer = _trainer(config, graph, world, run, report, stack, stop, memory, scratch, num_threads)
        stack.callback(trainer.close)
        try:
            trainer.fit()
        except Stopped as stopped:
            advice = f"Go on with: pygsage train --run-dir {path} --resume"
            raise Stopped(stopped.found, advice, stopped.exit_status) from None
        val, test = dict(trainer.progress.val), {}
        if "test" in graph.splits:
            best = load_checkpoint(path / "best.pt", BEST_KEYS) if world.is_main else None
            _load_everywhere(trainer.model, best["model"] if best else None, path / "best.pt", world)
            test = trainer.evaluate(("test",))["test"]
            trainer.append("test", trainer.progress.best_epoch or trainer.progress.epoch, **test)
        if run is not None:
            write_comparison(run.path / "memory.json", told, memory, world.local_size)
        peaks = world.sum_(torch.tensor([memory.sample(), told.memory.peak_bytes if told else 0], dtype=torch.int64))
        return TrainResult(
            run_dir=str(path),
            epochs=trainer.progress.epoch,
            best_epoch=trainer.progress.best_epoch,
            val=val,
            test=test,
            seconds=time.perf_counter() - start,
            peak_bytes=int(peaks[0]),
            estimated_peak_bytes=int(peaks[1]) or None,
            num_procs=world.size,
            metric=trainer.metric,
        )


def check_options(config: TrainConfig, graph: Graph) -> None:
    """Refuses options that do not go with the dataset.

    Raises:
        ConfigError: see above.
    """
    resolve_backend(config.sampler)
    choose_metric(config, graph, ogb_metric(config.dataset))
    if config.class_weights and graph.task != "classes":
        raise ConfigError(
            f"--class-weights needs classes, and {graph.name} has labels of the task {graph.task}.",
            "Leave --class-weights out.",
        )
    if config.scheduler == "plateau" and "val" not in graph.splits:
        raise ConfigError(
            f"--scheduler plateau follows the validation score, and {graph.name} has no validation nodes.",
            "Type --scheduler cosine, or another --split.",
        )


def plan(config: TrainConfig, graph: Graph, num_procs: int, global_batch_size: int | None = None) -> list[str]:
    """Lines that say what a run will do, and what is worth knowing before it does."""
    num_train = len(graph.splits["train"])
    batch = global_batch_size or config.batch_size * num_procs
    steps = -(-num_train // batch)
    splits = ", ".join(f"{len(nodes):,} {name}" for name, nodes in graph.splits.items())
    fanouts = ",".join(str(k) for k in config.fanouts)
    columns = f"{graph.num_outputs} {'labels' if graph.task == 'multilabel' else 'targets'}"
    labels = f"{graph.num_classes} classes" if graph.task == "classes" else columns
    loss = {
        "classes": "cross-entropy",
        "multilabel": "binary cross-entropy of the known labels",
        "regression": "squared error of the known labels",
    }[graph.task] + (", weighted by class" if config.class_weights else "")
    schedule = "" if config.scheduler == "none" else f", {config.scheduler} schedule"
    metric = choose_metric(config, graph, ogb_metric(config.dataset))
    lines = [
        f"{graph.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features, "
        f"{labels}; {splits}",
        f"model: {len(config.fanouts)} SAGE layers ({config.aggr}), hidden {config.hidden}, "
        f"dropout {config.dropout:g}; Adam, lr {config.lr:g}, weight decay {config.weight_decay:g}{schedule}",
        f"task: {graph.task} ({'as the labels are' if config.task == 'auto' else 'as told'}); loss: {loss}; "
        f"the best epoch has the {'lowest' if metric in LOWER_IS_BETTER else 'highest'} validation {metric}",
        f"{config.epochs} epoch{_s(config.epochs)} of {steps} step{_s(steps)}; fanouts {fanouts}; {batch} seeds a step "
        f"over {num_procs} process{'es' if num_procs > 1 else ''}; sampler {resolve_backend(config.sampler)}; "
        f"seed {config.seed}",
    ]
    lines += [f"note: {note}" for note in graph.notes]
    if config.sampler == "auto" and native.core is None:
        lines.append(f"note: without the native sampler ({native.load_error}) sampling is slow: see pygsage doctor")
    if config.norm == "batch" and num_procs > 1:
        lines.append(
            f"note: each of the {num_procs} processes normalises by its own rows (--norm batch), so their number "
            "changes the result; the running statistics are averaged over them after every step"
        )
    if config.precision == "bf16":
        lines.append("note: products are in bfloat16: runs of other numbers of processes agree to about 1e-2, not 1e-6")
    if steps < 4:
        lines.append(
            f"warning: only {steps} step{'s' if steps > 1 else ''} an epoch ({num_train:,} training nodes, {batch} a "
            f"step): try --batch-size {max(1, num_train // (8 * num_procs))}"
        )
    if batch < num_procs or num_train < num_procs:
        lines.append(f"warning: {num_procs} processes share {min(batch, num_train)} seeds a step: some have none")
    return lines


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def build_model(config: TrainConfig, in_channels: int, out_channels: int) -> GraphSAGE:
    """The model with weights that are a function of the seed, without touching torch's global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return GraphSAGE(
            in_channels,
            config.hidden,
            len(config.fanouts),
            out_channels,
            dropout=config.dropout,
            aggr=config.aggr,
            norm=config.norm,
            precision=config.precision,
        )


def _trainer(
    config: TrainConfig,
    graph: Graph,
    world: World,
    run: Run | None,
    report: Report,
    stack: ExitStack,
    stop: StopRequest,
    memory: PeakMemory,
    scratch: Path | None,
    num_threads: int,
) -> Trainer:
    last = run.last if run is not None else None
    saved = world.broadcast(last["progress"] if last else None)
    try:
        progress = Progress(**saved) if saved else Progress()
    except TypeError as error:
        raise RunError(f"The checkpoint of the run is of another version of pygsage: {error}.") from None
    if progress.num_threads not in (0, num_threads):
        report.line(
            f"note: the run was made with {progress.num_threads} threads a process and goes on with {num_threads}; "
            "results may differ in the last digits"
        )
    # A run keeps its global batch, whatever the number of processes it goes on with.
    progress.global_batch_size = progress.global_batch_size or config.batch_size * world.size
    progress.num_threads = num_threads
    for line in plan(config, graph, world.size, progress.global_batch_size):
        report.line(line)
    if last:
        report.line(f"resuming {run.path if run else ''} at epoch {progress.epoch + 1}, step {progress.step}")
    elif config.resume:
        report.line("nothing to resume: starting from the beginning")
    model = build_model(config, graph.num_features, graph.num_outputs).to(world.device)
    _load_everywhere(model, last["model"] if last else None, Path(run.path if run else ""), world)
    shards = DistributedSeedSampler(
        len(graph.splits["train"]),
        rank=world.rank,
        num_ranks=world.size,
        seed=config.seed,
        global_batch_size=progress.global_batch_size,
    )
    if graph.folder is None:  # in RAM: its rows are read in random order
        for array in (graph.x, graph.indptr, graph.indices):
            prefer_huge_pages(array)
    sampler = NeighborSampler(graph, config.fanouts, config.seed, config.sampler)
    threads = config.sampler_threads or (2 if num_threads > 2 else 1)
    loss, seeds = build_loss(config, graph), graph.splits["train"]
    pipeline = stack.enter_context(
        BatchPipeline(
            graph,
            seeds,
            sampler,
            shards,
            threads,
            loss.row_weights(graph.y[seeds]),
            config.aggr,
            torch.bfloat16 if config.precision == "bf16" else None,
        )
    )
    trainer = Trainer(config, graph, model, pipeline, loss, world, run, report, stop, progress, memory, scratch)
    # The optimiser's state is the same on all ranks: each gets rank 0's file content.
    _load_optimizer(trainer, last, world)
    return trainer


def _save_node_ids(path: Path, node_id: torch.Tensor) -> None:
    """With --relabel: the user's id of each row of what `predict` writes."""
    write_atomically(path, lambda file: np.save(file, node_id.numpy()))


def _load_everywhere(model: GraphSAGE, weights: dict[str, torch.Tensor] | None, origin: Path, world: World) -> None:
    """Loads rank 0's weights on every rank; without any, rank 0's present ones."""
    if weights is not None:
        load_weights(model, weights, origin)
    for tensor in model.state_dict().values():
        world.broadcast_(tensor)


def _load_optimizer(trainer: Trainer, last: dict[str, Any] | None, world: World) -> None:
    if not world.broadcast(last is not None):
        return
    content = b""
    if last is not None:
        buffer = io.BytesIO()
        torch.save({name: last[name] for name in ("optimizer", "scheduler")}, buffer)
        content = buffer.getvalue()
    state = torch.load(io.BytesIO(world.broadcast(content)), map_location="cpu", weights_only=True)
    trainer.optimizer.load_state_dict(state["optimizer"])
    if trainer.scheduler is not None:
        trainer.scheduler.load_state_dict(state["scheduler"])


def _shared(graph: Graph | None, scratch: Path, world: World) -> Graph:
    """One copy of the graph for all ranks of this machine: in its own folder or written by the first; mapped by all."""
    folder = scratch / "graph"
    if graph is not None:
        fresh_scratch(scratch)
        if graph.folder is None:
            graph.save(folder)
        else:
            folder = graph.folder
    return Graph.open(world.local_broadcast(str(folder)))


def _threads_of(world: World) -> int:
    """Threads of this rank: OMP_NUM_THREADS where a user has set it, else its share of the cores.

    torchrun sets the variable to 1 by itself, whatever the machine has.
    """
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdigit() and int(told) > 0 and "TORCHELASTIC_RUN_ID" not in os.environ:
        return int(told)
    return cores_per_process(read_machine().num_cores, world.local_size)


@contextmanager
def _torch_threads(num_threads: int) -> Iterator[None]:
    """Sets torch's threads for this job and puts the caller's number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
