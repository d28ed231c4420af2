"""Counter-based randomness: every random choice is a hash of what it is for, never of what came before.

The hash is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014). A *stream* is a 64-bit number made of (seed, epoch, step); a *key* is a
stream joined with a node id. The same arithmetic stands here for Python integers, NumPy and torch,
and in `native/random.h`. In a graph with several types of edges each type draws from a stream of its own, made of the
step's stream and the type's index among the sorted edge types: the same node draws independently for each, and the
order in which a dataset lists its types changes nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
MASK = (1 << 64) - 1


def mix64(z: int) -> int:
    """Hashes one integer of [0, 2**64); larger or negative ones are taken modulo 2**64."""
    z = (z + GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * MIX_1) & MASK
    z = ((z ^ (z >> 27)) * MIX_2) & MASK
    return z ^ (z >> 31)


def stream_of(seed: int, epoch: int, step: int) -> int:
    """The 64-bit number that all of one step's randomness starts from."""
    return mix64(mix64(mix64(seed) ^ (epoch & MASK)) ^ (step & MASK))


def relation_stream(stream: int, relation: int) -> int:
    """The stream of one edge type; `relation` is its index among the graph's sorted edge types."""
    return mix64(stream ^ mix64(relation))


def mix64_array(z: np.ndarray) -> np.ndarray:
    """Hashes a uint64 array element by element, as `mix64` does; returns a new uint64 array."""
    z = z.astype(np.uint64) + np.uint64(GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    return z ^ (z >> np.uint64(31))


def signed(z: int) -> int:
    """The int64 with the same 64 bits, since torch has no arithmetic on uint64."""
    return z - (1 << 64) if z >> 63 else z


def _shift_right(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & ((1 << (64 - bits)) - 1)  # torch shifts int64 arithmetically


def mix64_tensor(z: Tensor) -> Tensor:
    """Hashes an int64 tensor (read as 64 bits) element by element, on the tensor's device."""
    z = z + signed(GOLDEN)
    z = (z ^ _shift_right(z, 30)) * signed(MIX_1)
    z = (z ^ _shift_right(z, 27)) * signed(MIX_2)
    return z ^ _shift_right(z, 31)


def stream_of_seeds(seeds: Tensor) -> int:
    """A stream for a batch that carries no step: a hash of its ordered seed ids (int64)."""
    ids = seeds.detach().cpu().numpy().astype(np.uint64)
    with np.errstate(over="ignore"):
        order = mix64_array(np.arange(len(ids), dtype=np.uint64))
        total = mix64_array(ids ^ order).sum(dtype=np.uint64)
    return mix64(int(total) ^ len(ids))


def permutation(num_items: int, seed: int, epoch: int) -> Tensor:
    """A uniform random order of `num_items` positions, int64, a function of (seed, epoch) alone.

    Costs a sort: O(n log n) time, 24 bytes an item.
    """
    start = np.uint64(stream_of(seed, epoch, MASK))  # no step has this number
    hashes = mix64_array(np.arange(num_items, dtype=np.uint64) ^ start)
    return torch.from_numpy(np.argsort(hashes, kind="stable").astype(np.int64, copy=False))
