"""Who serves what: classes, overlapping installs, a list of namespaces with Roles alone, a CRD older than the operator.

The operators run under two ServiceAccounts, so that the API server's audit log tells who wrote.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.audit import AuditLog
from e2e.controlplane import ControlPlane
from e2e.controlplane.api import ApiError
from e2e.eventually import eventually
from e2e.labrun import CHECKOUT
from e2e.operator_process import MANIFEST, NAMESPACE, Operator, create_account, install_crds
from plimsoll.api import names

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

CRDS: Final = CHECKOUT / "crds"
NAMESPACED: Final = CHECKOUT / "deploy" / "kustomize" / "overlays" / "namespaced"
RIGHTS: Final = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
LEASE_SECONDS: Final = 4
ENV: Final = {"PLIMSOLL_LEASE_SECONDS": str(LEASE_SECONDS)}


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> AuditLog:
    return AuditLog(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def bare(audit: AuditLog) -> Iterator[ControlPlane]:
    """A control plane without our CRD."""
    with ControlPlane(prometheus=False, extra_args={"kube-apiserver": audit.arguments}) as plane:
        create_account(plane.kubectl, MANIFEST)
        yield plane


@pytest.fixture(scope="module")
def plane(bare: ControlPlane) -> ControlPlane:
    install_crds(bare.kubectl, CRDS)
    return bare


@pytest.fixture(scope="module")
def twin_manifest(bare: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's rights for another account."""
    documents = [d for d in yaml.safe_load_all(MANIFEST.read_text()) if d and d["kind"] in RIGHTS and "rules" not in d]
    return _granted(bare, documents, "-twin", tmp_path_factory.mktemp("twin"))


def _granted(plane: ControlPlane, documents: list[dict[str, Any]], suffix: str, folder: Path) -> Path:
    for document in documents:
        if "rules" not in document:
            document["metadata"]["name"] += suffix
        for subject in document.get("subjects", ()):
            subject["name"] += suffix
    path = folder / "rbac.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    plane.kubectl("apply", "--server-side", "-f", str(path))
    return path


Start = Callable[..., Operator]


@pytest.fixture
def start(bare: ControlPlane) -> Iterator[Start]:
    """Start an operator under a manifest's account; it ends with the test."""
    running: list[Operator] = []

    def make(name: str, manifest: Path = MANIFEST, *, ready: bool = True, **env: str) -> Operator:
        operator = Operator(bare, manifest, extra_env={**ENV, **env}, name=name)
        running.append(operator)
        operator.process.start()
        if ready:
            operator.await_ready()
        return operator

    yield make
    for operator in running:
        operator.stop()


def _path(kind: str, namespace: str, name: str = "") -> str:
    prefix = "/apis/plimsoll.dev/v1alpha1" if kind == "vllmservices" else "/apis/apps/v1"
    prefix = "/api/v1" if kind == "pods" else prefix
    return f"{prefix}/namespaces/{namespace}/{kind}" + (f"/{name}" if name else "")


def _apply(plane: ControlPlane, name: str, namespace: str = "default", **more: Any) -> None:
    spec: dict[str, Any] = {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "NVIDIA-L40S"},
        "contextTokens": 8192,
        "scaling": {"mode": "Fixed"},
        **more,
    }
    meta = {"name": name, "namespace": namespace}
    plane.kubectl.apply({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec})


def _served_by(plane: ControlPlane, name: str, namespace: str = "default") -> str:
    service = plane.api.get(_path("vllmservices", namespace, name))
    return str(service.get("status", {}).get("servedBy", ""))


def _replicas(plane: ControlPlane, name: str, namespace: str = "default") -> int:
    try:
        return int(plane.api.get(_path("deployments", namespace, name))["spec"]["replicas"])
    except ApiError as error:
        if error.code != 404:
            raise
        return -1


def _answer(operator: Operator, path: str) -> tuple[int, str]:
    """As ``Operator.answer``; one that does not listen yet answers nothing."""
    try:
        return operator.answer(path)
    except urllib.error.URLError as error:
        return 0, str(error)


def test_on_a_crd_older_than_itself_it_waits_and_says_what_is_missing(
    bare: ControlPlane, start: Start, tmp_path: Path
) -> None:
    (newest,) = CRDS.glob("*.yaml")
    older = yaml.safe_load(newest.read_text())
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del schema["spec"]["properties"]["className"]
    del schema["status"]["properties"]["servedBy"]
    (tmp_path / "crd.yaml").write_text(json.dumps(older))
    install_crds(bare.kubectl, tmp_path)
    operator = start("early", ready=False)
    eventually(lambda: "does not know spec.className, status.servedBy;" in _answer(operator, "/readyz")[1])
    assert _answer(operator, "/healthz") == (200, "ok\n")
    with pytest.raises(ApiError, match="404"):
        bare.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/plimsoll")
    install_crds(bare.kubectl, CRDS)
    operator.await_ready()
    assert operator.process.restarts == 0


