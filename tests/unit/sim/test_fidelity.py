"""The simulated engine against measured ones: constants from the first 100 requests, judged on the other 200."""

import csv
import gzip
from collections.abc import Callable, Iterable, Sequence

import pytest

from plimsoll.sim.blocks import BlockPool
from plimsoll.sim.engine import NEVER, Engine, EngineLimits
from plimsoll.sim.models import engine_model, model_names
from plimsoll.sim.requests import Request
from plimsoll.sim.steps import FittedSteps
from tools.fit_engine import FITTED_REQUESTS, RUNS, RUNS_OF, Measured, Replay, fit, read_run, replay

RTX4090 = "rtx4090-llama-3.1-8b"
MEASURED_PREEMPTIONS = 190
"""Of the RTX 4090 run, as its publisher counted them."""


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def replayed(name: str, at_seconds: Sequence[float] = ()) -> tuple[Replay, list[Measured]]:
    run = RUNS_OF[name]
    rows = read_run(run.file)
    return replay(rows, engine_model(name), run.engines, at_seconds), rows


def error(name: str, simulated: Callable[[Request], float], measured: Callable[[Measured], float]) -> float:
    """Relative error of the mean over the requests that the constants were not fitted to."""
    found, rows = replayed(name)
    judged = list(zip(found.requests, rows, strict=True))[FITTED_REQUESTS:]
    return mean(simulated(r) for r, _ in judged) / mean(measured(m) for _, m in judged) - 1


@pytest.mark.parametrize(
    ("simulated", "measured"),
    [
        pytest.param(lambda r: r.ttft_seconds, lambda m: m.ttft_seconds, id="TTFT"),
        pytest.param(lambda r: r.tpot_seconds, lambda m: m.tpot_seconds, id="TPOT"),
        pytest.param(
            lambda r: r.finish_seconds - r.arrival_seconds, lambda m: m.last_token_seconds - m.arrival_seconds, id="e2e"
        ),
    ],
)
def test_a_kv_bound_run_is_met_within_3_percent(
    simulated: Callable[[Request], float], measured: Callable[[Measured], float]
) -> None:
    assert abs(error(RTX4090, simulated, measured)) <= 0.03


@pytest.mark.parametrize("name", [name for name in model_names() if name != RTX4090])
def test_tpot_of_runs_that_compute_binds_is_met_within_5_percent(name: str) -> None:
    assert abs(error(name, lambda r: r.tpot_seconds, lambda m: m.tpot_seconds)) <= 0.05


def test_running_kv_and_preemptions_follow_the_kv_bound_run() -> None:
    with gzip.open(RUNS / f"{RUNS_OF[RTX4090].file}_timeseries.csv.gz", "rt") as lines:
        series = list(csv.DictReader(lines))
    found, _ = replayed(RTX4090, [float(row["t"]) for row in series])
    ticks = list(zip(found.ticks, series, strict=True))
    assert mean(abs(running - float(row["running"])) for (running, _, _), row in ticks) <= 3
    assert mean(abs(100 * usage - float(row["kv_cache_pct"])) for (_, _, usage), row in ticks) <= 3
    assert found.preemptions == pytest.approx(MEASURED_PREEMPTIONS, rel=0.05)


def test_the_table_holds_what_the_fit_gives() -> None:
    assert fit(RUNS_OF[RTX4090]) == engine_model(RTX4090).cost, "run `python -m tools.fit_engine`"


def pressure(clients: int, seconds: float) -> tuple[list[tuple[float, int, int]], Engine]:
    """Clients that each send the next request when the last is answered, on the CPU engine of the pressure run."""
    steps = FittedSteps(0.0032, 0.0, 8e-5, 0.0, 0.0, 2.5e-4)
    engine = Engine(BlockPool(128, 32), EngineLimits(256, 2048), steps)
    for client in range(clients):
        engine.submit(Request(0.0, 300 + 7 * (client % 11), 480 + 5 * (client % 9)), 0.0)
    samples: list[tuple[float, int, int]] = []
    while engine.next_seconds < seconds:
        now = engine.next_seconds
        for done in engine.advance():
            engine.submit(Request(now, done.prompt_tokens, done.output_tokens), now)
        if now >= len(samples) + 1:
            samples.append((engine.usage(now), engine.running, engine.waiting))
    return samples, engine


def measured_pressure(phase: str) -> list[dict[str, str]]:
    with gzip.open(RUNS / "cpu_0.32_kv_pressure.csv.gz", "rt") as lines:
        return [row for row in csv.DictReader(lines) if row["phase"] == phase and int(row["client_inflight"]) > 1]


@pytest.mark.parametrize(("phase", "clients"), [("light-2", 2), ("medium-6", 6), ("heavy-24", 24)])
def test_pressure_has_the_measured_shape(phase: str, clients: int) -> None:
    """Few clients leave room; six nearly fill the pool; with 24 most wait, use swings and preemptions storm."""
    samples, engine = pressure(clients, 40)
    rows = [row for row in measured_pressure(phase) if int(row["client_inflight"]) == clients]
    usage = [float(row["kv_cache_usage_perc"]) for row in rows]
    waiting = [float(row["waiting"]) for row in rows]
    assert mean(u for u, _, _ in samples) == pytest.approx(mean(usage), abs=0.15)
    assert mean(w for _, _, w in samples) == pytest.approx(mean(waiting), abs=2)
    assert max(r for _, r, _ in samples) == pytest.approx(max(float(row["running"]) for row in rows), abs=1)
    grown = float(rows[-1]["preemptions_total"]) - float(rows[0]["preemptions_total"])
    span = float(rows[-1]["t_s"]) - float(rows[0]["t_s"])
    assert engine.counters.preemptions / 40 == pytest.approx(grown / span, abs=max(0.3, 0.35 * grown / span))


def test_a_saturated_pool_swings_instead_of_standing_at_its_limit() -> None:
    samples, engine = pressure(24, 60)
    usage = [u for u, _, _ in samples]
    assert max(usage) > 0.97
    assert min(usage) < max(usage) - 0.12
    assert engine.next_seconds < NEVER
