from __future__ import annotations

import copy
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from pygsage import ConfigError, DatasetError, DistributedSeedSampler, NeighborLoader, NeighborSampler
from pygsage.memory.machine import read_machine
from pygsage.sampling import loader as loader_module

Batches = list[tuple[list[int], list[int], list[float]]]


@pytest.fixture(scope="module")
def data() -> Data:
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(300, 4, generator=generator),
        edge_index=torch.randint(300, (2, 6000), generator=generator),
        edge_attr=torch.randn(6000, 2, generator=generator),
        y=torch.arange(300),
    )


def _content(loader: NeighborLoader) -> Batches:
    return [(b.n_id.tolist(), b.e_id.tolist(), b.x.sum(1).tolist()) for b in loader]


def test_batches_have_what_pyg_gives(data: Data) -> None:
    seeds = torch.tensor([5, 250, 7, 9, 11])
    batches = list(NeighborLoader(data, [4, 3], seeds, batch_size=2))
    assert [b.batch_size for b in batches] == [2, 2, 1]
    for b in batches:
        assert torch.equal(b.n_id[: b.batch_size], seeds[b.input_id])
        assert torch.equal(b.y, b.n_id)
        assert torch.equal(b.n_id[b.edge_index], data.edge_index[:, b.e_id])
        assert torch.equal(b.edge_attr, data.edge_attr[b.e_id])
        assert (len(b.num_sampled_nodes), len(b.num_sampled_edges)) == (3, 2)


def test_masks_give_node_ids_as_input_ids(data: Data) -> None:
    mask = torch.zeros(300, dtype=torch.bool)
    mask[[4, 100, 299]] = True
    (batch,) = NeighborLoader(data, [2], mask, batch_size=8)
    assert batch.input_id.tolist() == [4, 100, 299]
    assert batch.n_id[:3].tolist() == [4, 100, 299]


def test_passes_differ_and_repeat_by_epoch(data: Data) -> None:
    loader = NeighborLoader(data, [3, 3], batch_size=64, shuffle=True, seed=4)
    first, second = _content(loader), _content(loader)
    assert first != second
    loader.set_epoch(0)
    assert _content(loader) == first
    again = NeighborLoader(data, [3, 3], batch_size=64, shuffle=True, seed=4)
    again.set_epoch(1)
    assert _content(again) == second
    assert sorted(n for batch in second for n in batch[0][:64])[:1] == [0]


def test_a_peek_at_the_first_batch_does_not_move_on(data: Data) -> None:
    loader = NeighborLoader(data, [3], batch_size=64, shuffle=True)
    first = next(iter(loader)).n_id
    assert torch.equal(next(iter(loader)).n_id, first)


@pytest.mark.parametrize("context", ["spawn", "fork", "forkserver"])
def test_c111_workers_change_nothing(data: Data, context: str) -> None:
    alone = NeighborLoader(data, [3, 3], batch_size=64, shuffle=True, seed=4)
    # The tests' process has done OpenMP work already: a fork is what users of it do at their own risk.
    helped = NeighborLoader(
        data, [3, 3], batch_size=64, shuffle=True, seed=4, num_workers=2, multiprocessing_context=context
    )
    assert _content(helped) == _content(alone)


def test_ranks_take_the_same_steps_and_a_rank_without_seeds_gets_an_empty_batch(data: Data) -> None:
    loaders = [NeighborLoader(data, [3], torch.arange(9), batch_size=2, rank=r, num_ranks=4) for r in range(4)]
    batches = [list(loader) for loader in loaders]
    assert {len(b) for b in batches} == {2}
    last = [b[-1].batch_size for b in batches]
    assert sorted(last) == [0, 0, 0, 1]
    empty = next(b[-1] for b in batches if b[-1].batch_size == 0)
    assert (empty.num_nodes, empty.edge_index.shape, empty.x.shape) == (0, (2, 0), (0, 4))
    seen = sorted(n for b in batches for batch in b for n in batch.n_id[: batch.batch_size].tolist())
    assert seen == list(range(9))


def test_union_of_ranks_is_the_batch_of_one_process(data: Data) -> None:
    alone = next(iter(NeighborLoader(data, [3], batch_size=30, shuffle=True, rank=0, num_ranks=1)))
    parts = [next(iter(NeighborLoader(data, [3], batch_size=10, shuffle=True, rank=r, num_ranks=3))) for r in range(3)]
    assert torch.cat([p.n_id[: p.batch_size] for p in parts]).equal(alone.n_id[:30])
    assert set(torch.cat([p.e_id for p in parts]).tolist()) == set(alone.e_id.tolist())


def test_a_batch_sampler_of_ones_own(data: Data) -> None:
    shards = DistributedSeedSampler(300, global_batch_size=100, rank=1, num_ranks=3, shuffle=False)
    batches = list(NeighborLoader(data, [2], batch_sampler=shards))
    assert [b.batch_size for b in batches] == [33, 33, 33]


