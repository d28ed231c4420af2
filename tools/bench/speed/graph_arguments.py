"""The arguments that both sides of the comparison of graph-level training take."""

from __future__ import annotations

import argparse

NODES, EDGES, FEATURES, CLASSES = 30, 64, 16, 2  # of each graph


def parse(description: str | None) -> argparse.Namespace:
    """Reads the command line: how many graphs, the model, and what to measure."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--batches", type=int, default=100, help="that are measured, after two that are not")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()
