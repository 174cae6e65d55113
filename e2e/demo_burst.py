"""The second half of the demo: more requests than the fleet can hold, and what becomes of them, as a live picture."""

import json
import math
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from e2e.labrun import CHECKOUT

RATE: Final = 8.0
PROMPT_TOKENS: Final = 6000
OUTPUT_TOKENS: Final = 30
BURST_SECONDS: Final = 45.0
LONGEST_SECONDS: Final = 180.0
POLL_SECONDS: Final = 1.0
WIDTH: Final = 60
BARS: Final = " ▁▂▃▄▅▆▇█"
WAITING: Final = "requests waiting"
USAGE: Final = "KV use, %"
READY: Final = "replicas ready"
WANTED: Final = "replicas wanted"

Json = dict[str, Any]


@dataclass
class Picture:
    """The last minute of a few figures, as bars of text."""

    rows: dict[str, deque[float | None]] = field(default_factory=dict)
    says: str = ""

    def add(self, figures: Mapping[str, float | None]) -> None:
        """One more moment; None where nothing is known."""
        for name, value in figures.items():
            self.rows.setdefault(name, deque(maxlen=WIDTH)).append(value)

    def table(self) -> Table:
        """What is drawn."""
        table = Table.grid(padding=(0, 2))
        for name, values in self.rows.items():
            table.add_row(name, bars(values), figure(values[-1]))
        table.add_row("why", self.says)
        return table


def bars(values: deque[float | None]) -> str:
    """A bar of eighths for each value, the highest of the row being full; a dot where nothing is known."""
    highest = max((value for value in values if value is not None), default=0.0) or 1.0
    return "".join("·" if value is None else BARS[round(value / highest * (len(BARS) - 1))] for value in values)


def figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def absorb(service: Callable[[], Json], name: str, namespace: str, prometheus: str) -> tuple[Json, list[Json]]:
    """Send a burst and draw what happens; the load's report, and the decisions that were made meanwhile.

    Ends when the load is over and nothing waits any more, at the latest after LONGEST_SECONDS.
    """
    before = _decisions(service())
    load = start_load(name, namespace, RATE, PROMPT_TOKENS, OUTPUT_TOKENS, BURST_SECONDS)
    try:
        _draw(load, service, prometheus, f'namespace="{namespace}"')
        report, _ = load.communicate(timeout=LONGEST_SECONDS)
    finally:
        load.kill()
    answer: Json = json.loads(report)
    return answer, [made for made in _decisions(service()) if made not in before]


def start_load(
    name: str, namespace: str, rate: float, prompt_tokens: int, output_tokens: int, seconds: float
) -> "subprocess.Popen[str]":
    """Requests to a service of the lab; it prints its report when they are over, and they end with it."""
    amount = {"--rate": rate, "--prompt": prompt_tokens, "--output": output_tokens, "--seconds": seconds}
    options = [str(word) for pair in amount.items() for word in pair]
    return subprocess.Popen(
        [sys.executable, "-m", "e2e.lab", "load", name, "-n", namespace, *options],
        cwd=CHECKOUT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def waiting(prometheus: str, which: str) -> float | None:
    """Requests that wait in all engines."""
    return ask(prometheus, f"sum(vllm:num_requests_waiting{{{which}}})")


def _draw(load: "subprocess.Popen[str]", service: Callable[[], Json], prometheus: str, which: str) -> None:
    picture, console, began, shown = Picture(), Console(), time.monotonic(), ""
    with Live(picture.table(), console=console, refresh_per_second=4, transient=False) as live:
        while time.monotonic() - began < LONGEST_SECONDS:
            status = service().get("status", {})
            figures = _figures(status, prometheus, which)
            picture.add(figures)
            picture.says = status.get("scaling", {}).get("why", "")
            live.update(picture.table())
            words = ", ".join(f"{key} {figure(value)}" for key, value in figures.items() if key != USAGE)
            if not console.is_terminal and words != shown:
                console.print(f"[{time.monotonic() - began:5.1f} s] {words}", markup=False, highlight=False)
                shown = words
            if load.poll() is not None and figures[WAITING] == 0:
                return
            time.sleep(POLL_SECONDS)


def _figures(status: Json, prometheus: str, which: str) -> dict[str, float | None]:
    ready, _, wanted = status.get("summary", {}).get("replicas", "0/0").partition("/")
    usage = ask(prometheus, f"100 * avg(vllm:kv_cache_usage_perc{{{which}}})")
    return {WAITING: waiting(prometheus, which), USAGE: usage, READY: float(ready), WANTED: float(wanted)}


def ask(prometheus: str, query: str) -> float | None:
    """One number of Prometheus; None when it has none, or none that is a number (a quantile of nothing)."""
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            result = json.loads(answer.read())["data"]["result"]
    except (urllib.error.URLError, TimeoutError):
        return None
    value = float(result[0]["value"][1]) if result else math.nan
    return None if math.isnan(value) else value


def _decisions(service: Json) -> list[Json]:
    found: list[Json] = service.get("status", {}).get("decisions") or []
    return found
