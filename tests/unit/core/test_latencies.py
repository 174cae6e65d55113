"""Whether users are served in time is said only when it is known of every engine that serves somebody."""

import pytest

from plimsoll.core.latencies import Targets, judge
from plimsoll.core.signals import FleetView, NotANumber, PodView, Stale
from tests.unit.core.fleets import busy, quiet

TARGETS = Targets(2.0, 0.05)


@pytest.mark.parametrize(
    ("pods", "targets", "status", "reason"),
    [
        pytest.param([busy()], TARGETS, "True", "TargetsMet", id="met"),
        pytest.param([busy(TTFT=3)], TARGETS, "False", "TTFTAboveTarget", id="first tokens late"),
        pytest.param([busy(ITL=0.06)], TARGETS, "False", "ITLAboveTarget", id="tokens late"),
        pytest.param([busy(TTFT=3, ITL=0.06)], TARGETS, "False", "TTFTAboveTarget", id="both late"),
        pytest.param([busy(TTFT=3)], Targets(itl_seconds=0.05), "True", "TargetsMet", id="only what has a target"),
        pytest.param([busy()], Targets(), "Unknown", "NoTargets", id="no targets"),
        pytest.param([quiet()], TARGETS, "Unknown", "NoRequests", id="nobody asks"),
        pytest.param([], TARGETS, "Unknown", "NothingServes", id="no pods"),
        pytest.param([PodView("a", "loading")], TARGETS, "Unknown", "NothingServes", id="loading"),
        pytest.param([busy(TTFT=None)], TARGETS, "Unknown", "NoObservation", id="TTFT missing"),
        pytest.param([busy(TTFT=NotANumber("inf"))], TARGETS, "Unknown", "NoObservation", id="beyond all buckets"),
        pytest.param([busy(ITL=Stale(700))], TARGETS, "Unknown", "NoObservation", id="ITL stale"),
        pytest.param([busy(TTFT=None, ITL=0.06)], TARGETS, "False", "ITLAboveTarget", id="late is late"),
        pytest.param([busy("a"), PodView("b", "ready")], TARGETS, "Unknown", "NoObservation", id="a pod is not seen"),
        pytest.param([busy("a"), quiet("b")], TARGETS, "True", "TargetsMet", id="an idle pod has no latency"),
        pytest.param(
            [busy("a", TTFT=3, GENERATION_TOKENS=10), busy("b", TTFT=1, GENERATION_TOKENS=1000)],
            TARGETS,
            "True",
            "TargetsMet",
            id="a slow engine that serves few",
        ),
        pytest.param(
            [busy("a"), busy("b", TTFT=None, GENERATION_TOKENS=0.5)],
            TARGETS,
            "Unknown",
            "NoObservation",
            id="one that serves little does not say",
        ),
        pytest.param([busy(GENERATION_TOKENS=0.5)], TARGETS, "True", "TargetsMet", id="little is served in time"),
        pytest.param(
            [busy("a"), quiet("b", TTFT=60, ITL=60)],
            TARGETS,
            "True",
            "TargetsMet",
            id="who serves nobody does not count",
        ),
        pytest.param([quiet(WAITING=1)], TARGETS, "Unknown", "NoObservation", id="one waits and nobody is served"),
        pytest.param([quiet(WAITING=5)], TARGETS, "Unknown", "NoObservation", id="they wait and nobody is served"),
    ],
)
def test_targets(pods: list[PodView], targets: Targets, status: str, reason: str) -> None:
    found = judge(FleetView(tuple(pods)), targets)
    assert (found.status, found.word) == (status, reason)


def test_a_backend_that_fails_makes_it_unknown_in_its_words() -> None:
    found = judge(FleetView((busy(),), error="Prometheus is away"), TARGETS)
    assert (found.status, found.message) == ("Unknown", "Prometheus is away")


def test_with_speculation_a_token_is_timed_by_requests() -> None:
    """An output of the engine is several tokens then."""
    view = FleetView((busy(ITL=0.09, TPOT=0.03),))
    assert judge(view, TARGETS).status == "False"
    assert judge(view, Targets(2.0, 0.05, speculative=True)).status == "True"


def test_from_a_second_on_a_time_is_told_in_seconds() -> None:
    message = judge(FleetView((busy(TTFT=1.0, ITL=0.999),)), Targets(1.0, 1.0)).message
    assert "time to first token is 1.0 s (target 1.0 s)" in message
    assert "inter-token latency is 999 ms" in message


def test_the_sentence_has_figures_and_targets() -> None:
    assert judge(FleetView((busy(),)), Targets(2.0, 0.05, percentile=90)).message == (
        "p90 of time to first token is 400 ms (target 2.0 s); p90 of inter-token latency is 30 ms (target 50 ms)"
    )
