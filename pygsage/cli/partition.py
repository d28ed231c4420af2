"""`pygsage partition`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pygsage.cli.parser import parse
from pygsage.memory.partition import PartitionConfig


def run(argv: Sequence[str]) -> int:
    """Parses the options, writes the parts, and says what they are.

    Raises:
        PygsageError: when the store cannot be read, the folder exists, or METIS would not fit.
    """
    config = PartitionConfig(**parse(PartitionConfig, argv, "partition", {}))
    from pygsage.data.names import parse_reference
    from pygsage.data.one_graph.partition import partition_graph
    from pygsage.data.one_graph.parts import parts_text
    from pygsage.errors import DatasetError

    if parse_reference(config.store).kind != "graph":
        raise DatasetError(
            f"{config.store} is not the folder of one graph, which partition takes.",
            f"Make one: pygsage convert {config.store} NEW_FOLDER",
        )
    graph = partition_graph(config)
    assert graph.parts is not None
    answer = {"folder": config.out, **graph.parts.describe()}
    if config.json:
        print(json.dumps(answer))
    elif not config.quiet:
        print("\n".join([f"graph        {config.out}, {graph.num_nodes:,} nodes", *parts_text(answer)]))
    return 0
