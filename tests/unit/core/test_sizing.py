"""Who sets the count, and from where it goes on: rows that read as sentences."""

from typing import Any

import pytest

from plimsoll.core import ledger, sizing
from plimsoll.core.ledger import SCALE, Entry
from plimsoll.core.sizing import Known, start_asked, start_auto, start_yielded

AT = "2026-11-30T10:00:00Z"
AT_SECONDS = ledger.seconds_of({"time": AT}) or 0.0
WINDOW = 600.0


def recorded(reason: str, to: int, at: str = AT) -> dict[str, Any]:
    return {"time": at, "kind": SCALE, "reason": reason, "to": str(to)}


@pytest.mark.parametrize(
    ("known", "replicas", "reason"),
    [
        pytest.param(Known(3), 3, sizing.PLANNED, id="a new fleet starts as planned"),
        pytest.param(
            Known(1, live=4, recorded=recorded(sizing.MORE_DEMAND, 4)), 4, None, id="a restart keeps what runs"
        ),
        pytest.param(Known(5, live=2, recorded=recorded(sizing.LESS_DEMAND, 2)), 2, None, id="never back to the plan"),
        pytest.param(
            Known(1, live=9, ours=False, recorded=recorded(sizing.MORE_DEMAND, 4)),
            4,
            None,
            id="edited while we were away",
        ),
        pytest.param(Known(1, live=9, ours=False, remembered=4), 4, None, id="edited while we watched"),
        pytest.param(Known(1, remembered=4), 4, None, id="the workload was deleted"),
        pytest.param(Known(1, recorded=recorded(sizing.MORE_DEMAND, 4)), 4, None, id="deleted while we were away"),
        pytest.param(Known(1, live=4), 4, sizing.TAKEN_OVER, id="a fleet without a history is taken as it is"),
        pytest.param(Known(3, live=1, ours=False), 3, sizing.TAKEN_OVER, id="one that was made a moment ago"),
        pytest.param(Known(3, live=1), 1, sizing.TAKEN_OVER, id="a count that we set ourselves is no default"),
        pytest.param(
            Known(3, live=1, ours=False, recorded=recorded(sizing.HANDED_OVER, 2)),
            1,
            sizing.TAKEN_OVER,
            id="a count that somebody is known to have set",
        ),
        pytest.param(
            Known(1, live=6, recorded=recorded(sizing.HANDED_OVER, 2)), 6, sizing.TAKEN_OVER, id="from External to Auto"
        ),
        pytest.param(
            Known(1, live=6, ours=False, recorded=recorded(sizing.YIELDED, 2)),
            6,
            sizing.TAKEN_OVER,
            id="the HPA is gone",
        ),
    ],
)
def test_autoscaling_goes_on_from_what_runs(known: Known, replicas: int, reason: str | None) -> None:
    start = start_auto(known)
    assert start.replicas == replicas
    assert (start.entry.reason if start.entry else None) == reason


@pytest.mark.parametrize(
    ("known", "asked", "mode", "later", "replicas", "handed_over"),
    [
        pytest.param(Known(1, live=2), 5, "External", 0, 5, False, id="what the HPA asks for"),
        pytest.param(
            Known(1, live=4, recorded=recorded(sizing.MORE_DEMAND, 4)),
            1,
            "Fixed",
            0,
            4,
            True,
            id="leaving Auto drops nothing",
        ),
        pytest.param(
            Known(1, live=4, recorded=recorded(sizing.MORE_DEMAND, 4)),
            6,
            "External",
            0,
            6,
            True,
            id="more is given at once",
        ),
        pytest.param(
            Known(1, live=4, recorded=recorded(sizing.HANDED_OVER, 4)),
            1,
            "External",
            599,
            4,
            False,
            id="within the window",
        ),
        pytest.param(
            Known(1, live=4, recorded=recorded(sizing.HANDED_OVER, 4)),
            1,
            "External",
            600,
            1,
            False,
            id="after the window",
        ),
        pytest.param(
            Known(1, live=4, recorded=recorded(sizing.MORE_DEMAND, 4)), 0, "Fixed", 0, 0, True, id="an explicit park"
        ),
        pytest.param(
            Known(1, live=4, recorded=recorded(sizing.MORE_DEMAND, 4)),
            0,
            "External",
            0,
            4,
            True,
            id="KEDA finds nothing yet",
        ),
        pytest.param(
            Known(1, live=7, recorded=recorded(sizing.YIELDED, 2)),
            1,
            "Fixed",
            0,
            7,
            True,
            id="an HPA on the Deployment goes",
        ),
    ],
)
def test_leaving_auto_keeps_the_count_for_a_window(
    known: Known, asked: int, mode: str, later: float, replicas: int, handed_over: bool
) -> None:
    start = start_asked(known, asked, mode, AT_SECONDS + later, WINDOW)
    assert start.replicas == replicas
    assert (start.entry is not None and start.entry.reason == sizing.HANDED_OVER) == handed_over


def test_a_yield_is_told_once_and_moves_nothing() -> None:
    first = start_yielded(Known(1, live=3), "HorizontalPodAutoscaler h")
    assert first.replicas == 3
    assert first.entry is not None
    again = start_yielded(Known(1, live=5, recorded=recorded(sizing.YIELDED, 3)), "HorizontalPodAutoscaler h")
    assert (again.replicas, again.entry) == (5, None)


def test_the_last_ten_decisions_are_kept_in_their_order() -> None:
    kept: list[dict[str, Any]] = []
    for number in range(14):
        kept = ledger.added(kept, [Entry(SCALE, "MoreDemand", "m" * 2000, str(number), str(number + 1))], AT)
    assert [entry["to"] for entry in kept] == [str(n) for n in range(5, 15)]
    assert len(str(kept)) < 8000
    assert (ledger.last(kept, SCALE) or {})["to"] == "14"
    assert ledger.last(kept, "Retune") is None


def test_who_set_the_count_last_is_kept_however_much_is_tried_since() -> None:
    kept = ledger.added([], [Entry(SCALE, "MoreDemand", "m", "1", str(n)) for n in range(2, 5)], AT)
    for number in range(20):
        kept = ledger.added(kept, [Entry("Retune", "Trying", "m", "--a 1", f"--a {number}")], AT)
    assert len(kept) == 10
    assert kept[0] == ledger.last(kept, SCALE)
    assert kept[0]["to"] == "4"
    assert [entry["to"] for entry in kept[1:]] == [f"--a {n}" for n in range(11, 20)]
