"""What a run is about to do, in words, and what is refused before it begins."""

from __future__ import annotations

from pygsage.config import LOWER_IS_BETTER, TrainConfig
from pygsage.errors import ConfigError
from pygsage.training.metrics import choose_metric
from pygsage.training.nodes import sampler_note
from pygsage.training.ogb import ogb_metric
from pygsage.training.problem import Problem


def check_options(config: TrainConfig, problem: Problem) -> None:
    """Refuses options that do not go with the dataset.

    Raises:
        ConfigError: see above.
    """
    data = problem.data
    problem.check(config)
    choose_metric(config, data, ogb_metric(data.name))
    if config.class_weights and data.task != "classes":
        raise ConfigError(
            f"--class-weights needs classes, and {data.name} has labels of the task {data.task}.",
            "Leave --class-weights out.",
        )
    if config.scheduler == "plateau" and "val" not in data.splits:
        raise ConfigError(
            f"--scheduler plateau follows the validation score, and {data.name} has no validation {problem.unit}s.",
            "Type --scheduler cosine, or another --split.",
        )


def plan(config: TrainConfig, problem: Problem, num_procs: int, global_batch_size: int | None = None) -> list[str]:
    """Lines that say what a run will do, and what is worth knowing before it does."""
    data, unit = problem.data, problem.unit
    seeds = "seeds" if unit == "node" else f"{unit}s"
    about = problem.about(config)
    num_train = len(data.splits["train"])
    batch = global_batch_size or config.batch_of(unit) * num_procs
    steps = -(-num_train // batch)
    splits = ", ".join(f"{len(ids):,} {name}" for name, ids in data.splits.items())
    columns = f"{data.num_outputs} {'labels' if data.task == 'multilabel' else 'targets'}"
    labels = f"{data.num_classes} classes" if data.task == "classes" else columns
    loss = {
        "classes": "cross-entropy",
        "multilabel": "binary cross-entropy of the known labels",
        "regression": "squared error of the known labels",
    }[data.task] + (", weighted by class" if config.class_weights else "")
    schedule = "" if config.scheduler == "none" else f", {config.scheduler} schedule"
    metric = choose_metric(config, data, ogb_metric(data.name))
    lines = [
        f"{data.name}: {about.size}, {labels}; {splits}",
        f"model: {about.model}, hidden {config.hidden}, "
        f"dropout {config.dropout:g}; Adam, lr {config.lr:g}, weight decay {config.weight_decay:g}{schedule}",
        f"task: {data.task} ({'as the labels are' if config.task == 'auto' else 'as told'}); loss: {loss}; "
        + (
            f"the best epoch has the {'lowest' if metric in LOWER_IS_BETTER else 'highest'} validation {metric}"
            if config.eval_every and "val" in data.splits
            else "nothing is validated: the last weights are kept"
        ),
        f"{config.epochs} epoch{_s(config.epochs)} of {steps} step{_s(steps)}; {about.neighbours}; "
        f"{batch} {seeds} a step over {num_procs} process{'es' if num_procs > 1 else ''}; "
        f"{about.sampler}{'; ' if about.sampler else ''}seed {config.seed}",
    ]
    lines += [f"note: {note}" for note in data.notes]
    lines += sampler_note(config) if unit == "node" else []
    if config.norm == "batch" and num_procs > 1:
        lines.append(
            f"note: each of the {num_procs} processes normalises by its own rows (--norm batch), so their number "
            "changes the result; the running statistics are averaged over them after every step"
        )
    if config.precision == "bf16":
        lines.append("note: products are in bfloat16: runs of other numbers of processes agree to about 1e-2, not 1e-6")
    if steps < 4:
        lines.append(
            f"warning: only {steps} step{_s(steps)} an epoch ({num_train:,} training {unit}s, {batch} a "
            f"step): try --batch-size {max(1, num_train // (8 * num_procs))}"
        )
    if batch < num_procs or num_train < num_procs:
        lines.append(f"warning: {num_procs} processes share {min(batch, num_train)} {seeds} a step: some have none")
    return lines


def _s(count: int) -> str:
    return "" if count == 1 else "s"