def test_another_class_takes_a_service_over_and_its_pods_stay(
    plane: ControlPlane, audit: AuditLog, start: Start, twin_manifest: Path
) -> None:
    start("plain")
    start("blue", twin_manifest, PLIMSOLL_CLASS="blue")
    _apply(plane, "wanderer")
    eventually(lambda: _served_by(plane, "wanderer") == f"{NAMESPACE}/plimsoll")
    before = eventually(lambda: _fleet(plane, "wanderer"))
    assert not list(audit.writes(by="plimsoll-twin"))
    _apply(plane, "wanderer", className="blue")
    eventually(lambda: _served_by(plane, "wanderer") == f"{NAMESPACE}/plimsoll-blue")
    _apply(plane, "wanderer", className="blue", replicas=2)
    eventually(lambda: _replicas(plane, "wanderer") == 2)
    after = _fleet(plane, "wanderer")
    assert after["template"] == before["template"]
    assert set(before["pods"]) <= set(after["pods"])
    writers = [w.user for w in audit.writes(by="plimsoll") if w.name == "wanderer" and w.resource == "vllmservices"]
    hand_overs = sum(before != after for before, after in pairwise(writers))
    assert hand_overs == 1, writers
    _apply(plane, "wanderer")
    eventually(lambda: _served_by(plane, "wanderer") == f"{NAMESPACE}/plimsoll")


def _fleet(plane: ControlPlane, name: str) -> dict[str, Any]:
    template = plane.api.get(_path("deployments", "default", name))["spec"]["template"]
    pods = plane.api.get(_path("pods", "default"))["items"]
    mine = [p["metadata"]["uid"] for p in pods if p["metadata"]["labels"].get(names.LABEL_SERVICE) == name]
    return {"template": template, "pods": mine} if mine else {}


def test_of_two_overlapping_installs_the_second_yields_until_the_first_is_gone(
    plane: ControlPlane, audit: AuditLog, start: Start, twin_manifest: Path
) -> None:
    first = start("first")
    _apply(plane, "wanted")
    eventually(lambda: _served_by(plane, "wanted") == f"{NAMESPACE}/plimsoll")
    second = start("second", twin_manifest, PLIMSOLL_NAMESPACES="default")
    seen = len(list(audit.writes(by="plimsoll-twin")))
    eventually(lambda: second.metric("plimsoll_yielded_services ") >= 1)
    for replicas in (2, 3, 2):
        _apply(plane, "wanted", replicas=replicas)
        eventually(lambda replicas=replicas: _replicas(plane, "wanted") == replicas)  # type: ignore[misc]
    assert len(list(audit.writes(by="plimsoll-twin"))) == seen
    log = second.process.log.read_text()
    assert f"another install serves it (status.servedBy: {NAMESPACE}/plimsoll)" in log
    first.kill(comes_back=False)
    _apply(plane, "wanted", replicas=4)
    eventually(lambda: _replicas(plane, "wanted") == 4, within_seconds=90)
    assert _served_by(plane, "wanted").startswith(f"{NAMESPACE}/plimsoll-")


def test_with_roles_in_two_namespaces_and_no_right_on_the_cluster(
    plane: ControlPlane, audit: AuditLog, start: Start, tmp_path: Path
) -> None:
    for namespace in ("team-a", "team-b", "team-c"):
        plane.kubectl.make("namespace", namespace)
    rendered = yaml.safe_load_all(plane.kubectl("kustomize", str(NAMESPACED)))
    documents = [d for d in rendered if d["kind"] in RIGHTS]
    assert not [d["kind"] for d in documents if d["kind"].startswith("Cluster")]
    manifest = _granted(plane, documents, "-roles", tmp_path)
    operator = start("roles", manifest, PLIMSOLL_NAMESPACES="team-a,team-b")
    for namespace in ("team-a", "team-b", "team-c"):
        _apply(plane, "svc", namespace)
    for namespace in ("team-a", "team-b"):
        eventually(lambda namespace=namespace: _replicas(plane, "svc", namespace) == 1)  # type: ignore[misc]
    plane.kubectl("scale", "deployment/svc", "--replicas=3", "-n", "team-b")
    eventually(lambda: _replicas(plane, "svc", "team-b") == 1)
    _apply(plane, "svc", "team-a", replicas=2)
    eventually(lambda: _replicas(plane, "svc", "team-a") == 2)
    plane.kubectl("delete", "vllm", "svc", "-n", "team-b")
    eventually(lambda: operator.metric("plimsoll_services ") == 1)
    assert {w.namespace for w in audit.writes(by="plimsoll-roles")} == {"team-a", "team-b"}
    assert "Traceback" not in operator.process.log.read_text()
    assert operator.process.restarts == 0
