"""Request traces: what people publish, and what one can make. All deterministic.

A file is CSV with a header (gzip if its name ends in ``.gz``); its columns say what it is:

* ``arrival_s, prompt_tokens, output_tokens``, perhaps ``block512_ids``: requests (Azure, Mooncake, measured runs);
* ``t_s, rate_rps, mean_prompt, mean_output``: rates by bin (ServeGen), from which Poisson arrivals are drawn;
* ``session, t_s, prompt_chars, output_chars, shared_prefix_chars``: agents, whose contexts grow from step to step.
"""

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import IO, Final

from plimsoll.api.v1alpha1 import MAX_TOKENS
from plimsoll.sim.requests import Request

Row = Mapping[str, str]
Rate = Callable[[float], float]
"""Requests a second at a moment."""

BLOCK_TOKENS: Final = 512
"""Tokens that one of Mooncake's block identities stands for."""
BIN_SECONDS: Final = 600.0
MOST_REQUESTS: Final = 5_000_000
"""More would fill the memory of a laptop."""
LONGEST_LINE: Final = 1 << 20
CHARS_PER_TOKEN: Final = 4
"""Of English text and code, roughly, with today's vocabularies."""


class TraceError(ValueError):
    """A trace that cannot be read: the message names file, column or line, and what is allowed."""


def read_trace(path: Path, seed: int = 0, start: float = 0.0, end: float = math.inf) -> list[Request]:
    """The requests of a trace between two moments, their times counted from ``start``; TraceError when unreadable."""
    rows = _read(path)
    columns = set(rows[0])
    make = next((make for needed, make in _FORMATS if needed <= columns), None)
    if make is None:
        known = "; or ".join(", ".join(sorted(needed)) for needed, _ in _FORMATS)
        raise TraceError(f"{path}: columns {', '.join(rows[0])} are no trace; needed are {known}")
    try:
        if make is _rates:
            rows = [row for row in rows if start - BIN_SECONDS < float(row["t_s"]) < end] or rows[:1]
        requests = sorted(make(rows, seed), key=lambda request: request.arrival_seconds)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None
    except (ValueError, OverflowError) as error:
        raise TraceError(f"{path}: a value is missing or is no number ({error})") from None
    return _between(requests, start, end)