def test_persistent_workers_follow_the_epoch(data: Data) -> None:
    alone = NeighborLoader(data, [3], batch_size=100, shuffle=True)
    helped = NeighborLoader(data, [3], batch_size=100, shuffle=True, num_workers=1, persistent_workers=True)
    assert [_content(helped), _content(helped)] == [_content(alone), _content(alone)]


def test_c084_c081_features_are_gathered_in_this_process(data: Data) -> None:
    loader = NeighborLoader(data, [3], batch_size=100)
    assert loader.filter_per_worker is False
    loader._to_workers = True
    assert loader.__getstate__()["data"] is None  # what a worker would be sent
    loader._to_workers = False
    assert _content(copy.deepcopy(loader)) == _content(loader)


def test_c079_c080_workers_are_spawned_and_watched(data: Data) -> None:
    loader = NeighborLoader(data, [3], batch_size=100, num_workers=1)
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    assert loader.timeout > 0


class _Sleeper(NeighborSampler):
    """A sampler whose worker never answers."""

    def sample_from_nodes(self, *args: object, **kwargs: object) -> None:  # type: ignore[override]
        threading.Event().wait()


def test_c080_a_worker_that_sleeps_is_an_error_within_the_timeout(data: Data) -> None:
    sleeper = _Sleeper(data, [3])
    loader = NeighborLoader(
        data, [3], neighbor_sampler=sleeper, batch_size=100, num_workers=1, timeout=2, multiprocessing_context="fork"
    )
    with pytest.raises(RuntimeError, match="timed out after 2"):
        next(iter(loader))


@pytest.fixture
def few_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_c081_the_soft_limit_of_open_files_is_raised(data: Data, few_files: None) -> None:
    NeighborLoader(data, [3], batch_size=100, num_workers=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard


def test_c081_with_a_hard_limit_of_few_open_files_it_goes_without_workers(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ulimit -n 64`: torch's workers hand each tensor over as a descriptor, and batches that are kept keep theirs."""
    monkeypatch.setattr(loader_module.resource, "getrlimit", lambda which: (64, 64))
    with pytest.warns(RuntimeWarning, match=r"hard limit of 64 open files.*ulimit -Hn"):
        loader = NeighborLoader(data, [3], batch_size=100, num_workers=2)
    assert loader.num_workers == 0
    assert len(list(loader)) == 3


def test_c082_a_topology_larger_than_shared_memory_goes_without_workers(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(read_machine(), shm_free_bytes=1000)
    monkeypatch.setattr(loader_module, "read_machine", lambda: small)
    with pytest.warns(RuntimeWarning, match="/dev/shm"):
        loader = NeighborLoader(data, [3], batch_size=100, num_workers=2)
    assert loader.num_workers == 0
    assert len(list(loader)) == 3


def test_c114_workers_are_capped_to_the_cores_of_the_rank(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    two_cores = replace(read_machine(), num_cores=2)
    monkeypatch.setattr(loader_module, "read_machine", lambda: two_cores)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.warns(RuntimeWarning, match="num_workers is 8, but this process has 1 core: using 1"):
        loader = NeighborLoader(data, [3], batch_size=100, num_workers=8)
    assert loader.num_workers == 1


SOAK = """
import psutil, torch
from torch_geometric.data import Data
from pygsage import NeighborLoader
from pygsage.memory.peak import undroppable_bytes

def held():
    # Of this process and of each worker.
    own = psutil.Process()
    return [undroppable_bytes(f"/proc/{p.pid}/status") for p in (own, *own.children())]

def main():
    generator = torch.Generator().manual_seed(0)
    data = Data(x=torch.randn(2708, 64, generator=generator),
                edge_index=torch.randint(2708, (2, 10556), generator=generator))
    loader = NeighborLoader(data, [10, 10], torch.arange(140), batch_size=70, shuffle=True,
                            num_workers=2, persistent_workers=True)
    for epoch in range(200):
        for batch in loader:
            pass
        if epoch == 20:
            early = held()
    late = held()
    print(len(late), max(b - a for a, b in zip(early, late, strict=True)))

if __name__ == "__main__":
    main()
"""


def test_c083_memory_does_not_grow_over_200_epochs(tmp_path: Path) -> None:
    script = tmp_path / "soak.py"
    script.write_text(SOAK)
    grown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    num_processes, most = map(int, grown.stdout.split())
    assert num_processes >= 2  # with as many workers as there are cores for
    assert most < 8 << 20


def test_what_does_not_belong_together_is_refused(data: Data) -> None:
    with pytest.raises(DatasetError, match="made for 10 nodes"):
        NeighborLoader(
            data, [3], neighbor_sampler=NeighborSampler(Data(x=data.x[:10], edge_index=data.edge_index[:, :0]), [3])
        )
    with pytest.raises(ConfigError, match="is a list; expected a DistributedSeedSampler"):
        NeighborLoader(data, [3], batch_sampler=[[0, 1], [2]])
