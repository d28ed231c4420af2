"""Running statistics of batch normalisation that stay the same on every rank."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningStatistics:
    """Averages what the ranks added to the running means and variances in a step, as part of the step's one message.

    Each rank normalises by its own rows. Of each layer's running statistics the mean over the ranks that had two rows
    at least is kept, so that they are the same on all ranks after every step, whichever is saved or evaluated.

    Args:
        model: The model; on every rank with the same statistics.
    """

    def __init__(self, model: nn.Module) -> None:
        self._norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
        self._num_steps = [_num_steps(norm) for norm in self._norms]

    def pack(self) -> list[Tensor]:
        """One flat tensor a layer to add over the ranks: how many took part, means, variances."""
        parts = []
        for norm, before in zip(self._norms, self._num_steps, strict=True):
            mean, variance = _statistics(norm)
            parts.append(torch.cat([mean.new_ones(1), mean, variance]) * float(_num_steps(norm) > before))
        return parts

    def unpack(self, sums: list[Tensor]) -> None:
        """Takes over the sums of what `pack` gave."""
        for i, (norm, total) in enumerate(zip(self._norms, sums, strict=True)):
            took_part = int(total[0])
            mean, variance = _statistics(norm)
            if took_part:
                mean.copy_(total[1 : 1 + len(mean)] / took_part)
                variance.copy_(total[1 + len(mean) :] / took_part)
                self._num_steps[i] += 1
                assert norm.num_batches_tracked is not None
                norm.num_batches_tracked.fill_(self._num_steps[i])


def _statistics(norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean, norm.running_var


def _num_steps(norm: nn.BatchNorm1d) -> int:
    return int(norm.num_batches_tracked) if norm.num_batches_tracked is not None else 0
