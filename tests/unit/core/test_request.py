"""A spec that another release's CRD let pass is refused by field, not by a traceback."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api.parse import InvalidServiceError
from plimsoll.core.request import Request, read_request

META = {"name": "svc", "namespace": "llm", "uid": "u"}
SPEC: dict[str, Any] = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "NVIDIA-L40S"}, "contextTokens": 8192}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({**SPEC, "contextTokens": "8k"}, r"^spec\.contextTokens: '8k': must be a whole number", id="type"),
        pytest.param({}, r"^spec\.model: is required; spec\.hardware: is required", id="nothing there"),
        pytest.param(
            {**SPEC, "scaling": {"minReplicas": 9}}, r"^spec\.scaling\.minReplicas: 9: .*must not exceed", id="a rule"
        ),
        pytest.param({**SPEC, "hardware": {}}, r"^spec\.hardware: name one GPU product", id="a rule over a group"),
    ],
)
def test_an_invalid_spec_is_named_by_field(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidServiceError, match=says):
        read_request({"metadata": META, "spec": spec})


def test_what_a_newer_schema_adds_is_ignored() -> None:
    assert read_request({"metadata": META, "spec": {**SPEC, "colour": "red"}}).spec.context_tokens == 8192


def asked(scaling: dict[str, Any] | None = None, gpus: int = 8, **spec: Any) -> Request:
    hardware = {"gpu": "NVIDIA-L40S", "maxGPUs": gpus}
    return read_request({"metadata": META, "spec": {**SPEC, "hardware": hardware, "scaling": scaling or {}, **spec}})


def annotated(**annotations: str) -> Request:
    found = {f"plimsoll.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return read_request({"metadata": {**META, "annotations": found}, "spec": SPEC})


FIXED = {"mode": "Fixed"}


@pytest.mark.parametrize(
    ("service", "planned", "wanted", "most"),
    [
        pytest.param(asked(), 3, 3, 4, id="as many as were planned"),
        pytest.param(asked({"minReplicas": 3}), 1, 3, 4, id="the floor"),
        pytest.param(asked({"minReplicas": 1, "maxReplicas": 2}), 3, 2, 2, id="the limit"),
        pytest.param(asked({"maxReplicas": 9}, gpus=18), 30, 9, 9, id="the limit within the GPUs"),
        pytest.param(asked(gpus=5), 9, 2, 2, id="whole replicas of the GPUs"),
        pytest.param(asked(FIXED, replicas=3), 1, 3, 4, id="who sets the count himself"),
        pytest.param(asked({"mode": "External"}, replicas=9), 1, 4, 4, id="and no more than the GPUs"),
        pytest.param(asked(FIXED, replicas=0), 1, 0, 4, id="none, when none are asked"),
    ],
)
def test_how_many_replicas_of_two_gpus_are_begun_with(service: Request, planned: int, wanted: int, most: int) -> None:
    assert (service.wanted_replicas(2, planned), service.most_replicas(2)) == (wanted, most)


@pytest.mark.parametrize(
    ("scaling", "least"),
    [
        ({}, 1),
        ({"minReplicas": 0, "activation": {"query": "gateway"}}, 1),
        ({"minReplicas": 3}, 3),
        (FIXED, 1),
        ({"mode": "External"}, 1),
    ],
)
def test_what_a_plan_must_have_room_for(scaling: dict[str, Any], least: int) -> None:
    assert asked(scaling).minimum_replicas == least


@pytest.mark.parametrize(
    ("held", "because"),
    [
        pytest.param(annotated(hold="True "), "annotation plimsoll.dev/hold is set: observing only", id="held"),
        pytest.param(
            annotated(hold="no"), "annotation plimsoll.dev/hold: 'no' is neither true nor false", id="who knows"
        ),
        pytest.param(annotated(hold="false"), "", id="not held"),
        pytest.param(annotated(), "", id="nothing said"),
        pytest.param(asked(mode="Shadow"), "spec.mode is Shadow: deciding and recording only", id="Shadow"),
    ],
)
def test_why_nothing_is_written(held: Request, because: str) -> None:
    assert held.held_because.startswith(because)
    assert bool(held.held_because) is bool(because)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"scaling": {"minReplicas": 2}}, True, id="more replicas are the same pod"),
        pytest.param({"replicas": 3, "scaling": FIXED}, True, id="so is a fixed count"),
        pytest.param({"tuning": {"mode": "Off"}}, True, id="and what may be tuned"),
        pytest.param({"mode": "Shadow"}, True, id="and Shadow"),
        pytest.param({"contextTokens": 4096}, False, id="another context is another plan"),
        pytest.param({"engine": {"extraArgs": ["--enforce-eager"]}}, False, id="so is another flag"),
    ],
)
def test_the_fingerprint_is_of_what_a_pod_depends_on(change: dict[str, Any], same: bool) -> None:
    assert (asked(**change).fingerprint == asked().fingerprint) is same
    assert asked(**change).generation == 0


def test_a_restart_is_asked_for_once_and_stays_in_force() -> None:
    first, other, gone = annotated(restart="1"), annotated(restart="2"), annotated()
    assert len({first.fingerprint, other.fingerprint, gone.fingerprint}) == 3
    assert gone.lasting("1") == replace(first, restart="1")
    assert gone.lasting("") == gone
    assert other.lasting("1") == other


def test_what_an_experiment_found_is_not_the_users_own() -> None:
    written = asked(engine={"extraArgs": ["--a=1", "--max-num-seqs=32"]})
    assert written.own_engine.extra_args == ("--a=1", "--max-num-seqs=32")
    assert replace(written, tuned={"--max-num-seqs": "32"}).own_engine.extra_args == ("--a=1",)
