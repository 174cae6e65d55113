"""Where policies are compared: a trace, the engine that serves it, what a request must meet, how long a start takes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.core.scale import Limits
from plimsoll.sim.figures import Slo
from plimsoll.sim.fleet import FleetSettings
from plimsoll.sim.models import engine_model
from plimsoll.sim.requests import Request
from plimsoll.sim.traces import burst, made, read_trace
from plimsoll.sim.trial import Trial

TRACES: Final = Path(__file__).parents[1] / "data/traces"
SMALL: Final = "rtx4090-llama-3.1-8b"
LARGE: Final = "rtxpro6000-qwen3-32b-tp2"
CHAT: Final = Slo(2.0, 0.06, 0.00025)
SLOW: Final = Slo(2.0, 0.15, 0.0005)
HOUR: Final = 3600.0
FIRST_SECONDS: Final = 600.0


@dataclass(frozen=True)
class Regime:
    """One column of the table. ``tuned``: the law's constants were chosen by looking at it."""

    name: str
    load: Callable[[], list[Request]]
    engine: str
    slo: Slo
    cold_start_seconds: float = 180.0
    tuned: bool = False

    def trial(self, router: str, requests: list[Request]) -> Trial:
        """The regime with a router; its requests are read once and shared.

        Everybody starts with what the first minutes need: a trace begins in the middle of a day, not with an empty
        fleet, and in an hour one cold start would decide more than the policy does.
        """
        settings = FleetSettings(cold_start_seconds=self.cold_start_seconds)
        model, limits = engine_model(self.engine), Limits(1, 64)
        begin = [request for request in requests if request.arrival_seconds < FIRST_SECONDS]
        enough, _ = Trial(begin, model, self.slo, limits, settings, router).run("best-static:95")
        return Trial(requests, model, self.slo, limits, settings, router, first_replicas=enough.most_replicas)


def _file(name: str, start_hour: float = 0.0, hours: float = 24.0) -> Callable[[], list[Request]]:
    return lambda: read_trace(TRACES / f"{name}.csv.gz", 0, start_hour * HOUR, (start_hour + hours) * HOUR)


def _burst(rate: float, output_tokens: int) -> Callable[[], list[Request]]:
    return lambda: made(burst(rate, 3, HOUR, HOUR / 2), 3 * rate, 2.5 * HOUR, 1000, output_tokens, seed=7)


R1: Final = "servegen_deepseek_r1"
REGIMES: Final = (
    Regime("KV-bound, r1 morning", _file(R1, 6, 6), SMALL, CHAT, tuned=True),
    Regime("KV-bound, r1 afternoon", _file(R1, 12, 6), SMALL, CHAT),
    Regime("KV-bound, cold start 60 s", _file(R1, 12, 6), SMALL, CHAT, 60),
    Regime("KV-bound, cold start 600 s", _file(R1, 12, 6), SMALL, CHAT, 600),
    Regime("compute-bound, m-large day 9", _file("servegen_m_large_day9_16h"), LARGE, SLOW),
    Regime("compute-bound, Azure code", _file("azure2023_code"), SMALL, CHAT),
    Regime("mixed, Mooncake", _file("mooncake_conversation"), LARGE, SLOW),
    Regime("mixed, Azure chat", _file("azure2023_conv"), SMALL, CHAT),
    Regime("calm, m-large day 2", _file("servegen_m_large_day2_10h"), LARGE, SLOW),
    Regime("burst ×3, chat", _burst(4.0, 200), SMALL, CHAT, tuned=True),
    Regime("burst ×3, long answers", _burst(0.7, 1200), SMALL, CHAT),
)
SHORT: Final = (
    Regime("KV-bound, r1, 2 h", _file(R1, 12, 2), SMALL, CHAT),
    Regime("compute-bound, m-large day 9, 1 h", _file("servegen_m_large_day9_16h", 0, 1), LARGE, SLOW),
    Regime("mixed, Azure chat", _file("azure2023_conv"), SMALL, CHAT),
)
"""What ``make bench`` has time for; the whole table: ``python -m tests.benchmarks.bench_scaling``."""
