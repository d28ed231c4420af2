"""From an options dataclass to a command line, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields, make_dataclass
from inspect import cleandoc
from itertools import takewhile
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import tyro
from tyro.conf import Positional, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from pygsage.errors import ConfigError
from pygsage.spelling import flag, parse_fanouts

Options = TypeVar("Options")
_WORDS = {"INT": int, "FLOAT": float, "STR": str}


def parse(options: type[Options], argv: Sequence[str], command: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """Parses `argv` into the fields of `options`, starting from `defaults` for those that are not given.

    Returns plain values by field name, not yet validated. `--help` prints and exits with 0; a word that is
    not understood is explained on standard error and exits with 2.

    Raises:
        ConfigError: for a list whose numbers are words of their own.
    """
    hints = get_type_hints(options)
    for f in fields(options):  # type: ignore[arg-type]
        if get_origin(hints[f.name]) is tuple:
            _refuse_spaces(flag(f.name), argv)
    spec = []
    for f in fields(options):  # type: ignore[arg-type]
        short = f.metadata.get("short")
        # An option that may be left out is shown by what is typed for it, a positional one by its name.
        words = [word for word, type_ in _WORDS.items() if hints[f.name] == type_ | None]
        metavar = f.name.upper() if f.metadata.get("positional") else words[0] if words else None
        told = arg(help=f.metadata["help"], aliases=(short,) if short else None, metavar=metavar)
        kind: Any = Annotated[hints[f.name], told]
        if f.metadata.get("positional"):
            kind = Annotated[kind, Positional]
        spec.append((f.name, kind, field(default=defaults.get(f.name, f.default))))
    spec_class: type[Any] = make_dataclass(options.__name__, spec)
    parsed: Any = tyro.cli(
        spec_class,
        prog=f"pygsage {command}",
        description=cleandoc(options.__doc__ or "").split("\n\nRaises:")[0],
        args=list(argv),
        registry=_REGISTRY,
    )
    return {f.name: getattr(parsed, f.name) for f in fields(options)}  # type: ignore[arg-type]


def _refuse_spaces(name: str, argv: Sequence[str]) -> None:
    """`--fanouts 5 5` would else be told as a word that is not understood."""
    if name not in argv:
        return
    following = list(argv)[list(argv).index(name) + 1 :]
    numbers = list(takewhile(lambda word: word.strip(",").lstrip("-").isdigit(), following))
    if len(numbers) > 1:
        joined = ",".join(word.strip(",") for word in numbers)
        raise ConfigError(f"{name} {' '.join(numbers)} has spaces; expected commas alone.", f"Type {name} {joined}")


_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _integers_with_commas(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if info.type_origin is not tuple:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="N,N,…",
        instance_from_str=lambda words: parse_fanouts(words[0]),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [",".join(str(k) for k in value)],
    )
