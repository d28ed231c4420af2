"""The options in a file of YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pygsage.errors import ConfigError


def read_config_file(path: str | Path) -> dict[str, Any]:
    """Reads the options in a YAML file; names may be spelled with - or _.

    Raises:
        ConfigError: when the file is missing, is not YAML, or is not a table of options.
    """
    import yaml  # only when a file is given

    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file)
    except OSError as error:
        raise ConfigError(f"The config file {str(path)!r} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"The config file {str(path)!r} is not YAML: {reason}.") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"The config file {str(path)!r} holds a {type(values).__name__}; expected lines such as 'epochs: 20'."
        )
    return {str(name).replace("-", "_"): value for name, value in values.items()}
