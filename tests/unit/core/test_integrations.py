"""PodMonitor and InferencePool: made where they can be and are wanted; what is in the way is said, and only then."""

from typing import Any

import pytest

from plimsoll.core.integrations import integrations
from plimsoll.core.kinds import INFERENCE_POOL, POD_MONITOR, Access, Availability, Kinds
from plimsoll.core.rollout import owner
from tests.unit.core.manifests import several

PICKER: dict[str, Any] = {"routing": {"endpointPicker": {"service": "epp"}}}


def _made(access: Access, kind: str, **spec: Any) -> tuple[list[str], tuple[str, ...], list[str]]:
    request = several.request(**spec)
    found = integrations(request, owner(request), Kinds({kind: Availability(access, "the reason")}), {})
    reasons = [problem.reason for problem in found.problems]
    return [manifest["kind"] for manifest in found.manifests], found.unwanted, reasons


@pytest.mark.parametrize(
    ("access", "kinds", "reasons"),
    [
        pytest.param("usable", ["PodMonitor"], [], id="served"),
        pytest.param("absent", [], [], id="no Prometheus operator: nobody misses it"),
        pytest.param("off", [], [], id="turned off"),
        pytest.param("forbidden", [], ["KindUnusable"], id="served, and no rights"),
    ],
)
def test_a_monitor_is_made_wherever_it_can_be(access: Access, kinds: list[str], reasons: list[str]) -> None:
    assert _made(access, POD_MONITOR) == (kinds, (), reasons)


@pytest.mark.parametrize(
    ("access", "spec", "kinds", "unwanted", "reasons"),
    [
        pytest.param("usable", PICKER, ["InferencePool"], (), [], id="wanted"),
        pytest.param("usable", {}, [], (INFERENCE_POOL,), [], id="not wanted (any more)"),
        pytest.param("absent", {}, [], (), [], id="neither wanted nor there"),
        pytest.param("absent", PICKER, [], (), ["KindMissing"], id="wanted, no CRD"),
        pytest.param("off", PICKER, [], (), ["KindMissing"], id="wanted, turned off"),
        pytest.param("forbidden", PICKER, [], (), ["KindUnusable"], id="wanted, no rights"),
    ],
)
def test_a_pool_is_made_when_a_picker_is_named(
    access: Access, spec: dict[str, Any], kinds: list[str], unwanted: tuple[str, ...], reasons: list[str]
) -> None:
    made, dropped, found = _made(access, INFERENCE_POOL, **spec)
    # PodMonitor is not known in these rows, which is a problem of its own.
    assert (made, dropped, found[1:]) == (kinds, unwanted, reasons)


def test_what_is_missing_names_the_field_that_asks_for_it() -> None:
    request = several.request(**PICKER)
    found = integrations(request, owner(request), Kinds({INFERENCE_POOL: Availability("absent", "no CRD")}), {})
    assert "spec.routing.endpointPicker: no CRD" in [problem.message for problem in found.problems]


def test_routing_is_no_part_of_what_a_pod_looks_like() -> None:
    assert several.request(**PICKER).fingerprint == several.request().fingerprint
