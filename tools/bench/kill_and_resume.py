"""SIGKILL at random moments of a training, resume, compare: the final weights must be those of an unbroken run."""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch


def main() -> int:
    """Prints one line a kill and a summary; exit status 1 when any run ended differently."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--procs", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--most-a-run", type=int, default=1, help="kill the same run up to so many times")
    options = parser.parse_args()
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="pygsage-soak-") as folder:
        start = time.monotonic()
        unbroken = Path(folder) / "unbroken"
        _train(unbroken, options).communicate()
        length = time.monotonic() - start
        expected = _outcome(unbroken)
        print(f"unbroken: {length:.1f} s, {len(expected[1])} epochs, {options.procs} process(es)", flush=True)
        same = kills = 0
        while kills < options.kills:
            run = Path(folder) / f"killed-{kills}"
            told = []
            for _ in range(min(moments.randint(1, options.most_a_run), options.kills - kills)):
                moment = moments.uniform(0, length)
                told.append(f"{moment:.2f} s ({_kill_after(moment, run, options)})")
                kills += 1
            done = _train(run, options)
            _, errors = done.communicate()
            good = done.returncode == 0 and _equal(_outcome(run), expected)
            same += good * len(told)
            print(f"killed after {', '.join(told)}: {'same' if good else 'DIFFERENT'}", flush=True)
            if not good:
                print(errors, flush=True)
        print(f"{same} of {kills} identical", flush=True)
    return 0 if same == kills else 1


def _train(run: Path, options: argparse.Namespace) -> subprocess.Popen[str]:
    words = ["digits", "--run-dir", str(run), "--resume", "--quiet", "--gpus", "0", "--checkpoint-every-s", "0.2"]
    size = ["--procs", str(options.procs), "--epochs", str(options.epochs), "--batch-size", str(128 // options.procs)]
    command = [sys.executable, "-m", "pygsage", "train", *words, *size]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _kill_after(seconds: float, run: Path, options: argparse.Namespace) -> str:
    """Kills a training after so many seconds; says how far it had come."""
    job = _train(run, options)
    try:
        job.wait(seconds)
        return "already done"
    except subprocess.TimeoutExpired:
        job.send_signal(signal.SIGKILL)
    job.communicate()
    if not (run / "last.pt").exists():
        return "before the first checkpoint"
    progress = torch.load(run / "last.pt", weights_only=True)["progress"]
    return f"checkpoint of epoch {progress['epoch'] + 1} step {progress['step']}"


def _outcome(run: Path) -> tuple[dict[str, torch.Tensor], list[float]]:
    weights = torch.load(run / "last.pt", weights_only=True)["model"]
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return weights, [event["loss"] for event in events if event["event"] == "epoch"]


def _equal(
    ours: tuple[dict[str, torch.Tensor], list[float]], expected: tuple[dict[str, torch.Tensor], list[float]]
) -> bool:
    same_weights = all(torch.equal(ours[0][name], weight) for name, weight in expected[0].items())
    return same_weights and ours[1] == expected[1]


if __name__ == "__main__":
    sys.exit(main())
