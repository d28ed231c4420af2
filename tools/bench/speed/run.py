"""Ours and the peers on the same work, in one call: `python tools/bench/speed/run.py arxiv --dgl VENV/bin/python`.

Makes the graphs (seeded, power-law, the sizes of ogbn-arxiv and ogbn-products), then runs each side in a process of its
own, one after the other, over and over, and prints the median of CPU milliseconds a batch (the whole process's, the
optimiser included), and the median of the ratios peer / ours of runs that stand side by side. With --precision bf16
ours is in bfloat16 and the peers are in float32, unless --peers-bf16 says else. Peers live in environments of their
own, named by the path of their Python; a peer that is not named is left out:

    --dgl  torch 2.2.1, torchdata 0.7.1, numpy < 2, pandas < 3, pydantic, pyyaml, dgl 2.1.0
    --pyg  torch, torch_geometric, torch-scatter and torch-sparse (--no-build-isolation), or pyg-lib where it can be had
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WHATS = {"sample": "sampling", "input": "sampling and features", "step": "training step", "inference": "inference"}


def main() -> None:
    """Makes what is missing, runs all sides, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", choices=("tiny", "arxiv", "products", "many"), help="many: small graphs")
    parser.add_argument("--what", nargs="+", choices=WHATS, default=["sample", "input", "step"])
    parser.add_argument("--fanouts", nargs="+", default=["10,10,10"])
    parser.add_argument("--dropout", nargs="+", default=["0.5"])
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32"])
    parser.add_argument("--peers-bf16", action="store_true")
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dgl", help="the Python that has DGL")
    parser.add_argument("--pyg", help="the Python that has PyG with torch-sparse or pyg-lib")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "pygsage-speed")
    asked = parser.parse_args()
    sides = {"ours": [sys.executable, str(HERE / "ours.py")]}
    for name, script in (("dgl", "dgl_blocks.py"), ("pyg", "pyg_loader.py")):
        if getattr(asked, name):
            sides[name] = [getattr(asked, name), str(HERE / script)]
    print(f"{date.today()}, {_hardware()}; {' '.join(sys.argv)}", flush=True)
    for graph in asked.graphs:
        if graph == "many":  # PyG's side needs no sampler, so our own environment has it
            scripts = {"ours": "ours_graphs.py", "pyg": "pyg_graphs.py"}
            many = {name: [sys.executable, str(HERE / script)] for name, script in scripts.items()}
            for precision in asked.precision:
                _compare(many, None, {"precision": precision, "threads": str(asked.threads[0])}, asked.rounds, False)
            continue
        folder = asked.folder / graph
        if not (folder / "manifest.json").exists():
            maker = [sys.executable, str(HERE / "graphs.py"), graph, "--out", str(asked.folder)]
            subprocess.run([*maker, "--seed", str(asked.seed)], check=True)
        for case in _cases(asked):
            _compare(sides, folder, case, asked.rounds, asked.peers_bf16)


def _cases(asked: argparse.Namespace) -> list[dict[str, str]]:
    """Every combination that makes a difference."""
    cases = []
    for what in asked.what:
        for threads in asked.threads:
            for fanouts in asked.fanouts if what != "inference" else ["10,10,10"]:
                for dropout in asked.dropout if what == "step" else ["0.5"]:
                    for precision in asked.precision if what == "step" else ["fp32"]:
                        case = {"what": what, "fanouts": fanouts, "dropout": dropout, "precision": precision}
                        cases.append({**case, "threads": str(threads), "batches": str(asked.batches)})
    return cases


def _compare(
    sides: dict[str, list[str]], folder: Path | None, case: dict[str, str], rounds: int, peers_bf16: bool
) -> None:
    place, title = ([str(folder)], folder.name) if folder is not None else ([], "100,000 graphs of 30 nodes")
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for name in order:
            own = case if name == "ours" or peers_bf16 else {**case, "precision": "fp32"}
            words = [word for option, value in own.items() for word in (f"--{option}", value)]
            done = subprocess.run(
                [*sides[name], *place, *words, "--seed", str(number)],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": case["threads"]},
            )
            if done.returncode:
                sys.exit(f"{name} failed on {title}: {' '.join(words)}")
            runs[name].append(json.loads(done.stdout.splitlines()[-1]))
    settings = ", ".join(f"{name} {value}" for name, value in case.items() if name not in ("what", "batches"))
    print(f"\n{title}, {WHATS[case.get('what', 'step')]} ({settings}), CPU ms a batch, {rounds} rounds")
    for told in runs.values():
        totals = [run["cpu_ms"]["total"] for run in told]
        ratios = [total / ours["cpu_ms"]["total"] for total, ours in zip(totals, runs["ours"], strict=True)]
        phases = {
            phase: statistics.median(run["cpu_ms"].get(phase, 0.0) for run in told)
            for phase in told[0]["cpu_ms"]
            if phase != "total"
        }
        parts = ", ".join(f"{phase} {value:.1f}" for phase, value in phases.items())
        peak = max(run["peak_bytes"] for run in told) / 2**20
        print(
            f"  {told[0]['name']:<20} {statistics.median(totals):9.1f}  ({parts})  x{statistics.median(ratios):.2f}  "
            f"peak {peak:,.0f} MiB  [{told[0]['versions']}]",
            flush=True,
        )


def _hardware() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"


if __name__ == "__main__":
    main()
