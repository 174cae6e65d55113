"""How the rights used in e2e are read and compared with those granted; the comparison itself ends `make test`."""

import json
from pathlib import Path
from typing import Any

import pytest

from e2e import verbs
from e2e.controlplane import audit
from e2e.controlplane.audit import Use

PODS, GET = Use("plimsoll", "pods", "list"), Use("plimsoll", "configmaps", "get")
REFUSED = Use("", "nodes", "list")


@pytest.mark.parametrize(
    ("rights", "used", "excused", "says"),
    [
        pytest.param({PODS}, {PODS}, {}, [], id="equal"),
        pytest.param({PODS, GET}, {PODS}, {}, ["get on configmaps is granted and no e2e test used it"], id="too much"),
        pytest.param({PODS, GET}, {PODS}, {GET: "why"}, [], id="too much, with a reason"),
        pytest.param({PODS}, {PODS}, {PODS: "why"}, ["list on pods is used by now"], id="a reason that is none"),
        pytest.param({PODS}, {PODS}, {GET: "why"}, ["get on configmaps is no longer granted"], id="an old reason"),
        pytest.param({PODS}, {PODS, REFUSED}, {}, ["list on nodes was refused"], id="too little"),
        pytest.param({PODS}, {PODS, Use("", "pods", "list")}, {}, [], id="refused where a test took it away"),
        pytest.param({PODS}, {Use("plimsoll-own", "pods", "list")}, {}, ["list on pods is granted"], id="another role"),
    ],
)
def test_both_ways(rights: set[Use], used: set[Use], excused: dict[Use, str], says: list[str]) -> None:
    lines = list(verbs.differences(rights, used, excused))
    assert len(lines) == len(says)
    assert all(text in line for text, line in zip(says, lines, strict=True))


def test_the_list_of_reasons_names_only_rights_that_are_granted() -> None:
    assert set(verbs.NOT_SEEN) <= verbs.granted()


def event(verb: str, decision: str, reason: str = "", code: int = 200, **reference: str) -> dict[str, Any]:
    notes = {"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason}
    return {"verb": verb, "objectRef": reference, "annotations": notes, "responseStatus": {"code": code}}


BY_ROLE = 'RBAC: allowed by RoleBinding "plimsoll/a" of Role "plimsoll" to ServiceAccount "plimsoll/plimsoll-system"'
BY_CLUSTER_ROLE = 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "plimsoll" to ServiceAccount "x/y"'


@pytest.mark.parametrize(
    ("logged", "uses"),
    [
        (event("list", "allow", BY_CLUSTER_ROLE, resource="pods"), {PODS}),
        (event("get", "allow", BY_ROLE, resource="configmaps"), {GET}),
        (
            event("patch", "allow", BY_ROLE, 201, apiGroup="apps", resource="deployments"),
            {Use("plimsoll", "apps/deployments", "patch"), Use("plimsoll", "apps/deployments", "create")},
        ),
        (
            event("patch", "allow", BY_ROLE, apiGroup="plimsoll.dev", resource="vllmservices", subresource="status"),
            {Use("plimsoll", "plimsoll.dev/vllmservices/status", "patch")},
        ),
        (event("list", "forbid", code=403, resource="nodes"), {REFUSED}),
        ({"verb": "get", "requestURI": "/healthz"}, set()),
    ],
)
def test_a_line_of_the_audit_log(
    logged: dict[str, Any], uses: set[Use], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "summaries"
    folder.mkdir()
    monkeypatch.setenv(audit.VARIABLE, str(folder))
    flags = dict(flag.removeprefix("--").split("=") for flag in audit.arguments(tmp_path))
    Path(flags["audit-log-path"]).write_text(json.dumps(logged) + "\n")
    audit.leave_summary(tmp_path)
    assert audit.summaries(folder) == uses


def test_nobody_asked_nothing_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(audit.VARIABLE, raising=False)
    assert audit.arguments(tmp_path) == []
    audit.leave_summary(tmp_path)
