"""`pygsage predict`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pygsage.cli.parser import parse
from pygsage.config import PredictConfig
from pygsage.errors import EnvironmentLimitError


def run(argv: Sequence[str]) -> int:
    """Parses the options, computes, and writes the file."""
    config = PredictConfig(**parse(PredictConfig, argv, "predict", {}))
    output = Path(config.output)
    if not output.parent.is_dir():
        raise EnvironmentLimitError(f"The folder '{output.parent}' of -o does not exist.", "Make it first.")
    import io

    import numpy as np

    from pygsage.training.checkpoint import write_atomically
    from pygsage.training.predict import predict

    scores = predict(
        config.run,
        config.split,
        embeddings=config.embeddings,
        root=config.root,
        offline=config.offline,
        trust_pickle=config.trust_pickle,
    )
    content = io.BytesIO()
    np.save(content, scores)
    write_atomically(output, content.getvalue(), "type the command again")
    if config.json:
        print(json.dumps({"output": str(output), "shape": list(scores.shape), "dtype": str(scores.dtype)}))
    elif not config.quiet:
        what = "embeddings" if config.embeddings else "scores"
        print(f"{what}, {len(scores):,} rows ({config.split}), in {output}: {scores.dtype} {list(scores.shape)}")
    return 0
