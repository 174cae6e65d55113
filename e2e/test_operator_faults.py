"""The operator when the world around it fails: no CRD, no API server, rights taken away, killed in the middle."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from e2e.controlplane import ControlPlane
from e2e.controlplane.api import Api, ApiError
from e2e.controlplane.kubectl import KubectlError
from e2e.eventually import eventually
from e2e.labrun import CHECKOUT
from e2e.operator_process import MANIFEST, NAMESPACE, Operator, create_account, install_crds
from plimsoll.api import names

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

CRDS: Final = CHECKOUT / "crds"
FAST: Final = {"PLIMSOLL_SWEEP_SECONDS": "3"}
SERVICES: Final = "/apis/plimsoll.dev/v1alpha1/namespaces/default/vllmservices"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: these tests stop its parts and take rights away."""
    with ControlPlane(prometheus=False) as plane:
        create_account(plane.kubectl)
        yield plane


@pytest.fixture(scope="module")
def with_crd(plane: ControlPlane) -> ControlPlane:
    install_crds(plane.kubectl, CRDS)
    return plane


@pytest.fixture
def operator(with_crd: ControlPlane) -> Iterator[Operator]:
    operator = Operator(with_crd, MANIFEST, extra_env=FAST)
    operator.process.start()
    operator.await_ready()
    yield operator
    operator.stop()


def _apply(plane: ControlPlane, *services: str, namespace: str = "default") -> None:
    spec = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "NVIDIA-L40S"}, "contextTokens": 8192}
    head = {"apiVersion": names.API_VERSION, "kind": names.KIND}
    plane.kubectl.apply(*({**head, "metadata": {"name": n, "namespace": namespace}, "spec": spec} for n in services))


def _exists(plane: ControlPlane, path: str) -> bool:
    try:
        plane.api.get(path)
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True


def test_without_the_crd_it_waits_says_so_and_starts_by_itself_later(plane: ControlPlane) -> None:
    operator = Operator(plane, MANIFEST, extra_env=FAST)
    operator.process.start()
    try:
        eventually(lambda: operator.process.log.exists() and "CRD is not installed" in operator.process.log.read_text())
        eventually(lambda: operator.answer("/readyz")[0] == 503)
        assert operator.answer("/healthz") == (200, "ok\n")
        plane.kubectl("apply", "--server-side", "-f", str(CRDS))
        operator.await_ready()
        _apply(plane, "late")
        eventually(lambda: _exists(plane, f"{DEPLOYMENTS}/late"))
        assert operator.process.restarts == 0
        assert "Traceback" not in operator.process.log.read_text()
    finally:
        operator.stop()


def test_it_outlives_an_api_server_that_is_away(with_crd: ControlPlane, operator: Operator) -> None:
    server = with_crd.processes["kube-apiserver"]
    pid = operator.process.pid
    server.stop()
    eventually(lambda: "no answer from the API server" in operator.process.log.read_text())
    assert operator.answer("/healthz") == (200, "ok\n")
    _start_again(with_crd)
    _apply(with_crd, "after-outage")
    eventually(lambda: _exists(with_crd, f"{DEPLOYMENTS}/after-outage"), within_seconds=60)
    assert operator.process.pid == pid
    assert "Traceback" not in operator.process.log.read_text()


def _start_again(plane: ControlPlane) -> None:
    server = plane.processes["kube-apiserver"]
    server.start()
    server.await_ready(plane.api.probe("/readyz"), within_seconds=60)
    # A ready server publishes what CRDs define a moment later: until then kubectl knows no VLLMService.
    eventually(lambda: _exists(plane, SERVICES.rpartition("/namespaces")[0]))


def test_rights_lost_on_one_kind_do_not_end_it(with_crd: ControlPlane, operator: Operator) -> None:
    pid = operator.process.pid
    rules: list[dict[str, Any]] = with_crd.kubectl.get("clusterrole", "plimsoll")["rules"]
    _set_rules(with_crd, [rule for rule in rules if rule["resources"] != ["pods"]])
    try:
        _apply(with_crd, "no-pods")
        eventually(lambda: _exists(with_crd, f"{DEPLOYMENTS}/no-pods"))
        eventually(lambda: "listing pods failed" in operator.process.log.read_text())
        # A running watch outlives its right; one that has to begin anew is refused, and started again and again.
        with_crd.processes["kube-apiserver"].stop()
        _start_again(with_crd)
        eventually(lambda: "watch of pods ended (ForbiddenError" in operator.process.log.read_text(), within_seconds=60)
        _apply(with_crd, "no-pods-2")
        eventually(lambda: _exists(with_crd, f"{DEPLOYMENTS}/no-pods-2"))
        assert operator.answer("/healthz") == (200, "ok\n")
        assert operator.process.pid == pid
    finally:
        _set_rules(with_crd, rules)


