"""A hard memory cap: what `pygsage train` does with data that do not fit under it, and what PyG's own path does.

    python tools/bench/memory_cap.py graph          # one graph: 3 GiB of features, 40 M edges, cap 1 GiB
    python tools/bench/memory_cap.py graphs         # a recipe of 3 GiB of graphs, same cap
    python tools/bench/memory_cap.py ranks          # four ranks on one graph of 1 GiB in memory: resident once?
    python tools/bench/memory_cap.py build          # 20 M edges sorted with 256 MiB: the peak of the build

The cap is a memory control group (version 1) that the script makes and removes, which needs root. Data are made in
`--folder` (some 12 GiB for `graph`) and deleted at the end. Figures are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

GROUPS = Path("/sys/fs/cgroup/memory")
GIB = 1 << 30
TRAIN = ["--gpus", "0", "--epochs", "1", "--fanouts", "10,10", "--hidden", "64", "--batch-size", "1024"]
RECIPE = """
import torch
from torch_geometric.data import Data
import pygsage

class Large(pygsage.Recipe):
    num_graphs = {num_graphs}

    def graphs(self):
        generator = torch.Generator().manual_seed(0)
        for number in range(self.num_graphs):
            edges = torch.randint(0, 500, (2, 2000), generator=generator)
            x = torch.randn(500, 256, generator=generator)
            yield Data(x=x, edge_index=edges, y=torch.tensor([number % 2]))
"""
PYG_GRAPH = """
import sys, numpy as np, torch
from torch_geometric.data import Data, InMemoryDataset

class Whole(InMemoryDataset):
    processed_file_names = ["data.pt"]
    def __init__(self, root):
        super().__init__(root)
        self.load(self.processed_paths[0])
    def process(self):
        with np.load(sys.argv[1]) as f:
            data = Data(**{k: torch.from_numpy(f[k]) for k in ("x", "edge_index", "y")})
        self.save([data], self.processed_paths[0])

print(Whole(sys.argv[2])[0])
"""
PYG_GRAPHS = """
import importlib.util, sys
from torch_geometric.data import InMemoryDataset
spec = importlib.util.spec_from_file_location("recipe", sys.argv[1])
recipe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)

class Whole(InMemoryDataset):
    processed_file_names = ["data.pt"]
    def __init__(self, root):
        super().__init__(root)
        self.load(self.processed_paths[0])
    def process(self):
        self.save(list(recipe.Large().graphs()), self.processed_paths[0])

