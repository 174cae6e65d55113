"""`helm install` and kustomize against a real API server; the operator then runs as the chart's own pod."""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.controlplane import binaries
from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.controlplane.targets import HELM
from e2e.eventually import eventually
from e2e.helm import CHART, Helm, HelmError
from e2e.labrun import CHECKOUT, Lab, LabOptions

pytestmark = pytest.mark.controlplane

NAMESPACE: Final = "plimsoll-system"
CRD: Final = "vllmservices.plimsoll.dev"
VALUES: Final = sorted((CHECKOUT / "tests" / "chart" / "values").glob("*.yaml"))
KUSTOMIZE: Final = CHECKOUT / "deploy" / "kustomize"
ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:operator"
# Their CRDs belong to others; what is in them is checked in tests/chart.
MONITORING: Final = "monitoring.coreos.com/v1"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Nodes and nothing else: neither CRD nor operator, which are the chart's to bring."""
    options = LabOptions(nodes="2*NVIDIA-L40S:4", load_seconds=1.0, operator=False, crds=CHECKOUT / "none")
    with Lab(options, log=lambda _: None) as lab:
        yield lab


@pytest.fixture(scope="module")
def kubectl(lab: Lab) -> Kubectl:
    kubectl = lab.plane.kubectl
    for name in (NAMESPACE, "team-a", "team-b"):
        kubectl.make("namespace", name)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    return kubectl


@pytest.fixture(scope="module")
def helm(lab: Lab, kubectl: Kubectl) -> Helm:
    assert kubectl
    return Helm(binaries.ensure_group(HELM) / "helm", lab.plane.admin_kubeconfig, lab.plane.workdir / "helm")


@pytest.fixture(scope="module")
def process(lab: Lab, kubectl: Kubectl) -> list[str]:
    """Values that make the fake kubelet run the operator as a process: it mounts no tokens, so here is one."""
    kubectl("create", "serviceaccount", "operator", "-n", NAMESPACE)
    kubeconfig = lab.plane.service_account_kubeconfig(NAMESPACE, "operator")
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    values = {
        "image": {"repository": "process/plimsoll"},
        "serviceAccount": {"create": False, "name": "operator"},
        "settings": {"httpHost": "$(POD_IP)", "httpPort": lab.plane.lease_port(), "logFormat": "text"},
        "extraEnv": [address, {"name": "KUBECONFIG", "value": str(kubeconfig)}],
    }
    file = lab.plane.workdir / "process.yaml"
    file.write_text(yaml.safe_dump(values))
    return [f"--namespace={NAMESPACE}", f"--values={file}", "--wait", "--timeout=180s"]


def dry_run(kubectl: Kubectl, objects: list[dict[str, Any]]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(listed))


def operators_pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (template,) = (o["spec"]["template"] for o in objects if o["kind"] == "Deployment")
    # The class and the account need not exist for the question whether the pod may.
    spec = {k: v for k, v in template["spec"].items() if k not in {"priorityClassName", "serviceAccountName"}}
    meta = {**template["metadata"], "name": "operator", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_the_server_takes_all_the_chart_renders_and_the_pod_is_restricted(
    helm: Helm, kubectl: Kubectl, values: Path
) -> None:
    text = helm("template", "plimsoll", str(CHART), f"--namespace={NAMESPACE}", f"--values={values}")
    objects = [o for o in yaml.safe_load_all(text) if o and o["apiVersion"] != MONITORING]
    dry_run(kubectl, [*objects, operators_pod(objects)])


@pytest.mark.parametrize("overlay", ["base", "overlays/ha", "overlays/namespaced"])
def test_the_server_takes_what_kustomize_builds(kubectl: Kubectl, overlay: str) -> None:
    dry_run(kubectl, [o for o in yaml.safe_load_all(kubectl("kustomize", str(KUSTOMIZE / overlay))) if o])


def service(namespace: str, name: str = "qwen") -> dict[str, Any]:
    spec = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "NVIDIA-L40S"}, "contextTokens": 8192}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "VLLMService", "metadata": meta, "spec": spec}


def ready(kubectl: Kubectl, namespace: str, name: str = "qwen") -> None:
    kubectl("wait", f"vllm/{name}", "-n", namespace, "--for=condition=Ready", "--timeout=60s")


def definition(kubectl: Kubectl) -> dict[str, Any]:
    return kubectl.get("crd", CRD)


def last_releases_chart(folder: Path) -> Path:
    """The chart as if from an earlier release, whose CRD had no short name `vllmsvc`.

    No field is missing: of a CRD that lacks one, this operator would wait for a newer one.
    """
    old = folder / "plimsoll"
    shutil.copytree(CHART, old)
    (file,) = (old / "files" / "crds").glob("*.yaml")
    crd = yaml.safe_load(file.read_text())
    crd["spec"]["names"]["shortNames"].remove("vllmsvc")
    file.write_text(yaml.safe_dump(crd, sort_keys=False))
    return old


