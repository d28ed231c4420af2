"""The public functions, called with things of another kind: each says what it expected, before any work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import pygsage
from pygsage.errors import PygsageError

DATA = Data(x=torch.zeros(4, 3), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 0, 1]))
PTR, NONE = torch.zeros(5, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)

CALLS: dict[str, Callable[[Any], Any]] = {
    "run is 3 of type int; expected a path": lambda p: p.predict(3),
    "run is None of type NoneType; expected a path": lambda p: p.predict(None),
    "split is 'tset'; expected one of train, val, test, all": lambda p: p.predict("run", "tset"),
    "The dataset that was given is of type int": lambda p: p.train(3),
    "given is of type bytes; expected a name": lambda p: p.train(b"x"),
    "--epochs is '3' of type str; expected int": lambda p: p.train(DATA, epochs="3"),
    "--run-dir is 3 of type int": lambda p: p.train("digits", resume=True, run_dir=3),
    "Did you mean 'epochs'": lambda p: p.train(DATA, epoch=3),
    "estimate_memory() was given 'bath_size'; expected an option that it has. Did you mean 'batch_size'": (
        lambda p: p.estimate_memory("digits", bath_size=3)
    ),
    "--batch-size is 'x' of type str": lambda p: p.estimate_memory("digits", batch_size="x"),
    "--num-graphs is '3' of type str": lambda p: p.estimate_memory(num_graphs="3"),
    "--memory-limit is '8', which has no unit": lambda p: p.estimate_memory("digits", memory_limit=8),
    "The recipe that was given is of type int; expected a Recipe": lambda p: p.open_dataset(3),
    "The recipe that was given is the class int; expected a Recipe": lambda p: p.open_dataset(int),
    "The recipe that was given is of type Data": lambda p: p.open_dataset(DATA),
    "root is 3 of type int; expected a path": lambda p: p.to_on_disk_dataset([DATA], 3),
    "missing is 'drop'; expected one of refuse, keep": lambda p: p.to_on_disk_dataset([DATA], "out", missing="drop"),
    "on_error is 'go on'; expected one of stop, skip": lambda p: p.to_on_disk_dataset([DATA], "out", on_error="go on"),
    "in_channels is 'a'; expected a whole number": lambda p: p.GraphSAGE("a", 4, 2, 2),
    "in_channels is 3.5; expected a whole number": lambda p: p.GraphSAGE(3.5, 4, 2, 2),
    "hidden_channels is 0; expected a whole number of 1 or more": lambda p: p.GraphSAGE(3, 0, 2, 2),
    "num_layers is 0; expected a whole number of 1 or more": lambda p: p.GraphSAGE(3, 4, 0, 2),
    "dropout is 'x'; expected a number from 0 to 1": lambda p: p.GraphSAGE(3, 4, 2, 2, dropout="x"),
    "dropout is 3; expected a number from 0 to 1": lambda p: p.GraphSAGE(3, 4, 2, 2, dropout=3),
    "x is of type str; expected a tensor": lambda p: p.layerwise_inference(p.GraphSAGE(3, 4, 2, 2), "x", PTR, NONE),
    "indptr is of type int; expected": lambda p: p.layerwise_inference(p.GraphSAGE(3, 4, 2, 2), DATA.x, 3, NONE),
    "edge_budget is 'x'; expected a whole number": lambda p: p.layerwise_inference(
        p.GraphSAGE(3, 4, 2, 2), DATA.x, PTR, NONE, edge_budget="x"
    ),
}


@pytest.mark.parametrize("says", CALLS)
def test_a_call_with_things_of_another_kind_is_told(says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PygsageError) as told:
        CALLS[says](pygsage)
    assert says in str(told.value)
    assert not any(tmp_path.iterdir())