def _read(path: Path) -> list[dict[str, str]]:
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as lines:
            rows = list(islice(_rows(lines), MOST_REQUESTS + 1))
    except (OSError, UnicodeDecodeError, csv.Error, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    if not rows:
        raise TraceError(f"{path}: no rows after the header")
    if len(rows) > MOST_REQUESTS:
        raise TraceError(f"{path}: more than {MOST_REQUESTS:,} rows, which is what fits")
    return rows


def _rows(lines: IO[str]) -> Iterator[dict[str, str]]:
    """Rows by column; lines are read in bounded pieces, since a small packed file may hold one without end."""
    bounded = iter(lambda: lines.readline(LONGEST_LINE), "")
    for row in csv.DictReader(bounded, restval=""):
        yield {name: text for name, text in row.items() if isinstance(name, str) and isinstance(text, str)}


def _between(requests: Iterable[Request], start: float, end: float) -> list[Request]:
    kept = [request for request in requests if start <= request.arrival_seconds < end]
    for request in kept:
        request.arrival_seconds -= start
    return kept


def _tokens(row: Row, column: str, each: int = 1) -> int:
    """A count of tokens, ``each`` of the column's units long."""
    found = int(row[column]) // each
    if found > MAX_TOKENS:
        raise TraceError(f"{column}: {found:,} tokens in one request, at most {MAX_TOKENS:,} can be served")
    return found


def _seconds(row: Row, column: str) -> float:
    found = float(row[column])
    if not math.isfinite(found):
        raise TraceError(f"{column}: {row[column]!r} is no moment")
    return found


def _requests(rows: Sequence[Row], _seed: int) -> Iterator[Request]:
    for row in rows:
        prompt, output = _tokens(row, "prompt_tokens"), _tokens(row, "output_tokens")
        blocks = (row.get("block512_ids") or "").split()
        prefix = tuple((block, BLOCK_TOKENS) for block in blocks[: prompt // BLOCK_TOKENS])
        yield Request(_seconds(row, "arrival_s"), max(1, prompt), max(1, output), prefix)


def _rates(rows: Sequence[Row], seed: int) -> Iterator[Request]:
    random = Random(seed)  # noqa: S311 - a simulation
    starts = [_seconds(row, "t_s") for row in rows]
    width = min((b - a for a, b in pairwise(starts)), default=600.0)
    expected = sum(float(row["rate_rps"]) for row in rows) * width
    if expected > MOST_REQUESTS:
        raise TraceError(
            f"these rates are {expected:,.0f} requests, at most {MOST_REQUESTS:,} fit: choose a shorter time "
            "with --start and --end"
        )
    for start, row in zip(starts, rows, strict=True):
        rate = float(row["rate_rps"])
        prompt, output = float(row["mean_prompt"]), float(row["mean_output"])
        for arrival in arrivals(random, steady(rate), rate, start, start + width):
            yield Request(arrival, _length(random, prompt), _length(random, output))


def _agents(rows: Sequence[Row], _seed: int) -> Iterator[Request]:
    """A step's prompt begins with what it shares with an earlier step of its session; the rest of it is new."""
    sessions: dict[str, list[tuple[object, int]]] = {}
    for step, row in enumerate(rows):
        prompt, output = (max(1, _tokens(row, key, CHARS_PER_TOKEN)) for key in ("prompt_chars", "output_chars"))
        shared = max(0, _tokens(row, "shared_prefix_chars", CHARS_PER_TOKEN * BLOCK_TOKENS))
        before = sessions.get(row["session"], [])[:shared]
        new = [((step, part), BLOCK_TOKENS) for part in range(len(before), prompt // BLOCK_TOKENS)]
        prefix = sessions[row["session"]] = [*before, *new]
        yield Request(_seconds(row, "t_s"), prompt, output, tuple(prefix))


_FORMATS: Final[Sequence[tuple[frozenset[str], Callable[[Sequence[Row], int], Iterator[Request]]]]] = (
    (frozenset({"arrival_s", "prompt_tokens", "output_tokens"}), _requests),
    (frozenset({"t_s", "rate_rps", "mean_prompt", "mean_output"}), _rates),
    (frozenset({"session", "t_s", "prompt_chars", "output_chars", "shared_prefix_chars"}), _agents),
)


# Made traces.


def arrivals(random: Random, rate: Rate, highest: float, start: float, end: float) -> Iterator[float]:
    """A Poisson process whose rate varies, by thinning one of the ``highest`` rate."""
    now = start
    while highest > 0 and (now := now + random.expovariate(highest)) < end:
        if random.random() * highest < rate(now):
            yield now


def made(
    rate: Rate,
    highest: float,
    seconds: float,
    prompt_tokens: int,
    output_tokens: int,
    seed: int,
    *,
    shared_prefix_tokens: int = 0,
) -> list[Request]:
    """Requests at a varying rate, lengths spread about their means as chats' are (log-normal)."""
    random = Random(seed)  # noqa: S311 - a simulation
    prefix = (("system prompt", shared_prefix_tokens),) if shared_prefix_tokens else ()
    return [
        Request(
            now,
            shared_prefix_tokens + _length(random, prompt_tokens - shared_prefix_tokens),
            _length(random, output_tokens),
            prefix,
        )
        for now in arrivals(random, rate, highest, 0.0, seconds)
    ]


_SPREAD: Final = 0.7
"""Sigma of the lengths' logarithm: the 95th percentile is about two and a half times the mean."""


def _length(random: Random, mean: float) -> int:
    return max(1, round(random.lognormvariate(math.log(max(1.0, mean)) - _SPREAD**2 / 2, _SPREAD)))


def steady(rate: float) -> Rate:
    """The same rate for ever."""
    return lambda _: rate


def burst(rate: float, factor: float, at_seconds: float, for_seconds: float) -> Rate:
    """A step up by ``factor`` for a while."""
    return lambda now: rate * (factor if at_seconds <= now < at_seconds + for_seconds else 1)


def ramp(rate: float, to_rate: float, seconds: float) -> Rate:
    """From one rate to another, evenly."""
    return lambda now: rate + (to_rate - rate) * min(1.0, now / seconds)


def diurnal(mean: float, swing: float, day_seconds: float = 86_400.0) -> Rate:
    """A day: lowest at its beginning, ``swing`` times the mean above and below it."""
    return lambda now: mean * (1 - swing * math.cos(2 * math.pi * now / day_seconds))


MADE: Final[Mapping[str, Callable[[int], list[Request]]]] = {
    "poisson": lambda seed: made(steady(4.0), 4.0, 7200, 1000, 200, seed),
    "burst": lambda seed: made(burst(4.0, 3, 3600, 1800), 12.0, 9000, 1000, 200, seed),
    "ramp": lambda seed: made(ramp(2.0, 20.0, 7200), 20.0, 10_800, 1000, 200, seed),
    "diurnal": lambda seed: made(diurnal(4.0, 0.8), 7.2, 86_400, 1000, 200, seed),
    "agents": lambda seed: agents(40, 7200, seed),
}
"""Built-in traces, by the name that ``plimsoll simulate --trace`` takes."""


def agents(sessions: int, seconds: float, seed: int) -> list[Request]:
    """Sessions whose context grows with every step: each prompt is the one before, its answer, and something new."""
    random = Random(seed)  # noqa: S311 - a simulation
    requests: list[Request] = []
    for session in range(sessions):
        now, context = random.uniform(0, seconds / 2), 2 * BLOCK_TOKENS
        while now < seconds:
            added, output = _length(random, 400), _length(random, 150)
            prefix = tuple(((session, part), BLOCK_TOKENS) for part in range(context // BLOCK_TOKENS))
            requests.append(Request(now, context + added, output, prefix))
            context += added + output
            now += random.expovariate(1 / 20)
            if context > 60 * BLOCK_TOKENS:
                context = 2 * BLOCK_TOKENS
    return sorted(requests, key=lambda request: request.arrival_seconds)
