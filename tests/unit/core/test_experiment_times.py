"""How long the phases of an experiment last, to the second, and what is not tried again."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.experiment import (
    Outcome,
    Past,
    Phase,
    Timing,
    due_seconds,
    over_budget,
    step,
    tried_before,
    windows_due,
)
from plimsoll.core.gate import GateSeen
from tests.unit.core.test_experiment import GATED, LOADING, TIMING, TRIED, at, scene

BEGAN = 1000.0


@pytest.mark.parametrize(
    ("phase", "seconds", "seen", "then"),
    [
        pytest.param("Starting", 600, {"canary": LOADING}, "Starting", id="a pod may take ten minutes"),
        pytest.param("Starting", 601, {"canary": LOADING}, None, id="and no longer"),
        pytest.param("Warming", 179, {}, "Warming", id="not warm yet"),
        pytest.param("Warming", 180, {}, "Measuring", id="warm after three windows"),
        pytest.param("Gating", 1800, {}, "Gating", id="a gate may take half an hour"),
        pytest.param("Gating", 1801, {}, None, id="and no longer"),
        pytest.param("Watching", 1799, {"carries": True}, "Watching", id="still watched"),
        pytest.param("Watching", 1800, {"carries": True}, None, id="kept after thirty windows"),
    ],
)
def test_how_long_a_phase_lasts(phase: Phase, seconds: float, seen: dict[str, Any], then: Phase | None) -> None:
    running = at(phase, BEGAN, **({"proposal": GATED} if phase == "Gating" else {}))
    following = step(running, scene(BEGAN + seconds, **seen), TIMING).experiment
    assert (following.phase if following else None) == then


@pytest.mark.parametrize(
    ("phase", "seconds", "due"),
    [
        ("Warming", 60, 120),
        ("Warming", 200, 0),
        ("Watching", 60, 1740),
        ("Measuring", 0, 90),
        ("Measuring", 95, 55),
        ("Measuring", 9999, 0),
        ("Starting", 5, 60),
    ],
)
def test_when_to_look_again(phase: Phase, seconds: float, due: float) -> None:
    assert due_seconds(at(phase, BEGAN), BEGAN + seconds, TIMING) == due


def test_only_measuring_has_windows() -> None:
    assert windows_due(at("Warming", BEGAN), BEGAN + 9999, TIMING) == 0


def test_all_times_follow_from_the_window() -> None:
    found = Timing(window_seconds=10.0, windows=5)
    assert (found.warm_up_seconds, found.settle_seconds, found.trial_seconds) == (30, 5, 85)
    assert (found.watch_seconds, found.pause_seconds, found.day_seconds) == (300, 600, 14_400)


def ended(time: float, outcome: Outcome = "inconclusive", **other: Any) -> Past:
    return replace(Past(time, TRIED.flag, TRIED.before, TRIED.after, outcome, "", TRIED.basis), **other)


@pytest.mark.parametrize(
    ("past", "last"),
    [
        pytest.param([], None, id="nothing was tried"),
        pytest.param([ended(1.0), ended(2.0)], 2.0, id="the last of two"),
        pytest.param([ended(1.0), ended(2.0, after="64")], 1.0, id="another value since"),
        pytest.param([ended(1.0, flag="--max-num-batched-tokens")], None, id="another flag"),
        pytest.param([ended(1.0, basis="other")], None, id="other grounds"),
        pytest.param([ended(1.0, "kept")], None, id="it was kept"),
        pytest.param([ended(1.0, "rejected"), ended(2.0, "abandoned")], 1.0, id="what was only abandoned may be tried"),
    ],
)
def test_a_failure_is_not_repeated_on_the_same_grounds(past: list[Past], last: float | None) -> None:
    found = tried_before(TRIED, past)
    assert (found.time if found else None) == last


@pytest.mark.parametrize(
    ("times", "now", "says"),
    [
        pytest.param([1000], 4599, "60 minutes", id="a second less than an hour"),
        pytest.param([1000], 4600, "", id="an hour"),
        pytest.param([1000, 5000, 9000, 13_000], 87_399, "4 experiments", id="a second less than a day"),
        pytest.param([1000, 5000, 9000, 13_000], 87_400, "", id="a day"),
    ],
)
def test_when_the_next_may_begin(times: list[float], now: float, says: str) -> None:
    found = over_budget(times, now, TIMING)
    assert (bool(found), says in found) == (bool(says), True)


def test_a_gate_that_was_late_says_how_late() -> None:
    past = step(at("Gating", BEGAN, proposal=GATED), scene(BEGAN + 2000, gate=GateSeen("running")), TIMING).past
    assert past is not None
    assert past.why == "the quality gate did not get a result in 2000 s"
