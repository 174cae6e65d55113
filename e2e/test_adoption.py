"""From a Deployment somebody wrote to a VLLMService: audited, imported, held, compared, taken over, the old removed."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from e2e.look import H100, Look
from plimsoll.api import names

pytestmark = pytest.mark.controlplane

PROGRAM: Final = Path(sys.executable).with_name("plimsoll")
ARGS: Final = ["Qwen/Qwen3.5-9B", "--max-model-len", "32768", "--max-num-seqs", "64", "--language-model-only"]
READ: Final = {"verbs": ["get", "list"], "apiGroups": ["*"], "resources": ["*"]}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabOptions(nodes=f"1*{H100}:4", load_seconds=1.0)) as lab:
        yield lab


@pytest.fixture
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


@pytest.fixture
def look(lab: Lab, namespace: str) -> Look:
    """A namespace with a vLLM Deployment and its Service, serving."""
    kubectl = lab.plane.kubectl
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": [*ARGS, "--gdn-prefill-backend", "triton"],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    # The lab's Prometheus scrapes pods with this label and no others.
    labels = {"app": "qwen", "app.kubernetes.io/managed-by": "plimsoll"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    meta = {"name": "qwen", "namespace": namespace}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "qwen"}}, "template": template}
    kubectl.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    ports = [{"name": "http", "port": 8000, "targetPort": 8000}]
    service = {"selector": {"app": "qwen"}, "ports": ports}
    kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
    kubectl("rollout", "status", "deployment/qwen", "-n", namespace, "--timeout=60s")
    return Look(lab, namespace)


def plimsoll(kubeconfig: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    command = [str(PROGRAM), *words]
    return subprocess.run(
        command, env=environment, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def auditor(lab: Lab, namespace: str) -> Path:
    """Somebody who may get and list, and nothing else."""
    meta = {"name": "auditor", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"read-{namespace}"}
    subject = {"kind": "ServiceAccount", **meta}
    rbac = "rbac.authorization.k8s.io/v1"
    for manifest in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": role["name"]}, "rules": [READ]},
        {"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": role["name"]}, "roleRef": role}
        | {"subjects": [subject]},
    ):
        lab.plane.kubectl.apply(manifest)
    return lab.plane.service_account_kubeconfig(namespace, "auditor")


def test_a_live_cluster_is_audited_by_somebody_who_may_only_read(lab: Lab, look: Look) -> None:
    assert lab.fleet is not None
    labels = {"app": "qwen"}
    lab.fleet.run(lab.fleet.fleet.load(look.namespace, labels, rate=4, prompt_tokens=50, output_tokens=400, seconds=8))
    prometheus = ("--prometheus", lab.plane.prometheus_url, "--period", "10m")
    reader = auditor(lab, look.namespace)

    def audited() -> dict[str, Any]:
        words = ("audit", "--cluster", "-n", look.namespace, "-o", "json", "--fail-on", "never")
        done = plimsoll(reader, *words, *prometheus)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found if found["usage"][0]["peakRunning"] else {}

    found = eventually(audited, within_seconds=60)
    [server] = found["servers"]
    # Nothing in the manifest names the GPU: the node that the pod runs on does.
    assert (server["gpu"], server["model"], server["kv"]["outcome"]) == (H100, "Qwen/Qwen3.5-9B", "starts")
    rules = {each["id"] for each in found["findings"]}
    assert {"no-startup-probe", "no-liveness-probe", "grace-too-short", "no-pre-stop", "surge-needs-spare-gpu"} <= rules
    # The API server fills in replicas; nobody else writes them.
    assert "two-writers-of-replicas" not in rules
    [usage] = found["usage"]
    assert usage["gpusFreed"] == 0
    assert usage["confidence"] in {"low", "medium"}
    assert usage["doubts"]


def test_taking_over_loses_no_request(lab: Lab, look: Look, kubectl: Kubectl) -> None:
    assert lab.fleet is not None
    admin, namespace = lab.plane.admin_kubeconfig, look.namespace
    running = kubectl("get", "deployment,service", "-n", namespace, "-o", "yaml")
    imported = plimsoll(admin, "import", "-", "--gpu", H100, stdin=running)
    assert imported.returncode == 0, imported.stderr
    [service] = yaml.safe_load_all(imported.stdout)
    name = service["metadata"]["name"]

    kubectl.apply(service)
    look.until(name, "Planned", "True")
    assert look.maybe("deployments", name) == {}
    planned = look.get("vllmservices", name)["status"]["plan"]["choice"]
    assert planned["tensorParallel"] == 1
    flags = " ".join(planned["args"])
    assert "--max-model-len 32768" in flags
    assert "--max-num-seqs 64" in flags

    # Clients reach whatever the Service selects; the load follows its selector.
    selector = {"app": "qwen"}
    load = lab.fleet.fleet.load(namespace, selector, rate=4, prompt_tokens=50, output_tokens=40, seconds=25)
    with ThreadPoolExecutor() as pool:
        requests = pool.submit(lab.fleet.run, load)
        assert plimsoll(admin, "hold", name, "-n", namespace, "--off").returncode == 0
        look.until(name, "Ready", "True")
        change = [
            {"op": "replace", "path": "/spec/selector", "value": {names.LABEL_SERVICE: name}},
            {"op": "replace", "path": "/spec/ports/0/targetPort", "value": "http"},
        ]
        kubectl("patch", "service", "qwen", "-n", namespace, "--type=json", "-p", json.dumps(change))
        seen = look.get("services", "qwen")["spec"]["selector"]
        selector.update(seen)
        del selector["app"]
        [old] = [pod for pod in look.all("pods") if pod["metadata"]["labels"].get("app") == "qwen"]
        eventually(lambda: _running(old) == 0, within_seconds=30)
        kubectl("delete", "deployment", "qwen", "-n", namespace)
        report = requests.result()
    assert report.failures == {}
    assert report.succeeded == report.sent == 100
    assert look.condition(name, "Ready")["status"] == "True"


def _running(pod: dict[str, Any]) -> float:
    """Requests that a pod's engine works on, from its own page."""
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8000/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_requests_running{"))