def _set_rules(plane: ControlPlane, rules: list[dict[str, Any]]) -> None:
    meta = {"name": "plimsoll"}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta}
    plane.kubectl.apply({**head, "rules": rules})


@pytest.mark.usefixtures("operator")
def test_a_forbidden_write_is_a_condition_and_recovers(with_crd: ControlPlane) -> None:
    rules: list[dict[str, Any]] = with_crd.kubectl.get("clusterrole", "plimsoll")["rules"]
    _set_rules(
        with_crd, [r | {"verbs": ["get", "list", "watch"]} if r["resources"] == ["services"] else r for r in rules]
    )
    try:
        _apply(with_crd, "forbidden")
        stalled = eventually(lambda: _condition(with_crd, "forbidden", "Stalled"))
        assert stalled["reason"] == "Forbidden"
        assert "services" in stalled["message"]
        assert not _exists(with_crd, f"{DEPLOYMENTS}/forbidden")
    finally:
        _set_rules(with_crd, rules)
    eventually(lambda: _exists(with_crd, f"{DEPLOYMENTS}/forbidden"), within_seconds=60)


TAKEN: Final[Mapping[tuple[str, str], str]] = {
    ("deployments", "create"): "may not create deployments.apps",
    ("deployments", "patch"): "may not patch deployments.apps",
    ("deployments", "get"): "may not get deployments.apps",
    ("deployments", "list"): "may not list deployments.apps",
    ("controllerrevisions", "patch"): "may not patch controllerrevisions.apps",
    ("services", "get"): "may not get services",
    ("services", "patch"): "may not patch services",
    ("poddisruptionbudgets", "patch"): "",
    ("persistentvolumeclaims", "get"): "",
    ("pods", "watch"): "",
    ("pods/log", "get"): "",
    ("events", "create"): "",
    ("events", "list"): "",
    ("nodes", "list"): "",
    ("horizontalpodautoscalers", "list"): "",
    ("vllmservices/status", "patch"): "",
}
"""A verb that is taken away, and what is then said of a new service; nothing where its fleet is made all the same."""


def test_every_verb_may_be_taken_away_and_is_missed_only_where_it_is_needed(
    with_crd: ControlPlane, operator: Operator
) -> None:
    pid = operator.process.pid
    rules: list[dict[str, Any]] = with_crd.kubectl.get("clusterrole", "plimsoll")["rules"]
    tried = []
    try:
        for number, ((resource, verb), says) in enumerate(TAKEN.items()):
            _set_rules(with_crd, [_without(rule, resource, verb) for rule in rules])
            eventually(lambda resource=resource, verb=verb: not _may(with_crd, resource, verb))  # type: ignore[misc]
            tried.append(f"without-{number}")
            _apply(with_crd, tried[-1])
            if says:
                found = eventually(lambda: _condition(with_crd, tried[-1], "Stalled"))
                assert (found["reason"], says in found["message"]) == ("Forbidden", True), found["message"]
            else:
                eventually(lambda: _exists(with_crd, f"{DEPLOYMENTS}/{tried[-1]}"))
    finally:
        _set_rules(with_crd, rules)
    for name in tried:
        eventually(lambda name=name: _exists(with_crd, f"{DEPLOYMENTS}/{name}"), within_seconds=60)  # type: ignore[misc]
        eventually(lambda name=name: _reconciling(with_crd, name), within_seconds=60)  # type: ignore[misc]
    assert operator.process.pid == pid
    assert "Traceback" not in operator.process.log.read_text()


def _without(rule: dict[str, Any], resource: str, verb: str) -> dict[str, Any]:
    kept = [v for v in rule["verbs"] if v != verb or rule["resources"] != [resource]]
    return {**rule, "verbs": kept or ["deletecollection"]}  # a rule needs a verb; this one is never used


def _may(plane: ControlPlane, resource: str, verb: str) -> bool:
    try:
        plane.kubectl("auth", "can-i", verb, resource, "--as", f"system:serviceaccount:{NAMESPACE}:plimsoll", "-A")
    except KubectlError:
        return False
    return True


def _reconciling(plane: ControlPlane, service: str) -> bool:
    """Nothing is in the way any more: without nodes it waits for pods."""
    return bool(_condition(plane, service, "Reconciling")) and not _condition(plane, service, "Stalled")


def _condition(plane: ControlPlane, service: str, kind: str) -> dict[str, Any]:
    found = plane.api.get(f"{SERVICES}/{service}").get("status", {}).get("conditions") or []
    return next((c for c in found if c["type"] == kind and c["status"] == "True"), {})


