"""From an options dataclass to a command line, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import field, fields, make_dataclass
from difflib import get_close_matches
from inspect import cleandoc
from io import StringIO
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

    Returns plain values by field name, not yet validated. `--help` prints and exits with 0.

    Raises:
        ConfigError: for a word that is not understood, or a list whose numbers are words of their own.
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
    said = StringIO()
    try:
        with redirect_stderr(said):
            parsed: Any
            parsed, unknown = tyro.cli(
                spec_class,
                prog=f"pygsage {command}",
                description=cleandoc(options.__doc__ or "").split("\n\nRaises:")[0],
                args=list(argv),
                registry=_REGISTRY,
                return_unknown_args=True,
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise _not_understood(said.getvalue(), command) from None
    if unknown:
        raise _unknown(unknown, [flag(f.name) for f in fields(options)], command)  # type: ignore[arg-type]
    return {f.name: getattr(parsed, f.name) for f in fields(options)}  # type: ignore[arg-type]


def _unknown(words: Sequence[str], known: Sequence[str], command: str) -> ConfigError:
    """The error for words that are no options of a command, nor values of any."""
    found = next((word for word in words if word.startswith("-")), words[0]).partition("=")[0]
    if not found.startswith("-"):
        return ConfigError(
            f"found {found!r}, which belongs to no option; expected no further word.",
            f"Type pygsage {command} --help for what it takes.",
        )
    typed = "--" + found.strip("-").lower().replace("_", "-")
    near = get_close_matches(typed.replace("--no-", "--", 1), known, n=1, cutoff=0.7)
    near = near or [name for name in known if name.startswith(typed) or typed.startswith(name)][:1]
    return ConfigError(
        f"found {found}, which is no option of {command}{f'; did you mean {near[0]}?' if near else '.'}",
        "" if near else f"Type pygsage {command} --help for those that it has.",
    )


def _not_understood(box: str, command: str) -> ConfigError:
    """The error for what tyro tells in a box: a title, what was found, a rule, and where to read on."""
    text = " ".join(re.sub(r"[│|╭╮╰╯─]|-{3,}", " ", box).split())
    told = re.split(r" (?:Argument helptext|For full helptext)", text)[0].rstrip(".")
    of_numbers = r"Error parsing (\S+): (invalid literal for int|could not convert string to float)[^']*('.*')"
    number = re.search(of_numbers, told)
    missing = re.search(r"Missing value for argument '([^'/]+)", told)
    choice = re.search(r"invalid choice ('.*') for argument '([^'/]+)[^']*'\. Expected one of \((.*)\)", told)
    if number:
        told = f"{number[1]} is {number[3]}; expected a {'whole ' if number[2].endswith('int') else ''}number"
    elif missing:
        told = f"{missing[1]} has no value; expected one after it"
    elif choice:
        words = choice[3].replace("'", "").rstrip(",")
        told = f"{choice[2]} is {choice[1]}; expected one of {words}"
    told = f"{told}."
    return ConfigError(told, f"Type pygsage {command} --help for what it takes.")


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
