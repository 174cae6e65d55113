"""The committed coefficients against the measured points they were fitted to."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from math import expm1, log
from pathlib import Path

import pytest

from plimsoll.core.latency.coefficients import Coefficients, Spread, fitted
from tools.latency_points import Point, read_points
from tools.latency_solver import PRIOR, Error, fit, tpot_error, ttft_error

POINTS, REFUSED = read_points(Path(__file__).parents[2] / "data" / "latency-points.jsonl.gz")
TRUSTED = [point for point in POINTS if point.trusted]
STATED = [point for point in POINTS if point.stated]


def errors(points: Sequence[Point], error: Error) -> list[float]:
    return [error(point, fitted().coefficients) for point in points]


def median_error(values: Sequence[float]) -> float:
    return statistics.median(abs(expm1(value)) for value in values)


def test_every_point_is_used_or_refused_with_a_reason() -> None:
    assert (len(POINTS), len(TRUSTED), len(STATED), len(REFUSED)) == (751, 598, 699, 15)
    assert sum("no prompt length" in why for why in REFUSED) == 5
    assert sum("no room for a cache" in why for why in REFUSED) == 10


@pytest.mark.parametrize(
    ("points", "error", "median"),
    [
        pytest.param(TRUSTED, tpot_error, 0.064, id="TPOT of trusted points"),
        pytest.param(STATED, tpot_error, 0.073, id="TPOT of all points with a stated GPU"),
        pytest.param(TRUSTED, ttft_error, 0.177, id="TTFT of trusted points"),
    ],
)
def test_printed_medians(points: Sequence[Point], error: Error, median: float) -> None:
    assert median_error(errors(points, error)) == pytest.approx(median, abs=0.005)


@pytest.mark.parametrize(
    ("points", "least"), [pytest.param(TRUSTED, 0.97, id="trusted"), pytest.param(STATED, 0.89, id="all")]
)
def test_the_range_holds_the_measured_time_per_output_token(points: Sequence[Point], least: float) -> None:
    spread = fitted().spreads.tpot
    held = sum(log(spread.low) <= -error <= log(spread.high) for error in errors(points, tpot_error))
    assert held / len(points) > least


def test_points_without_a_stated_gpu_were_never_fitted_and_agree_with_the_stand_in() -> None:
    unstated = [point for point in POINTS if not point.stated]
    assert median_error(errors(unstated, tpot_error)) < 0.2


def test_no_range_is_wider_than_a_factor_three() -> None:
    spreads = [Spread(**factors) for factors in asdict(fitted().spreads).values()]
    assert all(spread.low < 1 < spread.high <= 3.01 * spread.low for spread in spreads)


def test_a_model_left_out_is_still_predicted() -> None:
    start = Coefficients(**{name: centre for name, (centre, _) in PRIOR.items()})
    left_out = [point for point in TRUSTED if point.model == "Qwen/Qwen3-32B"]
    found = fit([point for point in TRUSTED if point.model != "Qwen/Qwen3-32B"], start)
    assert median_error([tpot_error(point, found) for point in left_out]) < 0.1
