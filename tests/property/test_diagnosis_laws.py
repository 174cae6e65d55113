"""Laws of what is said of a fleet: missing is not zero, whatever else is seen."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core.diagnose import diagnose
from plimsoll.core.evidence import Case
from plimsoll.core.latencies import Targets, judge
from plimsoll.core.scale import History, Limits, State, decide
from plimsoll.core.signals import MISSING, NEEDED, FleetView, NotANumber, PodView, Reading, Sample, Signal, Stale
from tests.unit.core.fleets import CAPACITY

SHARES = (Signal.USAGE, Signal.USAGE_PEAK, Signal.HIT_RATIO)
UNKNOWN: st.SearchStrategy[Reading] = st.sampled_from([MISSING, NotANumber("nan"), Stale(600.0)])
CALM = ("Idle", "OverProvisioned", "Healthy")


def _sample(signal: Signal) -> st.SearchStrategy[Reading]:
    most = 1.0 if signal in SHARES else 200.0
    return st.one_of(st.just(0.0), st.floats(0, most)).map(Sample)


ENGINES = st.fixed_dictionaries({signal: _sample(signal) for signal in Signal})
STATES = st.sampled_from(["ready", "ready", "ready", "loading", "failing"])
PODS = st.lists(st.tuples(STATES, ENGINES), min_size=1, max_size=5).map(
    lambda found: tuple(
        PodView(f"p{i}", state, math.inf, {"0": engine} if state == "ready" else {})  # type: ignore[arg-type]
        for i, (state, engine) in enumerate(found)
    )
)
CASES = PODS.map(lambda pods: Case(FleetView(pods), CAPACITY, Targets(2.0, 0.05)))


def _spoiled(case: Case, pod: int, signal: Signal, reading: Reading) -> Case | None:
    """The case with one reading of one ready pod unknown."""
    pods = list(case.view.pods)
    ready = [i for i, each in enumerate(pods) if each.state == "ready"]
    if not ready:
        return None
    index = ready[pod % len(ready)]
    pods[index] = replace(pods[index], engines={"0": {**pods[index].engines["0"], signal: reading}})
    return replace(case, view=FleetView(tuple(pods)))


SPOILS = st.tuples(st.integers(0, 4), st.sampled_from(NEEDED), UNKNOWN)


@given(CASES, st.lists(SPOILS, min_size=1, max_size=4))
def test_what_is_not_known_is_never_calm(case: Case, spoils: list[tuple[int, Signal, Reading]]) -> None:
    for spoil in spoils:
        spoiled = _spoiled(case, *spoil)
        if spoiled is None:
            return
        case = spoiled
    assert diagnose(case).word not in CALM


@given(CASES, st.booleans())
def test_nor_is_a_fleet_of_which_the_backend_says_little(case: Case, partial: bool) -> None:
    view = replace(case.view, partial="a store is away") if partial else replace(case.view, error="down")
    assert diagnose(replace(case, view=view)).word not in CALM


@given(CASES, SPOILS)
def test_missing_data_makes_no_latency_met(case: Case, spoil: tuple[int, Signal, Reading]) -> None:
    """Losing a latency of an engine that serves can make the verdict unknown or leave it; it never makes it good."""
    pod, _, reading = spoil
    spoiled = _spoiled(case, pod, Signal.TTFT, reading)
    if spoiled is not None and judge(case.view, case.targets).status == "False":
        assert judge(spoiled.view, spoiled.targets).status != "True"


@given(CASES, st.lists(SPOILS, min_size=1, max_size=4), st.integers(1, 8))
def test_what_is_not_known_never_shrinks_a_fleet(
    case: Case, spoils: list[tuple[int, Signal, Reading]], replicas: int
) -> None:
    """Whatever was seen before: a long quiet history, and then one reading that is not there."""
    for spoil in spoils:
        spoiled = _spoiled(case, *spoil)
        if spoiled is None:
            return
        case = spoiled
    history = History(began_seconds=0.0)
    history.note(9_990.0, 0.1, 600.0)
    decision = decide(CAPACITY, case.view, State(replicas), Limits(1, 8), history, 10_000.0)
    assert decision.replicas >= replicas
