"""A user's own arguments of ``vllm serve``: read as the release's parser would, into options of the planner.

They win over ours and enter the arithmetic; what contradicts the spec is refused by name.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.core.kv import Refusal
from plimsoll.core.serve_flags import read_serve_flags
from plimsoll.facts import engine_flags
from plimsoll.facts.engine_flags import Flag
from plimsoll.facts.engines import EngineVersion

LONGEST_JSON: Final = 6144
"""Characters of all arguments as JSON: they are kept in ``status.plan``, which is bounded."""

_LISTS: Final = frozenset(
    {"served_model_name", "cudagraph_capture_sizes", "kv_cache_dtype_skip_layers", "lora_modules", "api_key",
     "middleware", "compile_sizes"}
)  # fmt: skip
_VALUE_OPTIONAL: Final = frozenset({"hf_token"})
_LONGEST_DRAIN_SECONDS: Final = 1_000_000
_LEVEL: Final = re.compile(r"-O\.?(\d)")
_NUMBER: Final = re.compile(r"-\d+(\.\d+)?")
OURS_ALONE: Final[Mapping[str, str]] = {
    "model": "set spec.model.id instead",
    "model_tag": "set spec.model.id instead",
    "port": "the Service and the probes use 8000",
    "uds": "the Service and the probes use port 8000",
    "config": "a file would hide flags from the arithmetic: write them out",
    "headless": "the roll-out decides which pod serves",
    "nnodes": "the roll-out numbers the nodes",
    "node_rank": "the roll-out numbers the nodes",
    "master_addr": "the roll-out numbers the nodes",
    "master_port": "the roll-out numbers the nodes",
    "data_parallel_rank": "the roll-out numbers the engines",
    "data_parallel_start_rank": "the roll-out numbers the engines",
    "data_parallel_size_local": "all engines of a replica run in its own pod",
}
"""Flags that no user of a service may set, and why."""


class BadFlagError(ValueError):
    """An argument that cannot be used; the message names it, its value and what is allowed."""


@dataclass(frozen=True)
class Argument:
    """One flag of an argv: as written, the table's entry, and its value (True for a switch)."""

    written: str
    flag: Flag
    value: Any


@dataclass(frozen=True)
class Overrides:
    """What a user's own arguments fix of the plan: fields of ``EngineOptions``, of ``MemoryFlags``, and the rest."""

    options: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    speculative: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    """Every flag by its ``dest``, as given."""

    def gibibytes(self, dest: str) -> float:
        """The value of a flag that is a number of GiB; 0 when it was not given."""
        try:
            return max(0.0, float(self.values.get(dest, 0)))
        except (TypeError, ValueError):
            return 0.0


def read_overrides(args: Sequence[str], version: EngineVersion, context_tokens: int) -> Overrides:
    """What the user's own arguments fix.

    Raises:
        BadFlagError: a flag the release does not have, a value it would refuse, or what contradicts the spec.
    """
    if len(json.dumps(list(args))) > LONGEST_JSON:
        raise BadFlagError(f"more than {LONGEST_JSON} characters together; put long values into files of the image")
    given = {argument.flag.dest: argument for argument in read_argv(args, version)}
    for dest, argument in given.items():
        if dest in OURS_ALONE:
            raise BadFlagError(f"{argument.written} belongs to Plimsoll: {OURS_ALONE[dest]}")
    try:
        read = read_serve_flags({argument.written: argument.value for argument in given.values()}, version)
    except Refusal as refusal:
        raise BadFlagError(refusal.message) from refusal
    _check_context(read.options.get("max_model_len"), context_tokens)
    _check_tools(given)
    _check_shutdown(given)
    _check_host(given)
    values = {dest: argument.value for dest, argument in given.items()}
    return Overrides(read.options, read.memory, read.hf_overrides, read.speculative, values)


def argv_flags(args: Sequence[str], version: EngineVersion) -> dict[str, Any]:
    """An argv as the ``flags`` object of a ``plimsoll predict`` row."""
    return {argument.written: argument.value for argument in read_argv(args, version)}