def test_killed_in_the_middle_it_finishes_without_duplicates(with_crd: ControlPlane, operator: Operator) -> None:
    services = [f"many-{n:02d}" for n in range(30)]
    _apply(with_crd, *services)
    eventually(lambda: _exists(with_crd, f"{DEPLOYMENTS}/{services[0]}"))
    operator.kill()
    operator.await_ready()

    def converged() -> bool:
        listed = with_crd.api.get(SERVICES)["items"]
        mine = [s for s in listed if s["metadata"]["name"].startswith("many-")]
        return all(s.get("status", {}).get("observedGeneration") == s["metadata"]["generation"] for s in mine)

    eventually(converged, within_seconds=60)
    revisions = with_crd.api.get("/apis/apps/v1/namespaces/default/controllerrevisions")["items"]
    per_service = [r["metadata"]["labels"]["plimsoll.dev/service"] for r in revisions]
    assert sorted(s for s in per_service if s.startswith("many-")) == services
    with_crd.kubectl("delete", "vllm", *services)
    eventually(lambda: not [d for d in with_crd.api.get(DEPLOYMENTS)["items"] if "many-" in d["metadata"]["name"]])


def test_a_deletion_that_every_watch_missed_is_found(with_crd: ControlPlane, operator: Operator) -> None:
    _apply(with_crd, "ghost")
    eventually(lambda: _exists(with_crd, f"{DEPLOYMENTS}/ghost"))
    known = operator.metric("plimsoll_services ")
    assert operator.process.pid is not None
    os.kill(operator.process.pid, signal.SIGSTOP)
    with_crd.kubectl("delete", "vllm", "ghost")
    os.kill(operator.process.pid, signal.SIGCONT)
    eventually(lambda: operator.metric("plimsoll_services ") == known - 1)
    eventually(lambda: not _exists(with_crd, f"{DEPLOYMENTS}/ghost"))


def test_the_crd_may_go_and_come_back(with_crd: ControlPlane, operator: Operator) -> None:
    pid = operator.process.pid
    _apply(with_crd, "before")
    eventually(lambda: _exists(with_crd, f"{DEPLOYMENTS}/before"))
    with_crd.kubectl("delete", "crd", "vllmservices.plimsoll.dev")
    eventually(lambda: "CRD is not installed" in operator.answer("/readyz")[1], within_seconds=60)
    assert operator.answer("/healthz") == (200, "ok\n")
    install_crds(with_crd.kubectl, CRDS)
    operator.await_ready()
    _apply(with_crd, "after")
    eventually(lambda: _exists(with_crd, f"{DEPLOYMENTS}/after"), within_seconds=60)
    assert not _exists(with_crd, f"{DEPLOYMENTS}/before")
    eventually(lambda: operator.metric("plimsoll_services ") == 1)
    assert operator.process.pid == pid
    assert "Traceback" not in operator.process.log.read_text()


def test_one_namespace_only(with_crd: ControlPlane) -> None:
    with_crd.kubectl.make("namespace", "mine")
    operator = Operator(with_crd, MANIFEST, extra_env={**FAST, "PLIMSOLL_NAMESPACES": "mine"})
    operator.process.start()
    try:
        operator.await_ready()
        _apply(with_crd, "theirs")
        _apply(with_crd, "ours", namespace="mine")
        eventually(lambda: _exists(with_crd, "/apis/apps/v1/namespaces/mine/deployments/ours"))
        assert not _exists(with_crd, f"{DEPLOYMENTS}/theirs")
    finally:
        operator.stop()


def test_sigterm_ends_it_cleanly(with_crd: ControlPlane) -> None:
    kubeconfig = with_crd.service_account_kubeconfig(NAMESPACE, "plimsoll")
    port = with_crd.lease_port()
    env = {"KUBECONFIG": str(kubeconfig), "PLIMSOLL_HTTP_PORT": str(port), "PLIMSOLL_LOG_FORMAT": "text"}
    with subprocess.Popen([sys.executable, "-m", "plimsoll"], env=env, stderr=subprocess.PIPE, text=True) as process:
        eventually(Api(f"http://127.0.0.1:{port}", with_crd.ca).probe("/readyz"))
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert log.rstrip().endswith("stopped")
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("env", "says"),
    [
        pytest.param(
            {"PLIMSOLL_WORKERS": "many"}, "PLIMSOLL_WORKERS: 'many' is not a number", id="a word for a number"
        ),
        pytest.param({"PLIMSOLL_HTTP_PORT": "70000"}, "outside 0 to 65535", id="a port out of range"),
        pytest.param({"KUBECONFIG": "/nowhere"}, "no usable Kubernetes credentials in /nowhere", id="no kubeconfig"),
    ],
)
def test_settings_that_cannot_work_end_it_with_a_sentence(env: dict[str, str], says: str) -> None:
    command = [sys.executable, "-m", "plimsoll"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
