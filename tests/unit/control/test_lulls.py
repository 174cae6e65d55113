"""What stays as it is costs little, and what changes is followed at once."""

import pytest

from plimsoll.control.cache import Key
from plimsoll.control.lulls import RESTLESS_EVERY, SETTLED_TICKS, STEADY_TICKS, Lulls
from plimsoll.control.patience import LEAST_SECONDS, MOST_SECONDS, Patience
from plimsoll.core.pods import Phase, PodState
from plimsoll.core.sampling import Engine, Fault, Sampling
from plimsoll.core.signals import Reading, Sample, Signal, Stale

KEY = Key("llm", "docs")


def _pods(phase: Phase = "ready", uid: str = "u") -> dict[Key, tuple[PodState, ...]]:
    return {KEY: (PodState(phase, name="docs-1", uid=uid),)}


def _sampled(reading: Reading, **faults: Fault) -> Sampling:
    engine: Engine = {(Signal.RUNNING, 0): reading}
    return Sampling(1, 0.0, {("llm", "docs-1"): {"0": engine}}, faults=faults)


def _looks(lulls: Lulls, pods: dict[Key, tuple[PodState, ...]], taken: Sampling, ticks: int) -> int:
    return sum(bool(lulls.due(pods, taken)) for _ in range(ticks))


IDLE = _sampled(Sample(0.0))


@pytest.mark.parametrize("phase", ["ready", "loading", "pending"])
def test_a_service_that_shows_the_same_is_looked_at_ever_less(phase: Phase) -> None:
    lulls, pods = Lulls(restless=lambda _: False), _pods(phase)
    assert _looks(lulls, pods, IDLE, STEADY_TICKS) == STEADY_TICKS
    looked = [STEADY_TICKS + n for n in range(SETTLED_TICKS - STEADY_TICKS) if lulls.due(pods, IDLE)]
    assert looked == [8, 16, 32]
    assert _looks(lulls, pods, IDLE, 10 * SETTLED_TICKS) == 10


def test_where_time_alone_may_change_a_decision_looks_stay_frequent() -> None:
    lulls = Lulls(restless=lambda _: True)
    _looks(lulls, _pods(), IDLE, SETTLED_TICKS)
    assert _looks(lulls, _pods(), IDLE, 10 * RESTLESS_EVERY) == 10


def test_a_tick_that_is_passed_over_counts_and_one_that_is_looked_at_is_not_told_twice() -> None:
    again: list[tuple[Key, float]] = []
    lulls = Lulls(lambda _: False, lambda key, at: again.append((key, at)))
    due = [bool(lulls.due(_pods(), Sampling(n, 15.0 * n, IDLE.pods))) for n in range(2 * SETTLED_TICKS)]
    assert again == [(KEY, 15.0 * n) for n, looked in enumerate(due) if not looked]
    assert len(again) > SETTLED_TICKS


@pytest.mark.parametrize(
    ("pods", "taken"),
    [
        pytest.param(_pods(), _sampled(Sample(1.0)), id="a request"),
        pytest.param(_pods("failing"), IDLE, id="a pod that fails"),
        pytest.param(_pods(uid="other"), IDLE, id="another pod"),
        pytest.param(_pods(), Sampling(1, 0.0), id="its figures are gone"),
        pytest.param(_pods(), _sampled(Sample(0.0), now=Fault("auth", "no")), id="Prometheus refuses"),
        pytest.param(_pods(), _sampled(Stale(100.0)), id="stale figures"),
    ],
)
def test_a_change_is_followed_at_once(pods: dict[Key, tuple[PodState, ...]], taken: Sampling) -> None:
    lulls = Lulls()
    _looks(lulls, _pods(), IDLE, STEADY_TICKS + 1)
    assert lulls.due(pods, taken) == [KEY]
    assert _looks(lulls, pods, taken, STEADY_TICKS - 1) == STEADY_TICKS - 1


def test_that_a_figure_grows_older_is_no_change() -> None:
    lulls = Lulls()
    looks = [bool(lulls.due(_pods(), _sampled(Stale(float(age))))) for age in range(100)]
    assert sum(looks) < 50


def test_a_tick_that_was_passed_over_is_none_to_decide_on() -> None:
    """Else an event long after it, when Prometheus is gone, would find something new in it."""
    lulls = Lulls()
    moments = []
    for tick in range(STEADY_TICKS + 2 * RESTLESS_EVERY):
        lulls.due(_pods(), Sampling(tick, 15.0 * tick, IDLE.pods))
        moments.append(lulls.looked_seconds(KEY, 15.0 * tick))
    steady = STEADY_TICKS
    assert moments[:steady] == [15.0 * tick for tick in range(steady)]
    assert len(set(moments[steady:])) == 3
    assert lulls.looked_seconds(Key("llm", "other"), 7.0) == 7.0


def test_a_service_that_is_gone_is_forgotten() -> None:
    lulls = Lulls()
    _looks(lulls, _pods(), IDLE, STEADY_TICKS + 1)
    assert lulls.due({}, IDLE) == []
    assert _looks(lulls, _pods(), IDLE, STEADY_TICKS) == STEADY_TICKS


def test_pods_that_wait_are_looked_at_ever_less() -> None:
    patience, pods = Patience(), _pods("pending")[KEY]
    waits = [patience.seconds(KEY, pods, now) for now in (0.0, 10.0, 60.0, 200.0, 2000.0)]
    assert waits == [LEAST_SECONDS, LEAST_SECONDS, 60.0, 200.0, MOST_SECONDS]


def test_patience_begins_anew_when_something_changes() -> None:
    patience = Patience()
    patience.seconds(KEY, _pods("pending")[KEY], 0.0)
    assert patience.seconds(KEY, _pods("pending", "other")[KEY], 1000.0) == LEAST_SECONDS
    assert patience.seconds(KEY, _pods("ready")[KEY], 1001.0) is None
    assert patience.seconds(KEY, _pods("pending", "other")[KEY], 5000.0) == LEAST_SECONDS
    assert patience.seconds(KEY, _pods("pending", "other")[KEY], 10.0) == LEAST_SECONDS, "the clock was put back"
    patience.forget(KEY)
    assert patience.seconds(KEY, _pods("pending", "other")[KEY], 9000.0) == LEAST_SECONDS