def read_argv(args: Sequence[str], version: EngineVersion) -> Iterator[Argument]:
    """Flags of an argv with their values; later ones win where a flag is repeated.

    Raises:
        BadFlagError: an unknown flag (with the nearest), a value that is missing or one too many.
    """
    words = list(args)
    while words:
        written, equals, value = words.pop(0).partition("=")
        level = _LEVEL.fullmatch(written)
        if level:
            written, equals, value = "-O", "=", level[1]
        if not _is_flag(written):
            raise BadFlagError(f"{_short(written)} stands alone: an argument starts with -- or follows one that does")
        name, _, path = written.partition(".")
        flag = _known(name, version)
        name = name if name.startswith("--") else _long(flag)
        if flag.switch:
            if equals:
                raise BadFlagError(f"{name}: takes no value; write {name} or its --no- form")
            yield Argument(name, flag, True)
            continue
        found = [value] if equals else _values(flag, words)
        if not found and flag.dest not in _VALUE_OPTIONAL:
            raise BadFlagError(f"{written}: needs a value")
        yield Argument(name, flag, _nested(path, _value(flag, found)))


def _known(name: str, version: EngineVersion) -> Flag:
    problem = engine_flags.flag_problem(name, version)
    flag = engine_flags.find(name)
    if problem or flag is None:
        raise BadFlagError(_short(problem or name, 300))
    return flag


def _long(flag: Flag) -> str:
    """The positive long name of a flag that was written in short."""
    return next(name for name in flag.names if name.startswith("--") and not name.startswith("--no-"))


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and _NUMBER.fullmatch(word) is None


def _values(flag: Flag, words: list[str]) -> list[str]:
    """The words after a flag that belong to it."""
    found: list[str] = []
    while words and not _is_flag(words[0]) and (not found or flag.dest in _LISTS):
        found.append(words.pop(0))
    return found


def _value(flag: Flag, found: list[str]) -> Any:  # noqa: ANN401 - JSON
    if not found:
        return True
    if flag.dest in _LISTS:
        return found
    return _json(found[0])


def _json(text: str) -> Any:  # noqa: ANN401 - JSON
    """Objects and lists are read; everything else stays text, as the readers of single flags expect it."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _nested(path: str, value: Any) -> Any:  # noqa: ANN401 - JSON
    """``--flag.key.inner value`` is ``--flag '{"key": {"inner": value}}'``."""
    for key in reversed(path.split(".")) if path else ():
        value = {key: int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value}
    return value


def _check_context(length: int | None, context_tokens: int) -> None:
    if length is not None and length < context_tokens:
        shown = "auto" if length == -1 else length
        raise BadFlagError(
            f"--max-model-len: {shown} contradicts spec.contextTokens {context_tokens}: leave the flag out and set "
            "contextTokens"
        )


def _check_tools(given: Mapping[str, Argument]) -> None:
    if "enable_auto_tool_choice" in given and "tool_call_parser" not in given:
        raise BadFlagError("--enable-auto-tool-choice: needs --tool-call-parser beside it")


def _check_host(given: Mapping[str, Argument]) -> None:
    """Probes and the Service reach the pod's own address, never its loopback."""
    host = str(given["host"].value) if "host" in given else ""
    if host in {"localhost", "::1"} or host.startswith("127."):
        raise BadFlagError(f"--host: {host} is reached by nobody outside the container; leave it out, or 0.0.0.0")


def _check_shutdown(given: Mapping[str, Argument]) -> None:
    """The grace period of the pods follows this flag, so it must be a number."""
    value = str(given["shutdown_timeout"].value) if "shutdown_timeout" in given else "0"
    if not (value.isascii() and value.isdecimal() and int(value) <= _LONGEST_DRAIN_SECONDS):
        shown = _short(value)
        raise BadFlagError(f"--shutdown-timeout: {shown} is not a number of seconds from 0 to {_LONGEST_DRAIN_SECONDS}")


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def by_flag(args: Sequence[str]) -> dict[str, str]:
    """An argv by flag, with all values that each is given; what stands before the first flag is left out."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for arg in args:
        if arg.startswith("--"):
            flag, _, value = arg.partition("=")
            values = found.setdefault(flag, [])
            values += [value] if value else []
        else:
            values.append(arg)
    return {flag: " ".join(values) for flag, values in found.items()}
