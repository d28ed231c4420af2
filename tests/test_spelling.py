from __future__ import annotations

from typing import Any

import pytest

from pygsage.config import TrainConfig
from pygsage.errors import ConfigError
from pygsage.memory.options import EstimateConfig
from pygsage.memory.partition import PartitionConfig
from pygsage.spelling import limit_of, parse_share, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 << 30), ("512 MiB", 512 << 20), ("1.5kib", 1536), ("1048576", 1 << 20), ("2TiB", 2 << 40)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text, "--memory-limit") == size


@pytest.mark.parametrize("text", ["", "8GB", "-1GiB", "0", "GiB", "1e9", "8", "16384", "1048575"])
def test_sizes_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigError, match="--memory-limit is"):
        parse_size(text, "--memory-limit")


def test_a_small_number_without_a_unit_is_no_count_of_bytes() -> None:
    with pytest.raises(ConfigError, match=r"'8', which has no unit and would be 8 bytes; .* Type --memory-limit 8GiB"):
        TrainConfig(memory_limit="8")
    with pytest.raises(ConfigError, match="Type --gpu-cache-size 2GiB or --gpu-cache-size 2MiB"):
        TrainConfig(gpu_cache_size="2")
    with pytest.raises(ConfigError, match="Type --remote-cache 15% or --remote-cache 15GiB"):
        TrainConfig(remote_cache=15)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Type --remote-cache 15% or --remote-cache 0.15GiB"):
        TrainConfig(remote_cache="0.15")
    with pytest.raises(ConfigError, match="Type --remote-cache 512MiB or --remote-cache 512GiB"):
        TrainConfig(remote_cache="512")
    for kind, given in ((EstimateConfig, {"dataset": "digits"}), (PartitionConfig, {"store": "a", "out": "b"})):
        with pytest.raises(ConfigError, match="--memory-limit is '4', which has no unit"):
            kind(**given, memory_limit="4")
    with pytest.raises(ConfigError, match="'8GB'; expected .* Type --memory-limit 8GiB"):
        TrainConfig(memory_limit="8GB")
    assert TrainConfig(memory_limit=8 << 30).memory_limit == str(8 << 30)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("15%", (0.15, 0)), ("0", (0.0, 0)), ("0%", (0.0, 0)), ("2GiB", (0.0, 2 << 30)), ("2097152", (0.0, 2 << 20))],
)
def test_shares_are_read(text: str, expected: tuple[float, int]) -> None:
    assert parse_share(text, "--remote-cache") == expected


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, [8], "8"])
def test_a_limit_in_python_is_bytes_or_text_with_a_unit(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="memory_limit is"):
        limit_of(wrong, "memory_limit")
    assert (limit_of(8000, "memory_limit"), limit_of("1MiB", "memory_limit")) == (8000, 1 << 20)
