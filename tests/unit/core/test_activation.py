"""Queries that wake sleeping services: what the owner may write, and how answers are joined."""

import math
from typing import Any

import pytest

from plimsoll.core.activation import ActivationError, Idle, Template, asleep, awake, joined, quiet, read_templates
from plimsoll.core.scale import Decision
from plimsoll.core.signals import FleetView, PodView, Sample, Signal


@pytest.mark.parametrize(
    ("written", "expect"),
    [
        pytest.param(None, {}, id="an empty file"),
        pytest.param({"gateway": "up"}, {"gateway": Template("up")}, id="a bare query"),
        pytest.param(
            {"gw": {"query": "up", "serviceLabel": "model"}},
            {"gw": Template("up", "namespace", "model")},
            id="own labels",
        ),
    ],
)
def test_templates_are_read(written: Any, expect: dict[str, Template]) -> None:
    assert read_templates(written) == expect


@pytest.mark.parametrize(
    ("written", "says"),
    [
        pytest.param(["up"], "must map names", id="a list"),
        pytest.param({"Gateway!": "up"}, "'Gateway!' is not a name", id="a bad name"),
        pytest.param({"gw": 3}, "gw: 3", id="a number"),
        pytest.param({"gw": {}}, "gw.query", id="no query"),
        pytest.param({"gw": {"query": " "}}, "gw.query", id="an empty query"),
        pytest.param({"gw": {"query": "up", "label": "x"}}, "gw.label: unknown", id="an unknown key"),
        pytest.param({"gw": {"query": "up", "serviceLabel": 1}}, "gw.serviceLabel", id="a label that is no text"),
    ],
)
def test_what_cannot_be_used_is_named(written: Any, says: str) -> None:
    with pytest.raises(ActivationError, match=says):
        read_templates(written)


def test_answers_are_joined_by_their_labels_and_nothing_is_made_up() -> None:
    series = [
        ({"namespace": "a", "service": "x"}, 2.0),
        ({"namespace": "a", "service": "x"}, 5.0),
        ({"namespace": "a", "service": "y"}, math.nan),
        ({"namespace": "a"}, 7.0),
        ({"namespace": "b", "service": "x"}, 0.0),
    ]
    assert joined(series, Template("q")) == {("a", "x"): 5.0, ("b", "x"): 0.0}


def test_names_have_at_most_63_characters() -> None:
    assert read_templates({"a" * 63: "up"})
    with pytest.raises(ActivationError, match="at most 63"):
        read_templates({"a" * 64: "up"})


def _fleet(**figures: float) -> FleetView:
    known = {"USAGE": 0.0, "RUNNING": 0.0, "WAITING": 0.0, "PREEMPTIONS": 0.0, "REQUESTS": 0.0} | figures
    every = {signal: Sample(0.0) for signal in Signal} | {Signal[name]: Sample(value) for name, value in known.items()}
    return FleetView((PodView("p", "ready", engines={"0": every}),))


@pytest.mark.parametrize(
    ("view", "requests", "is_quiet"),
    [
        (_fleet(), 0.0, True),
        (_fleet(), 1.0, False),
        (_fleet(), None, False),
        (_fleet(RUNNING=1.0), 0.0, False),
        (_fleet(WAITING=1.0), 0.0, False),
        (FleetView((PodView("p", "ready"),)), 0.0, False),
    ],
)
def test_quiet_is_what_is_certain(view: FleetView, requests: float | None, is_quiet: bool) -> None:
    assert quiet(view, requests) is is_quiet


def test_quiet_lasts_while_it_is_seen() -> None:
    idle = Idle()
    for now in (0.0, 60.0, 120.0):
        idle.note(now, 60.0, is_quiet=True)
    assert idle.lasts(120.0, 120.0)
    assert not idle.lasts(119.0, 120.0)
    idle.note(181.0, 60.0, is_quiet=True)
    assert not idle.lasts(181.0, 120.0), "a minute and a second that nobody saw"
    idle.note(200.0, 60.0, is_quiet=False)
    assert not idle.lasts(1e9, 0.0)


@pytest.mark.parametrize("requests", [None, 0.0])
def test_nobody_waits_nobody_wakes(requests: float | None) -> None:
    assert awake(requests) == Decision.hold(0, "asleep until a request waits at the gateway", wanted=0)


def test_whoever_waits_wakes_one_and_who_was_idle_for_long_sleeps() -> None:
    assert awake(7.0) == Decision(1, "7 requests wait at the gateway", wanted=1)
    idle = Idle(since_seconds=0.0, seen_seconds=600.0)
    assert asleep(idle, 599.0, 600.0) is None
    assert asleep(idle, 600.0, 600.0) == Decision(0, "no request for 600 s", wanted=0)
