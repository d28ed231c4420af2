from __future__ import annotations

import torch

from pygsage.nn.sage import GraphSAGE
from pygsage.sampling.sample import Block
from pygsage.training.statistics import RunningStatistics


def _forward(model: GraphSAGE, x: torch.Tensor) -> None:
    n_id = torch.arange(len(x))
    blocks = [Block(torch.zeros(len(x) + 1, dtype=torch.int64), n_id[:0])] * 3
    model.forward_blocks(x, blocks, n_id, None)


def test_c108_the_ranks_that_had_two_rows_are_averaged_and_all_end_with_the_same() -> None:
    torch.manual_seed(0)
    models = [GraphSAGE(4, 8, 3, 2, norm="batch") for _ in range(4)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
    ranks = [RunningStatistics(model) for model in models]
    for _ in range(2):
        before = models[0].norms[0].module.running_mean.clone()
        for model, num_rows in zip(models, (5, 0, 1, 9), strict=True):
            _forward(model, torch.randn(num_rows, 4))
        assert torch.equal(models[1].norms[0].module.running_mean, before)
        assert torch.equal(models[2].norms[0].module.running_mean, before)
        expected = (models[0].norms[1].module.running_var + models[3].norms[1].module.running_var) / 2
        sums = [sum(parts) for parts in zip(*(rank.pack() for rank in ranks), strict=True)]
        for rank in ranks:
            rank.unpack(sums)
        assert torch.allclose(models[2].norms[1].module.running_var, expected)
        for model in models[1:]:
            for name, tensor in model.state_dict().items():
                assert torch.equal(tensor, models[0].state_dict()[name])
    assert int(models[1].norms[0].module.num_batches_tracked) == 2


def test_a_step_without_rows_anywhere_changes_nothing() -> None:
    model = GraphSAGE(4, 8, 2, 2, norm="batch")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    statistics = RunningStatistics(model)
    _forward_none = [part * 2 for part in statistics.pack()]
    statistics.unpack(_forward_none)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert RunningStatistics(GraphSAGE(4, 8, 2, 2)).pack() == []
