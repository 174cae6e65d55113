"""A sample of the fault rig (``make faults``) on the real control plane: killed, cut off, slowed; right in the end."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.controlplane import ControlPlane
from e2e.eventually import eventually
from e2e.labrun import CHECKOUT
from e2e.look import manifest
from e2e.operator_process import MANIFEST, Operator, create_account, install_crds
from e2e.tcp_proxy import TcpProxy
from plimsoll.api import names

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

SEED: Final = 20261130
SERVICES: Final = "/apis/plimsoll.dev/v1alpha1/namespaces/default/vllmservices"
REVISIONS: Final = "/apis/apps/v1/namespaces/default/controllerrevisions"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
FAST: Final = {"PLIMSOLL_SWEEP_SECONDS": "5", "PLIMSOLL_LEASE_SECONDS": "3", "PLIMSOLL_REQUEST_TIMEOUT_SECONDS": "3"}
CONTEXTS: Final = (8192, 12288, 16384)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: its parts are killed."""
    with ControlPlane(prometheus=False) as plane:
        create_account(plane.kubectl)
        install_crds(plane.kubectl, CHECKOUT / "crds")
        yield plane


@pytest.fixture
def proxy(plane: ControlPlane) -> Iterator[TcpProxy]:
    host, _, port = plane.url.removeprefix("https://").partition(":")
    with TcpProxy((host, int(port))) as proxy:
        yield proxy


@pytest.fixture
def operator(plane: ControlPlane, proxy: TcpProxy, tmp_path: Path) -> Iterator[Operator]:
    """The operator, whose every word to the API server goes through the proxy."""
    operator = Operator(plane, MANIFEST, extra_env={**FAST, "KUBECONFIG": str(tmp_path / "kubeconfig")})
    config = yaml.safe_load(operator.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    operator.process.start()
    operator.await_ready()
    yield operator
    operator.stop()
    assert "Traceback" not in operator.process.log.read_text()


def apply(plane: ControlPlane, prefix: str, context: int, count: int = 6) -> None:
    spec: dict[str, Any] = {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "NVIDIA-L40S"},
        "contextTokens": context,
    }
    plane.kubectl.apply(*(manifest(f"{prefix}-{n}", "default", **spec) for n in range(count)))


def mine(plane: ControlPlane, path: str, prefix: str) -> list[dict[str, Any]]:
    return [obj for obj in plane.api.get(path)["items"] if obj["metadata"]["name"].startswith(prefix)]


def converged(plane: ControlPlane, prefix: str, context: int) -> bool:
    """Each service is answered, and its one Deployment runs the last spec."""
    services, fleets = mine(plane, SERVICES, prefix), mine(plane, DEPLOYMENTS, prefix)
    answered = all(s.get("status", {}).get("observedGeneration") == s["metadata"]["generation"] for s in services)
    arguments = [d["spec"]["template"]["spec"]["containers"][0]["args"] for d in fleets]
    return answered and len(fleets) == len(services) > 0 and all(str(context) in found for found in arguments)


def no_duplicates(plane: ControlPlane, prefix: str) -> bool:
    """One revision for each plan that a service had, and none twice."""
    numbers = [(r["metadata"]["labels"][names.LABEL_SERVICE], r["revision"]) for r in mine(plane, REVISIONS, prefix)]
    return len(numbers) == len(set(numbers)) <= 6 * len(CONTEXTS)


def test_killed_at_random_points_it_ends_where_it_should(plane: ControlPlane, operator: Operator) -> None:
    chosen = random.Random(SEED)
    for context in CONTEXTS:
        apply(plane, "killed", context)
        for _ in range(2):
            time.sleep(chosen.uniform(0.0, 1.5))  # the fault is the moment itself
            operator.kill()
    eventually(lambda: converged(plane, "killed", CONTEXTS[-1]), within_seconds=90)
    assert no_duplicates(plane, "killed")


def test_etcd_and_the_api_server_die_under_it(plane: ControlPlane, operator: Operator) -> None:
    pid = operator.process.pid
    apply(plane, "died", CONTEXTS[0])
    for part in ("etcd", "kube-apiserver"):
        plane.processes[part].kill(comes_back=False)
        plane.processes[part].start()
        eventually(plane.api.probe("/readyz"), within_seconds=60)
        eventually(plane.api.probe(SERVICES), within_seconds=60)
        apply(plane, "died", CONTEXTS[-1])
    eventually(lambda: converged(plane, "died", CONTEXTS[-1]), within_seconds=90)
    assert no_duplicates(plane, "died")
    assert operator.process.pid == pid


def test_through_a_line_that_delays_drops_and_cuts(plane: ControlPlane, operator: Operator, proxy: TcpProxy) -> None:
    pid = operator.process.pid
    proxy.delay_seconds = 0.05
    apply(plane, "line", CONTEXTS[0])
    for _ in range(5):
        time.sleep(0.7)  # let something be under way each time
        assert proxy.cut()
    proxy.swallows = True
    apply(plane, "line", CONTEXTS[-1])
    eventually(lambda: "no answer from the API server" in operator.process.log.read_text(), within_seconds=60)
    proxy.swallows, proxy.delay_seconds = False, 0.0
    eventually(lambda: converged(plane, "line", CONTEXTS[-1]), within_seconds=60)
    assert no_duplicates(plane, "line")
    assert operator.process.pid == pid
