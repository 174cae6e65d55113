"""Two operators and one Lease, against a real API server whose audit log says who wrote what."""

import asyncio
import os
import secrets
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.audit import AuditLog, Write
from e2e.controlplane import ControlPlane
from e2e.controlplane.api import ApiError
from e2e.eventually import eventually
from e2e.labrun import CHECKOUT
from e2e.operator_process import MANIFEST, NAMESPACE, Operator, create_account, install_crds
from plimsoll.adapters.kube import KubeCluster, load_configuration
from plimsoll.adapters.ports import DEPLOYMENTS as DEPLOYMENT_KIND
from plimsoll.adapters.ports import SERVICES as SERVICE_KIND
from plimsoll.adapters.ports import ConflictError
from plimsoll.api import names

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/plimsoll"
SERVICES: Final = "/apis/plimsoll.dev/v1alpha1/namespaces/default/vllmservices"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
LEASE_SECONDS: Final = 6
ROUND_SECONDS: Final = 0.5
ENV: Final = {"PLIMSOLL_LEASE_SECONDS": str(LEASE_SECONDS)}


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> AuditLog:
    return AuditLog(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def plane(audit: AuditLog) -> Iterator[ControlPlane]:
    with ControlPlane(prometheus=False, extra_args={"kube-apiserver": audit.arguments}) as plane:
        create_account(plane.kubectl, MANIFEST)
        install_crds(plane.kubectl, CHECKOUT / "crds")
        yield plane


@pytest.fixture(scope="module")
def twin_manifest(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rights under another name, so that the audit log can tell the two apart."""
    documents = [document for document in yaml.safe_load_all(MANIFEST.read_text()) if document]
    kept = [d for d in documents if d["kind"] in ("ServiceAccount", "ClusterRoleBinding", "RoleBinding")]
    for document in kept:
        document["metadata"]["name"] += "-twin"
        for subject in document.get("subjects", ()):
            subject["name"] += "-twin"
    path = tmp_path_factory.mktemp("twin") / "rbac.yaml"
    path.write_text(yaml.safe_dump_all(kept))
    plane.kubectl("apply", "--server-side", "-f", str(path))
    return path


@pytest.fixture
def one(plane: ControlPlane) -> Iterator[Operator]:
    operator = Operator(plane, MANIFEST, extra_env=ENV, name=f"operator-one-{secrets.token_hex(2)}")
    yield operator
    operator.stop()


@pytest.fixture
def twin(plane: ControlPlane, twin_manifest: Path) -> Iterator[Operator]:
    operator = Operator(plane, twin_manifest, extra_env=ENV, name=f"operator-twin-{secrets.token_hex(2)}")
    yield operator
    operator.stop()


def _start(operator: Operator) -> None:
    operator.process.start()
    operator.await_ready()


def _leads(operator: Operator) -> bool:
    try:
        with urllib.request.urlopen(f"{operator.url}/metrics", timeout=5) as answer:
            return "plimsoll_leader 1.0" in answer.read().decode()
    except (urllib.error.URLError, TimeoutError):
        return False


def _signal(operator: Operator, number: signal.Signals) -> None:
    assert operator.process.pid is not None
    os.kill(operator.process.pid, number)


def _service(name: str, replicas: int) -> dict[str, Any]:
    spec = {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 1000},
        "contextTokens": 8192,
        "scaling": {"mode": "Fixed"},
        "replicas": replicas,
    }
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec}


def _apply(plane: ControlPlane, *services: str, replicas: int = 1) -> None:
    plane.kubectl.apply(*(_service(name, replicas) for name in services))


def _replicas(plane: ControlPlane, name: str) -> int:
    try:
        return int(plane.api.get(f"{DEPLOYMENTS}/{name}")["spec"]["replicas"])
    except ApiError as error:
        if error.code != 404:
            raise
        return -1


def test_a_standby_is_ready_and_writes_nothing_until_the_leader_is_gone(
    plane: ControlPlane, audit: AuditLog, one: Operator, twin: Operator
) -> None:
    _start(one)
    eventually(lambda: _leads(one))
    _start(twin)
    _apply(plane, "pair", replicas=2)
    eventually(lambda: _replicas(plane, "pair") == 2)
    assert not _leads(twin)
    assert not list(audit.writes(by="plimsoll-twin"))
    holder = plane.api.get(LEASE)["spec"]["holderIdentity"]

    one.stop()
    eventually(lambda: _leads(twin), within_seconds=LEASE_SECONDS - 1)
    lease = plane.api.get(LEASE)["spec"]
    assert lease["holderIdentity"] != holder
    assert lease["leaseTransitions"] == 1
    _apply(plane, "pair", replicas=3)
    eventually(lambda: _replicas(plane, "pair") == 3)


def test_a_killed_leader_is_followed(plane: ControlPlane, one: Operator, twin: Operator) -> None:
    _start(one)
    eventually(lambda: _leads(one))
    _start(twin)
    one.kill(comes_back=False)
    _apply(plane, "orphan", replicas=2)
    eventually(lambda: _replicas(plane, "orphan") == 2)
    assert _leads(twin)


class Churn:
    """A user who raises the replicas of all services again and again, and never lowers them."""

    def __init__(self, plane: ControlPlane, services: list[str]) -> None:
        self.rounds = 1
        self._plane = plane
        self._services = services
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> "Churn":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def passes(self, rounds: int) -> None:
        goal = self.rounds + rounds
        eventually(lambda: self.rounds >= goal, within_seconds=120)

    async def _run(self) -> None:
        cluster = KubeCluster(await load_configuration(str(self._plane.admin_kubeconfig)))
        try:
            while not self._stop.is_set():
                for name in self._services:
                    await cluster.apply(SERVICE_KIND, _service(name, self.rounds + 1), "kubectl")
                self.rounds += 1
                await asyncio.sleep(ROUND_SECONDS)
        finally:
            await cluster.close()


def test_a_leader_that_was_stopped_for_longer_than_its_lease_undoes_nothing(
    plane: ControlPlane, audit: AuditLog, one: Operator, twin: Operator
) -> None:
    services = [f"churn-{n:02d}" for n in range(6)]
    _start(one)
    eventually(lambda: _leads(one))
    _start(twin)
    _apply(plane, *services)
    eventually(lambda: all(_replicas(plane, name) == 1 for name in services))
    with Churn(plane, services) as churn:
        for deposed, heir in ((one, twin), (twin, one)):
            churn.passes(2)
            _signal(deposed, signal.SIGSTOP)
            eventually(lambda heir=heir: _leads(heir), within_seconds=3 * LEASE_SECONDS)  # type: ignore[misc]
            churn.passes(2)
            awake = time.time()
            _signal(deposed, signal.SIGCONT)
            churn.passes(3)
            late = [w for w in _writes(audit, deposed) if _seconds(w) > awake]
            assert len(late) <= 1, late
            assert not _leads(deposed)
    eventually(lambda: all(_replicas(plane, name) == churn.rounds for name in services), within_seconds=60)
    for name in services:
        counts = [w.object["spec"]["replicas"] for w in audit.writes(by="plimsoll") if _is(w, "deployments", name)]
        assert all(before <= after for before, after in pairwise(counts)), counts
        seen = [
            w.object["status"].get("observedGeneration", 0)
            for w in audit.writes(by="plimsoll")
            if _is(w, "vllmservices", name)
        ]
        assert all(before <= after for before, after in pairwise(seen)), seen


def _writes(audit: AuditLog, operator: Operator) -> list[Write]:
    user = "plimsoll-twin" if "twin" in operator.process.name else "plimsoll"
    return [w for w in audit.writes(by=user) if w.user == user]


def _seconds(write: Write) -> float:
    return datetime.fromisoformat(write.at).timestamp()


def _is(write: Write, resource: str, name: str) -> bool:
    return write.resource == resource and write.name == name


def test_without_rights_on_leases_it_says_so_and_acts_once_it_has_them(plane: ControlPlane, one: Operator) -> None:
    role: dict[str, Any] = plane.kubectl.get("role", "plimsoll-own", "-n", NAMESPACE)
    head = {key: role[key] for key in ("apiVersion", "kind")}
    meta = {"name": "plimsoll-own", "namespace": NAMESPACE}
    fewer = [rule for rule in role["rules"] if rule["resources"] != ["leases"]]
    plane.kubectl.apply({**head, "metadata": meta, "rules": fewer})
    try:
        one.process.start()
        eventually(lambda: one.process.log.exists() and "grant get, create and update on leases" in _log(one))
        status, text = one.answer("/readyz")
        assert status == 503
        assert f"Lease {NAMESPACE}/plimsoll cannot be had" in text
        assert one.answer("/healthz") == (200, "ok\n")
        assert _log(one).count("cannot be had") == 1
    finally:
        plane.kubectl.apply({**head, "metadata": meta, "rules": role["rules"]})
    one.await_ready()
    eventually(lambda: _leads(one), within_seconds=3 * LEASE_SECONDS)
    assert one.process.restarts == 0


def _log(operator: Operator) -> str:
    return operator.process.log.read_text()


def test_an_api_outage_ends_the_lead_and_not_the_process(plane: ControlPlane, one: Operator) -> None:
    _start(one)
    eventually(lambda: _leads(one))
    pid = one.process.pid
    server = plane.processes["kube-apiserver"]
    server.stop()
    eventually(lambda: not _leads(one), within_seconds=3 * LEASE_SECONDS)
    assert one.answer("/healthz") == (200, "ok\n")
    server.start()
    server.await_ready(plane.api.probe("/readyz"), within_seconds=60)
    eventually(lambda: _leads(one), within_seconds=3 * LEASE_SECONDS)
    _apply(plane, "back")
    eventually(lambda: _replicas(plane, "back") == 1, within_seconds=60)
    assert one.process.pid == pid
    assert "Traceback" not in _log(one)


def test_a_write_decided_on_an_older_version_is_refused(plane: ControlPlane) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    manifest: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "stale", "namespace": "default"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }

    async def write() -> None:
        cluster = KubeCluster(await load_configuration(str(plane.admin_kubeconfig)))
        try:
            first = await cluster.apply(DEPLOYMENT_KIND, manifest, "test")
            version = first["metadata"]["resourceVersion"]
            await cluster.apply(DEPLOYMENT_KIND, {**manifest, "spec": {**manifest["spec"], "replicas": 1}}, "test")
            meta = {**manifest["metadata"], "resourceVersion": version}
            with pytest.raises(ConflictError):
                await cluster.apply(DEPLOYMENT_KIND, {**manifest, "metadata": meta}, "test")
            with pytest.raises(ConflictError):
                await cluster.delete(DEPLOYMENT_KIND, "default", "stale", first["metadata"]["uid"], version=version)
        finally:
            await cluster.close()

    asyncio.run(write())
    assert _replicas(plane, "stale") == 1
