"""A newer operator takes over what an earlier one left: no pod may notice.

The fixture is what the earlier operator really wrote (e2e/data/upgrade/README.md). It is written again by the same
field managers, the real controllers make fleets of it, and the present operator is started on them.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from e2e.operator_process import MANIFEST, Operator, create_account
from e2e.recorded import Recording, recordings
from plimsoll.adapters.kube import KubeCluster, load_configuration
from plimsoll.adapters.ports import CHILDREN, SERVICES, Kind
from plimsoll.api import names

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

NAMESPACE: Final = "upgrade"
NODES: Final = "2*NVIDIA-H100-80GB-HBM3:8,1*NVIDIA-L40S:8"
KINDS: Final[dict[str, Kind]] = {kind.kind: kind for kind in (*CHILDREN, SERVICES)}


@pytest.fixture
def lab() -> Iterator[Lab]:
    """One for each try: a recording names its namespace, and can be laid down only once."""
    with Lab(LabOptions(nodes=NODES, load_seconds=1.0, operator=False)) as lab:
        create_account(lab.plane.kubectl, MANIFEST)
        yield lab


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.name.partition(".")[0])
def test_no_pod_is_restarted_by_an_upgrade_of_the_operator(lab: Lab, path: Path) -> None:
    recording = Recording.read(path)
    kubectl = lab.plane.kubectl
    kubectl("create", "namespace", NAMESPACE)
    kubectl.apply(*recording.others, *(_applied(service) for service in recording.services))
    uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in kubectl.get("vllm", "-n", NAMESPACE)["items"]}
    asyncio.run(_write_again(lab.plane.admin_kubeconfig, recording.renamed_uids(uids)))
    eventually(lambda: _all_ready(lab), within_seconds=120)
    before = _fleets(lab)

    operator = Operator(lab.plane, MANIFEST, name=f"operator-after-{recording.revision}")
    operator.start()
    try:
        eventually(lambda: all(_taken_over(s) for s in _services(lab).values()), within_seconds=120)
        services = _services(lab)
        serving = {name for name, service in services.items() if _condition(service, "Ready")["status"] == "True"}
        assert serving == {fleet["metadata"]["name"] for fleet in recording.manifests("Deployment")}
        assert _fleets(lab) == before
    finally:
        operator.stop()


def _applied(service: dict[str, Any]) -> dict[str, Any]:
    return {key: service[key] for key in ("apiVersion", "kind", "metadata", "spec")}


async def _write_again(kubeconfig: Path, writes: list[dict[str, Any]]) -> None:
    cluster = KubeCluster(await load_configuration(str(kubeconfig)))
    try:
        for write in writes:
            manifest = write["manifest"]
            kind = KINDS[manifest["kind"]]
            await cluster.apply(kind, manifest, write["manager"], subresource=write["subresource"])
    finally:
        await cluster.close()


def _all_ready(lab: Lab) -> bool:
    fleets = lab.plane.kubectl.get("deployments", "-n", NAMESPACE)["items"]
    return all(
        fleet["status"].get("observedGeneration") == fleet["metadata"]["generation"]
        and fleet["status"].get("readyReplicas", 0) == fleet["spec"]["replicas"]
        and fleet["status"].get("replicas", 0) == fleet["spec"]["replicas"]
        for fleet in fleets
    )


def _services(lab: Lab) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in lab.plane.kubectl.get("vllm", "-n", NAMESPACE)["items"]}


def _taken_over(service: dict[str, Any]) -> bool:
    """The present operator has said what it makes of the service: only it writes servedBy."""
    settled = {_condition(service, "Ready").get("status"), _condition(service, "Stalled").get("status")}
    return bool(service["status"].get("servedBy")) and "True" in settled


def _condition(service: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((c for c in service["status"].get("conditions", ()) if c["type"] == kind), {})


def _fleets(lab: Lab) -> dict[str, Any]:
    """Pods, their restarts and their templates: what an upgrade must leave alone."""
    get = lab.plane.kubectl.get
    pods = get("pods", "-n", NAMESPACE, "-l", names.LABEL_SERVICE)["items"]
    return {
        "pods": {
            pod["metadata"]["uid"]: [c["restartCount"] for c in pod["status"].get("containerStatuses", ())]
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]  # the recorded writes themselves end pods, which then drain
        },
        "replica sets": sorted(item["metadata"]["name"] for item in get("replicasets", "-n", NAMESPACE)["items"]),
        "templates": {
            item["metadata"]["name"]: (item["spec"]["template"], item["spec"]["replicas"])
            for item in get("deployments", "-n", NAMESPACE)["items"]
        },
    }
