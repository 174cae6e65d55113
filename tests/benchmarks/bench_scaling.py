"""What each policy costs for the same quality, in every regime and with both routers.

A policy's own knob is swept; its GPU-hours at 95, 97 and 99 % of requests within the SLO are read off between the two
nearest settings. A level that no setting reaches stays empty. ``make bench`` runs the short regimes. All of them, as in
``docs/scaling-figures.md``, take an hour or more: ``python -m tests.benchmarks.bench_scaling > rows.jsonl``,
then ``python -m tests.benchmarks.scaling_table rows.jsonl``.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from plimsoll.sim.figures import Figures
from plimsoll.sim.policies import POLICIES
from tests.benchmarks.regimes import REGIMES, SHORT, Regime

LEVELS: Final = (95, 97, 99)
ROUTERS: Final = ("least-outstanding", "connection-random")
OURS: Final = tuple(f"plimsoll:{spare}" for spare in (0.7, 0.85, 1, 1.2, 1.5, 2, 3, 4))
KNOWING: Final = tuple(f"clairvoyant:{spare}" for spare in (0.7, 0.85, 1, 1.3, 2, 3))


@dataclass(frozen=True)
class Point:
    """One setting of one policy: what it cost and what it gave."""

    policy: str
    gpu_hours: float
    percent: float


def names(policy: str) -> tuple[str, ...]:
    """A policy with each setting of its knob."""
    own = {"plimsoll": OURS, "clairvoyant": KNOWING, "best-static": tuple(f"best-static:{level}" for level in LEVELS)}
    return own.get(policy) or tuple(f"{policy}:{knob:g}" for knob in POLICIES[policy].sweep)


COMPARED: Final = ("plimsoll", *(name for name in POLICIES if name != "static"), "best-static", "clairvoyant")


def cost_at(points: Sequence[Point], percent: float) -> float | None:
    """GPU-hours for a level, between the nearest settings below and above it; None when it is not reached."""
    above = [point for point in points if point.percent >= percent]
    if not above:
        return None
    cheapest = min(above, key=lambda point: point.gpu_hours)
    below = [point for point in points if point.percent < percent and point.gpu_hours < cheapest.gpu_hours]
    if not below:
        return cheapest.gpu_hours
    near = max(below, key=lambda point: point.percent)
    share = (percent - near.percent) / (cheapest.percent - near.percent)
    return near.gpu_hours + share * (cheapest.gpu_hours - near.gpu_hours)


def rows(regime: Regime, router: str) -> Iterator[dict[str, object]]:
    """One row a policy."""
    trial = regime.trial(router, regime.load())
    for policy in COMPARED:
        runs = [(name, trial.run(name)[1]) for name in names(policy)]
        points = [Point(name, found.gpu_hours, 100 * (found.slo_attainment or 0.0)) for name, found in runs]
        costs = {f"gpu_hours_at_{level}": cost_at(points, level) for level in LEVELS}
        yield {
            "bench": "scaling", "regime": regime.name, "tuned": regime.tuned, "router": router, "policy": policy,
            "value": costs["gpu_hours_at_95"], "unit": "GPU-hours at 95 %", **costs, **_nearest(runs),
            "points": [asdict(point) for point in points],
        }  # fmt: skip


def _nearest(runs: Sequence[tuple[str, Figures]]) -> dict[str, object]:
    """What the setting did that comes nearest to 97 %."""
    name, found = min(runs, key=lambda run: abs((run[1].slo_attainment or 0.0) - 0.97))
    return {
        "setting": name, "slo_percent": 100 * (found.slo_attainment or 0.0), "gpu_hours": found.gpu_hours,
        "ttft_p99": found.ttft_p99, "preemptions_per_1000": found.preemptions_per_1000,
        "scale_events": found.scale_events, "max_replicas": found.max_replicas,
        "burst_recovery_seconds": found.burst_recovery_seconds,
    }  # fmt: skip


def run(regimes: Sequence[Regime], routers: Sequence[str]) -> None:
    """Print all rows as they come."""
    for regime in regimes:
        for router in routers:
            for row in rows(regime, router):
                print(json.dumps(row), flush=True)


def main() -> None:
    run(SHORT, ROUTERS[:1])


if __name__ == "__main__":
    run([regime for regime in REGIMES if all(word in regime.name for word in sys.argv[1:])], ROUTERS)
