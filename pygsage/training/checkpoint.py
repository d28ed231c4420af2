"""Checkpoints: plain dictionaries, written whole or not at all, read without running code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor

from pygsage.errors import RunError
from pygsage.memory.disk import full_disk

FORMAT = 1


def write_atomically(path: Path, content: bytes | Callable[[Any], object], after: str = "go on with --resume") -> None:
    """Writes a file so that at any moment the path holds either the old content or the new, whole.

    Args:
        path: The file to write.
        content: Its bytes, or a function that writes them to the open file it is given.
        after: What to do once the disk has room again, for the error.

    Raises:
        EnvironmentLimitError: when the disk is full; the old content stays.
        RunError: when the folder cannot be written to; the old content stays.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (OSError, RuntimeError) as error:
        # torch reports what its file could not do as a RuntimeError of its own writer.
        if isinstance(error, RuntimeError) and not isinstance(error.__context__, OSError):
            raise
        partial.unlink(missing_ok=True)
        told = full_disk(error, path.parent, f"then {after}")
        if told is not None:
            raise told from None
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if not path.parent.is_dir():
            raise RunError(f"'{path}' could not be written: its folder was removed while the run went on.") from None
        raise RunError(f"'{path}' could not be written: {reason}.", f"Mend that, then {after}.") from None


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Writes a checkpoint: a dictionary of numbers, strings, lists, dictionaries and tensors.

    Tensors are those of a CPU in the file, so that it can be read where there is no GPU.
    """
    plain = _on_cpu(state)
    write_atomically(path, lambda file: torch.save({"format": FORMAT, **plain}, file))


def _on_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(each) for key, each in value.items()}
    return [_on_cpu(each) for each in value] if isinstance(value, list) else value


def load_checkpoint(path: Path, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Reads a checkpoint onto the CPU with `weights_only=True`; `keys` are those that it must have.

    Raises:
        RunError: when it is missing, damaged, not a checkpoint, or of another format.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise RunError(f"There is no checkpoint '{path}'.") from None
    except Exception as error:  # torch raises many kinds for a damaged file
        reason = str(error).strip().split("\n")[0]
        raise RunError(f"The checkpoint '{path}' cannot be read: {reason}") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise RunError(f"'{path}' is no checkpoint of this version: found format {found}, expected {FORMAT}.")
    missing = [key for key in keys if key not in state]
    if missing:
        raise RunError(f"The checkpoint '{path}' has no {missing[0]}; expected one that train wrote under this name.")
    return state


def load_weights(model: torch.nn.Module, weights: dict[str, Tensor], origin: Path) -> None:
    """Loads weights into a model.

    Raises:
        RunError: when they are those of another model.
    """
    try:
        model.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = str(error).strip().split("\n")[-1].strip()
        raise RunError(
            f"The weights in '{origin}' do not fit the model that config.yaml describes: {reason}",
            "Was the file or config.yaml changed by hand?",
        ) from None


def save_weights(path: Path, weights: dict[str, Tensor], about: dict[str, int]) -> None:
    """Writes the weights as safetensors, with a few words about them, as JSON, in its header.

    They are one entry, because safetensors writes several in no fixed order: equal weights are equal files.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    write_atomically(path, to_safetensors(tensors, metadata={"pygsage": json.dumps(about)}))
