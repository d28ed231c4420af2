"""The arguments that every side of the speed comparison takes."""

from __future__ import annotations

import argparse


def parse(description: str | None) -> argparse.Namespace:
    """Reads the command line: a folder of `indptr`, `indices`, `x`, `y`, `split/train` (.npy), and what to do."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder")
    parser.add_argument("--fanouts", type=lambda text: [int(k) for k in text.split(",")], default=[10, 10, 10])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=8, help="that are measured, after two that are not")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--what", choices=("sample", "input", "step", "inference"), default="step")
    return parser.parse_args()
