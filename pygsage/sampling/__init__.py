"""Neighbour sampling: from seed nodes to the nodes and edges that a step needs."""
