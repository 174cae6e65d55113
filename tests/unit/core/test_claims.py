"""Who acts on a service when several installs could, and when another install counts as gone."""

from typing import Any

import pytest

from plimsoll.core.claims import (
    GONE_SECONDS,
    UNANSWERED_SECONDS,
    Standing,
    lease_name,
    looked_at,
    standing,
    unanswered,
)
from plimsoll.core.election import Term

ME, OTHER = "plimsoll-system/plimsoll", "team/plimsoll-1a2b3c4d"


def _service(claim: str = "", operator_class: str | None = None, generation: int = 1, observed: int = 1) -> Any:
    spec = {} if operator_class is None else {"className": operator_class}
    status = {"observedGeneration": observed} | ({"servedBy": claim} if claim else {})
    return {"metadata": {"generation": generation}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("service", "ours", "rival_gone", "is_"),
    [
        pytest.param(_service(), "", False, Standing.SERVE, id="nobody's yet"),
        pytest.param(_service(ME), "", False, Standing.SERVE, id="ours"),
        pytest.param(_service(OTHER), "", False, Standing.YIELD, id="another install was first"),
        pytest.param(_service(OTHER), "", True, Standing.CLAIM, id="and is gone"),
        pytest.param(_service(ME, "blue"), "", False, Standing.RELEASE, id="it has got another class"),
        pytest.param(_service("", "blue"), "", False, Standing.IGNORE, id="of another class, let go"),
        pytest.param(_service(OTHER, "blue"), "", True, Standing.IGNORE, id="of another class, whoever is gone"),
        pytest.param(_service(OTHER, "blue"), "blue", False, Standing.YIELD, id="ours now, not let go yet"),
        pytest.param(_service("", "blue"), "blue", False, Standing.SERVE, id="ours now, and let go"),
        pytest.param(_service(), "blue", False, Standing.IGNORE, id="without a class it is not blue's"),
        pytest.param({"metadata": {}, "spec": {"className": ""}}, "", False, Standing.SERVE, id="'' is none"),
    ],
)
def test_class_and_claim_decide(service: Any, ours: str, rival_gone: bool, is_: Standing) -> None:
    assert standing(service, ours, ME, rival_gone) is is_


def test_a_lease_is_named_after_class_and_scope() -> None:
    assert lease_name("", ()) == "plimsoll"
    assert lease_name("blue", ()) == "plimsoll-blue"
    scoped = lease_name("", ("a", "b"))
    assert scoped.startswith("plimsoll-")
    assert scoped == lease_name("", ("b", "a", "b")), "the order of a list is no difference"
    assert len({scoped, lease_name("", ("a",)), lease_name("blue", ("a", "b"))}) == 3
    assert len(lease_name("c" * 40, ("a",))) <= 63


def _term(holder: str, renewed: str) -> Term:
    return Term(holder, 15, "", renewed)


def test_an_install_is_gone_only_after_a_silence_that_we_saw() -> None:
    life = looked_at(None, _term("x", "old"), 1000)
    assert not life.gone(1000), "a first look proves nothing, however old its times look"
    life = looked_at(life, _term("x", "newer"), 1020)
    assert not life.gone(1049)
    assert life.gone(1020 + GONE_SECONDS)


@pytest.mark.parametrize(
    "term", [pytest.param(None, id="deleted with its release"), pytest.param(_term("", "x"), id="given back")]
)
def test_a_lease_that_nobody_holds_is_no_life_and_a_restart_is_no_end(term: Term | None) -> None:
    life = looked_at(looked_at(None, _term("x", "1"), 0), term, 5)
    assert not life.gone(10)
    assert looked_at(life, term, GONE_SECONDS).gone(GONE_SECONDS)
    assert not looked_at(life, _term("y", "2"), 20).gone(GONE_SECONDS)


def test_who_answers_no_change_for_a_minute_is_not_acting() -> None:
    waiting = unanswered(None, _service(OTHER, generation=2, observed=1), 100)
    assert waiting is not None
    assert not waiting.given_up(159)
    again = unanswered(waiting, _service(OTHER, generation=3, observed=1), 100 + UNANSWERED_SECONDS)
    assert again is not None
    assert again.given_up(100 + UNANSWERED_SECONDS), "a further change does not start the wait anew"
    assert unanswered(again, _service(OTHER, generation=3, observed=3), 200) is None
