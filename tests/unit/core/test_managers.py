"""Who changed a field, from `managedFields` as a Kubernetes 1.36 API server wrote them (recorded, shortened)."""

from typing import Any

import pytest

from plimsoll.core.managers import Setter, holders, setter

VLLM = 'k:{"name":"vllm"}'
HTTP = 'k:{"port":8000,"protocol":"TCP"}'


def _entry(manager: str, operation: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields}


def _containers(fields: dict[str, Any]) -> dict[str, Any]:
    return {"f:spec": {"f:template": {"f:spec": {"f:containers": {VLLM: fields}}}}}


OURS = _entry(
    "plimsoll",
    "Apply",
    {
        "f:metadata": {"f:labels": {"f:app.kubernetes.io/instance": {}}},
        "f:spec": {
            "f:progressDeadlineSeconds": {},
            "f:ports": {HTTP: {".": {}, "f:name": {}, "f:port": {}}},
            "f:template": {
                "f:spec": {"f:nodeSelector": {}, "f:containers": {VLLM: {".": {}, "f:args": {}, "f:name": {}}}}
            },
        },
    },
)
IMAGE = ("spec", "template", "spec", "containers", "[vllm]", "image")


@pytest.mark.parametrize(
    ("others", "path", "expect"),
    [
        pytest.param(
            [_entry("argocd-controller", "Apply", _containers({".": {}, "f:image": {}, "f:name": {}}))],
            IMAGE,
            Setter("manager", ("argocd-controller",)),
            id="an applier forced the image",
        ),
        pytest.param(
            [
                _entry("argocd-controller", "Apply", _containers({".": {}, "f:name": {}})),
                _entry("kubectl-set", "Update", _containers({"f:image": {}})),
            ],
            IMAGE,
            Setter("manager", ("kubectl-set",)),
            id="kubectl took it from the applier",
        ),
        pytest.param(
            [_entry("kubectl-patch", "Update", {"f:spec": {"f:ports": {HTTP: {"f:targetPort": {}}}}})],
            ("spec", "ports", "[http]", "targetPort"),
            Setter("manager", ("kubectl-patch",)),
            id="an entry that goes by another key there",
        ),
        pytest.param(
            [_entry("kubectl-label", "Update", {"f:metadata": {"f:labels": {"f:team": {}}}})],
            ("metadata", "labels", "plimsoll.dev/service"),
            Setter("nobody"),
            id="a label was removed; another label of theirs says nothing",
        ),
        pytest.param([], ("spec", "progressDeadlineSeconds"), Setter("admission"), id="still ours, with another value"),
        pytest.param(
            [],
            ("spec", "template", "spec", "nodeSelector", "nvidia.com/gpu.product"),
            Setter("admission"),
            id="ours as a whole",
        ),
        pytest.param(
            [_entry("kubectl-edit", "Update", {"f:spec": {"f:template": {"f:spec": {"f:nodeSelector": {}}}}})],
            ("spec", "template", "spec", "nodeSelector", "nvidia.com/gpu.product"),
            Setter("admission"),
            id="shared as a whole: then both sent the same",
        ),
        pytest.param(
            [_entry("plimsoll-scale", "Apply", {"f:spec": {"f:replicas": {}}})],
            ("spec", "progressDeadlineSeconds"),
            Setter("admission"),
            id="one of our writers sets it, the other something else",
        ),
        pytest.param(
            [_entry("kubectl-edit", "Update", {"f:spec": {"f:progressDeadlineSeconds": {".": {}}}})],
            ("spec", "progressDeadlineSeconds"),
            Setter("admission"),
            id="just this field, and nothing within: both sent the same",
        ),
        pytest.param([], IMAGE, Setter("nobody"), id="owning the entry is not owning its image"),
    ],
)
def test_who_is_behind_a_value(others: list[dict[str, Any]], path: tuple[str, ...], expect: Setter) -> None:
    assert setter({"metadata": {"managedFields": [OURS, *others]}}, path) == expect


def test_an_object_without_managed_fields_blames_nobody() -> None:
    assert setter({"metadata": {}}, IMAGE) == Setter("nobody")


def test_who_holds_a_field_is_told_by_name() -> None:
    scaler = _entry("hpa", "Update", {"f:spec": {"f:replicas": {}}})
    live = {"metadata": {"managedFields": [OURS, scaler]}}
    assert holders(live, "spec", "replicas") == ["hpa"]
    assert holders(live, "spec", "paused") == []
    assert holders({"metadata": {}}, "spec", "replicas") == []
