"""SIGKILL at random moments of a training or a conversion, resume, compare: the outcome must be the unbroken one's.

A training must end with the same weights and losses, bit by bit; with --convert, a conversion with the same files, byte
by byte, and until then there must be no store under its name.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Protocol

import torch

from pygsage import DatasetError, OnDiskGraphs
from pygsage.cli import main as cli
from pygsage.data.store import writer as store_writer

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Prints one line a kill and a summary; exit status 1 when any run ended differently."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--most-a-run", type=int, default=1, help="kill the same run up to so many times")
    parser.add_argument("--procs", type=int, default=1, help="processes of a training")
    parser.add_argument("--epochs", type=int, default=12, help="of a training")
    parser.add_argument("--convert", action="store_true", help="kill conversions, not trainings")
    parser.add_argument("--dataset", default=str(ROOT / "datasets" / "shapes.py"), help="what is converted")
    parser.add_argument("--checkpoint-mib", type=int, default=4, help="what a conversion makes safe at a time")
    options = parser.parse_args()
    moments = random.Random(options.seed)
    kind: Kind = Conversion(options) if options.convert else Training(options)
    with tempfile.TemporaryDirectory(prefix="pygsage-soak-") as folder:
        start = time.monotonic()
        unbroken = Path(folder) / "unbroken"
        errors = kind.start(unbroken).finish()
        if errors:
            print(errors)
            return 1
        length = time.monotonic() - start
        expected = kind.outcome(unbroken)
        print(f"unbroken: {length:.1f} s, {kind.describe(expected)}", flush=True)
        same = kills = runs = 0
        while kills < options.kills:
            run = Path(folder) / f"killed-{runs}"
            runs += 1
            told = []
            for _ in range(min(moments.randint(1, options.most_a_run), options.kills - kills)):
                moment = moments.uniform(0, length)
                job = kind.start(run)
                if job.is_done_after(moment):
                    break  # it was faster than the unbroken one: no kill
                job.kill()
                told.append(f"{moment:.2f} s ({kind.progress(run)})")
                kills += 1
            else:
                job = kind.start(run)
            errors = job.finish()
            good = not errors and kind.outcome(run) == expected
            same += good * len(told)
            print(
                f"killed after {', '.join(told)}: {'same' if good else 'DIFFERENT'}" if told else "too late", flush=True
            )
            if not good:
                print(errors, flush=True)
            kind.clear(run)
        print(f"{same} of {kills} identical", flush=True)
    return 0 if same == kills else 1


class Job(Protocol):
    """A process that works towards a folder."""

    def is_done_after(self, seconds: float) -> bool:
        """Waits at most so long; whether it has ended by itself."""

    def kill(self) -> None:
        """Sends SIGKILL, and waits until it is gone."""

    def finish(self) -> str:
        """Waits until it has ended; what it said when it failed, else nothing."""


class Kind(Protocol):
    """What is killed."""

    def start(self, place: Path) -> Job:
        """Begins it, or goes on with it."""

    def outcome(self, place: Path) -> Any:
        """All that has to be the same."""

    def describe(self, outcome: Any) -> str:
        """How large it is, for a person."""

    def progress(self, place: Path) -> str:
        """How far a killed one had come; fails when it left what must not be there."""

    def clear(self, place: Path) -> None:
        """Deletes it."""


class Training:
    """`pygsage train digits`, each in a process of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def start(self, place: Path) -> Job:
        """Begins it, or goes on with it."""
        procs, epochs = self.options.procs, self.options.epochs
        words = ["digits", "--run-dir", str(place), "--resume", "--quiet", "--gpus", "0", "--checkpoint-every-s", "0.2"]
        size = ["--procs", str(procs), "--epochs", str(epochs), "--batch-size", str(128 // procs)]
        return _Command([sys.executable, "-m", "pygsage", "train", *words, *size])

    def outcome(self, place: Path) -> Any:
        """The bytes of the weights, and the loss of each epoch."""
        weights = torch.load(place / "last.pt", weights_only=True)["model"]
        events = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
        losses = [event["loss"] for event in events if event["event"] == "epoch"]
        return {name: weight.numpy().tobytes() for name, weight in weights.items()}, losses

    def describe(self, outcome: Any) -> str:
        """How large it is, for a person."""
        return f"{len(outcome[1])} epochs, {self.options.procs} process(es)"

    def progress(self, place: Path) -> str:
        """How far a killed one had come."""
        if not (place / "last.pt").exists():
            return "before the first checkpoint"
        progress = torch.load(place / "last.pt", weights_only=True)["progress"]
        return f"checkpoint of epoch {progress['epoch'] + 1} step {progress['step']}"

    def clear(self, place: Path) -> None:
        """Deletes it."""
        shutil.rmtree(place)


class _Command:
    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def is_done_after(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def finish(self) -> str:
        _, errors = self._process.communicate()
        return errors or "failed" if self._process.returncode else ""


class Conversion:
    """`pygsage convert`, each in a process forked from this one: it would take longer to begin than to convert."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        with tempfile.TemporaryDirectory() as folder:  # loads all that the others need
            cli.main(["convert", options.dataset, str(Path(folder) / "out"), "--quiet"])

    def start(self, place: Path) -> Job:
        """Begins it, or goes on with it."""
        if place.exists():
            return _Fork(0)  # it was killed when all was done
        words = ["convert", self.options.dataset, str(place), "--resume", "--quiet"]
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                store_writer.CHECKPOINT_BYTES = self.options.checkpoint_mib << 20
                status = cli.main(words)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        return _Fork(pid)

    def outcome(self, place: Path) -> Any:
        """The bytes of every file."""
        files = [path for path in place.rglob("*") if path.is_file()]
        return {str(path.relative_to(place)): path.read_bytes() for path in files}

    def describe(self, outcome: Any) -> str:
        """How large it is, for a person."""
        return f"{len(outcome)} files, {sum(map(len, outcome.values())) / 2**20:.0f} MiB"

    def progress(self, place: Path) -> str:
        """How far a killed one had come; fails when it left a store, or a part that can be taken for one."""
        partial = place.with_name(f".{place.name}.partial")
        if place.exists():
            OnDiskGraphs(place).verify()
            return "whole, and in its place"
        if not partial.exists():
            return "before it began"
        if (partial / "manifest.json").exists():
            return "all but renamed"
        try:
            OnDiskGraphs(partial)
        except DatasetError:
            pass
        else:
            raise AssertionError(f"{partial} is unfinished, and was opened")
        if not (partial / "progress.json").exists():
            return "before anything was safe"
        progress = json.loads(json.loads((partial / "progress.json").read_text())["progress"])
        return f"{progress['num_done']} graphs safe"

    def clear(self, place: Path) -> None:
        """Deletes it."""
        shutil.rmtree(place)


class _Fork:
    def __init__(self, pid: int) -> None:
        self._pid, self._status = pid, None if pid else 0

    def is_done_after(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        if self._status is not None:
            return True
        while time.monotonic() < deadline:
            if self._poll():
                return True
            time.sleep(0.001)
        return False

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def finish(self) -> str:
        if self._status is None:
            self._status = os.waitpid(self._pid, 0)[1]
        return "" if self._status == 0 else f"failed with status {self._status}"

    def _poll(self) -> bool:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._status = status
        return bool(pid)


if __name__ == "__main__":
    sys.exit(main())
