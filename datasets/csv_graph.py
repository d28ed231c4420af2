"""A graph in two CSV files: a table of nodes and a list of edges. Copy this file and change what differs.

    pygsage train datasets/csv_graph.py --root FOLDER

`nodes.csv` has a header: `id`, `label`, `split`, and every other column is a feature. Ids and labels are any text, an
empty label is none; `split` is train, val, test or empty. `edges.csv` has the header `source,target`.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator

import numpy as np
import torch
from torch_geometric.data import Data

from pygsage import Recipe


class CsvGraph(Recipe):
    """Reads both files line by line: what it holds is the numbers, and a dict of the ids."""

    nodes = "nodes.csv"
    edges = "edges.csv"
    num_graphs = 1

    def graphs(self) -> Iterator[Data]:
        """Yields the one graph."""
        row_of: dict[str, int] = {}
        features, labels, splits = array("f"), [], []
        with open(self.root / self.nodes, newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            columns = [name for name in table.fieldnames or [] if name not in ("id", "label", "split")]
            for row in table:
                if row["id"] in row_of:
                    raise ValueError(f"{self.nodes}, line {table.line_num}: the id {row['id']} is there twice")
                row_of[row["id"]] = len(row_of)
                features.extend(float(row[name]) for name in columns)
                labels.append(row["label"])
                splits.append(row.get("split", ""))
        ends = array("q")
        with open(self.root / self.edges, newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            for row in table:
                for end in ("source", "target"):
                    if row[end] not in row_of:
                        raise ValueError(f"{self.edges}, line {table.line_num}: {self.nodes} has no id {row[end]}")
                    ends.append(row_of[row[end]])

        classes = {label: number for number, label in enumerate(sorted(set(labels) - {""}))}
        yield Data(
            x=torch.frombuffer(features, dtype=torch.float32).reshape(len(row_of), len(columns)),
            edge_index=torch.from_numpy(np.array(ends, dtype=np.int64).reshape(-1, 2).T),
            y=torch.tensor([classes.get(label, -1) for label in labels]),
            train_mask=torch.tensor([split == "train" for split in splits]),
            val_mask=torch.tensor([split == "val" for split in splits]),
            test_mask=torch.tensor([split == "test" for split in splits]),
        )
