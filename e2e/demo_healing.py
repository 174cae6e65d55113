"""The last act of the demo: a limit of the engine that is wrong for the traffic heals itself, while you watch."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from e2e.demo_burst import ask, figure, start_load, waiting

MANIFEST: Final = Path(__file__).with_name("demo_healing.yaml")
NAME: Final = "wrong-by-mistake"
RATE: Final = 38.0
"""Requests a second, 3.3 s each. Six pods with the cap of 16 bear 29, with twice the cap 58. While canary and control
run, all eight bear 44: queues do not grow then, and with a long one the canary would be as full as its control."""
PROMPT_TOKENS: Final = 16
OUTPUT_TOKENS: Final = 20
LONGEST_SECONDS: Final = 420.0
RECOVERS_SECONDS: Final = 90.0
FEW: Final = 10.0
"""Requests that wait over six pods: no queue."""
POLL_SECONDS: Final = 1.0

Json = dict[str, Any]


class NotHealedError(RuntimeError):
    """No experiment came to an end; the message says what was seen instead."""


def heal(service: Callable[[], Json], namespace: str, prometheus: str) -> str:
    """Send traffic to a service that is Ready until its flag was tried, kept and rolled out; print every step.

    The answer is what came of it: on a machine that is busy with other things a verdict may be `inconclusive`.

    Raises:
        NotHealedError: nothing did, within LONGEST_SECONDS.

    """
    load = start_load(NAME, namespace, RATE, PROMPT_TOKENS, OUTPUT_TOKENS, LONGEST_SECONDS)
    try:
        return _watch(service, prometheus, f'namespace="{namespace}", pod=~"{NAME}-.*"')
    finally:
        load.kill()
        load.communicate()


def _watch(service: Callable[[], Json], prometheus: str, which: str) -> str:
    console, began, shown = Console(), time.monotonic(), ""
    while time.monotonic() - began < LONGEST_SECONDS:
        status = service().get("status", {})
        line = _told(status)
        if line != shown:
            console.print(f"[{time.monotonic() - began:5.1f} s] {line}", markup=False, highlight=False)
            console.print(f"          {_figures(prometheus, which)}", markup=False, highlight=False)
            shown = line
        tried = status.get("tuning", {}).get("experiment", {})
        if tried.get("phase") == "Watching":
            _recover(console, prometheus, which)
            kept = f"{tried['flag']} {tried['from']} -> {tried['to']} was kept: {tried['verdict']}"
            return f"{kept}\n  plimsoll revert {NAME} would take it back"
        for past in status.get("tuning", {}).get("past", ()):
            return f"{past['flag']} stays {past['from']}; {past['to']} was {past['outcome']}: {past['why']}"
        time.sleep(POLL_SECONDS)
    raise NotHealedError(f"nothing was kept within {LONGEST_SECONDS:.0f} s: {shown}")


def _recover(console: Console, prometheus: str, which: str) -> None:
    """What waited for the old flags is worked off by the new ones."""
    began = time.monotonic()
    while time.monotonic() - began < RECOVERS_SECONDS and (waiting(prometheus, which) or 0.0) > FEW:
        time.sleep(10 * POLL_SECONDS)
        console.print(f"          {_figures(prometheus, which)}", markup=False, highlight=False)


def _told(status: Mapping[str, Any]) -> str:
    """What limits the service, and what is done about it, in the operator's own words."""
    experimenting: Json = next((c for c in status.get("conditions") or () if c["type"] == "Experimenting"), {})
    finding = status.get("observed", {}).get("bottleneck", "nothing known yet")
    return f"{finding}; {experimenting.get('reason', 'no experiment')}: {experimenting.get('message', '')}"


def _figures(prometheus: str, which: str) -> str:
    first = f"vllm:time_to_first_token_seconds_bucket{{{which}}}"
    slow = ask(prometheus, f"histogram_quantile(0.95, sum by (le) (rate({first}[10s])))")
    seconds = "unknown" if slow is None else f"{slow:.1f} s"
    return f"p95 of time to first token {seconds}, requests waiting {figure(waiting(prometheus, which))}"
