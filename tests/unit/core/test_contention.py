"""Putting back what others change: at once for a person, ever more seldom for whoever insists."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core import contention
from plimsoll.core.contention import BURST, History, contest
from plimsoll.core.managers import Setter

IMAGE = ("spec", "template", "spec", "containers", "[vllm]", "image")
LABEL = ("metadata", "labels", "team")


def _fight(seconds: float, every: float = 0.1) -> list[float]:
    """When we write while somebody undoes each write after so many seconds."""
    now, writes, history = 0.0, [0.0], contention.wrote(None, "a", (), 0.0)
    while now < seconds:
        now += every
        if contention.wait_seconds(history, "a", [IMAGE], now) <= 0:
            history = contention.wrote(history, "a", [IMAGE], now)
            writes.append(now)
    return writes


def test_a_person_who_tries_things_out_is_answered_at_once() -> None:
    history = contention.wrote(None, "a", (), 0.0)
    for n in range(1, BURST + 1):
        assert contention.wait_seconds(history, "a", [IMAGE], 10.0 * n) == 0
        history = contention.wrote(history, "a", [IMAGE], 10.0 * n)
    assert not contention.contested(contention.wrote(None, "a", (), 0.0), 0.0)


def test_whoever_insists_is_answered_ever_more_seldom() -> None:
    writes = _fight(14 * 60)
    gaps = [b - a for a, b in pairwise(writes)]
    assert len(writes) <= 16  # the report of F05 counts 41 resets in this time
    assert all(gap >= 1 for gap in gaps)
    assert gaps[BURST:] == sorted(gaps[BURST:])


def test_in_the_long_run_it_is_one_write_a_sweep() -> None:
    writes = _fight(4 * 3600, every=1.0)
    last_hour = [w for w in writes if w > 3 * 3600]
    assert len(last_hour) <= 6


@given(st.lists(st.floats(0.05, 1200), min_size=1, max_size=60))
def test_tries_of_one_object_are_never_closer_than_a_second(steps: list[float]) -> None:
    now, last, history = 0.0, 0.0, contention.wrote(None, "a", (), 0.0)
    for step in steps:
        now += step
        if contention.wait_seconds(history, "a", [IMAGE], now) <= 0:
            assert now - last >= 1
            history, last = contention.wrote(history, "a", [IMAGE], now), now


def test_a_change_of_our_own_intent_never_waits() -> None:
    history = History("a", written_seconds=100.0, repairs=40, paths=frozenset([IMAGE]))
    assert contention.wait_seconds(history, "a", [IMAGE], 101.0) > 500
    assert contention.wait_seconds(history, "b", [IMAGE], 101.0) == 0
    assert contention.wrote(history, "b", (), 101.0).repairs == 0


def test_an_edit_of_another_field_is_repaired_while_one_is_contested() -> None:
    history = History("a", written_seconds=100.0, repairs=40, paths=frozenset([IMAGE]))
    assert contention.wait_seconds(history, "a", [IMAGE, LABEL], 102.0) == 0


def test_an_old_quarrel_is_forgotten() -> None:
    history = History("a", written_seconds=0.0, repairs=40, paths=frozenset([IMAGE]))
    assert contention.wait_seconds(history, "a", [IMAGE], 1000.0) == 0
    assert contention.wrote(history, "a", [IMAGE], 1000.0).repairs == 1


def test_a_contest_is_over_a_while_after_the_last_difference() -> None:
    history = History("a", written_seconds=0.0, repairs=BURST, differed_seconds=100.0)
    assert contention.contested(history, 400.0)
    assert not contention.contested(history, 401.0)


def test_who_overrules_our_own_write_is_told_at_once() -> None:
    history = contention.overruled(contention.wrote(None, "a", (), 10.0), [IMAGE], 10.0)
    assert contention.contested(history, 10.0)
    assert contention.wait_seconds(history, "a", [IMAGE], 12.0) == 3


@pytest.mark.parametrize(
    ("what", "path", "by", "reason", "says", "fleet_differs"),
    [
        pytest.param(
            "Deployment llm/svc",
            IMAGE,
            Setter("manager", ("argocd-controller",)),
            "FieldContested",
            "argocd-controller keeps changing spec.template.spec.containers[vllm].image",
            True,
            id="another applier sets the image",
        ),
        pytest.param(
            "Service llm/svc",
            LABEL,
            Setter("manager", ("a", "b")),
            "FieldContested",
            "a, b keeps changing metadata.labels.team",
            False,
            id="two others set a label",
        ),
        pytest.param(
            "Deployment llm/svc",
            IMAGE,
            Setter("admission"),
            "ChangedByAdmission",
            "an admission webhook or policy gives spec.template",
            False,
            id="a policy mirrors images",
        ),
        pytest.param(
            "Service llm/svc",
            contention.WHOLE,
            Setter("nobody"),
            "KeepsBeingRemoved",
            "somebody keeps removing Service llm/svc,",
            False,
            id="somebody deletes the Service",
        ),
    ],
)
def test_a_contest_names_object_field_and_manager(
    what: str, path: tuple[str, ...], by: Setter, reason: str, says: str, fleet_differs: bool
) -> None:
    told = contest(what, path, 0, by)
    assert told.problem.reason == reason
    assert says in told.problem.message
    assert told.fleet_differs == fleet_differs
