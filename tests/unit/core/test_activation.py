"""Queries that wake sleeping services: what the owner may write, and how answers are joined."""

import math
from typing import Any

import pytest

from plimsoll.core.activation import ActivationError, Template, joined, read_templates


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
