"""Policies compared on one trace: the limit, and names that are none."""

import pytest

from plimsoll.core.scale import Limits
from plimsoll.sim.figures import Slo, burst_start
from plimsoll.sim.fleet import FleetSettings
from plimsoll.sim.models import engine_model
from plimsoll.sim.policies.clairvoyant import Clairvoyant
from plimsoll.sim.requests import Request
from plimsoll.sim.traces import burst, made, ramp
from plimsoll.sim.trial import Trial, UnknownPolicyError


@pytest.fixture
def trial() -> Trial:
    requests = made(burst(3.0, 3, 900, 600), 9.0, 2400, 1000, 200, seed=3)
    settings = FleetSettings(cold_start_seconds=120)
    return Trial(requests, engine_model("rtx4090-llama-3.1-8b"), Slo(2.0, 0.06, 0.00025), Limits(1, 16), settings)


def test_who_knows_the_trace_is_ready_before_the_burst(trial: Trial) -> None:
    _, known = trial.run("clairvoyant")
    _, ours = trial.run("plimsoll")
    assert (known.slo_attainment or 0) > max(0.97, ours.slo_attainment or 0)
    assert known.burst_recovery_seconds == 0


def test_a_run_leaves_the_trace_as_it_was(trial: Trial) -> None:
    assert trial.run("static:3")[1] == trial.run("static:3")[1]
    assert all(request.finish_seconds == float("inf") for request in trial.requests)


def test_more_head_room_costs_more_and_misses_less(trial: Trial) -> None:
    _, little = trial.run("plimsoll:0.7")
    _, much = trial.run("plimsoll:2")
    assert much.gpu_hours > little.gpu_hours
    assert (much.slo_attainment or 0) > (little.slo_attainment or 0)


def test_when_no_fixed_number_is_enough_all_of_them_are_tried(trial: Trial) -> None:
    trial.limits = Limits(1, 2)
    assert trial.run("best-static")[1].max_replicas == 2


@pytest.mark.parametrize("name", ["magic", "static:x", "plimsoll:0", "best-static:nan", "clairvoyant:-1"])
def test_bad_names_and_knobs_are_refused_before_anything_runs(trial: Trial, name: str) -> None:
    with pytest.raises(UnknownPolicyError):
        trial.run(name)


def test_the_clairvoyant_looks_a_cold_start_ahead_and_no_further() -> None:
    policy = Clairvoyant([(15.0 * n, 5 if n == 20 else 1) for n in range(40)], cold_start_seconds=60)
    assert [policy.at(moment) for moment in (200.0, 215.0, 300.0, 301.0)] == [1, 5, 5, 1]


@pytest.mark.parametrize(
    ("requests", "start"),
    [
        pytest.param(made(burst(4.0, 3, 1800, 600), 12.0, 3600, 1000, 200, seed=1), 1800.0, id="a step"),
        pytest.param(made(ramp(2.0, 8.0, 3600), 8.0, 3600, 1000, 200, seed=1), None, id="a slow ramp"),
        pytest.param([Request(0.0, 10, 10)], None, id="one request"),
        pytest.param([], None, id="none"),
    ],
)
def test_a_burst_is_a_jump_that_stays(requests: list[Request], start: float | None) -> None:
    assert burst_start(requests) == start
