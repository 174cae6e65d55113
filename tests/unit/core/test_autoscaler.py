"""Who else scales: read from HorizontalPodAutoscalers, KEDA's included."""

from typing import Any

import pytest

from plimsoll.core.autoscaler import Autoscaler, Scaled, scaled_by


def hpa(name: str, *owners: str) -> dict[str, Any]:
    references = [{"kind": kind, "name": f"of-{name}"} for kind in owners]
    meta = {"name": name, "namespace": "llm", **({"ownerReferences": references} if owners else {})}
    return {"metadata": meta, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "svc"}}}


@pytest.mark.parametrize(
    ("found", "who"),
    [
        pytest.param([hpa("a")], Autoscaler("HorizontalPodAutoscaler", "a"), id="its own"),
        pytest.param([hpa("a", "ScaledObject")], Autoscaler("ScaledObject", "of-a"), id="KEDA's"),
        pytest.param([hpa("a", "Application")], Autoscaler("HorizontalPodAutoscaler", "a"), id="somebody else's"),
        pytest.param(
            [hpa("b"), hpa("a"), hpa("c")], Autoscaler("HorizontalPodAutoscaler", "a"), id="the first by name"
        ),
    ],
)
def test_who_scales(found: list[dict[str, Any]], who: Autoscaler) -> None:
    assert scaled_by(found) == {Scaled("llm", "Deployment", "svc"): who}


def test_nobody_scales() -> None:
    assert scaled_by([]) == {}
