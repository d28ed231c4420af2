"""Twitch users of two countries: trained on the graph of one, tested on that of the other.

    pygsage train datasets/musae_twitch.py --root musae-twitch --fanouts 10,10 --epochs 5

ROOT holds a folder a country, here PTBR and RU, each with `edges.csv`, `features.json` and `target.csv` as in the MUSAE
collection (Rozemberczki, Allen and Sarkar, "Multi-scale attributed node embedding", 2021). The label of a user is
whether they speak to adults only (`mature`); the countries share one space of features.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch_geometric.data import Data

from pygsage import Recipe


class MusaeTwitch(Recipe):
    """A graph a country; they are joined into one, as their labels are of nodes, and no edge leads across.

    `train_mask`, `val_mask` and `test_mask` are given in every graph. Where whole graphs belong to one split,
    `split="train"`, `"val"` or `"test"` in each `Data` does the same.
    """

    num_graphs = 2
    num_features = 3_170
    countries = ("PTBR", "RU")  # the first to train and validate, the others for the test

    def graphs(self) -> Iterator[Data]:
        """Yields one graph a country."""
        for country in self.countries:
            yield self.read(self.root / country, trained_on=country == self.countries[0])

    def read(self, folder: Path, trained_on: bool) -> Data:
        """One country: every fifth node validates, the others train; or all are for the test."""
        with open(folder / "target.csv", newline="") as file:
            mature = {int(row["new_id"]): row["mature"] == "True" for row in csv.DictReader(file)}
        with open(folder / "edges.csv", newline="") as file:
            pairs = torch.tensor([[int(row["from"]), int(row["to"])] for row in csv.DictReader(file)]).T
        features = json.loads((folder / "features.json").read_text())
        nodes = torch.arange(len(mature))
        x = torch.zeros(len(mature), self.num_features, dtype=torch.uint8)
        for node, columns in features.items():
            x[int(node), columns] = 1
        validates = nodes % 5 == 0
        return Data(
            x=x,
            edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
            y=torch.tensor([int(mature[node]) for node in nodes.tolist()]),
            train_mask=~validates if trained_on else torch.zeros_like(validates),
            val_mask=validates if trained_on else torch.zeros_like(validates),
            test_mask=torch.full_like(validates, not trained_on),
        )
