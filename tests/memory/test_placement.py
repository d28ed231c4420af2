"""The arithmetic of a GPU's memory, and which placement is taken."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pygsage.config import TrainConfig
from pygsage.errors import ConfigError
from pygsage.memory.answer import answer
from pygsage.memory.estimate import Estimate, estimate
from pygsage.memory.gpus import Gpu
from pygsage.memory.machine import read_machine
from pygsage.memory.options import EstimateConfig
from pygsage.memory.placement import choose_placement, gpu_step_bytes, sent_bytes, staging_bytes
from pygsage.memory.shapes import DatasetShape, shape_from_numbers
from pygsage.memory.training import batch_of, resolve

GIB, MIB = 1 << 30, 1 << 20
SHAPE = shape_from_numbers(1, 1_000_000, 10_000_000, 100, num_classes=10)
TRAINING = resolve(TrainConfig(gpus="1", fanouts=(10, 5), hidden=64, batch_size=1000, sampler_threads=2), "node", 4)
MACHINE = replace(read_machine(), memory_available_bytes=64 * GIB, memory_limit_bytes=64 * GIB, disk_free_bytes=None)


def of(placement: str, shape: DatasetShape = SHAPE, **options: int) -> Estimate:
    return estimate(shape, replace(TRAINING, placement=placement, **options))  # type: ignore[arg-type]


def size(way: Estimate, place: str, what: str, phase: str = "train") -> int:
    return sum(row.num_bytes for row in way.rows if (row.phase, row.place, row.what) == (phase, place, what))


def test_cuda_cuda_holds_all_features_and_sends_ids() -> None:
    all_there, pinned = of("cuda-cuda"), of("pinned-cuda")
    for phase in ("train", "evaluate"):
        assert size(all_there, "gpu", "features", phase) == 4 * 1_000_000 * 100
        assert size(pinned, "gpu", "features", phase) == 0
    half = of("cuda-cuda", replace(SHAPE, x_dtype="float16"))
    assert size(half, "gpu", "features") == 2 * 1_000_000 * 100
    # At most 1,000 seeds, 10,000 nodes one hop away, 50,000 edges beyond: ids, not rows, are sent.
    batch = batch_of(SHAPE, TRAINING, SHAPE.num_edges)
    assert size(all_there, "gpu", "batches") < size(pinned, "gpu", "batches")
    assert sent_bytes(SHAPE, replace(TRAINING, placement="pinned-cuda"), batch) > 8 * 100 * batch.num_nodes[-2]
    assert sent_bytes(SHAPE, replace(TRAINING, placement="cuda-cuda"), batch) < 8 * 100 * batch.num_nodes[-2]


def test_pinned_cuda_has_batches_on_their_way_and_buffers_that_are_powers_of_two() -> None:
    pageable, pinned = of("cpu-cuda"), of("pinned-cuda")
    assert size(pinned, "gpu", "batches") == 4 * size(pageable, "gpu", "batches")
    assert size(pageable, "rank", "staging buffers") == 0
    assert size(pageable, "rank", "first layer's input of prepared batches") > 0
    assert size(pinned, "rank", "first layer's input of prepared batches") == 0
    training = replace(TRAINING, placement="pinned-cuda")
    batch = batch_of(SHAPE, training, SHAPE.num_edges)
    sent, buffers = sent_bytes(SHAPE, training, batch), staging_bytes(SHAPE, training, batch)
    assert buffers == 3 * (1 << (sent - 1).bit_length())
    assert size(pinned, "rank", "staging buffers") == size(pinned, "rank", "staging buffers", "evaluate") == buffers


def test_a_cache_takes_what_it_was_given_and_no_more_than_the_features() -> None:
    cached = of("pinned-cuda", gpu_cache_bytes=100 * MIB)
    assert size(cached, "gpu", "hottest rows of the features") == 100 * MIB
    assert size(cached, "rank", "which rows a GPU holds") == 4 * 1_000_000
    whole = of("pinned-cuda", gpu_cache_bytes=100 * GIB)
    assert size(whole, "gpu", "hottest rows of the features") == 4 * 1_000_000 * 100
    assert cached.gpu_bytes - of("pinned-cuda").gpu_bytes >= 100 * MIB


def test_a_library_takes_int64_edges() -> None:
    assert size(of("cpu-cuda"), "rank", "edges as int64") == 0
    config = TrainConfig(gpus="0", sampler="torch-sparse")
    assert size(estimate(SHAPE, resolve(config, "node", 2)), "rank", "edges as int64") == 8 * 10_000_000


def test_a_step_played_out() -> None:
    """One layer: its output, log-probabilities and gradients of both, and the loss's gradient."""
    assert gpu_step_bytes([(8, 4)], [100], "none", False) == 100 * 4 * (4 + 8 + 4)
    two = gpu_step_bytes([(8, 16), (16, 4)], [1000, 100], "none", False)
    # The hidden rows' activations are kept, and three arrays as large stand beside them on the way back.
    assert 4 * 1000 * 16 * 4 <= two <= 4 * 1000 * 16 * 6 + 8 * 100 * 4 * 16
    assert gpu_step_bytes([(8, 16), (16, 4)], [1000, 100], "none", True) < two
    assert gpu_step_bytes([(8, 16), (16, 4)], [1000, 100], "layer", False) > two


