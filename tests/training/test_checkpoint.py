import errno
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pygsage import EnvironmentLimitError, RunError
from pygsage.training.checkpoint import load_checkpoint, save_checkpoint, save_weights, write_atomically


def test_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {"model": {"w": torch.arange(6.0).view(2, 3)}, "progress": {"epoch": 3, "best": -float("inf"), "val": None}}
    save_checkpoint(tmp_path / "last.pt", state)
    loaded = load_checkpoint(tmp_path / "last.pt")
    assert torch.equal(loaded["model"]["w"], state["model"]["w"])
    assert loaded["progress"] == state["progress"]
    assert os.listdir(tmp_path) == ["last.pt"]


def test_c047_a_view_is_saved_without_its_storage(tmp_path: Path) -> None:
    big = torch.zeros(1_000_000)
    save_weights(tmp_path / "model.safetensors", {"w": big[:10]}, {"epoch": 1, "in_channels": 2, "out_channels": 3})
    first = (tmp_path / "model.safetensors").read_bytes()
    for _ in range(5):  # equal weights are equal files
        save_weights(tmp_path / "model.safetensors", {"w": big[:10]}, {"epoch": 1, "in_channels": 2, "out_channels": 3})
        assert (tmp_path / "model.safetensors").read_bytes() == first
    assert (tmp_path / "model.safetensors").stat().st_size < 1000
    assert torch.equal(load_file(tmp_path / "model.safetensors")["w"], big[:10])


def test_c110_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, {"epoch": 1})

    def full(file: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(EnvironmentLimitError, match="The disk of .* is full: No space left on device .* free"):
        write_atomically(path, full)
    assert load_checkpoint(path)["epoch"] == 1
    assert os.listdir(tmp_path) == ["last.pt"]


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs /dev/full")
def test_torchs_own_error_on_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / ".last.pt.partial").symlink_to("/dev/full")
    with pytest.raises(EnvironmentLimitError, match="is full: No space left on device") as caught:
        save_checkpoint(tmp_path / "last.pt", {"w": torch.zeros(100_000)})
    assert "`df -h" in caught.value.advice
    assert "--resume" in caught.value.advice


@pytest.mark.parametrize("keep", [0, 10, 500])
def test_a_truncated_checkpoint_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "last.pt"
    save_checkpoint(path, {"w": torch.zeros(1000)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(RunError, match=r"last\.pt' cannot be read"):
        load_checkpoint(path)


def test_missing_foreign_and_pickled_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no checkpoint"):
        load_checkpoint(tmp_path / "none.pt")
    torch.save({"w": torch.zeros(1)}, tmp_path / "foreign.pt")
    with pytest.raises(RunError, match="expected 1"):
        load_checkpoint(tmp_path / "foreign.pt")
    torch.save({"format": 1, "path": Path("x")}, tmp_path / "code.pt")
    with pytest.raises(RunError, match="cannot be read"):
        load_checkpoint(tmp_path / "code.pt")
