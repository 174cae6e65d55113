"""The models accept what the schema accepts. `e2e/test_crd.py` asks the API server the same."""

from typing import Any

from hypothesis import HealthCheck, given, settings

from plimsoll.api.parse import lint_service, parse_service
from tests.unit.api.manifests import RULES
from tests.unit.api.strategies import MANIFESTS, spoilt_manifests

# Every field of the contract at once: slow to make on a busy machine.
LARGE = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


@LARGE
@given(MANIFESTS)
def test_only_a_rule_refuses_what_the_schema_allows(manifest: dict[str, Any]) -> None:
    assert {error.message for error in lint_service(manifest)} <= RULES.keys()


@LARGE
@given(spoilt_manifests())
def test_lint_finds_nothing_only_in_what_parses(manifest: dict[str, Any]) -> None:
    """Whatever stands in a manifest, the answer is a service or named fields, never a traceback."""
    errors = lint_service(manifest)
    if not errors:
        assert parse_service(manifest).metadata.name == "qwen-docs"
    for error in errors:
        assert error.path.startswith("spec")
        assert error.message