print(len(Whole(sys.argv[2])))
"""
OPEN = """
import importlib.util, sys, pygsage
spec = importlib.util.spec_from_file_location("recipe", sys.argv[1])
recipe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)
ds = pygsage.open_dataset(recipe.Large(sys.argv[2]), storage="auto")
print(type(ds).__name__, len(ds), ds[len(ds) - 1])
"""


def main() -> None:
    """Runs one of the checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=["graph", "graphs", "ranks", "build"])
    parser.add_argument("--folder", default=None, help="where data are made (default: the folder of temporary files)")
    parser.add_argument("--cap", type=float, default=1.0, help="GiB of the cap")
    parser.add_argument("--gib", type=float, default=3.0, help="GiB of features")
    parser.add_argument("--edges", type=int, default=40_000_000)
    parser.add_argument("--dtype", default="float32", choices=["float16", "float32"])
    parser.add_argument("--no-pyg", action="store_true", help="leave PyG's own path out")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pygsage-cap-", dir=args.folder))
    checks: dict[str, Callable[[Path, Any], dict[str, Any]]] = {
        "graph": one_graph, "graphs": many_graphs, "ranks": four_ranks, "build": peak_of_build,
    }  # fmt: skip
    try:
        print(json.dumps({"check": args.check, **checks[args.check](folder, args)}, indent=1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def one_graph(folder: Path, args: Any) -> dict[str, Any]:
    """One graph in an `.npz`, under the cap."""
    write_graph(folder / "large.npz", int(args.gib * GIB), args.edges, args.dtype)
    cap = int(args.cap * GIB)
    words = [sys.executable, "-m", "pygsage", "train", "large.npz", "--run-dir", "run", "--json", *TRAIN]
    ours = under_cap(words, cap, folder)
    found = {"cap_bytes": cap, "ours": {**ours, **result_of(folder / "run", ours)}}
    if not args.no_pyg:
        found["pyg"] = under_cap([sys.executable, "-c", PYG_GRAPH, "large.npz", "pyg"], cap, folder)
    return found


def many_graphs(folder: Path, args: Any) -> dict[str, Any]:
    """A recipe of many graphs, under the cap: opened, and trained on."""
    count = int(args.gib * GIB) // (500 * 256 * 4 + 2000 * 16)
    (folder / "large.py").write_text(RECIPE.format(num_graphs=count))
    cap = int(args.cap * GIB)
    opened = under_cap([sys.executable, "-c", OPEN, "large.py", "opened"], cap, folder)
    words = [sys.executable, "-m", "pygsage", "train", "large.py", "--run-dir", "run", "--json", "--gpus", "0"]
    words += [
        "--epochs",
        "1",
        "--fanouts",
        "10,10",
        "--hidden",
        "64",
        "--batch-size",
        "128",
        "--split",
        "random:.6/.2/.2",
    ]
    ours = under_cap(words, cap, folder)
    found = {
        "cap_bytes": cap,
        "num_graphs": count,
        "opened": opened,
        "ours": {**ours, **result_of(folder / "run", ours)},
    }
    if not args.no_pyg:
        found["pyg"] = under_cap([sys.executable, "-c", PYG_GRAPHS, "large.py", "pyg"], cap, folder)
    return found


def four_ranks(folder: Path, args: Any) -> dict[str, Any]:
    """Summed PSS of four ranks that hold 1 GiB in memory, less that of four on a graph of nothing."""
    write_graph(folder / "small.npz", 1 << 20, 10_000, "float32")
    write_graph(folder / "large.npz", GIB - 12 * 4_000_000, 4_000_000, "float32")
    peaks = {name: pss_of_ranks(folder, name) for name in ("small", "large")}
    return {**peaks, "data_gib": round((peaks["large"] - peaks["small"]) / GIB, 3), "bar_gib": 1.15}


def pss_of_ranks(folder: Path, name: str) -> int:
    """The highest sum of the PSS of four ranks in their second epoch, evaluation included."""
    words = [sys.executable, "-m", "pygsage", "train", f"{name}.npz", "--run-dir", f"run-{name}", "--storage", "memory"]
    words += ["--procs", "4", "--gpus", "0", "--fanouts", "5,5", "--hidden", "16", "--batch-size", "32"]
    words += ["--epochs", "2"]
    # Not before: in reading, the first rank holds the graph alone, and gives it up some time after the others map it.
    job = subprocess.Popen(words, cwd=folder, env=environment())
    most = 0
    while job.poll() is None:
        ranks = [p for p in children_of(job.pid) if "pygsage.training.child" in command_of(p)]
        told = folder / f"run-{name}" / "metrics.jsonl"
        if len(ranks) == 4 and told.exists() and '"epoch"' in told.read_text():
            most = max(most, sum(map(pss_of, ranks)))
        time.sleep(0.1)
    if job.returncode:
        raise SystemExit(f"train ended with {job.returncode}")
    return most


def peak_of_build(folder: Path, args: Any) -> dict[str, Any]:
    """The most that sorting 20 M edges takes beside what the process holds before, with a budget of 256 MiB."""
    import torch

    from pygsage.data.one_graph.external import ListedEdges, write_csc
    from pygsage.memory.peak import PeakMemory, undroppable_bytes

    num_edges, num_nodes, budget = 20_000_000, 2_000_000, 256 << 20
    edges = np.lib.format.open_memmap(folder / "edges.npy", "w+", np.int64, (2, num_edges))
    rng = np.random.default_rng(0)
    for start in range(0, num_edges, 1 << 20):
        part = edges[:, start : start + (1 << 20)]
        part[:] = rng.integers(0, num_nodes, part.shape)
    edges.flush()
    mapped = torch.from_numpy(np.load(folder / "edges.npy", mmap_mode="c"))
    found: dict[str, Any] = {"edge_array_bytes": int(mapped.nbytes), "budget_bytes": budget}
    for name, undirected in (("plain", False), ("undirected", True)):
        out = folder / name
        (out / "work").mkdir(parents=True)
        before, start_s = undroppable_bytes(), time.process_time()
        with PeakMemory(0.005) as memory:
            write_csc(ListedEdges(mapped), num_nodes, out, out / "work", undirected=undirected, budget_bytes=budget)
        found[name] = {"peak_bytes": memory.peak_bytes - before, "cpu_s": round(time.process_time() - start_s, 2)}
    return found


def write_graph(path: Path, x_bytes: int, num_edges: int, dtype: str, num_features: int = 256) -> None:
    """Random features, edges and labels of 16 classes; 20,000 training nodes, 10,000 of validation and of test."""
    num_nodes = x_bytes // (num_features * np.dtype(dtype).itemsize)
    rng = np.random.default_rng(0)
    arrays = path.with_suffix(".arrays")
    arrays.mkdir()
    x = np.lib.format.open_memmap(arrays / "x.npy", "w+", np.dtype(dtype), (num_nodes, num_features))
    for start in range(0, num_nodes, 1 << 16):
        part = x[start : start + (1 << 16)]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
    edges = np.lib.format.open_memmap(arrays / "edge_index.npy", "w+", np.int64, (2, num_edges))
    for start in range(0, num_edges, 1 << 20):
        part = edges[:, start : start + (1 << 20)]
        part[:] = rng.integers(0, num_nodes, part.shape)
    train, evaluated = min(20_000, num_nodes // 4), min(10_000, num_nodes // 4)
    order = rng.permutation(num_nodes)[: train + 2 * evaluated]
    ends = np.split(order, [train, train + evaluated])
    splits = dict(zip(("train_idx", "val_idx", "test_idx"), ends, strict=True))
    np.savez(path, x=x, edge_index=edges, y=rng.integers(0, 16, num_nodes), **splits)
    del x, edges
    shutil.rmtree(arrays)


def result_of(run: Path, ours: dict[str, Any]) -> dict[str, Any]:
    """What the run says of itself."""
    if not (run / "memory.json").is_file():
        return {}
    return {"memory": json.loads((run / "memory.json").read_text()), "result": json.loads(ours["last_line"])}


def under_cap(command: list[str], cap_bytes: int, folder: Path) -> dict[str, Any]:
    """Runs a command in a memory group: exit status (-9: killed), the group's peak, the last lines of its output."""
    start = time.perf_counter()
    with memory_group(cap_bytes) as group:
        job = subprocess.run(
            ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command],
            cwd=folder, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        peak = int((group / "memory.max_usage_in_bytes").read_text())
    errors = job.stderr.strip().splitlines()
    chosen = next((line for line in errors if line.startswith("memory: ")), "")
    return {
        "status": job.returncode,
        "killed": job.returncode in (-9, 137),
        "group_peak_bytes": peak,
        "seconds": round(time.perf_counter() - start, 1),
        "chosen": chosen,
        "lines": errors[:2],
        "last_line": (job.stdout.strip().splitlines() or [""])[-1],
        "errors": errors[-3:],
        "all_errors": errors,
    }


@contextmanager
def memory_group(cap_bytes: int) -> Iterator[Path]:
    """A memory control group of its own, removed at the end; exits where that is not permitted."""
    group = GROUPS / f"pygsage-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(cap_bytes))
    except OSError as error:
        raise SystemExit(f"A memory group cannot be made in {GROUPS} ({error}); expected root and cgroup v1.") from None
    try:
        yield group
    finally:
        group.rmdir()


def environment() -> dict[str, str]:
    """One thread of computing."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def children_of(pid: int) -> list[int]:
    """The processes that another has started, and theirs."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    own = [int(word) for word in text.split()]
    return own + [each for child in own for each in children_of(child)]


def command_of(pid: int) -> str:
    """Its command line."""
    return _text(pid, "cmdline").replace("\0", " ")


def pss_of(pid: int) -> int:
    """Its proportional set size: shared pages are split among those that map them.

    Libraries are left out: what they count for depends on what else runs on the machine and maps them as well.
    """
    found, counts = 0, True
    for line in _text(pid, "smaps").splitlines():
        words = line.split()
        if not words[0].endswith(":"):  # the head of a mapping: addresses, rights, …, and the file if there is one
            counts = len(words) < 6 or ".so" not in words[5]
        elif words[0] == "Pss:" and counts:
            found += int(words[1]) * 1024
    return found


def _text(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