NEEDS = {"cpu-cuda": 2 * GIB, "pinned-cuda": 3 * GIB, "cuda-cuda": 20 * GIB}


@pytest.mark.parametrize(
    ("asked", "free_gib", "pinned_gib", "kind", "fits"),
    [
        ("auto", 80, 1, "cuda-cuda", True),
        ("auto", 22, 1, "pinned-cuda", True),
        ("auto", 22, 9, "cpu-cuda", True),
        ("auto", 2.5, 1, "cpu-cuda", True),
        ("auto", 1, 1, "cpu-cuda", False),
        ("auto", None, 1, "pinned-cuda", True),
        ("auto", None, 9, "cpu-cuda", True),
        ("cuda-cuda", 22, 1, "cuda-cuda", False),
        ("cuda-cuda", 23, 1, "cuda-cuda", True),
        ("cpu-cuda", 80, 1, "cpu-cuda", True),
        ("pinned-cuda", 80, 9, "pinned-cuda", True),
    ],
)
def test_auto_takes_the_fastest_that_fits(
    asked: str, free_gib: float | None, pinned_gib: int, kind: str, fits: bool
) -> None:
    free = None if free_gib is None else int(free_gib * GIB)
    choice = choose_placement(asked, NEEDS, free, pinned_gib * GIB, 64 * GIB)
    assert (choice.kind, choice.fits, choice.need_bytes) == (kind, fits, NEEDS[kind])
    assert choice.reason.startswith(f"{kind}: needs {NEEDS[kind] / GIB:.2f} GiB of a GPU")
    assert ("would need 20.00 GiB" in choice.reason) == (asked == "auto" and kind != "cuda-cuda" and free is not None)


def test_without_a_gpu_there_is_nothing_to_choose() -> None:
    choice = choose_placement("auto", {}, None)
    assert (choice.kind, choice.reason, choice.fits) == ("cpu-cpu", "", True)


def test_the_answer_has_the_placement_and_its_exit_status() -> None:
    numbers = {"num_graphs": 1, "avg_nodes": 1e6, "avg_edges": 1e7, "num_features": 100}
    wide = answer(EstimateConfig(gpus="1", **numbers), machine=MACHINE, gpu_free_bytes=80 * GIB)  # type: ignore[arg-type]
    assert wide.training.placement == wide.placement.kind == "cuda-cuda"
    assert wide.exit_status == 0
    assert wide.chosen.gpu_bytes == wide.placement.need_bytes
    narrow = answer(EstimateConfig(gpus="1", **numbers), machine=MACHINE, gpu_free_bytes=GIB // 2)  # type: ignore[arg-type]
    assert (narrow.placement.fits, narrow.exit_status) == (False, 4)
    assert "estimate-memory" in narrow.next_command()
    told = json.loads(json.dumps(narrow.to_dict()))
    assert (told["placement"]["kind"], told["exit_status"]) == ("cpu-cuda", 4)
    assert "placement      cpu-cuda: needs" in narrow.text()
    cpu = answer(EstimateConfig(placement="cpu-cpu", **numbers), machine=MACHINE)  # type: ignore[arg-type]
    assert (cpu.training.num_gpus, cpu.placement.kind, cpu.chosen.gpu_bytes) == (0, "cpu-cpu", 0)


def test_the_least_free_of_the_gpus_that_are_used_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Gpu("a", 80 * GIB, 70 * GIB), Gpu("b", 80 * GIB, 5 * GIB), Gpu("c", 80 * GIB, 60 * GIB)]
    monkeypatch.setattr("pygsage.memory.answer.read_gpus", lambda: gpus)

    def free(text: str) -> int | None:
        return answer(TrainConfig("ogbn-arxiv", gpus=text), machine=MACHINE).placement.free_bytes

    assert [free(text) for text in ("1", "2", "0,2", "3", "2,")] == [70 * GIB, 5 * GIB, 60 * GIB, 5 * GIB, 60 * GIB]


def test_many_graphs_have_no_features_on_a_gpu() -> None:
    many = shape_from_numbers(1000, 30, 60, 16)
    found = answer(TrainConfig("x", gpus="1", batch_size=64), shape=many, machine=MACHINE, gpu_free_bytes=80 * GIB)
    assert found.placement.kind == "pinned-cuda"
    assert size(found.memory, "rank", "staging buffers") > 0


@pytest.mark.parametrize(
    "options",
    [
        {"placement": "cpu-cuda", "gpus": "0"},
        {"placement": "cpu-cpu", "gpus": "1"},
        {"placement": "cuda-cuda", "gpu_cache_size": "1GiB"},
        {"gpu_cache_size": "1GiB", "gpus": "0"},
        {"gpu_cache_size": "nothing"},
    ],
)
def test_contradictions_are_refused(options: dict[str, str]) -> None:
    for build in (TrainConfig, EstimateConfig):
        with pytest.raises(ConfigError):
            build("digits", **options)  # type: ignore[arg-type]


def test_training_is_of_the_cpu_without_a_gpu() -> None:
    assert resolve(TrainConfig(gpus="0"), "node", 2).placement == "cpu-cpu"
    assert resolve(TrainConfig(gpus="auto", placement="cpu-cpu"), "node", 2, num_gpus_here=2).num_gpus == 0
