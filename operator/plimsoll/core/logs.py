"""Engine log text → what the engine was, what it found, and why it ended.

Every release writes another prefix, and some wrap it in colour codes: lines are stripped to what they say first. The
words are those of vLLM 0.10 to 0.32 as recorded from real servers (``tests/data/logs``), of torch, NCCL and the hub.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

from plimsoll.core.causes import CAUSES, UNEXPLAINED, Cause
from plimsoll.core.redaction import LEFT_OUT, redacted

GIB: Final = 1 << 30
LONGEST_LINE: Final = 16_384
SAID_LIMIT: Final = 600

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# What stands before a line: kubectl's pod prefix and time, compose's service, the process, vLLM's level and place.
_BEFORE: Final = re.compile(
    r"^(?:\[pod/\S+\]\s+)?(?:[\w.-]+\s+\|\s+)?(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)\s+)?"
    r"(?:\((?:APIServer|EngineCore|Worker|VllmWorker|RayWorker|ApiServer|DPCoordinator)[^()]*\)\s?)*"
    r"(?P<stamp>(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?\s+\[[^\]]*\]\s?)?"
    r"(?:\((?:APIServer|EngineCore|Worker|VllmWorker)[^()]*\)\s?)*"
)
_QUIET: Final = frozenset({"DEBUG", "INFO", "WARNING"})
_RAISED: Final = re.compile(r"^\s*(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt)|AssertionError)\b(?::|$)")
_FOLLOWS: Final = re.compile(
    r"Engine core initialization failed|EngineDeadError|EngineCore (?:encountered|failed)|Engine process failed|"
    r"See (?:root cause|stack trace) above|AsyncLLM output_handler failed|WorkerProc (?:initialization|hit)|"
    r"Failed core proc"
)
_READY: Final = re.compile(r"Application startup complete|Uvicorn running on|vLLM server on http.* \(ready\)")
_DEAD: Final = re.compile(r"EngineDeadError|EngineCore encountered a fatal error|Engine core proc \S+ died")
_SHUTDOWN: Final = re.compile(
    r"\[shutdown\] API server: shutdown triggered|Shutting down FastAPI HTTP server|"
    r"Application shutdown complete|Shutdown initiated"
)

_GIBIBYTES: Final = r"(?P<value>-?[\d,]+(?:\.\d+)?) ?Gi?B"
_FIGURES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("weights_bytes", re.compile(rf"(?:Model loading took|Loading model weights took) {_GIBIBYTES}")),
    ("available_kv_bytes", re.compile(rf"Available KV cache memory: {_GIBIBYTES}")),
    ("graph_bytes", re.compile(rf"Graph capturing finished in [\d.]+ secs?, took {_GIBIBYTES}")),
    ("total_bytes", re.compile(rf"Free memory on device[^()]{{0,80}}\(-?[\d.]+/{_GIBIBYTES}\)")),
    ("total_bytes", re.compile(rf"GPU \d+ has a total capacity of {_GIBIBYTES}")),
    ("total_bytes", re.compile(rf"total_gpu_memory \({_GIBIBYTES}\)")),
    ("kv_tokens", re.compile(r"KV cache size: (?P<value>[\d,]+) tokens")),
    ("num_blocks", re.compile(r"# (?:GPU|CPU|cuda) blocks: (?P<value>\d+)")),
    ("block_size", re.compile(r"Setting attention block size to (?P<value>\d+) tokens")),
    ("max_concurrency", re.compile(r"Maximum concurrency for [\d,]+ tokens per request: (?P<value>[\d.,]+)x")),
    ("concurrency_tokens", re.compile(r"Maximum concurrency for (?P<value>[\d,]+) tokens per request")),
    (
        "load_seconds",
        re.compile(r"(?:Model loading took|Loading model weights took) .{0,80} and (?P<value>[\d.]+) seconds"),
    ),
    ("init_seconds", re.compile(r"init engine \(profile, create kv cache, warmup model\) took (?P<value>[\d.]+) s")),
)
# Workers report one after the other: the worst of them decides.
_WORST: Final[Mapping[str, Any]] = {
    "available_kv_bytes": min,
    "weights_bytes": max,
    "graph_bytes": max,
    "kv_tokens": min,
}
_VERSION: Final = re.compile(r"(?:\bversion|LLM engine \(v|vLLM API server version) ?v?(?P<value>\d+\.\d+(?:\.\w+)*)")
_ARGUMENTS: Final = re.compile(r"non-default args: (?P<value>\{.*\})\s*$")
_CONFIG: Final = re.compile(r"Initializing a V?\d? ?LLM engine .{0,80} with config: ")
_CONFIGURED: Final = re.compile(
    r"\b(tensor_parallel_size|pipeline_parallel_size|data_parallel_size|decode_context_parallel_size|max_seq_len|"
    r"quantization|kv_cache_dtype|enforce_eager|enable_prefix_caching|load_format)=([\w.]+)"
)
_MODEL: Final = re.compile(r"(?:\bmodel   (?P<banner>\S+)|with config: model='(?P<config>[^']+)')")


@dataclass(frozen=True)
class Failure:
    """Why an engine ended. ``said`` is the engine's own line; ``figures`` its numbers, bytes where named so."""

    cause: Cause
    said: str
    figures: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineLog:
    """One start of an engine as its log tells it. What the log does not say is absent from ``figures``, or None."""

    version: str | None = None
    model: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that are not the engine's defaults, by their name with underscores."""
    figures: Mapping[str, int | float] = field(default_factory=dict)
    ready: bool = False
    """It served before it ended."""
    stopped: bool = False
    """It was told to stop."""
    failure: Failure | None = None

    @property
    def is_an_engines(self) -> bool:
        """Whether anything in the text is an engine's."""
        return bool(self.version or self.arguments or self.figures or self.failure or self.ready)


