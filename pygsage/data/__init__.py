"""Datasets: from a name or a path to a checked graph."""
