"""The training loop, in the order it happens; the same on one process and on many."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from signal import SIGINT
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from pygsage.config import LOWER_IS_BETTER, TrainConfig
from pygsage.distributed import World
from pygsage.errors import Stopped, TrainingError
from pygsage.memory.peak import PeakMemory
from pygsage.native.memory import release_buffers
from pygsage.sampling.pipeline import BatchPipeline
from pygsage.sampling.shard import share_of
from pygsage.training.checkpoint import save_checkpoint, save_weights
from pygsage.training.events import EventFiles
from pygsage.training.losses import Loss
from pygsage.training.metrics import build_scores, choose_metric, scored_rows
from pygsage.training.ogb import OgbScores, ogb_metric
from pygsage.training.optimizers import build_optimizer, build_scheduler
from pygsage.training.problem import Problem, StepBatch
from pygsage.training.report import Report
from pygsage.training.run import Run
from pygsage.training.signals import StopRequest
from pygsage.training.statistics import RunningStatistics


@dataclass
class Progress:
    """How far a run has come: everything beside weights and optimiser that a checkpoint holds."""

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    loss_sum: float = 0.0
    loss_weight: float = 0.0
    best_score: float = -math.inf  # its sign turned where lower is better
    best_epoch: int | None = None
    evaluations_since_best: int = 0
    val: dict[str, float] = field(default_factory=dict)
    global_batch_size: int = 0
    num_threads: int = 0


class Clock:
    """Adds up wall seconds by the name of the phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(phase, time.perf_counter() - start)

    def add(self, phase: str, seconds: float) -> None:
        """Adds time measured elsewhere, such as in the sampler's threads."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


class Trainer:
    """Trains a model on a dataset; every rank holds one and takes the same steps.

    Args:
        config: The options in force.
        problem: What is learnt, from data that are the same on every rank.
        model: The model on the rank's device, with the same weights on every rank.
        pipeline: The rank's batches, with the seed weights of the loss.
        loss: What is minimised.
        world: The ranks.
        run: The run directory on rank 0, None elsewhere.
        report: Where progress is printed.
        stop: Says when a signal came.
        progress: Where to begin.
        memory: Measures the peaks of training and evaluation.
        scratch: A folder that the ranks of this machine share; None when there is one.
    """

    def __init__(
        self,
        config: TrainConfig,
        problem: Problem,
        model: nn.Module,
        pipeline: BatchPipeline[Any],
        loss: Loss,
        world: World,
        run: Run | None,
        report: Report,
        stop: StopRequest,
        progress: Progress,
        memory: PeakMemory,
        scratch: Path | None = None,
    ) -> None:
        self.config = config
        self.problem = problem
        self.model = model
        self.pipeline = pipeline
        self.loss = loss
        self.world = world
        self.run = run
        self.report = report
        self.stop = stop
        self.progress = progress
        self.memory = memory
        self.scratch = scratch
        self.metric = choose_metric(config, problem.data, ogb_metric(problem.data.name))
        self.optimizer = build_optimizer(config, model)
        self.scheduler = build_scheduler(config, self.optimizer, len(pipeline), self.metric in LOWER_IS_BETTER)
        self.statistics = RunningStatistics(model)
        self.events = EventFiles(run.path, progress.epoch + 1) if run is not None else None
        self._last_save = time.monotonic()

    def fit(self) -> None:
        """Trains until the epochs, the steps or the patience are used up.

        Raises:
            TrainingError: when the loss is no longer finite, on every rank, before the weights take harm.
            Stopped: after a stop signal, once the step is finished and the checkpoint saved.
        """
        done, clock, start = self.progress, Clock(), time.perf_counter()
        while not self._finished():
            clock, start = Clock(), time.perf_counter()
            with self.memory.phase("train"):
                self._train_epoch(clock)
            if done.step < len(self.pipeline):  # --max-steps ends within the epoch
                self.save()
                break
            epoch, loss, seconds = done.epoch + 1, done.loss_sum / done.loss_weight, time.perf_counter() - start
            done.epoch, done.step, done.loss_sum, done.loss_weight = epoch, 0, 0.0, 0.0
            self.append("epoch", epoch, loss=loss, seconds=seconds, **clock.seconds, **self._cache_figures())
            text = f"epoch {epoch:>3}  loss {loss:.4f}"
            if self._is_evaluated(epoch):
                text += f"  val {self.metric} {self._validate(epoch):.4f}"
            self.report.line(f"{text}  {time.perf_counter() - start:.2f} s")
            self.save()
            self._stop_if_asked(self._agreed_signal())
        self._conclude(clock, start)

    def _is_evaluated(self, epoch: int) -> bool:
        every = self.config.eval_every
        return self._can_evaluate() and (epoch % every == 0 or epoch == self.config.epochs)

    def _can_evaluate(self) -> bool:
        return self.config.eval_every > 0 and "val" in self.problem.data.splits

    def _conclude(self, clock: Clock, start: float) -> None:
        """Scores and keeps the last weights where the schedule has not; none of it is in the checkpoint.

        So a run that --max-steps has ended goes on from `last.pt` as if it had not been: an epoch of which a part was
        trained has no part in the choice of the best, nor in --patience and --scheduler plateau, and its lines in
        `metrics.jsonl`, marked `partial`, are cut off when the run goes on.
        """
        done = self.progress
        epoch = done.epoch + (done.step > 0)
        partial = {"partial": True} if done.step else {}
        text = ""
        if partial:
            loss, seconds = done.loss_sum / done.loss_weight, time.perf_counter() - start
            self.append(
                "epoch",
                epoch,
                loss=loss,
                seconds=seconds,
                steps=done.step,
                **partial,
                **clock.seconds,
                **self._cache_figures(),
            )
            text = f"epoch {epoch:>3} (step {done.step} of {len(self.pipeline)})  loss {loss:.4f}"
        if self._can_evaluate() and (partial or not self._is_evaluated(done.epoch)) and self._out_of_steps():
            scores = self._score("val", epoch, **partial)
            text = f"{text or f'epoch {epoch:>3}'}  val {self.metric} {scores[self.metric]:.4f}"
            if done.best_epoch is None:
                done.val = scores
        self.report.line(text)
        if done.best_epoch is None:
            self._keep_weights(epoch)  # nothing was evaluated in time: the last weights are the best there are

    def _train_epoch(self, clock: Clock) -> None:
        epoch, first_step = self.progress.epoch, self.progress.step
        self.model.train()
        self.report.start_epoch(epoch, self.config.epochs, len(self.pipeline), first_step)
        batches = self.pipeline.batches(epoch, first_step)
        try:
            while not self._out_of_steps():
                with clock("wait"):
                    batch = next(batches, None)
                if batch is None:
                    break
                self._step(batch, clock)
                del batch  # else it would be held while the next one is taken
                if time.monotonic() - self._last_save > self.config.checkpoint_every_s:
                    self.save()
        finally:
            batches.close()
            release_buffers()
            self.report.end_epoch()

    def _step(self, batch: StepBatch, clock: Clock) -> None:
        with clock("forward"):
            scores = self.problem.scores(self.model, batch)
            loss = self.loss(scores, batch.y) / batch.weight
        with clock("backward"):
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with clock("reduce"):
            step_loss, signal = self._sum_over_ranks(loss.detach())
        if not (math.isfinite(step_loss) and self._gradients_are_finite()):
            raise self._not_finite(step_loss, float(loss.detach()), batch.step + 1)
        with clock("step"):
            self.optimizer.step()
            if isinstance(self.scheduler, LambdaLR):
                self.scheduler.step()
        for phase, seconds in batch.seconds.items():
            clock.add(phase, seconds)
        self.progress.step += 1
        self.progress.total_steps += 1
        self.progress.loss_sum += step_loss * batch.weight
        self.progress.loss_weight += batch.weight
        self.report.step(step_loss)
        self._stop_if_asked(signal)

    def _sum_over_ranks(self, loss: Tensor) -> tuple[float, int]:
        """Sums gradients, loss, stop signals and running statistics over the ranks, in one message.

        Its layout never changes, because it decides the order of the sums: DistributedDataParallel changes its own
        after the first step, so that a resumed run would differ from an unbroken one in the last bit.
        """
        if self.world.size == 1:
            return float(loss), self.stop.code
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        extra = torch.tensor([0.0, float(self.stop.code)], dtype=loss.dtype, device=loss.device)
        extra[0] = loss
        own = [*(g.reshape(-1) for g in gradients), *self.statistics.pack(), extra]
        parts = self.world.sum_(torch.cat(own)).split([part.numel() for part in own])
        for gradient, part in zip(gradients, parts, strict=False):
            gradient.copy_(part.view_as(gradient))
        self.statistics.unpack(list(parts[len(gradients) : -1]))
        return float(parts[-1][0]), int(parts[-1][1])

    def _gradients_are_finite(self) -> bool:
        checks = [torch.isfinite(p.grad).all() for p in self.model.parameters() if p.grad is not None]
        return bool(torch.stack(checks).all())  # a GPU is waited for once

    def evaluate(self, splits: tuple[str, ...]) -> dict[str, dict[str, float]]:
        """Scores the present weights on whole splits, over all neighbours; each node or graph counts once."""
        with self.memory.phase("evaluate"):
            return self._evaluate(splits)

    def _evaluate(self, splits: tuple[str, ...]) -> dict[str, dict[str, float]]:
        data, world = self.problem.data, self.world
        wanted = torch.cat([data.splits[split] for split in splits])
        predict = self.problem.predictor(self.model, world, self.scratch, wanted=wanted)
        results = {}
        for split in splits:
            ids = data.splits[split]
            mine = ids[share_of(len(ids), world.rank, world.size)]
            count, official = build_scores(data), OgbScores(data.name)
            # In pieces, as the scores of a large split take more than all that is counted of them.
            for some in mine.split(scored_rows(data.num_outputs)):
                scores, y = predict(some), data.y[some]
                count.update(scores, y)
                official.update(scores, y)
                del scores
            found = count.compute(world)
            found[f"num_{self.problem.unit}s"] = found.pop("num_nodes")  # what was scored, by its name
            results[split] = {**official.compute(world), **found}
        return results

    def _score(self, split: str, epoch: int, **marks: bool) -> dict[str, float]:
        start = time.perf_counter()
        # From rank 0 to all, so that no rank can come to another decision.
        scores: dict[str, float] = self.world.broadcast(self.evaluate((split,))[split])
        self.append(split, epoch, seconds=time.perf_counter() - start, **scores, **marks)
        return scores

    def _validate(self, epoch: int) -> float:
        scores = self._score("val", epoch)
        done, score = self.progress, float(scores[self.metric])
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(score)
        ranked = -score if self.metric in LOWER_IS_BETTER else score
        if ranked > done.best_score:
            done.best_score, done.best_epoch, done.val = ranked, epoch, scores
            done.evaluations_since_best = 0
            self._keep_weights(epoch)
        else:
            done.evaluations_since_best += 1
        return score

    def save(self) -> None:
        """Writes `last.pt` (rank 0): weights, optimiser, schedule and progress, all that a resumed run begins from."""
        self._last_save = time.monotonic()
        if self.run is not None:
            save_checkpoint(
                self.run.path / "last.pt",
                {
                    "model": self.model.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
                    "progress": asdict(self.progress),
                    "metrics_bytes": self.run.metrics_bytes,
                },
            )

    def _keep_weights(self, epoch: int) -> None:
        if self.run is not None:
            weights, data = self.model.state_dict(), self.problem.data
            about = {"epoch": epoch, "in_channels": data.num_features, "out_channels": data.num_outputs}
            save_checkpoint(self.run.path / "best.pt", {"model": weights, **about})
            save_weights(self.run.path / "model.safetensors", weights, about)

    def _finished(self) -> bool:
        patience = self.config.patience
        worn_out = patience is not None and self.progress.evaluations_since_best >= patience
        return self.progress.epoch >= self.config.epochs or self._out_of_steps() or worn_out

    def _out_of_steps(self) -> bool:
        limit = self.config.max_steps
        return limit is not None and self.progress.total_steps >= limit

    def _cache_figures(self) -> dict[str, float]:
        """Rows that all ranks found in their caches of hot rows since the last call, and that they had to read."""
        hits, misses = self.world.sum_(torch.tensor(self.problem.cache_counts(), dtype=torch.int64)).tolist()
        if not hits + misses:
            return {}
        found = {"cache_hits": hits, "cache_misses": misses, "cache_hit_rate": hits / (hits + misses)}
        size = self.problem.remote_row_bytes
        return {**found, "remote_rows": misses, "remote_bytes": misses * size} if size else found

    def _agreed_signal(self) -> int:
        return int(self.world.sum_(torch.tensor([self.stop.code], dtype=torch.int64)))

    def _stop_if_asked(self, signal: int) -> None:
        if not signal:
            return
        self.save()
        done = self.progress
        raise Stopped(
            f"Stopped by a signal after step {done.step} of epoch {done.epoch + 1}; the checkpoint is saved.",
            exit_status=130 if self.stop.signal == SIGINT else 143,
        )

    def _not_finite(self, loss: float, own_loss: float, step: int) -> TrainingError:
        """The same on every rank; collective."""
        bad = [rank for rank, one in enumerate(self.world.gather(own_loss)) if not math.isfinite(one)]
        where = f" (on rank {', '.join(map(str, bad))})" if bad and self.world.size > 1 else ""
        return TrainingError(
            f"The loss is {loss} at step {step} of epoch {self.progress.epoch + 1}{where}, or its gradient is not "
            "finite; the weights were not touched.",
            f"Try a smaller --lr than {self.config.lr:g}.",
        )

    def append(self, event: str, epoch: int, **values: float) -> None:
        """Notes what happened (rank 0): a line of `metrics.jsonl`, and TensorBoard's events."""
        if self.run is not None:
            metric = {"metric": self.metric} if event != "epoch" else {}
            self.run.append({"event": event, "epoch": epoch, **metric, **values})
        if self.events is not None:
            self.events.add(event, epoch, {name: value for name, value in values.items() if name != "partial"})

    def close(self) -> None:
        """Closes what the trainer opened."""
        if self.events is not None:
            self.events.close()
