"""What Prometheus is asked of canary and control, one window at a time, and the windows its answers make. Pure.

The past is asked for (``offset``), so nothing has to be remembered from window to window: an operator that starts anew
in the middle of an experiment finds every window where it was.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from plimsoll.core.judge import Window
from plimsoll.core.sampling import Answer
from plimsoll.facts import engine_metrics as names
from plimsoll.facts.engine_metrics import EngineMetric

FIGURE: Final = "figure"
DIGITS: Final = 6
"""More tells nothing of a window, and all windows of an experiment go into one line of the log."""
_GOOD: Final = ("stop", "length")
"""Why a request that went well finished (``finished_reason``)."""


def window_query(
    pods: Iterable[str], namespace: str, seconds: float, ago_seconds: float, labels: Mapping[str, str]
) -> str:
    """All figures of these pods over the window that ended so long ago."""
    # Names of pods hold no character with a meaning in a regular expression but the dot, which names of ours lack.
    matchers = [f'{name}="{value}"' for name, value in sorted(labels.items())]
    matchers += [f'namespace="{namespace}"', f'pod=~"{"|".join(sorted(pods))}"']
    ask = _Ask(",".join(matchers), f"[{_ms(seconds)}]", f" offset {_ms(ago_seconds)}")
    figures = {
        "ttft_total": ask.more(names.TTFT, "_sum"),
        "ttft_count": ask.more(names.TTFT, "_count"),
        "token_total": ask.more(names.ITL, "_sum"),
        "token_count": ask.more(names.ITL, "_count"),
        "token_tail": ask.quantile(names.ITL, 0.95),
        "request_total": ask.more(names.REQUEST, "_sum"),
        "request_count": ask.more(names.REQUEST, "_count"),
        "generated": ask.more(names.GENERATION_TOKENS),
        "finished": ask.more(names.FINISHED, where=f'finished_reason=~"{"|".join(_GOOD)}"'),
        "failed": ask.more(names.FINISHED, where=f'finished_reason!~"{"|".join(_GOOD)}"'),
        "rejected": ask.more(names.REJECTIONS),
        "preemptions": ask.more(names.PREEMPTIONS),
        "waiting": ask.over("avg_over_time", names.WAITING),
        "usage": ask.over("max_over_time", names.KV_USE, "max"),
    }
    return " or ".join(f'label_replace({text}, "{FIGURE}", "{name}", "", "")' for name, text in figures.items())


def read_windows(answer: Answer, seconds: float) -> dict[str, Window]:
    """The window of each pod that said anything."""
    found: dict[str, dict[str, float]] = {}
    for series in answer.series:
        pod, figure = series.labels.get("pod", ""), series.labels.get(FIGURE, "")
        if series.value == series.value:  # NaN is not itself
            found.setdefault(pod, {})[figure] = float(f"{series.value:.{DIGITS}g}")
    return {pod: _window(figures, seconds) for pod, figures in found.items()}


class _Ask:
    """Expressions over all spellings of a metric, added up over the engines of a pod."""

    def __init__(self, matchers: str, window: str, offset: str) -> None:
        self._matchers, self._window, self._offset = matchers, window, offset

    def more(self, metric: EngineMetric, suffix: str = "", where: str = "") -> str:
        """By how much a counter grew."""
        return self.over("increase", metric, "sum", suffix, where)

    def quantile(self, metric: EngineMetric, share: float) -> str:
        """Of what was observed in the window; NaN, where nothing was, is left out by the comparison."""
        ranges = (f"increase({name}_bucket{{{self._matchers}}}{self._window}{self._offset})" for name in metric.names)
        once = f"max by (namespace, pod, engine, le) ({' or '.join(ranges)})"
        return f"histogram_quantile({share}, sum by (namespace, pod, le) ({once})) >= 0"

    def over(self, function: str, metric: EngineMetric, by: str = "sum", suffix: str = "", where: str = "") -> str:
        """``max`` first: a pod that is scraped twice counts once."""
        matchers = ",".join(filter(None, (self._matchers, where)))
        ranges = (f"{function}({name}{suffix}{{{matchers}}}{self._window}{self._offset})" for name in metric.names)
        inner = "namespace, pod, engine, finished_reason, reason"
        return f"{by} by (namespace, pod) (max by ({inner}) ({' or '.join(ranges)}))"


def _window(figures: Mapping[str, float], seconds: float) -> Window:
    finished, failed = figures.get("finished"), figures.get("failed")
    generated = figures.get("generated")
    # A release without the counter of rejections rejects nobody; a reason that never was has no series.
    lost = None if finished is None and failed is None else (failed or 0.0) + figures.get("rejected", 0.0)
    return Window(
        ttft_seconds=_mean(figures, "ttft"),
        token_seconds=_mean(figures, "token"),
        token_tail_seconds=figures.get("token_tail"),
        request_seconds=_mean(figures, "request"),
        tokens=None if generated is None else generated / seconds,
        finished=finished,
        waiting=figures.get("waiting"),
        usage=figures.get("usage"),
        preemptions=figures.get("preemptions"),
        failed=lost,
    )


def _mean(figures: Mapping[str, float], name: str) -> float | None:
    total, count = figures.get(f"{name}_total"), figures.get(f"{name}_count")
    return total / count if total is not None and count else None


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
