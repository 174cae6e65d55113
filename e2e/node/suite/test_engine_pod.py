"""Engine pods on a real kubelet: how they load, who they are, what they see of their container, how they answer."""

from dataclasses import dataclass
from typing import Any

import pytest

from e2e.controlplane.kubectl import KubectlError
from e2e.eventually import eventually
from e2e.node.suite.services import Services, process_facts
from plimsoll.core.manifests.container import SHM_VOLUME


@dataclass(frozen=True)
class Served:
    """A service that has become Ready, its pod, and the state of the engine's container before."""

    services: Services
    pod: dict[str, Any]
    loading: dict[str, Any]


@pytest.fixture(scope="module")
def served(services: Services) -> Served:
    services.apply("svc")
    pod = eventually(lambda: services.pods("svc"))[0]
    loading = eventually(lambda: services.engine(pod).get("state", {}).get("running") and services.engine(pod))
    services.until("svc", "Ready", "True")
    return Served(services, services.get("pod", pod["metadata"]["name"]), loading)


def test_an_engine_that_loads_is_neither_ready_nor_restarted(served: Served) -> None:
    assert not served.loading["started"]  # the port is closed, so the startup probe has not passed
    assert not served.loading["ready"]
    engine = served.services.engine(served.pod)
    assert engine["started"]
    assert engine["ready"]
    assert engine["restartCount"] == 0


def test_requests_to_the_service_address_are_answered(served: Served) -> None:
    served.services.start_client("client", served.services.address("svc"), "--rate=20", "--seconds=1")
    report = served.services.client_report("client", within_seconds=60)
    assert report["succeeded"] == report["sent"] == 20


def test_shared_memory_is_as_large_as_the_plan_says(served: Served) -> None:
    volume = next(v for v in served.pod["spec"]["volumes"] if v["name"] == SHM_VOLUME)
    code = "import os; s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize)"
    assert int(served.services.run_python(served.pod, code)) == int(volume["emptyDir"]["sizeLimit"])


def test_the_engine_has_no_rights_and_writes_only_where_it_must(served: Served) -> None:
    facts = process_facts(served.services.run_python(served.pod, "print(open('/proc/1/status').read())"))
    assert "0" not in facts["Uid"].split()
    assert int(facts["CapEff"], 16) == 0
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == "2"
    for writable in ("/tmp", "/dev/shm"):
        served.services.run_python(served.pod, f"open('{writable}/x', 'w')")
    with pytest.raises(KubectlError, match="Read-only file system"):
        served.services.run_python(served.pod, "open('/opt/x', 'w')")


def test_the_engine_holds_no_credentials_of_the_cluster(served: Served) -> None:
    code = "import os; print(os.path.exists('/var/run/secrets/kubernetes.io'), 'KUBERNETES_PORT' in os.environ)"
    assert served.services.run_python(served.pod, code).split()[0] == "False"
