"""Reading manifests: what is accepted, what is refused, and how it is said."""

from typing import Any

import pytest

from plimsoll.api.parse import FieldError, InvalidServiceError, lint_service, parse_service
from plimsoll.api.units import duration_seconds
from tests.unit.api.manifests import ACCEPTED, EXAMPLES, REFUSED, service


@pytest.mark.parametrize("manifest", EXAMPLES.values(), ids=EXAMPLES)
def test_examples_are_free_of_findings(manifest: dict[str, Any]) -> None:
    assert lint_service(manifest) == []


def test_defaults_are_filled_in() -> None:
    spec = parse_service(service()).spec
    assert (spec.hardware.max_gpus, spec.replicas, spec.mode, spec.objective) == (8, 1, "Act", "Balanced")
    assert (spec.scaling.mode, spec.scaling.min_replicas, spec.scaling.max_replicas) == ("Auto", 1, None)
    assert (spec.tuning.mode, spec.engine.version, spec.load, spec.slo) == ("Recommend", None, None, None)


def test_null_is_the_same_as_absent() -> None:
    manifest = service()
    manifest["spec"] |= {"scaling": None, "load": {"promptTokens": None}, "replicas": None}
    assert lint_service(manifest) == []
    assert parse_service(manifest).spec.scaling.mode == "Auto"


def test_fields_of_a_newer_version_are_ignored_at_run_time() -> None:
    manifest = service(spec__scaling__cooldown="5m", metadata__managedFields=[])
    assert parse_service(manifest) == parse_service(service(spec__scaling__mode="Auto"))


@pytest.mark.parametrize(("manifest", "path", "says"), REFUSED, ids=[f"{p}: {s}" for _, p, s in REFUSED])
def test_a_refusal_names_field_value_and_what_is_allowed(manifest: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(InvalidServiceError) as refused:
        parse_service(manifest)
    (error,) = refused.value.errors
    assert error.path == path
    assert says in error.message
    assert error in lint_service(manifest)


@pytest.mark.parametrize("manifest", ACCEPTED, ids=repr)
def test_unusual_but_right(manifest: dict[str, Any]) -> None:
    assert lint_service(manifest) == []


@pytest.mark.parametrize(
    ("manifest", "path", "says"),
    [
        (service(spec__contextToken=1), "spec.contextToken", "did you mean contextTokens?"),
        (service(spec__scaling__min_replicas=1), "spec.scaling.min_replicas", "did you mean minReplicas?"),
        (service(spec__model__textonly=True), "spec.model.textonly", "did you mean textOnly?"),
        (service(spec__tensorParallel=2), "spec.tensorParallel", "known here: model, hardware"),
        (service(sepc={}), "sepc", "did you mean spec?"),
    ],
)
def test_lint_names_unknown_fields_and_the_nearest_known(manifest: dict[str, Any], path: str, says: str) -> None:
    parse_service(manifest)
    (error,) = lint_service(manifest)
    assert error.path == path
    assert says in error.message


def test_lint_asks_for_the_kind() -> None:
    assert [e.path for e in lint_service(service(apiVersion=None, kind=None))] == ["apiVersion", "kind"]


def test_an_error_reads_as_one_line() -> None:
    assert str(FieldError("spec.contextTokens", 0, "must be at least 1")) == "spec.contextTokens: 0: must be at least 1"
    assert str(FieldError("spec.model", None, "is required")) == "spec.model: is required"


@pytest.mark.parametrize(("text", "seconds"), [("2s", 2.0), ("50ms", 0.05), ("1.5s", 1.5), ("2m", 120.0)])
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds(text) == pytest.approx(seconds)
