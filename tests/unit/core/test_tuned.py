"""Flags that experiments found: for whom they count, never over the user's own, and in the plan's arithmetic."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core import rollout
from plimsoll.core.manifests.revision import Revision, read_revision
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.demand import NOTHING_LEARNED, LearnedLoad
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.request import Request, read_request
from plimsoll.core.tuned import (
    OFF,
    ON,
    argument,
    as_planned,
    flags_of,
    kept_flags,
    pinned,
    with_flags,
    with_lessons,
    without_flags,
)

QWEN = "Qwen/Qwen3-8B"
FOUND = {"--max-num-seqs": "64"}


def request_of(annotations: dict[str, str] | None = None, **spec: Any) -> Request:
    base = {"model": {"id": QWEN}, "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 4}, "contextTokens": 8192}
    base["load"] = {"concurrency": 4, "promptTokens": 500, "outputTokens": 100}
    meta = {"name": "svc", "namespace": "llm", "uid": "u", "annotations": annotations or {}}
    return read_request({"metadata": meta, "spec": base | spec})


def revision_of(request: Request) -> Revision:
    plan = plan_service(request.spec, 1, bundled_config(QWEN))
    assert isinstance(plan, Plan)
    made = rollout.render(request, plan, 1)
    stored = read_revision(made.manifest(rollout.owner(request)))
    assert stored is not None
    return stored


def test_they_are_planned_with_and_kept_in_the_revision() -> None:
    request = request_of()
    tuned = revision_of(with_flags(request, FOUND))
    assert "--max-num-seqs=64" in tuned.plan["choice"]["args"]
    assert kept_flags(request, [replace(revision_of(request), number=0), tuned]) == FOUND
    assert flags_of(request, tuned) == FOUND
    assert not flags_of(request, revision_of(request))


def test_the_request_is_another_one_with_them_and_the_same_without() -> None:
    request = request_of()
    tuned = with_flags(request, FOUND)
    assert tuned.fingerprint != request.fingerprint
    assert without_flags(tuned) == request
    assert with_flags(request, {}) is request


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"contextTokens": 4096}, id="context"),
        pytest.param({"engine": {"version": "0.31.0"}}, id="engine"),
        pytest.param({"engine": {"extraArgs": ["--enforce-eager"]}}, id="arguments"),
        pytest.param({"hardware": {"gpu": "NVIDIA-H100-80GB-HBM3"}}, id="GPU"),
        pytest.param({"engine": {"extraArgs": ["--max-num-seqs=8"]}}, id="the user has set it"),
    ],
)
def test_they_end_with_what_they_were_found_for(changed: dict[str, Any]) -> None:
    assert not flags_of(request_of(**changed), revision_of(with_flags(request_of(), FOUND)))


@pytest.mark.parametrize(
    "changed", [{"slo": {"itl": "90ms"}}, {"scaling": {"minReplicas": 2}}, {"tuning": {"mode": "Off"}}]
)
def test_they_outlive_what_they_do_not_depend_on(changed: dict[str, Any]) -> None:
    assert flags_of(request_of(**changed), revision_of(with_flags(request_of(), FOUND))) == FOUND


def test_either_spelling_of_the_users_flag_is_the_users() -> None:
    assert pinned(request_of(engine={"extraArgs": ["--max_num_seqs", "8"]}), "--max-num-seqs")
    assert not pinned(with_flags(request_of(), FOUND), "--max-num-seqs")


LEARNED = LearnedLoad(concurrency=40)


@pytest.mark.parametrize(
    ("planned", "asked", "load"),
    [
        pytest.param(
            request_of(), request_of(), LEARNED, id="the running plan is compared with what would be planned now"
        ),
        pytest.param(request_of(), request_of(contextTokens=4096), LEARNED, id="another spec"),
        pytest.param(request_of(), with_flags(request_of(), FOUND), NOTHING_LEARNED, id="a flag that was found"),
        pytest.param(with_flags(request_of(), FOUND), request_of(), NOTHING_LEARNED, id="a flag that is taken back"),
        pytest.param(
            with_flags(request_of(), FOUND),
            with_flags(request_of(), {"--max-num-seqs": "128"}),
            NOTHING_LEARNED,
            id="another value",
        ),
        pytest.param(
            request_of(), with_flags(request_of(contextTokens=4096), FOUND), LEARNED, id="a flag and another spec"
        ),
    ],
)
def test_a_flag_of_an_experiment_brings_no_other_load_along(
    planned: Request, asked: Request, load: LearnedLoad
) -> None:
    kept = [revision_of(planned)]
    assert with_lessons(replace(asked, load=LEARNED), kept).load == load
    assert with_lessons(replace(asked, load=LEARNED), []).load == LEARNED


def test_a_revision_keeps_the_load_it_was_planned_for() -> None:
    made = revision_of(replace(request_of(), load=LEARNED))
    assert as_planned(request_of(), made).load == LEARNED
    assert as_planned(replace(request_of(), load=LEARNED), revision_of(request_of())).load == NOTHING_LEARNED


def test_a_revision_keeps_the_step_times_it_was_planned_with() -> None:
    made = revision_of(request_of())
    assert as_planned(request_of(), made).speeds == {}, "none: what pods teach meanwhile does not come along"
    slower = replace(made, plan={**made.plan, "stepFactor": 1.2})
    assert as_planned(request_of(), slower).speeds == {made.plan["stepKey"]: 1.2}
    assert as_planned(request_of(), replace(made, plan={"choice": {}})).speeds == {}, "a plan of an older release"


@pytest.mark.parametrize(("value", "written"), [(ON, "--enable-prefix-caching"), (OFF, "--no-enable-prefix-caching")])
def test_a_switch_is_one_of_its_two_names(value: str, written: str) -> None:
    found = {"--enable-prefix-caching": value}
    tuned = with_flags(request_of(), found)
    assert tuned.spec.engine.extra_args == (argument("--enable-prefix-caching", value),) == (written,)
    assert without_flags(tuned) == request_of()
    assert written in revision_of(tuned).plan["choice"]["args"]
    assert flags_of(request_of(), revision_of(tuned)) == found
    for own in ("--enable-prefix-caching", "--no-enable-prefix-caching", "--no_enable_prefix_caching"):
        assert pinned(request_of(engine={"extraArgs": [own]}), "--enable-prefix-caching")
