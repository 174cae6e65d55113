"""What a verb would write, from the service as the operator reports it."""

import dataclasses
from typing import Any

import pytest

from plimsoll.api import names
from plimsoll.cli.verbs import acceptance, verdict
from plimsoll.core.conditions import Facts, decide, merge
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.request import read_request
from plimsoll.core.rollout import choose_target, render

META = {"namespace": "llm", "name": "docs", "uid": "u", "generation": 1}
SPEC = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "NVIDIA-L40S"}, "contextTokens": 16384}


def service(*conditions: Any, **status: Any) -> dict[str, Any]:
    return {"metadata": META, "spec": SPEC, "status": {"conditions": list(conditions), **status}}


def offered() -> tuple[Revision, dict[str, Any]]:
    """A newer plan, and the service that offers it in the operator's own words."""
    request = read_request({"metadata": META, "spec": SPEC})
    plan = plan_service(request.spec, 1, bundled_config("Qwen/Qwen3-8B"))
    assert isinstance(plan, Plan)
    newer = dataclasses.replace(plan, choice=dataclasses.replace(plan.choice, args=(*plan.choice.args, "--new")))
    target = choose_target(request, newer, [render(request, plan, 1)])
    conditions = merge((), decide(Facts(update=target.update)), 1, "2026-01-01T00:00:00Z")
    return render(request, newer, 2), service(*conditions)


def test_the_revision_that_the_operator_offers_is_accepted() -> None:
    newer, there = offered()
    for asked in ("", newer.name):
        wish = acceptance(there, asked)
        assert (wish.annotation, wish.value, wish.refused) == (names.ANNOTATION_ACCEPT_PLAN, newer.name, 0)


def test_another_revision_than_the_one_offered_is_bad_input() -> None:
    newer, there = offered()
    wish = acceptance(there, "docs-0")
    assert wish.refused == 2
    assert wish.said == f"--revision: docs-0 is not what is offered; offered is {newer.name}"


def test_nothing_is_accepted_where_nothing_is_offered() -> None:
    up_to_date = {"type": names.PLAN_UPDATE_AVAILABLE, "status": "False", "message": "planning again gives the same"}
    infeasible = {"type": names.PLAN_UPDATE_AVAILABLE, "status": "True", "message": "planning again would refuse"}
    for there in (service(), service(up_to_date), service(infeasible), {"metadata": META}):
        assert acceptance(there, "").refused == 1


@pytest.mark.parametrize(
    ("word", "reason", "decisions", "refused"),
    [
        pytest.param("approve", "Proposed", [], 0, id="one that waits is approved"),
        pytest.param("approve", "NoExperiment", [], 1, id="none to approve"),
        pytest.param("reject", "Disabled", [], 1, id="tuning is off"),
        pytest.param("reject", None, [], 1, id="no condition at all"),
        pytest.param("revert", "NoExperiment", [{"kind": "Retune"}], 0, id="one that was kept is reverted"),
        pytest.param("revert", "NoExperiment", [{"kind": "Scale"}], 1, id="nothing was changed"),
    ],
)
def test_a_verdict_needs_an_experiment(word: str, reason: str | None, decisions: list[Any], refused: int) -> None:
    trial = [{"type": names.EXPERIMENTING, "status": "False", "reason": reason, "message": "m"}] if reason else []
    wish = verdict(service(*trial, decisions=decisions), word)
    assert wish.refused == refused
    assert wish.value == (None if refused else word)


def test_the_same_word_again_is_another_value() -> None:
    there = service({"type": names.EXPERIMENTING, "status": "False", "reason": "Proposed", "message": "m"})
    there = {**there, "metadata": {**there["metadata"], "annotations": {names.ANNOTATION_EXPERIMENT: "approve"}}}
    again = verdict(there, "approve").value
    assert again is not None
    assert again.startswith("approve 20")
    assert verdict(there, "reject").value == "reject"
