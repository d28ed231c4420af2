"""What one process of a job does, from opening the dataset to the result."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pygsage.config import TrainConfig
from pygsage.data.storage import choose_storage
from pygsage.devices import cores_per_process
from pygsage.distributed import World
from pygsage.errors import RunError, Stopped
from pygsage.memory.machine import read_machine
from pygsage.memory.peak import PeakMemory
from pygsage.sampling.placement import Placement
from pygsage.sampling.shard import DistributedSeedSampler
from pygsage.training.checkpoint import load_checkpoint, load_weights, write_atomically
from pygsage.training.content import check_content, has_content, note_content
from pygsage.training.elastic import after_restart, launchers
from pygsage.training.forecast import estimated_peak_bytes, write_comparison
from pygsage.training.loop import Progress, Trainer
from pygsage.training.losses import build_loss
from pygsage.training.opening import Opened, open_problem, problem_in
from pygsage.training.parts import refuse_together
from pygsage.training.placing import checked_placement, free_on_gpus, on_devices, placement
from pygsage.training.plan import check_options, plan
from pygsage.training.problem import Problem
from pygsage.training.processes import tell_what_to_do_after
from pygsage.training.report import Report
from pygsage.training.result import TrainResult
from pygsage.training.run import BEST_KEYS, Run, fresh_scratch
from pygsage.training.signals import StopRequest, stop_requests


def train_rank(config: TrainConfig, world: World, opened: Opened | None = None) -> TrainResult:
    """Trains as one rank of a job; every rank returns the same result.

    Args:
        opened: Gives the problem, where its data are not what `config.dataset` names; called on each machine once.

    Raises:
        PygsageError: what `open_problem`, `Run.open` and `Trainer.fit` raise.
    """
    start = time.perf_counter()
    report = Report(world.is_main, config.quiet, config.json)
    num_threads = _threads_of(world)
    with ExitStack() as stack:
        stack.enter_context(_torch_threads(num_threads))
        memory = stack.enter_context(PeakMemory())
        stop = stack.enter_context(stop_requests())
        owners = launchers(world)
        config = after_restart(config, world, owners)
        # The first rank of each machine opens the dataset, so that a mistake is found before anything is made.
        if world.is_main:
            Run.check(config)
        problem, storage, choice = None, None, None
        free = free_on_gpus(world)
        if world.is_local_main:
            here = on_devices(config, world)
            storage = choose_storage(here, world.local_size, gpu_free_bytes=free) if opened is None else None
            choice = checked_placement(config, world, storage, free)
            # What is built on disk takes a while: where and why is said first. Else a mistake is all that is said.
            if storage is not None and storage.takes_a_while:
                report.line(storage.sentence())
            with memory.phase("read"):
                problem = opened(stack) if opened else open_problem(config, stack, storage=storage, memory=memory)
            check_options(config, problem)
            if world.is_main and config.run_dir is not None and (Path(config.run_dir) / "last.pt").exists():
                check_content(Path(config.run_dir), problem.data)
            was_told, storage = storage is not None and storage.takes_a_while, problem.storage
            choice = choice or checked_placement(config, world, storage, free, problem)
            if storage is not None and not was_told:
                report.line(storage.sentence())
            if choice is not None and choice.reason:
                report.line(f"placement: {choice.reason}")
        world.barrier(patient=True)  # a large dataset takes its time
        machines = world.gather(world.machine)
        refuse_together(world.gather(problem.missing(machines, world.machine) if problem is not None else ""))
        resolved = config if problem is None else config.for_unit(problem.unit)
        run = Run.open(resolved, owners) if world.is_main else None
        if run is not None:
            stack.callback(run.close)
            if problem is not None and not (run.last and has_content(run.path)):
                note_content(run.path, problem.data)
            node_id = getattr(problem.data, "node_id", None) if problem is not None else None
            if node_id is not None:
                _save_node_ids(run.path / "node_id.npy", node_id)
        path = Path(world.broadcast(str(run.path) if run else ""))
        go_on = f"Go on with: pygsage train --run-dir {path} --resume{_devices_typed(config)}"
        if world.is_main:
            tell_what_to_do_after(go_on)
        scratch = None
        on_disk = storage is not None and storage.kind == "disk" and not storage.is_of_graphs
        if world.local_size > 1 or on_disk:
            scratch = path / f".scratch-{world.machine}"
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
            problem = _shared(config, problem, scratch, world)
        assert problem is not None
        problem.join(world, machines)
        problem.hot_rows = world.local_broadcast(storage.told.hot_rows if storage is not None and storage.told else 0)
        problem.spill = path / f".rows-{world.rank}"
        place = placement(config, world.local_broadcast(choice.kind if choice is not None else ""), world.device)
        trainer = _trainer(config, problem, world, run, report, stack, stop, memory, scratch, num_threads, place)
        stack.callback(trainer.close)
        try:
            trainer.fit()
        except Stopped as stopped:
            raise Stopped(stopped.found, go_on, stopped.exit_status) from None
        done = trainer.progress
        val, test = dict(done.val), {}
        if "test" in problem.data.splits and config.eval_every:
            best = load_checkpoint(path / "best.pt", BEST_KEYS) if world.is_main else None
            _load_everywhere(trainer.model, best["model"] if best else None, path / "best.pt", world)
            test = trainer.evaluate(("test",))["test"]
            trainer.append("test", done.best_epoch or done.epoch + (done.step > 0), **test)
        if run is not None:
            write_comparison(run.path / "memory.json", storage, memory, world.local_size)
        peaks = world.sum_(torch.tensor([memory.sample(), estimated_peak_bytes(storage)], dtype=torch.int64))
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


def _trainer(
    config: TrainConfig,
    problem: Problem,
    world: World,
    run: Run | None,
    report: Report,
    stack: ExitStack,
    stop: StopRequest,
    memory: PeakMemory,
    scratch: Path | None,
    num_threads: int,
    place: Placement,
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
    progress.global_batch_size = progress.global_batch_size or config.batch_of(problem.unit) * world.size
    progress.num_threads = num_threads
    for line in plan(config, problem, world.size, progress.global_batch_size):
        report.line(line)
    if last:
        report.line(f"resuming {run.path if run else ''} at epoch {progress.epoch + 1}, step {progress.step}")
        if config.max_steps is not None and progress.total_steps >= config.max_steps:
            report.line(f"note: the run has taken {config.max_steps} steps, its --max-steps: nothing is left to train")
        elif progress.epoch >= config.epochs:
            report.line(f"note: the run has had {config.epochs} epochs, its --epochs: nothing is left to train")
    elif config.resume:
        report.line("nothing to resume: starting from the beginning")
    data = problem.data
    model = problem.build_model(config).to(world.device)
    _load_everywhere(model, last["model"] if last else None, Path(run.path if run else ""), world)
    train = data.splits["train"]
    shards = DistributedSeedSampler(
        len(train),
        rank=world.rank,
        num_ranks=world.size,
        seed=config.seed,
        global_batch_size=progress.global_batch_size,
        homes=problem.homes(),
    )
    threads = config.sampler_threads or (2 if num_threads > 2 else 1)
    loss = build_loss(config, data)
    weights = loss.row_weights(data.y[train])
    pipeline = stack.enter_context(problem.batches(config, shards, weights, threads, place))
    for line in problem.ready():
        report.line(line)
    trainer = Trainer(config, problem, model, pipeline, loss, world, run, report, stop, progress, memory, scratch)
    # The optimiser's state is the same on all ranks: each gets rank 0's file content.
    _load_optimizer(trainer, last, world)
    return trainer


def _devices_typed(config: TrainConfig) -> str:
    """What a run does not remember and a resumed one needs for the same result: on how many devices it is made."""
    procs = f" --procs {config.procs}" if config.procs is not None else ""
    return procs + (f" --gpus {config.gpus}" if config.gpus != TrainConfig.gpus else "")


def _save_node_ids(path: Path, node_id: torch.Tensor) -> None:
    """With --relabel: the user's id of each row of what `predict` writes."""
    write_atomically(path, lambda file: np.save(file, node_id.numpy()))


def _load_everywhere(
    model: torch.nn.Module, weights: dict[str, torch.Tensor] | None, origin: Path, world: World
) -> None:
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


def _shared(config: TrainConfig, problem: Problem | None, scratch: Path, world: World) -> Problem:
    """One copy of the data for all ranks of this machine: in its own folder or written by the first; mapped by all."""
    folder, is_split_anew = scratch / "graph", False
    if problem is not None:
        fresh_scratch(scratch)
        if problem.data.folder is None:
            problem.data.save(folder)
        else:
            folder, is_split_anew = problem.data.folder, getattr(problem.data, "is_split_anew", False)
    told, anew = world.local_broadcast([str(folder), is_split_anew])
    return problem_in(Path(told), config if anew else None)


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
