"""The operator as a process of its own, with the rights of its service account and nothing more."""

import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from e2e.controlplane import ControlPlane
from e2e.controlplane.api import Api
from e2e.controlplane.kubectl import Kubectl
from e2e.controlplane.process import Process
from e2e.eventually import eventually

NAMESPACE: Final = "plimsoll-system"
# Not resolved: a folder that links to `e2e` is a checkout of its own (the tests start labs in one).
MANIFEST: Final = Path(__file__).absolute().parents[1] / "deploy" / "kustomize" / "base" / "rbac.yaml"
COMMAND: Final = (sys.executable, "-m", "plimsoll")
# The lab's Prometheus scrapes every second; a person, or a test, does not wait for minutes.
QUICK_TICKS: Final = {
    "PLIMSOLL_METRICS_INTERVAL_SECONDS": "2",
    "PLIMSOLL_METRICS_WINDOW_SECONDS": "10",
    "PLIMSOLL_METRICS_STALE_SECONDS": "10",
    "PLIMSOLL_EXPERIMENT_WINDOW_SECONDS": "4",
}
READY_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 20.0
ESTABLISHED_SECONDS: Final = 30.0


class Operator:
    """`python -m plimsoll` against one control plane; a crash brings it back with back-off, as a kubelet would.

    `manifest` holds its ServiceAccount and RBAC and must have been applied. `extra_env` wins over our settings. A
    second one beside it needs another `name`.
    """

    def __init__(
        self,
        plane: ControlPlane,
        manifest: Path,
        *,
        command: Sequence[str] = COMMAND,
        extra_env: Mapping[str, str] | None = None,
        name: str = "operator",
    ) -> None:
        self._plane = plane
        self.port = plane.lease_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.kubeconfig = plane.service_account_kubeconfig(NAMESPACE, service_account(manifest))
        settings = {
            "KUBECONFIG": str(self.kubeconfig),
            "PLIMSOLL_PROMETHEUS_URL": plane.prometheus_url,
            "PLIMSOLL_HTTP_PORT": str(self.port),
            "PLIMSOLL_NAMESPACE": NAMESPACE,
            "PYTHONUNBUFFERED": "1",
            **QUICK_TICKS,
        }
        self.process: Process = plane.process(name, command, env={**settings, **(extra_env or {})})

    def start(self) -> None:
        """Return when its /readyz answers 200; from then on Prometheus scrapes it."""
        self.process.start()
        self.await_ready()
        self._plane.scrape_operator(f"127.0.0.1:{self.port}")

    def await_ready(self) -> None:
        self.process.await_ready(Api(self.url, self._plane.ca).probe("/readyz"), within_seconds=READY_SECONDS)

    def answer(self, path: str) -> tuple[int, str]:
        """Status and body of one of its pages, refusals too; raises URLError when nobody listens."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=ANSWER_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def metric(self, name: str) -> float:
        """The sum of the series whose line begins so: a name, or a name with its first labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=ANSWER_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def writes(self, resource: str) -> int:
        """Writes of one resource type that it has sent since it started."""
        return int(self.metric(f'plimsoll_api_writes_total{{resource="{resource}"}}'))

    def stop(self) -> None:
        """SIGTERM and wait; it stays down until `start`."""
        self.process.stop()

    def kill(self, *, comes_back: bool = True) -> None:
        """SIGKILL, in the middle of whatever it does."""
        self.process.kill(comes_back=comes_back)


def create_account(kubectl: Kubectl, manifest: Path = MANIFEST) -> None:
    """The operator's namespace, ServiceAccount and rights, as the chart renders them."""
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    kubectl("apply", "--server-side", "-n", NAMESPACE, "-f", str(manifest))


def install_crds(kubectl: Kubectl, folder: Path) -> None:
    """Apply the CRDs and return when they are served.

    Not with `kubectl wait`: in the first moment a CRD has no conditions at all, which it takes for an error.
    """
    # Resolved, since kubectl does not look into a folder behind a symbolic link.
    kubectl("apply", "--server-side", "-f", str(folder.resolve()))
    count = len(list(folder.glob("*.yaml")))
    eventually(lambda: _established(kubectl) >= count, within_seconds=ESTABLISHED_SECONDS)


def _established(kubectl: Kubectl) -> int:
    conditions = (c for crd in kubectl.get("crd")["items"] for c in crd.get("status", {}).get("conditions") or ())
    return sum(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def service_account(manifest: Path) -> str:
    """The name of the ServiceAccount in the operator's manifest."""
    documents = yaml.safe_load_all(manifest.read_text())
    names = [
        document["metadata"]["name"] for document in documents if document and document["kind"] == "ServiceAccount"
    ]
    if len(names) != 1:
        raise RuntimeError(f"{manifest}: one ServiceAccount is needed for the operator to run as, found {len(names)}")
    return str(names[0])
