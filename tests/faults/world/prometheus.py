"""A Prometheus stand-in that answers the operator's own queries from the engines, and refuses every other query.

It scrapes on a timer, keeps what the longest window needs, and takes rates over what it has, as Prometheus does.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, combinations, pairwise
from typing import Final

from plimsoll.adapters.ports import PODS
from plimsoll.api import names
from plimsoll.core import promql
from plimsoll.core.promql import Windows
from plimsoll.core.sampling import Answer, Fault, Series
from plimsoll.core.signals import Signal
from tests.faults.world.connection import Connection
from tests.faults.world.control_loop import ready
from tests.faults.world.engines import Engine, Offered
from tests.faults.world.kinds import UnfaithfulError
from tests.faults.world.kubelet import Kubelet
from tests.faults.world.store import Object
from tests.faults.world.windows import Seen, window_answer

SCRAPE_SECONDS: Final = 15.0
LATENCY_SECONDS: Final = 0.02
KEPT: Final = 21
LONG_KEPT: Final = 60
UP: Final = "up"
"""Beside the names in ``promql``: the query after scrape targets."""


@dataclass(frozen=True)
class Scrape:
    """One engine at one moment."""

    at_seconds: float
    engine: Engine
    offered: Offered


@dataclass(frozen=True)
class Mood:
    """How it is disposed: what it makes of its answer to a query of some name at some moment, and how late."""

    says: Callable[[str, Answer, float], Answer | Fault] = lambda _name, answer, _now: answer
    late_seconds: float = 0.0


@dataclass
class Prometheus:
    """Scrapes every engine, whoever asks."""

    kubelet: Kubelet
    mood: Mood = field(default_factory=Mood)
    _kept: dict[tuple[str, str], deque[Scrape]] = field(default_factory=dict)
    _past: dict[tuple[str, str], deque[Seen]] = field(default_factory=dict)
    """For whoever asks of long ago; of engines that are gone too."""

    def __post_init__(self) -> None:
        self.kubelet.api.agenda.after(SCRAPE_SECONDS, self._scrape)

    def _scrape(self) -> None:
        now, alive = self.kubelet.api.agenda.now, set()
        by_service: dict[tuple[str, str], list[Object]] = {}
        for pod in self.kubelet.api.store.all(PODS):
            if pod["metadata"]["uid"] in self.kubelet.engines:
                label = pod["metadata"]["labels"].get(names.LABEL_SERVICE, "")
                by_service.setdefault((pod["metadata"]["namespace"], label), []).append(pod)
        for service, pods in by_service.items():
            offered = self.kubelet.ward.offered.get(service, Offered())
            taking = [pod for pod in pods if ready(pod) and not pod["metadata"].get("deletionTimestamp")]
            for pod in pods:
                engine = self.kubelet.engines[pod["metadata"]["uid"]]
                engine.advance(now, offered, 1 / len(taking) if pod in taking else 0.0)
                address = (pod["metadata"]["namespace"], pod["metadata"]["name"])
                alive.add(address)
                scrape = Scrape(now, replace(engine), offered)
                self._kept.setdefault(address, deque(maxlen=KEPT)).append(scrape)
                self._past.setdefault(address, deque(maxlen=LONG_KEPT)).append(Seen(now, scrape.engine))
        self._kept = {address: kept for address, kept in self._kept.items() if address in alive}
        self.kubelet.api.agenda.after(SCRAPE_SECONDS, self._scrape)

    def answer(self, query: str, windows: Windows) -> Answer | Fault:
        """What it says to a query now."""
        if found_then := window_answer(query, self._past, self.kubelet.api.agenda.now):
            return found_then
        name, found = self._found(query, windows)
        return self.mood.says(name, found, self.kubelet.api.agenda.now)

    def _found(self, query: str, windows: Windows) -> tuple[str, Answer]:
        if query.startswith("max by (namespace, pod) (up{"):
            up = [Series({"namespace": ns, "pod": pod}, 1.0) for ns, pod in self._kept if f"{pod}" in query]
            return UP, Answer(tuple(up))
        name, percentiles = _known(windows).get(query, ("", ()))
        if not name:
            raise UnfaithfulError(f"a query that is not the operator's: {query[:200]}")
        found = [
            Series({"namespace": address[0], "pod": address[1], "engine": "0", **labels}, value)
            for address, kept in sorted(self._kept.items())
            for labels, value in _read(name, kept, percentiles, self.kubelet.api.agenda.now, windows)
        ]
        return name, Answer(tuple(found))


@dataclass(frozen=True)
class Asker:
    """MetricsSource port of one process."""

    prometheus: Prometheus
    connection: Connection
    windows: Windows

    async def query(self, promql: str) -> Answer | Fault:
        await asyncio.sleep(LATENCY_SECONDS + self.prometheus.mood.late_seconds)
        return self.prometheus.answer(promql, self.windows)


@cache
def _known(windows: Windows) -> Mapping[str, tuple[str, tuple[int, ...]]]:
    """Every query that the operator may send, by its text."""
    asked = promql.PERCENTILES
    sets = chain.from_iterable(combinations(asked, size) for size in range(1, len(asked) + 1))
    found = {}
    for percentiles in sets:
        for name, text in promql.queries(windows, {}, percentiles).items():
            found[text] = (name, percentiles)
    return found


def _read(
    name: str, kept: deque[Scrape], percentiles: Iterable[int], now: float, windows: Windows
) -> list[tuple[dict[str, str], float]]:
    """What one engine's scrapes say to a query: labels and a value each."""
    last = kept[-1]
    minute = [scrape for scrape in kept if scrape.at_seconds > last.at_seconds - windows.rate_seconds - 1]
    engine = last.engine
    if name == promql.AGE:
        return [({}, now - last.at_seconds)]
    if name == promql.POOL:
        pool = engine.pool
        figures = (pool.num_blocks, pool.block_tokens, pool.num_blocks * pool.block_tokens)
        return [({**dict(zip(promql.POOL_LABELS.values(), map(str, figures), strict=True))}, 1.0)]
    if name == promql.NOW:
        figures_now = {Signal.USAGE: engine.usage, Signal.RUNNING: engine.running, Signal.WAITING: engine.waiting}
        return [_tagged(signal, value) for signal, value in figures_now.items()]
    if name == promql.PEAK:
        return [_tagged(Signal.USAGE_PEAK, max(scrape.engine.usage for scrape in minute))]
    if len(minute) < 2:
        return []
    if name == promql.RATES:
        return [_tagged(signal, value) for signal, value in _rates(minute).items()]
    return _latencies(name, last, percentiles)


