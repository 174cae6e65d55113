"""A spec that another release's CRD let pass is refused by field, not by a traceback."""

from typing import Any

import pytest

from plimsoll.api.parse import InvalidServiceError
from plimsoll.core.request import read_request

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
