"""docs/install.md, followed word for word. Last in the suite: it removes what the other tests stand on.

The session's operator was installed by the page's own commands (`conftest.py`); the tests here go on from there, each
leaving the cluster without an operator for the next one.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually
from e2e.fleet import vllm_args
from e2e.node.images import store
from e2e.node.images.application import CHECKOUT
from e2e.node.rig import Rig
from e2e.node.suite.page import blocks, follow
from e2e.node.suite.services import PATIENCE_SECONDS, SYSTEM, Services
from plimsoll.api import names

OPERATORS = "app.kubernetes.io/name=plimsoll"
TAKE_OVER_SECONDS = 60.0  # 20 on a machine that has nothing else to do, which is measured in tests/benchmarks
RELEASE = ("plimsoll", "--namespace", SYSTEM)


@pytest.fixture(scope="module")
def default(kubectl: Kubectl) -> Services:
    return Services(kubectl, "default")


def engine_pods(services: Services, name: str) -> dict[str, int]:
    """Uid and restarts of each pod."""
    return {
        pod["metadata"]["uid"]: sum(c["restartCount"] for c in pod["status"]["containerStatuses"])
        for pod in services.pods(name)
    }


def cluster_rights(kubectl: Kubectl) -> list[str]:
    """Cluster roles bound to the operator's account."""
    bindings: list[dict[str, Any]] = kubectl.get("clusterrolebindings")["items"]
    ours = (b for b in bindings for s in b.get("subjects") or () if s.get("namespace") == SYSTEM)
    return [binding["roleRef"]["name"] for binding in ours]


@pytest.fixture
def no_operator(rig: Rig) -> Iterator[None]:
    """No release before the test and none after it; what they served stays."""
    uninstall = ("uninstall", *RELEASE, "--ignore-not-found", "--wait")
    rig.helm(*uninstall)
    yield
    rig.helm(*uninstall)


@pytest.mark.usefixtures("operator")
def test_helm_from_the_first_service_to_removal(rig: Rig, kubectl: Kubectl, default: Services) -> None:
    follow(rig, "What you need")
    follow(rig, "The first service")
    default.until("qwen-docs", "Ready", "True")
    serving = engine_pods(default, "qwen-docs")

    follow(rig, "Two replicas")
    take_over(kubectl)
    default.apply("after", replicas=1)
    default.until("after", "Ready", "True")
    default.delete("after")
    follow(rig, "Upgrade")
    follow(rig, "Uninstall", only=slice(0, 1))

    eventually(lambda: not kubectl("get", "pods", "-n", SYSTEM, "-o", "name"), within_seconds=60)
    assert kubectl("get", "crd", "vllmservices.plimsoll.dev", "-o", "name")
    assert engine_pods(default, "qwen-docs") == serving
    assert default.get("deployment", "qwen-docs")["status"]["readyReplicas"] == len(serving)


def take_over(kubectl: Kubectl) -> None:
    """Kill the pod that leads: the other one, which stood by, holds the Lease next."""
    operators = {pod["metadata"]["name"] for pod in kubectl.get("pods", "-n", SYSTEM, "-l", OPERATORS)["items"]}
    first = eventually(lambda: leader(kubectl) & operators)
    kubectl("delete", "pod", "-n", SYSTEM, "--force", "--grace-period=0", *first)
    assert eventually(lambda: leader(kubectl) - first, within_seconds=TAKE_OVER_SECONDS) <= operators


def leader(kubectl: Kubectl) -> set[str]:
    """The pod named as holder of the Lease, as a set: empty while nobody is."""
    holder: str = kubectl.get("lease", "plimsoll", "-n", SYSTEM)["spec"].get("holderIdentity") or ""
    return {holder.rpartition("_")[0]} - {""}


@pytest.mark.usefixtures("no_operator")
def test_only_some_namespaces(rig: Rig, kubectl: Kubectl, default: Services) -> None:
    follow(rig, "Only some namespaces")
    assert cluster_rights(kubectl) == []
    here = Services(kubectl, "team-a")
    default.apply("elsewhere")
    here.apply("here")
    here.until("here", "Ready", "True")
    assert not default.condition("elsewhere", names.READY)
    default.delete("elsewhere")
    here.delete("here")


@pytest.mark.usefixtures("no_operator")
def test_without_internet(rig: Rig, default: Services, tmp_path: Path) -> None:
    (text,) = blocks("Without internet", "yaml")
    values = tmp_path / "values.yaml"
    for blank, filled in {
        "MIRROR": store.MIRROR,
        "sha256:DIGEST": rig.images.operator.digest,
        "PULL-SECRET": "none",
    }.items():
        text = text.replace(blank, filled)
    values.write_text(text)
    rig.helm("install", *RELEASE, str(store.CHART), "--values", str(values), "--wait")

    config = tmp_path / "config.json"
    config.write_text(own_model())
    follow(rig, "Without internet", replace={"ACME--MODEL": "acme--model", "=config.json": f"={config}"})
    engine = f"{store.MIRROR}/vllm-openai@{rig.images.engine.digest}"
    default.apply("mirrored", engine={"image": engine, "version": vllm_args.NEWEST, "security": "Restricted"})
    default.apply("own-model", model={"id": "acme/model"})
    default.until("mirrored", "Ready", "True")
    default.until("own-model", "Planned", "True")
    for name in ("mirrored", "own-model"):
        default.delete(name)


@pytest.mark.usefixtures("no_operator")
def test_kustomize(rig: Rig, kubectl: Kubectl, default: Services) -> None:
    follow(rig, "With kustomize")
    default.until("qwen-docs", "Ready", "True")  # taken up where it is
    follow(rig, "Uninstall", only=slice(2, 3))
    eventually(lambda: not kubectl("get", "pods", "-n", SYSTEM, "-o", "name"), within_seconds=60)
    assert default.get("deployment", "qwen-docs")["status"]["readyReplicas"] == 2


def test_everything_is_removed(rig: Rig, kubectl: Kubectl) -> None:
    follow(rig, "Uninstall", only=slice(1, 2))
    ours = ("-l", f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}", "-o", "name")
    left = ("get", "pods,deployments,services", "-A", *ours)
    eventually(lambda: not kubectl(*left), within_seconds=PATIENCE_SECONDS)


def own_model() -> str:
    """A configuration as its model's repository would have it: that of a model we know, under another name."""
    known = CHECKOUT / "operator" / "plimsoll" / "facts" / "catalogue" / "Qwen--Qwen3-8B.json"
    return json.dumps(json.loads(known.read_text())["config"])