_COUNTERS: Final = {
    Signal.PREEMPTIONS: "preemptions",
    Signal.REQUESTS: "arrived",
    Signal.FINISHED: "finished",
    Signal.PROMPT_TOKENS: "prompt_tokens",
    Signal.GENERATION_TOKENS: "generation_tokens",
}


def _rates(scrapes: Sequence[Scrape]) -> dict[Signal, float]:
    """Increases a second; a counter that fell has begun anew, as Prometheus takes it."""
    seconds = scrapes[-1].at_seconds - scrapes[0].at_seconds
    found = {Signal.REJECTED: 0.0}
    for signal, counter in _COUNTERS.items():
        values = [getattr(scrape.engine, counter) for scrape in scrapes]
        found[signal] = sum(b - a if b >= a else b for a, b in pairwise(values)) / seconds
    return found


def _latencies(name: str, last: Scrape, percentiles: Iterable[int]) -> list[tuple[dict[str, str], float]]:
    """Time to the first token grows with the line; the time between tokens is what the request's seconds leave."""
    engine, offered = last.engine, last.offered
    if not engine.finished:
        return []
    wait = engine.waiting / (engine.pool.slots / engine.pool.seconds)
    itl = 0.9 * engine.pool.seconds / offered.output_tokens
    values = {
        promql.TTFT: {Signal.TTFT: engine.pool.first_seconds + wait},
        promql.ITL: {Signal.ITL: itl, Signal.TPOT: itl},
    }
    return [
        ({promql.SIGNAL_LABEL: signal.name, promql.PERCENTILE_LABEL: str(percentile)}, value)
        for signal, value in values.get(name, {}).items()
        for percentile in percentiles
    ]


def _tagged(signal: Signal, value: float) -> tuple[dict[str, str], float]:
    return {promql.SIGNAL_LABEL: signal.name}, value
