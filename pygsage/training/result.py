"""What a finished run comes to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrainResult:
    """The outcome of `train`.

    Attributes:
        run_dir: Where the run lies.
        epochs: Epochs completed.
        best_epoch: The epoch (from 1) whose weights were kept; None: the last, none was evaluated.
        val: Scores of those weights on the validation nodes; empty without any.
        test: Likewise on the test nodes.
        seconds: Wall time of this job, data loading included.
        peak_bytes: Highest RssAnon + RssShmem, summed over the job's processes.
        estimated_peak_bytes: What was estimated beforehand for the same; None where the size was not known.
        num_procs: Processes that trained.
        metric: The score that chose the best epoch.
    """

    run_dir: str
    epochs: int
    best_epoch: int | None
    val: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    peak_bytes: int = 0
    estimated_peak_bytes: int | None = None
    num_procs: int = 1
    metric: str = "accuracy"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def sentence(self) -> str:
        """The last line a run prints: the test score and where the run lies."""
        score = f"test {self.metric} {self.test[self.metric]:.4f}" if self.test else "no test score"
        if self.val:
            score += (
                f" with the last weights (validation: {self.val[self.metric]:.4f})"
                if self.best_epoch is None
                else f" at epoch {self.best_epoch} (best on validation: {self.val[self.metric]:.4f})"
            )
        return f"{score}; the run is in {self.run_dir}"
