"""fp8 that a quality gate has let in stays for the engine and the GPU that it judged, and for no others."""

from dataclasses import replace
from typing import Any

from plimsoll.control.experiments import Experiments
from plimsoll.core import rollout, tuned
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.plan.correction import Correction
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.request import Request
from tests.unit.control.test_advisor import plan_of, request_of

FP8 = {"--kv-cache-dtype": "fp8"}


class Planner:
    async def plan(self, request: Request, _correction: Correction) -> Plan | Refusal:
        return plan_of(request.spec)


def kept(version: str | None = None) -> Revision:
    """A revision that was made with fp8, by an engine of this version."""
    request = tuned.with_flags(request_of(), FP8)
    plan = plan_of(request.spec)
    assert isinstance(plan, Plan)
    made = rollout.render(request, plan, 1)
    choice = {**made.plan["choice"], **({"engineVersion": version} if version else {})}
    return replace(made, plan={**made.plan, "choice": choice})


async def flags(request: Request, revision: Revision) -> Any:
    experiments = Experiments(None, {}, Planner(), None, None, None, lambda: 0.0)  # type: ignore[arg-type]
    return (await experiments.tuned({}, request, [revision])).tuned


LABELLED = request_of(podTemplate={"metadata": {"labels": {"team": "a"}}})


async def test_another_request_of_the_same_engine_keeps_it() -> None:
    assert await flags(LABELLED, kept()) == FP8


async def test_another_engine_version_has_to_be_judged_again() -> None:
    assert await flags(LABELLED, kept("0.28.0")) == {}


async def test_a_plan_that_runs_is_left_alone() -> None:
    assert await flags(request_of(), kept("0.28.0")) == FP8
