"""CPU seconds of one layer-wise inference of all nodes: prints one line of JSON.

    OMP_NUM_THREADS=1 python tools/bench/inference.py /tmp/pygsage-speed/arxiv

The graph is as for tools/bench/step.py; the model is a 3-layer SAGE-mean of width 256 with random weights.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from pathlib import Path

import torch

from pygsage.data.graph import Graph
from pygsage.nn.inference import layerwise_inference
from pygsage.nn.sage import GraphSAGE


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--aggr", default="mean")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    graph = Graph.open(arguments.graph)
    x, indptr, indices = graph.x.clone(), graph.indptr.clone(), graph.indices.clone()
    torch.manual_seed(0)
    model = GraphSAGE(graph.num_features, arguments.hidden, 3, graph.num_outputs, aggr=arguments.aggr)
    seconds = []
    for _ in range(arguments.rounds):
        start = time.process_time()
        scores = layerwise_inference(model, x, indptr, indices)
        seconds.append(time.process_time() - start)
    told = {
        "library": "pygsage",
        **vars(arguments),
        "seconds": round(statistics.median(seconds), 3),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "mean_score": float(scores.mean()),
    }
    print(json.dumps(told, default=str))


if __name__ == "__main__":
    main()
