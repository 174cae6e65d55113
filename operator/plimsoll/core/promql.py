"""What is asked of Prometheus: one set of queries for all services together, whatever their number.

Each query answers for every engine of every pod, ``max by (namespace, pod, engine)``: a pod that is scraped twice (two
Prometheus replicas, two scrape jobs) counts once, data-parallel ranks stay apart. Several signals share a query; the
label ``signal`` tells them apart. Windows are in PromQL, so the operator keeps no history. To check one by hand:
``docs/metrics.md``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll.core.signals import Signal
from plimsoll.facts import engine_metrics as names
from plimsoll.facts.engine_metrics import EngineMetric

BY: Final = "namespace, pod, engine"
SIGNAL_LABEL: Final = "signal"
PERCENTILE_LABEL: Final = "percentile"
PERCENTILES: Final = (50, 75, 90, 95, 99)
"""Percentiles that are asked for; one in between is judged by the next higher."""
POOL_LABELS: Final[Mapping[Signal, str]] = {
    Signal.NUM_BLOCKS: "num_gpu_blocks",
    Signal.BLOCK_TOKENS: "block_size",
    Signal.POOL_TOKENS: "kv_cache_size_tokens",
}
"""Labels of ``cache_config_info`` that are read; a release that lacks one leaves it empty."""

NOW, PEAK, RATES, PREFIX, TTFT, ITL, POOL, AGE = "now", "peak", "rates", "prefix", "ttft", "itl", "pool", "age"
ESSENTIAL: Final = (NOW, RATES, AGE)
"""Queries without whose answer nothing is known."""


@dataclass(frozen=True)
class Windows:
    """How far back the queries look, in seconds. ``rate`` must hold at least two scrapes."""

    rate_seconds: float = 60.0
    latency_seconds: float = 300.0


DEFAULT_WINDOWS: Final = Windows()


def percentile_asked(percentile: int) -> int:
    """The percentile that is asked for where ``percentile`` is wanted."""
    return next(p for p in PERCENTILES if p >= percentile)


def queries(windows: Windows, matchers: Mapping[str, str], percentiles: Iterable[int]) -> dict[str, str]:
    """The queries of a tick by name; ``matchers`` are label values that every series must have."""
    ask = _Ask(selector(matchers), _duration(windows.rate_seconds), _duration(windows.latency_seconds))
    wanted = sorted({percentile_asked(p) for p in percentiles} or {PERCENTILES[-2]})
    rates = {
        Signal.PREEMPTIONS: ask.rate(names.PREEMPTIONS),
        Signal.REQUESTS: ask.arrivals(),
        Signal.FINISHED: ask.rate(names.FINISHED, "finished_reason"),
        Signal.PROMPT_TOKENS: ask.rate(names.PROMPT_TOKENS),
        Signal.GENERATION_TOKENS: ask.rate(names.GENERATION_TOKENS),
        Signal.REJECTED: ask.rate(names.REJECTIONS, "reason"),
    }
    gauges = {Signal.USAGE: names.KV_USE, Signal.RUNNING: names.RUNNING, Signal.WAITING: names.WAITING}
    means = {
        Signal.HIT_RATIO: ask.ratio(names.PREFIX_HITS, names.PREFIX_QUERIES),
        Signal.ITL_MEAN: ask.ratio(names.part_of(names.ITL, "sum"), names.part_of(names.ITL, "count")),
        Signal.RUNNING_MEAN: ask.mean(names.RUNNING),
    }
    itl = {Signal.ITL: names.ITL, Signal.TPOT: names.TIME_PER_TOKEN}
    return {
        NOW: _either(_tagged(signal, ask.now(metric)) for signal, metric in gauges.items()),
        PEAK: _tagged(Signal.USAGE_PEAK, ask.peak(names.KV_USE)),
        RATES: _either(_tagged(signal, expression) for signal, expression in rates.items()),
        PREFIX: _either(_tagged(signal, expression) for signal, expression in means.items()),
        TTFT: _either(ask.quantile(Signal.TTFT, names.TTFT, p) for p in wanted),
        ITL: _either(ask.quantile(signal, metric, p) for signal, metric in itl.items() for p in wanted),
        POOL: f"max by ({BY}, {', '.join(POOL_LABELS.values())}) ({ask.series(names.CACHE_CONFIG)})",
        AGE: ask.age(names.RUNNING, names.WAITING, names.KV_USE),
    }


def targets(pods: Iterable[str], matchers: Mapping[str, str]) -> str:
    """Whether the pods are scraped at all, asked only about pods that something is missing of."""
    # Names of pods hold no character with a meaning in a regular expression but the dot, which names of ours lack.
    one_of = ",".join(filter(None, [_pairs(matchers), f'pod=~"{"|".join(sorted(pods))}"']))
    return f"max by (namespace, pod) (up{{{one_of}}})"


def selector(matchers: Mapping[str, str]) -> str:
    """Label values as PromQL writes them, escaped; empty when there are none."""
    return f"{{{_pairs(matchers)}}}" if matchers else ""


@dataclass(frozen=True)
class _Ask:
    """Expressions over all spellings of a metric. ``or`` takes the old one only where the new one is not there."""

    where: str
    rate_window: str
    latency_window: str

    def series(self, metric: EngineMetric) -> str:
        return " or ".join(f"{name}{self.where}" for name in metric.names)

    def now(self, metric: EngineMetric) -> str:
        return f"max by ({BY}) ({self.series(metric)})"

    def peak(self, metric: EngineMetric) -> str:
        return f"max by ({BY}) ({self._over('max_over_time', metric.names, self.rate_window)})"

    def mean(self, metric: EngineMetric) -> str:
        return f"max by ({BY}) ({self._over('avg_over_time', metric.names, self.latency_window)})"

    def rate(self, metric: EngineMetric, inner: str = "", window: str = "") -> str:
        """``inner``: a label whose values are added up, each of them counted once."""
        rates = self._over("rate", metric.names, window or self.rate_window)
        once = f"max by ({BY}{', ' + inner if inner else ''}) ({rates})"
        return f"sum by ({BY}) ({once})" if inner else once

    def arrivals(self) -> str:
        """No counter counts them: those that finished, and by how much more run or wait now than before."""
        more = (self.slope(names.RUNNING), self.slope(names.WAITING))
        return f"clamp_min({' + '.join((self.rate(names.FINISHED, 'finished_reason'), *more))}, 0)"

    def slope(self, metric: EngineMetric) -> str:
        return f"max by ({BY}) ({self._over('deriv', metric.names, self.rate_window)})"

    def ratio(self, part: EngineMetric, whole: EngineMetric) -> str:
        """NaN, where there is nothing to divide, is left out by the comparison."""
        window = self.latency_window
        return f"({self.rate(part, window=window)} / {self.rate(whole, window=window)}) >= 0"

    def quantile(self, signal: Signal, metric: EngineMetric, percentile: int) -> str:
        buckets = tuple(f"{name}_bucket" for name in metric.names)
        once = f"max by ({BY}, le) ({self._over('rate', buckets, self.latency_window)})"
        found = f"histogram_quantile({percentile / 100:g}, {once}) >= 0"
        return f'label_replace({_tagged(signal, found)}, "{PERCENTILE_LABEL}", "{percentile}", "", "")'

    def age(self, *metrics: EngineMetric) -> str:
        """Seconds since the newest scrape, by Prometheus' own clock."""
        stamps = " or ".join(f"timestamp({name}{self.where})" for metric in metrics for name in metric.names)
        return f"time() - max by ({BY}) ({stamps})"

    def _over(self, function: str, metrics: Iterable[str], window: str) -> str:
        return " or ".join(f"{function}({name}{self.where}[{window}])" for name in metrics)


def _tagged(signal: Signal, expression: str) -> str:
    return f'label_replace({expression}, "{SIGNAL_LABEL}", "{signal.name}", "", "")'


def _either(expressions: Iterable[str]) -> str:
    return " or ".join(expressions)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _pairs(matchers: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(matchers.items()))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
