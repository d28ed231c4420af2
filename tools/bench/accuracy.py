"""Test scores over several seeds: `python tools/bench/accuracy.py --seeds 10 -- --config datasets/configs/cora.yaml`.

What stands after -- goes to `pygsage train`; with --split-ids N the first N splits of the dataset take the place
of seeds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Prints the score of each run, then their mean and sample standard deviation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--split-ids", type=int, default=None)
    parser.add_argument("--metric", default="accuracy")
    parser.add_argument("words", nargs="*", help="after --: the words of `pygsage train`")
    options = parser.parse_args()
    print(f"pygsage train {' '.join(options.words)}; {_versions()}", flush=True)
    scores = []
    for number in range(options.split_ids or options.seeds):
        varied = ["--split-id", str(number)] if options.split_ids else ["--seed", str(number)]
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pygsage", "train", *options.words, *varied, "--json", "--quiet"]
            done = subprocess.run([*command, "--run-dir", str(Path(folder) / "run")], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.returncode)
        result = json.loads(done.stdout.splitlines()[-1])
        scores.append(result["test"][options.metric])
        seconds, epoch = result["seconds"], result["best_epoch"]
        print(f"{' '.join(varied)}: {options.metric} {scores[-1]:.4f} (epoch {epoch}, {seconds:.1f} s)", flush=True)
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    print(f"mean {statistics.mean(scores):.4f} ± {spread:.4f} over {len(scores)} runs")


def _versions() -> str:
    import torch
    import torch_geometric

    import pygsage

    torches = f"torch {torch.__version__}, PyG {torch_geometric.__version__}"
    return f"pygsage {pygsage.__version__}, {torches}, Python {platform.python_version()}, {platform.machine()}"


if __name__ == "__main__":
    main()
