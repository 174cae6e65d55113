"""One experiment, step by step: how it goes on, and everything that ends it."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from plimsoll.core.experiment import (
    Experiment,
    Past,
    Phase,
    Proposal,
    Scene,
    Timing,
    TrialPod,
    begin,
    due_seconds,
    over_budget,
    step,
    windows_due,
)
from plimsoll.core.experiment_record import MOST_PAST, Record, read_record
from plimsoll.core.gate import GateSeen
from plimsoll.core.judge import Pair, Window

TIMING = Timing()
TRIED = Proposal("MaxNumSeqs", "--max-num-seqs", "16", "32", "ttft", "SequenceCapBound", "16 run, 9 wait", "basis")
READY, LOADING = TrialPod(ready=True), TrialPod(ready=False)
SLOW = Window(
    ttft_seconds=5.0,
    token_seconds=0.02,
    request_seconds=9.0,
    tokens=800,
    finished=60,
    waiting=20,
    usage=0.4,
    preemptions=0,
    failed=0,
)
QUICK = replace(SLOW, ttft_seconds=0.2)


def at(phase: Phase, now: float = 0.0, **more: Any) -> Experiment:
    return replace(begin(TRIED, "svc-a", 0.0), phase=phase, since=now, **more)


def scene(now: float = 1.0, **seen: Any) -> Scene:
    usual = Scene(now, base="svc-a", rolled_out=True, carries=False, canary=READY, control=READY)
    return replace(usual, **seen)


def windows(canary: Window | None, count: int = TIMING.windows) -> list[Pair]:
    return [Pair(SLOW, canary)] * count


def test_from_its_first_pod_to_its_end() -> None:
    now, experiment = 0.0, begin(TRIED, "svc-a", 0.0)
    seen = [
        scene(5, canary=LOADING, control=None),
        scene(60),
        scene(100),
        scene(300),
        scene(2000, pairs=windows(QUICK)),
    ]
    seen += [scene(2001, carries=True, rolled_out=False), scene(2100, carries=True), scene(5000, carries=True)]
    phases = []
    for moment in seen:
        following = step(experiment, moment, TIMING)
        if following.experiment is None:
            break
        experiment, now = following.experiment, moment.now
        phases.append(experiment.phase)
    assert phases == ["Starting", "Warming", "Warming", "Measuring", "Keeping", "Keeping", "Watching"]
    assert now == 2100
    assert following.past is not None
    assert (following.past.outcome, following.past.after) == ("kept", "32")
    assert "time to first token" in following.past.why


@pytest.mark.parametrize(
    ("experiment", "seen", "outcome", "why"),
    [
        pytest.param(
            at("Starting"),
            scene(canary=TrialPod(False, "OOM"), control=READY),
            "rolled back",
            "OOM",
            id="canary crashes",
        ),
        pytest.param(
            at("Starting"), scene(control=TrialPod(False, "OOM")), "inconclusive", "OOM", id="control crashes"
        ),
        pytest.param(
            at("Starting"),
            scene(601, canary=LOADING),
            "rolled back",
            "canary was not ready",
            id="canary loads for ever",
        ),
        pytest.param(
            at("Starting"), scene(601, control=LOADING), "inconclusive", "control was not", id="control loads for ever"
        ),
        pytest.param(
            at("Starting"), scene(601, canary=None, control=None), "abandoned", "neither", id="no pod ever comes"
        ),
        pytest.param(at("Warming"), scene(canary=None), "rolled back", "gone", id="canary deleted while it warms up"),
        pytest.param(at("Measuring"), scene(canary=None), "rolled back", "gone", id="canary deleted"),
        pytest.param(at("Measuring"), scene(control=None), "inconclusive", "gone", id="control deleted"),
        pytest.param(
            at("Measuring"), scene(pairs=windows(None, 3)), "rolled back", "nothing was heard", id="canary silent"
        ),
        pytest.param(at("Measuring"), scene(pairs=windows(SLOW)), "inconclusive", "chance", id="no difference"),
        pytest.param(at("Measuring"), scene(pairs=[Pair(QUICK, SLOW)] * 25), "rolled back", "worse", id="worse"),
        pytest.param(
            at("Measuring"), scene(pairs=[Pair(None, None)] * 25), "inconclusive", "only 0 of", id="metrics gone"
        ),
        pytest.param(at("Measuring"), scene(base="svc-b"), "abandoned", "runs no more", id="spec changed"),
        pytest.param(at("Warming"), scene(stop="spec.tuning.mode is Off"), "abandoned", "Off", id="turned off"),
        pytest.param(at("Warming"), scene(wish="reject"), "rejected", "person", id="rejected"),
        pytest.param(
            at("Keeping"), scene(carries=False), "abandoned", "no plan with it", id="spec changed while it was kept"
        ),
        pytest.param(
            at("Watching"), scene(carries=False), "abandoned", "no plan with it", id="spec changed while watched"
        ),
        pytest.param(at("Reverting"), scene(carries=False), "reverted", "", id="taken back"),
    ],
)
def test_what_ends_it(experiment: Experiment, seen: Scene, outcome: str, why: str) -> None:
    following = step(experiment, seen, TIMING)
    assert following.experiment is None
    assert following.past is not None
    assert following.past.outcome == outcome
    assert why in following.past.why


@pytest.mark.parametrize(
    ("experiment", "seen", "phase"),
    [
        pytest.param(at("Starting"), scene(canary=LOADING), "Starting", id="loads"),
        pytest.param(
            at("Measuring"), scene(pairs=windows(QUICK, 24)), "Measuring", id="one window is missing: no look"
        ),
        pytest.param(at("Watching"), scene(carries=True, worse="svc-1 has ended"), "Reverting", id="worse when kept"),
        pytest.param(at("Keeping"), scene(carries=True, worse="svc-1 has ended"), "Reverting", id="new pods crash"),
        pytest.param(at("Watching"), scene(carries=True, wish="revert"), "Reverting", id="a person"),
        pytest.param(at("Reverting"), scene(carries=True), "Reverting", id="still rolling"),
        pytest.param(at("Reverting"), scene(carries=False, rolled_out=False), "Reverting", id="not back yet"),
    ],
)
def test_how_it_goes_on(experiment: Experiment, seen: Scene, phase: str) -> None:
    following = step(experiment, seen, TIMING)
    assert following.experiment is not None
    assert following.experiment.phase == phase


GATED = replace(TRIED, setting="KVCacheDtype", flag="--kv-cache-dtype", before="auto", after="fp8")
PASSED, FAILED = GateSeen("passed", "score 0.99"), GateSeen("failed", "score 0.5")


def gated(phase: Phase) -> Experiment:
    return replace(begin(GATED, "svc-a", 0.0), phase=phase)


@pytest.mark.parametrize(
    ("experiment", "seen", "phase"),
    [
        pytest.param(gated("Starting"), scene(), "Gating", id="both are ready"),
        pytest.param(gated("Starting"), scene(canary=LOADING), "Starting", id="one loads"),
        pytest.param(gated("Starting"), scene(gate=PASSED, canary=LOADING), "Starting", id="no result counts yet"),
        pytest.param(gated("Gating"), scene(), "Gating", id="no result yet"),
        pytest.param(gated("Gating"), scene(gate=PASSED), "Warming", id="passed"),
        pytest.param(gated("Gating"), scene(gate=PASSED, control=LOADING), "Gating", id="passed, and one is gone"),
        pytest.param(
            replace(gated("Warming"), gate="score 1"),
            scene(500, gate=FAILED),
            "Measuring",
            id="it stays passed",
        ),
    ],
)
def test_how_a_gate_is_passed(experiment: Experiment, seen: Scene, phase: str) -> None:
    following = step(experiment, seen, TIMING).experiment
    assert following is not None
    assert following.phase == phase
    assert following.behind_gate == (phase in ("Starting", "Gating"))


@pytest.mark.parametrize(
    ("seen", "outcome", "why"),
    [
        pytest.param(scene(gate=FAILED), "rolled back", "score 0.5", id="failed"),
        pytest.param(scene(1801, gate=GateSeen("running", "no image")), "rolled back", "no image", id="too late"),
        pytest.param(scene(1801, gate=PASSED, canary=LOADING), "rolled back", "two ready pods", id="no pods"),
        pytest.param(scene(gate=PASSED, wish="reject"), "rejected", "person", id="a person"),
        pytest.param(scene(gate=PASSED, stop="held"), "abandoned", "held", id="held"),
        pytest.param(scene(gate=PASSED, base="svc-b"), "abandoned", "runs no more", id="spec changed"),
        pytest.param(scene(gate=PASSED, canary=TrialPod(True, "OOM")), "rolled back", "OOM", id="it failed meanwhile"),
    ],
)
def test_what_ends_a_gate(seen: Scene, outcome: str, why: str) -> None:
    past = step(gated("Gating"), seen, TIMING).past
    assert past is not None
    assert past.outcome == outcome
    assert why in past.why


@pytest.mark.parametrize(("began", "judged", "late"), [(False, False, False), (True, False, True), (False, True, True)])
def test_a_target_that_the_old_flags_missed_is_not_held_against_the_new_ones(
    began: bool, judged: bool, late: bool
) -> None:
    experiment = at("Measuring", late_before=began)
    kept = step(experiment, scene(pairs=windows(QUICK), late=judged), TIMING).experiment
    assert kept is not None
    assert (kept.phase, kept.late_before) == ("Keeping", late)


def test_a_phase_alone_lets_nobody_in() -> None:
    """Whatever a status says: pods are let in by what their gate found."""
    assert gated("Measuring").behind_gate
    assert not replace(gated("Measuring"), gate="score 1").behind_gate
    assert not at("Measuring").behind_gate


def test_what_a_gate_found_is_said_when_the_change_is_kept() -> None:
    passed = step(gated("Gating"), scene(gate=PASSED), TIMING).experiment
    assert passed is not None
    again = read_record(Record(passed).written()).experiment
    assert again == passed
    measured = replace(passed, phase="Measuring")
    kept = step(measured, scene(2000, pairs=windows(QUICK)), TIMING).experiment
    assert kept is not None
    assert kept.verdict.endswith("quality gate: score 0.99")


def test_what_is_stored_is_read_back() -> None:
    past = tuple(Past(60.0 * n, "--max-num-seqs", "16", "32", "inconclusive", "chance", "b") for n in range(12))
    for phase in get_args(Phase):
        experiment = at(phase, 120.0, verdict="better", late_before=True)
        record = Record(experiment, past[-MOST_PAST:], "approve 1")
        assert read_record(record.written()) == record
    assert len(Record(None, past).written()["past"]) == MOST_PAST


@pytest.mark.parametrize("broken", [{"phase": "Dreaming"}, {"since": "yesterday"}, {"aim": "luck"}, {"flag": None}])
def test_what_cannot_be_read_is_no_experiment(broken: dict[str, Any]) -> None:
    stored = Record(at("Measuring")).written()["experiment"] | broken
    stored = {key: value for key, value in stored.items() if value is not None}
    assert read_record({"experiment": stored, "past": [{"time": "x"}]}) == Record()


def test_windows_are_asked_for_when_they_are_over_and_scraped() -> None:
    measuring = at("Measuring", 1000.0)
    assert [windows_due(measuring, 1000.0 + s, TIMING) for s in (0, 60, 89, 91, 150, 9999)] == [0, 0, 0, 1, 2, 25]
    assert due_seconds(measuring, 1091.0, TIMING) == pytest.approx(59.0)


def test_one_an_hour_and_four_a_day() -> None:
    assert not over_budget([], 0.0, TIMING)
    assert "60 minutes" in over_budget([0.0], 3599.0, TIMING)
    assert not over_budget([0.0], 3601.0, TIMING)
    assert "4 experiments" in over_budget([0, 4000, 8000, 12000], 20_000.0, TIMING)
    assert not over_budget([0, 4000, 8000, 12000], 86_500.0, TIMING)
