"""Mistakes in flags and config files: each is refused with exit status 2 and what to type, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from pygsage.cli.main import main
from pygsage.config import TrainConfig
from pygsage.spelling import flag

Refusal = Callable[..., str]
TYPES = {f.name: str(f.type) for f in fields(TrainConfig)}
# As YAML has them. What is right for a type is left out below.
WRONG: dict[str, tuple[str, ...]] = {
    "int": ("many", "1.5", "true", "[1]", "{a: 1}", "-5", "1e400", ".nan", "2024-01-01", "''", "0x"),
    "float": ("many", "true", "[0.1]", "{a: 1}", "-1.0", ".nan", ".inf", "-.inf", "''", "null"),
    "bool": ("1", "0", "'yes'", "maybe", "[true]", "null", "1.0"),
    "str": ("3", "1.5", "true", "[a]", "{a: b}", "2024-01-01"),
    "Literal": ("3", "none_of_these", "true", "[mean]", "null", "''"),
    "tuple": (
        "0",
        "'5,0'",
        "[]",
        "[1.5]",
        "[a]",
        "[true]",
        "'a'",
        "''",
        "[[1]]",
        "null",
        "{a: 1}",
        "-2",
        "'1,,2'",
        "1.5",
        "true",
        "2024-01-01",
    ),
}


def kind_of(name: str) -> str:
    return next(kind for kind in ("Literal", "tuple", "bool", "float", "int", "str") if kind in TYPES[name])


def in_files() -> dict[str, tuple[str, str]]:
    """A line of YAML by a name for it, with what the sentence has to say."""
    lines: dict[str, tuple[str, str]] = {}
    for name, told in TYPES.items():
        for text in WRONG[kind_of(name)]:
            right = (text == "null" and "None" in told, (name, text) in {("ignore_label", "-5"), ("gpus", "3")})
            if any(right):
                continue  # which is right
            lines[f"{name}: {text}"] = (f"{name.replace('_', '-')}: {text}", flag(name))
    return lines


FILES = in_files()
OTHER_FILES: dict[str, tuple[str | bytes, str]] = {
    "a name that is not there": ("epoch: 3", "Did you mean 'epochs'?"),
    "a name from elsewhere": ("learning_rate: 3", "sets 'learning_rate'"),
    "a name of another command": ("output: x.npy", "sets 'output'"),
    "a number as a name": ("3: 4", "sets '3'"),
    "no name": ("null: 4", "sets 'None'"),
    "a list": ("- epochs: 3", "holds a list"),
    "a word": ("epochs", "holds a str"),
    "a number": ("3", "holds a int"),
    "an open bracket": ("epochs: [", "is not YAML"),
    "a tab": ("epochs:\n\t- 3", "is not YAML"),
    "two colons": ("epochs: 3: 4", "is not YAML"),
    "two documents": ("epochs: 3\n---\nepochs: 4", "is not YAML"),
    "an option twice": ("epochs: 3\nhidden: 4\nepochs: 3", "sets 'epochs' on line 1 and again on line 3; expected"),
    "an option in two spellings": ("batch-size: 3\nbatch_size: 4", "sets 'batch_size' on line 1 and again on line 2"),
    "an object of Python": ("epochs: !!python/object/apply:os.getcwd []", "is not YAML"),
    "an anchor that is not there": ("epochs: *a", "is not YAML"),
    "bytes": (b"\xff\xfe\x00\x01", "is not YAML"),
    "zeros": (b"\0\0\0", "is not YAML"),
    "JSON cut short": ('{"epochs": 3', "is not YAML"),
    "a split": ("split: random:.9/.9/.9", "--split is 'random:.9/.9/.9'"),
    "a dataset": ("dataset: missing.npz", "The file missing.npz does not exist"),
    "resume without a run": ("resume: true", "--resume needs to know"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_value_in_a_file_is_refused(name: str, tmp_path: Path, refusal: Refusal) -> None:
    line, says = FILES[name]
    (tmp_path / "c.yaml").write_text(line + "\n")
    said = refusal("--config", "c.yaml")
    assert says in said
    assert "c.yaml" in said
    assert "expected" in said


@pytest.mark.parametrize("name", OTHER_FILES)
def test_a_wrong_file_is_refused(name: str, tmp_path: Path, refusal: Refusal) -> None:
    content, says = OTHER_FILES[name]
    (tmp_path / "c.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert says in refusal("--config", "c.yaml")


@pytest.mark.parametrize(
    ("path", "says"), [("missing.yaml", "cannot be read"), (".", "cannot be read"), ("", "cannot be read")]
)
def test_a_file_that_is_none_is_refused(path: str, says: str, refusal: Refusal) -> None:
    assert says in refusal("--config", path)


def test_fanouts_with_spaces_are_told_with_commas(refusal: Refusal) -> None:
    assert "Type --fanouts 5,5" in refusal("--fanouts", "5", "5", "--epochs", "1")


FLAGS = [
    *[f"--{name} {text}" for name in ("epochs", "batch-size", "hidden") for text in ("0", "-1")],
    "--eval-every -1",
    "--eval-every 0 --patience 2",
    *[f"--{name} {text}" for name in ("max-steps", "patience", "sampler-threads", "procs") for text in ("0", "-3")],
    *[f"--{name} {text}" for name in ("lr", "weight-decay", "checkpoint-every-s") for text in ("-1", "nan", "inf")],
    *[f"--dropout {text}" for text in ("1", "1.5", "-0.1", "nan", "inf")],
    *[f"--seed {text}" for text in ("-1", str(2**63))],
    *[f"--fanouts {text}" for text in ("0", "5,0", "-2", "a", "5,", ",", "5;5", "1.5", "5,-2")],
    *[f"--split {text}" for text in ("random", "random:", "random:.5", "random:.5/.5", "random:.9/.9/.9")],
    "--split random:0/.5/.5",
    *[f"--split {text}" for text in ("random:a/b/c", "random:-.1/.5/.5", "random:nan/.1/.1", "per-class:20")],
    "--split per-class:0/5",
    *[f"--split {text}" for text in ("folds", "folds:2", "folds:2.5", "folds:10 --split-id 10")],
    *[f"--split {text}" for text in ("per-class:1.5/2", "per-class:a/b", "public:1", "half", "per-class:20/inf")],
    "--split-id -1",
    *[f"--gpus {text}" for text in ("many", "-1", "0,0", "1.5", "0,,1", "99", "0,99")],
    *[f"--memory-limit {text}" for text in ("0", "-1", "much", "8GB", "GiB", "1e3", "nan")],
    "--resume",
    "--metric rocauc",
    "--metric rmse",
    "--metric ogb_acc",
    "--task regression --class-weights",
    "--task regression --metric accuracy",
    "--task multilabel",
    "--split per-class:500/500",
    "--split-id 3",
    "--root .",
    "--relabel --split-id 1",
    "--config missing.yaml",
]  # fmt: skip
GARBAGE = {
    "--epochs x": "--epochs is 'x'; expected a whole number.",
    "--epochs 1.5": "--epochs is '1.5'; expected a whole number.",
    "--epochs": "--epochs has no value; expected one after it.",
    "--lr x": "--lr is 'x'; expected a number.",
    "--norm batches": "--norm is 'batches'; expected one of none, layer, batch.",
    "--aggr median": "--aggr is 'median'; expected one of mean, sum, max.",
    "--precision fp16": "--precision is 'fp16'; expected one of fp32, bf16.",
    "--no-such": "found --no-such, which is no option of train. Type pygsage train --help",
    "--epoch 3": "found --epoch, which is no option of train; did you mean --epochs?",
    "-epochs 3": "found -epochs, which is no option of train; did you mean --epochs?",
    "--batchsize 3": "found --batchsize, which is no option of train; did you mean --batch-size?",
    "--learning=3": "found --learning, which is no option of train",
    "--undirect": "found --undirect, which is no option of train; did you mean --undirected?",
    "a b": "found 'b', which belongs to no option; expected no further word.",
}


@pytest.mark.parametrize("words", FLAGS)
def test_a_wrong_flag_is_refused(words: str, refusal: Refusal) -> None:
    said = refusal("digits", *words.split())
    named = re.findall(r"--[a-z-]+", words)
    assert any(name in said for name in named) or "missing.yaml" in said


@pytest.mark.parametrize("words", GARBAGE)
def test_a_word_that_the_parser_does_not_know_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words.split()]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"pygsage train: {GARBAGE[words]}")
    assert output.err.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_how_many_there_are() -> None:
    count = len({*FILES, *OTHER_FILES, *FLAGS, *GARBAGE})
    print(f"{count} distinct bad options")
    assert count >= 300
