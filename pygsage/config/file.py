"""The options in a file of YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pygsage.errors import ConfigError


def read_config_file(path: str | Path) -> dict[str, Any]:
    """Reads the options in a YAML file; names may be spelled with - or _.

    Raises:
        ConfigError: when the file is missing, is not YAML, is not a table of options, or has one of them twice.
    """
    import yaml  # only when a file is given

    try:
        text = Path(path).read_text(encoding="utf-8")
        values = yaml.safe_load(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(f"The config file {str(path)!r} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The config file {str(path)!r} is not YAML: it {not_yaml(error)}; expected lines such as 'epochs: 20'."
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"The config file {str(path)!r} holds a {type(values).__name__}; expected lines such as 'epochs: 20'."
        )
    lines: dict[str, int] = {}
    for name, _ in node.value if isinstance(node, yaml.MappingNode) else []:
        option, line = str(name.value).replace("-", "_"), name.start_mark.line + 1
        if option in lines:
            raise ConfigError(
                f"The config file {str(path)!r} sets '{option}' on line {lines[option]} and again on line {line}; "
                "expected each option once.",
                "Leave one of them out.",
            )
        lines[option] = line
    return {str(name).replace("-", "_"): value for name, value in values.items()}


def not_yaml(error: Exception) -> str:
    """What PyYAML, or the reading of its text, found, in words that follow `it`."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not text in UTF-8 (byte {error.start})"
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return "holds characters that no text has"
    return f"cannot be understood on line {mark.line + 1}, column {mark.column + 1} ({problem})"
