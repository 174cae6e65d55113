"""An operator newer than its CRD names what is missing; one that is older than it finds nothing."""

import copy
from typing import Any

import pytest

from plimsoll.api.schema import resource_schema
from plimsoll.core.contract import complaint, missing_fields

OURS = resource_schema()


def _without(*path: str) -> dict[str, Any]:
    served: dict[str, Any] = copy.deepcopy(OURS)
    node = served
    for step in path[:-1]:
        node = node[step]
    del node[path[-1]]
    return served


def test_our_own_crd_has_everything() -> None:
    assert missing_fields(OURS, OURS) == ()
    assert complaint(()) == ""


def test_a_newer_crd_is_no_problem() -> None:
    newer = copy.deepcopy(OURS)
    newer["properties"]["spec"]["properties"]["later"] = {"type": "string"}
    assert missing_fields(newer, OURS) == ()


@pytest.mark.parametrize(
    ("path", "named"),
    [
        pytest.param(("spec", "properties", "className"), "spec.className", id="a field"),
        pytest.param(("spec", "properties", "scaling"), "spec.scaling", id="a whole part is one complaint"),
        pytest.param(
            ("status", "properties", "decisions", "items", "properties", "reason"),
            "status.decisions[].reason",
            id="inside a list",
        ),
    ],
)
def test_what_an_older_crd_lacks_is_named(path: tuple[str, ...], named: str) -> None:
    assert missing_fields(_without("properties", *path), OURS) == (named,)


def test_the_complaint_says_what_to_do_and_stays_short() -> None:
    text = complaint(tuple(f"spec.f{n}" for n in range(9)))
    assert "spec.f0, spec.f1, spec.f2, spec.f3, spec.f4 and 4 more" in text
    assert "plimsoll crd | kubectl apply" in text


def test_a_schema_that_keeps_everything_lacks_nothing() -> None:
    assert missing_fields({"x-kubernetes-preserve-unknown-fields": True}, OURS) == ()
