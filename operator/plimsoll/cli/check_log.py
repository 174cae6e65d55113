"""``plimsoll check-log``: a vLLM start-up or crash log: what happened, what was predicted, what to change."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from plimsoll.cli.output import BAD_INPUT, NO, Output, complain, emit, say
from plimsoll.cli.predict import Models
from plimsoll.core.advice import changes
from plimsoll.core.logs import GIB, EngineLog, read_log
from plimsoll.core.rows import answer
from plimsoll.facts import engine_flags
from plimsoll.facts.engines import EngineVersion, default_utilisation

LARGEST_FILE: Final = 64 << 20
_SHOWN: Final = ("weights_bytes", "available_kv_bytes", "kv_tokens", "max_concurrency", "block_size", "num_blocks")
_PREDICTED: Final = (
    "outcome", "reason", "message", "needed_bytes", "estimated_max_model_len", "available_kv_bytes", "weights_bytes",
    "kv_cache_size_tokens", "max_concurrency", "block_size", "num_blocks",
)  # fmt: skip


def check_log(
    file: Annotated[str, typer.Argument(help="A log of `vllm serve`, or - for standard input.", metavar="FILE")],
    gpu: Annotated[
        str, typer.Option("--gpu", help="The GPU product it ran on; logs rarely say it. Needed to predict memory.")
    ] = "",
    model_config: Annotated[
        str, typer.Option("--model-config", help="config.json of the model, when no catalogue knows it.")
    ] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")] = Output.TABLE,
) -> None:
    """Read the log of an engine that started, was refused or died: what happened, what was predicted, what to change.

    \b
      kubectl logs --previous POD | plimsoll check-log -
      plimsoll check-log start.log --gpu NVIDIA-H100-80GB-HBM3 -o json | jq .reason

    Exit code 0: the engine started and did not fail. 1: it failed. 2: the file cannot be read, or is no log of vLLM.
    """
    text = _read(file)
    log = read_log(text)
    if not log.is_an_engines:
        complain(f"{file}: nothing in it is from a vLLM engine; give the whole output of `vllm serve`")
        raise typer.Exit(BAD_INPUT)
    told = tell(log, file, gpu, model_config)
    if output is Output.TABLE:
        for line in _lines(told):
            say(line)
    else:
        emit(told, output)
    if log.failure:
        raise typer.Exit(NO)


def tell(log: EngineLog, file: str, gpu: str = "", model_config: str = "") -> dict[str, Any]:
    """The command's JSON. ``reason`` is a word of `plimsoll predict`, ``condition`` the same in a service's status."""
    failure = log.failure
    found = {_camel(name): value for name, value in {**log.figures, **(failure.figures if failure else {})}.items()}
    return {
        "file": file,
        "outcome": _outcome(log),
        "reason": failure.cause.word if failure else None,
        "condition": failure.cause.reason.name if failure else None,
        "meaning": failure.cause.reason.meaning if failure else None,
        "message": failure.said if failure else "",
        "engineVersion": log.version,
        "model": log.model,
        "arguments": {key: value for key, value in log.arguments.items() if _is_flag(key)},
        "observed": found,
        "predicted": _predicted(log, gpu, model_config),
        "change": list(changes(failure, _total(log), _utilisation(log))) if failure else [],
    }


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read(LARGEST_FILE) if file == "-" else _head(Path(file))
    except OSError as error:
        complain(f"{file}: cannot be read: {error.strerror}")
        raise typer.Exit(BAD_INPUT) from None
    return raw.decode("utf-8", "replace")


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(LARGEST_FILE)


def _outcome(log: EngineLog) -> str:
    if log.failure:
        return "died" if log.ready else "refused"
    return "started" if log.ready else "unknown"


def _predicted(log: EngineLog, gpu: str, model_config: str) -> dict[str, Any] | None:
    """What `plimsoll predict` says of the same start, as far as the log tells which it was."""
    row = _row(log, gpu, model_config)
    if row is None:
        return None
    found = answer(row, Models(Path.cwd()))
    return {_camel(key): found[key] for key in _PREDICTED if found.get(key) not in (None, "")}


def _row(log: EngineLog, gpu: str, model_config: str) -> dict[str, Any] | None:
    """The start as a row: memory from the product or the log's total, else the pool that the engine found itself."""
    row: dict[str, Any] = {"model": log.model, "engine_version": log.version}
    if model_config:
        row["config"] = model_config
    elif row["model"] is None:
        return None
    row["flags"] = {key: value for key, value in log.arguments.items() if _is_flag(key)}
    available = log.figures.get("available_kv_bytes") or (
        log.failure.figures.get("available_bytes") if log.failure else 0
    )
    if gpu:
        row["gpu"] = gpu
    elif total := _total(log):
        row["gpu_memory_bytes"] = total
    elif available and available > 0:
        row["available_kv_bytes"] = available
    else:
        return None
    return row


def _is_flag(name: str) -> bool:
    """Whether it is one that decides about the engine: neither the model nor where it listens."""
    return name not in ("model", "model_tag", "host", "port") and engine_flags.find(name) is not None


def _total(log: EngineLog) -> int | None:
    total = log.figures.get("total_bytes") or (log.failure.figures.get("total_bytes") if log.failure else None)
    return int(total) if total else None


def _utilisation(log: EngineLog) -> float | None:
    written = log.arguments.get("gpu_memory_utilization")
    if isinstance(written, int | float):
        return float(written)
    try:
        return default_utilisation(EngineVersion.parse(log.version)) if log.version else None
    except ValueError:
        return None


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    what = f"vLLM {told['engineVersion'] or '(version unknown)'}, {told['model'] or 'model unknown'}"
    words = {
        "started": "it started and did not fail",
        "refused": "it did not start",
        "died": "it served, then died",
        "unknown": "the log ends before it served or failed",
    }
    yield typer.style(f"{what}: {words[told['outcome']]}", bold=True)
    if told["reason"]:
        yield f"{told['condition']}: {told['meaning']}"
        yield f"  it said: {told['message']}"
    yield from _figures("observed", told["observed"], _SHOWN)
    if told["predicted"]:
        yield from _figures("predicted", told["predicted"], _PREDICTED)
    if told["change"]:
        yield "what to change:"
        yield from (f"  - {change}" for change in told["change"])


def _figures(title: str, found: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    shown = [(name, found[_camel(name)]) for name in names if found.get(_camel(name)) is not None]
    if shown:
        yield f"{title}:"
    yield from (f"  {name.removesuffix('_bytes').replace('_', ' ')}: {_value(name, value)}" for name, value in shown)


def _value(name: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return " to ".join(_value(name, value[end]) for end in ("low", "high"))
    if name.endswith("_bytes"):
        return f"{value / GIB:.2f} GiB"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join("KV" if part == "kv" else part.capitalize() for part in rest)
