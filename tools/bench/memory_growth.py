"""Memory that grows with the epochs: trains a small graph for 200, in one process and in several, and looks.

    python tools/bench/memory_growth.py --epochs 200 --procs 1 2

Resident memory that is not file pages (RssAnon + RssShmem) of every process of the job, highest in the tenth epoch and
in the last tenth of the epochs. Exit status 1 when it has grown by more than `--most-mib`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

MIB = 1 << 20


def main() -> int:
    """Prints one JSON line for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--procs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sampler-threads", type=int, default=2)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--most-mib", type=float, default=4.0, help="growth of a process that is still called none")
    options = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="pygsage-growth-") as folder:
        _write_graph(Path(folder) / "small.npz")
        for procs in options.procs:
            grown = _train(Path(folder), procs, options)
            print(json.dumps(grown), flush=True)
            worst = max(worst, *(process["grown_mib"] for process in grown["processes"]))
    return int(worst > options.most_mib)


def _write_graph(path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes, split = 2708, rng.permutation(2708)  # as many as Cora has
    x = rng.normal(size=(nodes, 128)).astype(np.float32)
    y, edges = rng.integers(0, 7, nodes), rng.integers(0, nodes, (2, 10556))
    np.savez(path, x=x, y=y, edge_index=edges, train_idx=split[:1500], val_idx=split[1500:2000], test_idx=split[2000:])


def _train(folder: Path, procs: int, options: argparse.Namespace) -> dict[str, object]:
    run = folder / f"run-{procs}"
    words = ["train", str(folder / "small.npz"), "--run-dir", str(run), "--gpus", "0", "--procs", str(procs), "--quiet"]
    words += ["--epochs", str(options.epochs), "--batch-size", str(256 // procs), "--hidden", "64"]
    words += ["--sampler-threads", str(options.sampler_threads), "--checkpoint-every-s", "1"]
    words += ["--precision", options.precision]
    seen: dict[int, dict[int, int]] = {}  # of each process the most in each epoch
    with subprocess.Popen([sys.executable, "-m", "pygsage", *words], stdout=subprocess.DEVNULL) as job:
        whole = psutil.Process(job.pid)
        while job.poll() is None:
            epoch = _epochs_done(run)
            for process in [whole, *_children(whole)]:
                held = _held(process.pid)
                if held:
                    by_epoch = seen.setdefault(process.pid, {})
                    by_epoch[epoch] = max(by_epoch.get(epoch, 0), held)
            time.sleep(0.05)
    if job.returncode:
        raise SystemExit(f"the training ended with status {job.returncode}")
    processes = []
    for by_epoch in seen.values():
        first = max((held for epoch, held in by_epoch.items() if epoch <= 10), default=0)
        last = max((held for epoch, held in by_epoch.items() if epoch >= 0.9 * options.epochs), default=0)
        processes.append(
            {
                "until_tenth_mib": round(first / MIB, 1),
                "last_tenth_mib": round(last / MIB, 1),
                "grown_mib": round((last - first) / MIB, 1),
            }
        )
    return {"procs": procs, "epochs": options.epochs, "processes": processes}


def _epochs_done(run: Path) -> int:
    try:
        return (run / "metrics.jsonl").read_bytes().count(b'"event": "epoch"')
    except OSError:
        return 0


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _held(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))


if __name__ == "__main__":
    sys.exit(main())
