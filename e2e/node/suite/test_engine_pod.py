"""Engine pods on a real kubelet: how they load, what they see of their container, how they answer."""

from e2e.eventually import eventually
from e2e.node.suite.services import Services
from plimsoll.core.manifests.container import SHM_VOLUME


def test_a_service_serves_through_its_cluster_address(services: Services) -> None:
    services.apply("svc")
    pod = eventually(lambda: services.pods("svc"))[0]
    loading = eventually(lambda: services.engine(pod).get("state", {}).get("running") and services.engine(pod))
    assert not loading["started"]  # the port is closed: the startup probe has not passed
    assert not loading["ready"]

    services.until("svc", "Ready", "True")
    engine = services.engine(pod)
    assert engine["started"]
    assert engine["ready"]
    assert engine["restartCount"] == 0  # no probe lost its patience

    services.start_client("client", services.address("svc"), "--rate=20", "--seconds=1")
    report = services.client_report("client", within_seconds=60)
    assert report["succeeded"] == report["sent"] == 20


def test_shared_memory_is_as_large_as_the_plan_says(services: Services) -> None:
    services.apply("svc")
    services.until("svc", "Ready", "True")
    pod = services.pods("svc")[0]
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == SHM_VOLUME)
    code = "import os; s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize)"
    assert int(services.run_python(pod, code)) == int(volume["emptyDir"]["sizeLimit"])
