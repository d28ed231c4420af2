"""The program of a rank that our launcher started: `python -m pygsage.training.child CONFIG_AS_JSON [GRAPH]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pygsage.config import TrainConfig
from pygsage.training.failures import reporting_failures
from pygsage.training.processes import hand_back, tie_to_launcher


def main() -> None:
    """Trains as the rank that the environment names, and hands rank 0's result to the launcher.

    GRAPH is the folder of a dataset that the launcher was given in Python.
    """
    tie_to_launcher()
    with reporting_failures():
        from pygsage.distributed import World
        from pygsage.training.opening import problem_in
        from pygsage.training.placing import devices_of
        from pygsage.training.rank import train_rank

        config = TrainConfig(**json.loads(sys.argv[1]))
        with World.start(devices_of(config)) as world:
            result = train_rank(config, world, (lambda _: problem_in(Path(sys.argv[2]))) if len(sys.argv) > 2 else None)
            if world.is_main:
                hand_back(result.to_dict())


if __name__ == "__main__":
    main()