def is_current(kubectl: Kubectl) -> bool:
    return "vllmsvc" in definition(kubectl)["spec"]["names"]["shortNames"]


def test_a_release_lives_from_install_to_uninstall_and_no_fleet_notices(
    helm: Helm, kubectl: Kubectl, process: list[str], tmp_path: Path
) -> None:
    helm("install", "plimsoll", str(last_releases_chart(tmp_path)), *process)
    assert not is_current(kubectl)
    born = definition(kubectl)["metadata"]["uid"]
    kubectl.apply(service("team-a"))
    ready(kubectl, "team-a")
    fleet = pods(kubectl, "team-a")

    helm("upgrade", "plimsoll", str(CHART), *process)
    assert is_current(kubectl)
    helm("upgrade", "plimsoll", str(CHART), *process, "--set=replicas=2")
    assert kubectl.get("deployment", "plimsoll", "-n", NAMESPACE)["status"]["readyReplicas"] == 2
    helm("upgrade", "plimsoll", str(CHART), *process, "--set=crds.install=false")
    assert kubectl.get("deployment", "plimsoll", "-n", NAMESPACE)["spec"]["replicas"] == 1
    helm("rollback", "plimsoll", "1", f"--namespace={NAMESPACE}", "--wait", "--timeout=180s")
    assert not is_current(kubectl)

    helm("uninstall", "plimsoll", f"--namespace={NAMESPACE}", "--wait")
    everything = "all,rolebindings,roles,pdb,configmaps,clusterroles,clusterrolebindings"
    ours = ("-n", NAMESPACE, "-l", "app.kubernetes.io/name=plimsoll", "--ignore-not-found")
    eventually(lambda: kubectl("get", everything, *ours) == "")
    assert definition(kubectl)["metadata"]["uid"] == born
    ready(kubectl, "team-a")
    assert pods(kubectl, "team-a") == fleet

    helm("install", "plimsoll", str(CHART), *process)
    assert is_current(kubectl)
    ready(kubectl, "team-a")
    assert pods(kubectl, "team-a") == fleet


def test_a_release_for_a_namespace_serves_that_one_and_has_no_right_beyond(
    helm: Helm, kubectl: Kubectl, process: list[str]
) -> None:
    helm("upgrade", "--install", "plimsoll", str(CHART), *process, "--set=namespaces={team-b}")
    kubectl.apply(service("team-b"))
    ready(kubectl, "team-b")
    assert may(kubectl, "patch", "deployments.apps", "team-b")
    assert not may(kubectl, "list", "pods", "team-a")
    assert not may(kubectl, "list", "pods", NAMESPACE)
    assert "plimsoll.dev" not in kubectl("auth", "can-i", "--list", f"--as={ACCOUNT}", "-n", "team-a")
    helm("uninstall", "plimsoll", f"--namespace={NAMESPACE}")


def may(kubectl: Kubectl, verb: str, resource: str, namespace: str) -> bool:
    try:
        return "yes" in kubectl("auth", "can-i", verb, resource, "-n", namespace, f"--as={ACCOUNT}")
    except KubectlError:  # its way to say no
        return False


def expressions() -> list[str]:
    files = CHART / "files"
    groups = yaml.safe_load((files / "alerts.yaml").read_text())["groups"]
    panels = json.loads((files / "dashboard.json").read_text())["panels"]
    alerts = [rule["expr"] for group in groups for rule in group["rules"]]
    return alerts + [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("expression", expressions())
def test_prometheus_understands_alerts_and_dashboard(lab: Lab, expression: str) -> None:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{lab.plane.prometheus_url}/api/v1/query?{query}") as answer:
        assert json.load(answer)["status"] == "success"


def test_a_definition_that_kubectl_made_is_taken_over_only_when_told(helm: Helm, kubectl: Kubectl) -> None:
    kubectl("delete", "crd", CRD, "--ignore-not-found")
    kubectl("apply", "-f", str(CHART / "files" / "crds"))
    release = ["install", "second", str(CHART), f"--namespace={NAMESPACE}"]
    with pytest.raises(HelmError, match=f"{CRD}.*cannot be imported"):
        helm(*release)
    helm(*release, "--take-ownership", "--force-conflicts")
    assert definition(kubectl)["metadata"]["annotations"]["meta.helm.sh/release-name"] == "second"
    helm("uninstall", "second", f"--namespace={NAMESPACE}")
    assert definition(kubectl)


def pods(kubectl: Kubectl, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in kubectl.get("pods", "-n", namespace)["items"]}
