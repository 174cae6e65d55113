"""The commands that talk to a cluster, as a person at a terminal types them: explain, hold, accept, restart."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.eventually import eventually
from e2e.labrun import CHECKOUT, Lab, LabOptions
from plimsoll.api import names

pytestmark = pytest.mark.controlplane

PROGRAM: Final = Path(sys.executable).with_name("plimsoll")
SERVICES: Final = "/apis/plimsoll.dev/v1alpha1"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    options = LabOptions(
        nodes="1*NVIDIA-H100-80GB-HBM3:8", load_seconds=1.0, operator_env={"PLIMSOLL_SWEEP_SECONDS": "5"}
    )
    with Lab(options) as lab:
        yield lab


class Terminal:
    """A person in one namespace, with a service of the name ``docs``."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self._plane, self.namespace = lab.plane, namespace

    def plimsoll(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(self._plane.admin_kubeconfig)}
        command = [str(PROGRAM), *words, "-n", self.namespace]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def says(self, *words: str) -> dict[str, Any]:
        done = self.plimsoll(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert isinstance(said, dict)
        return said

    def apply(self, layers: int = 32, **spec: Any) -> None:
        """A service whose model configuration is in a ConfigMap: with twice the layers half the sequences fit."""
        bundled = CHECKOUT / "operator" / "plimsoll" / "facts" / "catalogue" / "Qwen--Qwen3.5-9B.json"
        config = json.loads(bundled.read_text(encoding="utf-8"))["config"]
        text = config["text_config"]
        text["num_hidden_layers"], text["layer_types"] = layers, (text["layer_types"] * 2)[:layers]
        meta = {"namespace": self.namespace}
        facts = {"metadata": {"name": "facts", **meta}, "data": {"config.json": json.dumps(config)}}
        self._plane.kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", **facts})
        base = {
            "model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True, "configRef": {"name": "facts"}},
            "hardware": {"gpu": "NVIDIA-H100-80GB-HBM3"},
            "contextTokens": 32768,
            "load": {"concurrency": 150, "promptTokens": 6000, "outputTokens": 500},
            "scaling": {"maxReplicas": 1},
            "engine": {"extraArgs": ["--tensor-parallel-size=1"]},
        }
        service = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "docs", **meta}}
        self._plane.kubectl.apply({**service, "spec": {**base, **spec}})

    def service(self) -> dict[str, Any]:
        found: dict[str, Any] = self._plane.api.get(f"{SERVICES}/namespaces/{self.namespace}/vllmservices/docs")
        return found

    def pods(self) -> set[str]:
        listed = self._plane.api.get(f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["uid"] for pod in listed["items"]}

    def until(self, kind: str, status: str) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            service = self.service()
            found = service.get("status", {}).get("conditions") or []
            return next((c for c in found if (c["type"], c["status"]) == (kind, status)), None)

        found = eventually(there, within_seconds=60)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def docs(lab: Lab) -> Terminal:
    """A person in front of a service that serves; tests take it as the one before left it."""
    lab.plane.kubectl.make("namespace", "llm")
    terminal = Terminal(lab, "llm")
    terminal.apply()
    terminal.until("Ready", "True")
    return terminal


def test_a_live_service_is_explained(docs: Terminal) -> None:
    told = docs.plimsoll("explain", "docs")
    assert told.returncode == 0, told.stderr
    for words in ("ready: 1 of 1 replicas ready", "Memory of the fullest GPU", "1 x 1 NVIDIA-H100-80GB-HBM3"):
        assert words in told.stdout
    assert docs.says("explain", "docs")["plan"]["kv"] == docs.service()["status"]["plan"]["kv"]


@pytest.mark.parametrize("verb", ["explain", "restart"])
def test_a_name_that_is_not_there_is_named_with_its_nearest(docs: Terminal, verb: str) -> None:
    done = docs.plimsoll(verb, "dcos")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nearest: docs" in done.stderr


def test_a_held_service_is_only_observed_until_the_hold_ends(docs: Terminal) -> None:
    assert docs.says("hold", "docs")["value"] == "true"
    eventually(lambda: "observing only" in str(docs.service()["status"]["conditions"]), within_seconds=60)
    assert docs.says("hold", "docs", "--off")["value"] is None
    assert names.ANNOTATION_HOLD not in docs.service()["metadata"].get("annotations", {})


def test_a_newer_plan_is_accepted_by_its_name(docs: Terminal) -> None:
    nothing = docs.plimsoll("accept", "docs")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert "no newer plan is offered" in nothing.stderr
    first = docs.pods()
    docs.apply(layers=64)
    docs.until("PlanUpdateAvailable", "True")
    offered = docs.says("accept", "docs", "--dry-run")
    assert offered["dryRun"]
    assert names.ANNOTATION_ACCEPT_PLAN not in docs.service()["metadata"].get("annotations", {})
    wrong = docs.plimsoll("accept", "docs", "--revision", "docs-0")
    assert wrong.returncode == 2
    assert f"offered is {offered['value']}" in wrong.stderr
    assert docs.pods() == first
    docs.says("accept", "docs", "--revision", offered["value"])
    docs.until("PlanUpdateAvailable", "False")
    eventually(lambda: docs.pods() - first, within_seconds=60)


def test_a_restart_replaces_the_pods(docs: Terminal) -> None:
    before = docs.pods()
    docs.says("restart", "docs")
    eventually(lambda: docs.pods() - before, within_seconds=60)
