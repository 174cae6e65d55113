"""``vllm serve`` arguments, parsed with the flag table of the engine's version.

The table was read from vLLM's own parser; the value converters are written anew after its documented forms.
A parse error carries the text and exit code (2) that vLLM shows.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from e2e.fleet import recordings

NEWEST = "0.32.0"
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_SERVE_USAGE = "usage: vllm serve [model_tag] [options]"
_TOP_USAGE = (
    "usage: vllm [-h] [-v] "
    "{chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot} ..."
)


class BadArgumentsError(Exception):
    """The engine refuses its command line; ``lines`` is what it prints on stderr."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines[-1])
        self.lines = tuple(lines)


@dataclass(frozen=True)
class EngineArgs:
    """Parsed flags by their ``dest`` names; ``given`` are those the user set."""

    values: dict[str, Any]
    given: frozenset[str]

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    @property
    def model(self) -> str:
        return str(self["model_tag"] or self["model"] or "Qwen/Qwen3-0.6B")

    @property
    def served_name(self) -> str:
        names = self["served_model_name"]
        return str(names[0]) if names else self.model


def table_version(version: str) -> str:
    """The version itself when its flags were recorded, else the newest recorded."""
    return version if version in recordings.flag_tables() else NEWEST


def parse(argv: Sequence[str], version: str = NEWEST) -> EngineArgs:
    """Arguments after ``vllm serve``.

    Raises:
        BadArgumentsError: an unknown flag or a value that its converter refuses.

    """
    parser = _parser(table_version(version))
    values, unknown = parser.parse_known_args([_dashed(arg) for arg in argv])
    if unknown:
        raise BadArgumentsError([_TOP_USAGE, f"vllm: error: unrecognized arguments: {' '.join(unknown)}"])
    given = {name: value for name, value in vars(values).items() if value is not _UNSET}
    return EngineArgs(_defaults(table_version(version)) | given, frozenset(given))


def human_int(text: str) -> int:
    """'32k' is 32,000, '32K' is 32,768, '1.5G' is 1.5 x 2^30; plain integers stay.

    Raises:
        argparse.ArgumentTypeError: anything else.

    """
    match = _HUMAN.fullmatch(text.strip())
    if match is None:
        return _plain_int(text)
    number = float(match[1]) * _SUFFIXES[match[2]]
    return int(number)


def _plain_int(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"invalid human_readable_int value: {text!r}") from error


def _human_int_or_auto(text: str) -> int:
    return -1 if text.strip().lower() in {"auto", "-1"} else human_int(text)


def _loads(text: str) -> Any:
    return json.loads(text)


def _dict_or_text(text: str) -> Any:
    return json.loads(text) if re.fullmatch(r"(?s)\s*\{.*\}\s*", text) else text


def _optional(inner: Callable[[str], Any]) -> Callable[[str], Any]:
    def optional_type(text: str) -> Any:
        if text in {"", "None"}:
            return None
        try:
            return inner(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to {inner!r}.") from error

    return optional_type


_CONVERTERS: dict[str | None, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "loads": _loads,
    "parse_dataclass": _loads,
    "_parse_type": _loads,
    "parse_type(loads)": _loads,
    "union_dict_and_str": _dict_or_text,
    "human_readable_int": human_int,
    "human_readable_int_or_auto": _human_int_or_auto,
}
_OPTIONAL = re.compile(r"optional_type\((.+)\)")
_UNSET = object()


def _converter(type_name: str | None) -> Callable[[str], Any]:
    optional = _OPTIONAL.fullmatch(type_name or "")
    return _optional(_converter(optional[1])) if optional else _CONVERTERS.get(type_name, str)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArgumentsError([_SERVE_USAGE, f"vllm serve: error: {message}"])


@cache
def _parser(version: str) -> _Parser:
    parser = _Parser(prog="vllm serve", add_help=False, argument_default=_UNSET)
    for row in recordings.flag_tables()[version]:
        _add(parser, row)
    return parser


def _add(parser: argparse.ArgumentParser, row: dict[str, Any]) -> None:
    if row["kind"] == "positional":
        parser.add_argument(row["dest"], nargs="?", default=_UNSET)
        return
    names, options = row["flags"], {"dest": row["dest"], "default": _UNSET}
    if row["kind"] == "bool_pair":
        positive = [name for name in names if not name.startswith("--no-")]
        parser.add_argument(*positive, action=argparse.BooleanOptionalAction, **options)
    elif row["kind"] == "store_true":
        parser.add_argument(*names, action="store_true", **options)
    else:
        action = {"action": "append"} if row["kind"] == "append" else {"nargs": row["nargs"]}
        convert, choices = _converter(row["type"]), row["choices"]
        # Recorded as texts; the parser compares values.
        typed: dict[str, Any] = {"type": convert, "choices": choices and [convert(choice) for choice in choices]}
        parser.add_argument(*names, **options, **action, **typed)


@cache
def _defaults(version: str) -> dict[str, Any]:
    return {row["dest"]: row["default"] for row in recordings.flag_tables()[version]}


def _dashed(arg: str) -> str:
    """``--max_model_len`` is ``--max-model-len``: the engine's parser takes both."""
    if not arg.startswith("--"):
        return arg
    name, equals, value = arg.partition("=")
    return name.replace("_", "-") + equals + value