def read_log(text: str) -> EngineLog:
    """What a log, or a part of one, says. Never raises for what it holds."""
    lines = [_Line.of(raw) for raw in text.splitlines()]
    arguments = _arguments(lines)
    return EngineLog(
        version=_first(_VERSION, lines),
        model=arguments.get("model") or _first(_MODEL, lines),
        arguments=arguments,
        figures=_facts(lines),
        ready=any(_READY.search(line.said) for line in lines),
        stopped=any(_SHUTDOWN.search(line.said) for line in lines),
        failure=_failure(lines),
    )


@dataclass(frozen=True)
class _Line:
    """A line without what stands before its words. ``quiet``: the engine did not mean it as a fault."""

    said: str
    quiet: bool

    @classmethod
    def of(cls, raw: str) -> "_Line":
        text = _COLOUR.sub("", raw[:LONGEST_LINE])
        before = _BEFORE.match(text)
        if before is None:
            return cls(text, quiet=False)
        return cls(text[before.end() :], quiet=before["level"] in _QUIET)


def _facts(lines: Iterable[_Line]) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for line in lines:
        for name, pattern in _FIGURES:
            match = pattern.search(line.said)
            if match is None:
                continue
            value = _number(match["value"].replace(",", ""), GIB if name.endswith("_bytes") else None)
            if value is None:
                continue
            found[name] = _WORST[name](found[name], value) if name in found and name in _WORST else value
    return found


def _number(text: str, unit: int | None = None) -> int | float | None:
    """The figure, in whole ``unit``s where one is given; None where a log spells it as no figure is spelled."""
    try:
        value = float(text)
        return round(value * unit) if unit else value if "." in text else int(text)
    except (ValueError, OverflowError):
        return None


def _first(pattern: re.Pattern[str], lines: Iterable[_Line]) -> str | None:
    matches = (match for line in lines if (match := pattern.search(line.said)))
    match = next(matches, None)
    return next((group for group in match.groups() if group), None) if match else None


def _arguments(lines: Sequence[_Line]) -> Mapping[str, Any]:
    """As the server prints them; else what the engine's own configuration line says of them."""
    for line in lines:
        match = _ARGUMENTS.search(line.said)
        if match is None:
            continue
        try:
            read = ast.literal_eval(match["value"])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            break
        return {str(name): _shown(name, value) for name, value in read.items()} if isinstance(read, dict) else {}
    configured = next((line.said for line in lines if _CONFIG.search(line.said)), "")
    return {_RENAMED.get(name, name): _plain(text) for name, text in _CONFIGURED.findall(configured) if text != "None"}


def _shown(name: object, value: Any) -> Any:  # noqa: ANN401 - any literal
    """The value of an argument; that of a credential is nobody's to read here."""
    return LEFT_OUT if name in _CREDENTIALS else value


_CREDENTIALS: Final = frozenset({"api_key", "hf_token", "ssl_keyfile_password"})
_RENAMED: Final = {"max_seq_len": "max_model_len"}
_WORDS: Final = {"True": True, "False": False}


def _plain(text: str) -> bool | int | str:
    number = _number(text) if text.isdecimal() else None
    return _WORDS.get(text, text) if number is None else int(number)


def _failure(lines: Sequence[_Line]) -> Failure | None:
    """The cause that ranks first among those found; else the exception nothing else explains.

    What is said after an orderly shutdown began is no cause: its pieces complain about each other.
    """
    loud = [line.said for line in takewhile(lambda line: not _SHUTDOWN.search(line.said), lines) if not line.quiet]
    for cause in CAUSES:
        for said in loud:
            match = cause.pattern.search(said)
            if match:
                return Failure(cause, _cut(said), dict(_named(match)))
    return _unexplained(loud)


def _unexplained(loud: Sequence[str]) -> Failure | None:
    """The first exception that is not only the echo of another; an echo alone still says that the engine died."""
    raised = [said for said in loud if _RAISED.match(said)]
    own = [said for said in raised if not _FOLLOWS.search(said)]
    echoes = [said for said in loud if _FOLLOWS.search(said) or _DEAD.search(said)]
    # What is raised inside a request is told to its client; the engine lives on unless an echo says otherwise.
    told = own[:1] if echoes or not any(_READY.search(said) for said in loud) else []
    for said in (*told, *echoes[:1]):
        return Failure(UNEXPLAINED, _cut(said))
    return None


def _named(match: re.Match[str]) -> Iterator[tuple[str, int | float]]:
    """Named groups as numbers: ``_gib`` and ``_size`` (with its unit) become ``_bytes``."""
    for name, text in match.groupdict().items():
        if text is None:
            continue
        figure, unit = text, None
        if name.endswith("_gib"):
            unit = GIB
        elif name.endswith("_size"):
            figure, _, word = text.partition(" ")
            unit = _UNITS.get(word, 1)
        value = _number(figure, unit)
        if value is not None:
            yield f"{name.removesuffix('_gib').removesuffix('_size')}_bytes" if unit else name, value


_UNITS: Final = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def _cut(said: str) -> str:
    text = redacted(" ".join(said.split()))
    return text if len(text) <= SAID_LIMIT else f"{text[: SAID_LIMIT - 1]}…"
