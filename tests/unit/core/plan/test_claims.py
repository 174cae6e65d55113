"""Volumes that one node may mount at a time do not carry a fleet."""

from typing import Any

import pytest

from plimsoll.core.plan.claims import claim_names
from plimsoll.core.plan.inventory import Inventory
from tests.unit.core.plan.asking import L40S, answer, plan, refusal, spec_of

PVC = {"pvc": {"claimName": "models"}}
RWO, RWX, ROX, RWOP = "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"


def asked(*modes: str, **fields: Any) -> dict[str, Any]:
    return {"source": PVC, "inventory": Inventory(claims={"models": modes}), **fields}


@pytest.mark.parametrize("modes", [(RWO,), (RWOP,), (RWO, RWOP)])
@pytest.mark.parametrize(
    ("scaling", "way_out"),
    [
        pytest.param({}, "scaling.maxReplicas: 1", id="Auto up to maxGPUs"),
        pytest.param({"scaling": {"mode": "External"}}, "scaling.mode Fixed", id="an HPA"),
        pytest.param({"scaling": {"mode": "Fixed"}, "replicas": 2}, "spec.replicas: 1", id="two replicas"),
    ],
)
def test_several_replicas_are_refused(modes: tuple[str, ...], scaling: dict[str, Any], way_out: str) -> None:
    found = refusal("Qwen/Qwen3-8B", L40S, 8192, **asked(*modes, **scaling))
    assert found.reason == "VolumeNotShareable"
    assert f"models is {' and '.join(modes)}" in found.message
    assert way_out in found.message


@pytest.mark.parametrize(
    ("modes", "scaling", "alone"),
    [
        pytest.param((RWX,), {}, False, id="many may write"),
        pytest.param((RWO, ROX), {"source": {"pvc": {**PVC["pvc"], "readOnly": True}}}, False, id="many may read"),
        pytest.param((), {}, False, id="modes not known"),
        pytest.param((RWO,), {"scaling": {"maxReplicas": 1}}, True, id="one replica at most"),
        pytest.param((RWOP,), {"scaling": {"mode": "Fixed"}}, True, id="one replica"),
        pytest.param((RWO,), {"scaling": {"mode": "Fixed"}, "replicas": 0}, True, id="none"),
    ],
)  # fmt: skip
def test_one_replica_or_a_shared_volume_is_fine(modes: tuple[str, ...], scaling: dict[str, Any], alone: bool) -> None:
    found = plan("Qwen/Qwen3-8B", L40S, 8192, **asked(*modes, **scaling))
    assert found.host.exclusive_volume is alone


def test_a_volume_that_nobody_may_write_is_mounted_so() -> None:
    found = refusal("Qwen/Qwen3-8B", L40S, 8192, **asked(ROX))
    assert found.reason == "SourceRefused"
    assert "readOnly: true" in found.message


def test_claims_that_could_not_be_looked_at_are_named() -> None:
    found = plan("Qwen/Qwen3-8B", L40S, 8192, source=PVC)
    assert any("models could not be looked at" in note for note in found.assumptions)


def test_claims_of_the_template_count_too() -> None:
    template = {"spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}}
    spec = spec_of("Qwen/Qwen3-8B", L40S, 8192, source=PVC, podTemplate=template)
    assert claim_names(spec) == ("models", "data")
    claims = Inventory(claims={"models": (RWX,), "data": (RWO,)})
    found = answer("Qwen/Qwen3-8B", L40S, 8192, source=PVC, podTemplate=template, inventory=claims)
    assert getattr(found, "reason", "") == "VolumeNotShareable"
