"""Roll-outs on clusters whose GPUs are counted: with and without a spare one, of templates that fail, in the middle."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest

from e2e.controlplane.api import ApiError
from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from plimsoll.api import names

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

H100: Final = "NVIDIA-H100-80GB-HBM3"
L40S: Final = "NVIDIA-L40S"
MODEL: Final = {"id": "Qwen/Qwen3.5-9B", "textOnly": True}
SELECTOR: Final = f"{names.LABEL_TRACK}={names.TRACK_MAIN}"
ENOUGH_SECONDS: Final = 90.0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Three H100, and a single L40S: who has one of the latter has no spare."""
    options = LabOptions(nodes=f"1*{H100}:3,1*{L40S}:1", load_seconds=1.0)
    with Lab(options) as lab:
        yield lab


class Service:
    """One VLLMService in a namespace of its own."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self._lab, self.namespace = lab, namespace
        self._api = lab.plane.api
        self.spec: dict[str, Any] = {"model": MODEL, "hardware": {"gpu": H100}, "contextTokens": 32768}

    def apply(self, **spec: Any) -> None:
        self.spec |= spec
        meta = {"name": "svc", "namespace": self.namespace}
        manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": self.spec}
        self._lab.plane.kubectl.apply(manifest)

    def get(self, path: str) -> dict[str, Any]:
        group, _, kind = path.partition("/")
        prefix = {"core": "/api/v1", "apps": "/apis/apps/v1", "plimsoll": "/apis/plimsoll.dev/v1alpha1"}[group]
        return self._api.get(f"{prefix}/namespaces/{self.namespace}/{kind}")

    def maybe(self, path: str) -> dict[str, Any]:
        try:
            return self.get(path)
        except ApiError as error:
            if error.code != 404:
                raise
            return {}

    @property
    def fleet(self) -> dict[str, Any]:
        return self.maybe("apps/deployments/svc")

    def pods(self) -> list[dict[str, Any]]:
        return list(self.get(f"core/pods?labelSelector={SELECTOR}")["items"])

    def ready_pods(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods() if _is_ready(pod)}

    def condition(self, kind: str) -> dict[str, Any]:
        service = self.get("plimsoll/vllmservices/svc")
        conditions = service.get("status", {}).get("conditions") or ()
        found: dict[str, Any] = next((c for c in conditions if c["type"] == kind), {})
        return found if found.get("observedGeneration") == service["metadata"]["generation"] else {}

    def until(self, kind: str, status: str, reason: str, *, within_seconds: float = ENOUGH_SECONDS) -> str:
        """The condition's message once it is so."""

        def there() -> dict[str, Any]:
            found = self.condition(kind)
            return found if (found.get("status"), found.get("reason")) == (status, reason) else {}

        try:
            return str(eventually(there, within_seconds=within_seconds)["message"])
        except AssertionError:
            raise AssertionError(f"{kind} is not {status} {reason}: {self.condition(kind)}") from None

    def until_rolled_out(self, context: int, replicas: int = 1, *, within_seconds: float = ENOUGH_SECONDS) -> None:
        def done() -> bool:
            pods = self.pods()
            new = [pod for pod in pods if f"{context}" in pod["spec"]["containers"][0]["args"]]
            return len(pods) == len(new) == replicas and all(map(_is_ready, new))

        eventually(done, within_seconds=within_seconds)
        self.until("Ready", "True", "FleetReady")


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions") or ()}
    return conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp")


@pytest.fixture
def service(lab: Lab, namespace: str, control_plane: Any) -> Iterator[Service]:
    """A service whose GPUs are free again afterwards."""
    del control_plane
    assert lab.fleet is not None
    service = Service(lab, namespace)
    yield service
    lab.fleet.run(lab.fleet.fleet.fault_engines())
    lab.plane.kubectl("delete", "vllm", "svc", "-n", namespace, "--ignore-not-found")
    lab.plane.kubectl("delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0")
    eventually(lambda: not service.pods(), within_seconds=60)


@pytest.fixture
def control_plane(lab: Lab) -> Any:
    """The lab's own: namespaces of these tests are made there."""
    return lab.plane


@pytest.fixture
def kubectl(lab: Lab) -> Any:
    return lab.plane.kubectl


@contextmanager
def fewest_ready(service: Service) -> Iterator[Callable[[], int]]:
    """The smallest number of Ready pods seen while the block runs."""
    stop, seen = threading.Event(), [len(service.ready_pods())]

    def look() -> None:
        while not stop.wait(0.1):
            seen.append(len(service.ready_pods()))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield lambda: min(seen)
    finally:
        stop.set()
        watcher.join()


def test_with_a_spare_gpu_the_new_pod_is_there_before_the_old_one_goes(service: Service) -> None:
    service.apply()
    service.until_rolled_out(32768)
    with fewest_ready(service) as fewest:
        service.apply(contextTokens=30000)
        service.until_rolled_out(30000)
    assert fewest() == 1
    assert service.fleet["metadata"]["annotations"][names.ANNOTATION_WAY] == "Surge"


def test_without_a_spare_gpu_several_replicas_take_turns(service: Service) -> None:
    service.apply(scaling={"mode": "Auto", "minReplicas": 3}, hardware={"gpu": H100, "maxGPUs": 8})
    service.until_rolled_out(32768, 3)
    with fewest_ready(service) as fewest:
        service.apply(contextTokens=30000)
        service.until_rolled_out(30000, 3)
    assert fewest() == 2
    assert service.fleet["metadata"]["annotations"][names.ANNOTATION_WAY] == "OneAtATime"


def test_surge_counts_inside_max_gpus(service: Service) -> None:
    service.apply(scaling={"mode": "Auto", "minReplicas": 2}, hardware={"gpu": H100, "maxGPUs": 2})
    service.until_rolled_out(32768, 2)
    most = 0
    service.apply(contextTokens=30000)

    def done() -> bool:
        nonlocal most
        held = [pod for pod in service.pods() if pod["spec"].get("nodeName") and not _leaving(pod)]
        most = max(most, len(held))
        return all("30000" in pod["spec"]["containers"][0]["args"] for pod in held) and len(service.ready_pods()) == 2

    eventually(done, within_seconds=ENOUGH_SECONDS)
    assert most == 2


def _leaving(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def test_a_single_replica_without_a_spare_gpu_waits_and_serves_until_it_may_be_recreated(service: Service) -> None:
    service.apply(hardware={"gpu": L40S, "maxGPUs": 2})
    service.until_rolled_out(32768)
    old = service.ready_pods()
    service.apply(contextTokens=30000)
    message = service.until("Ready", "False", "NoSpareGPU")
    assert "the old pod keeps serving" in message
    assert "spec.rollout.noSpareGPU: Recreate" in message
    assert service.condition("Available")["status"] == "True"
    assert service.condition("Stalled")["status"] == "False"
    assert service.ready_pods() == old
    assert [_leaving(pod) for pod in service.pods()] == [False]
    service.apply(rollout={"noSpareGPU": "Recreate"})
    service.until_rolled_out(30000)
    assert service.fleet["spec"]["strategy"] == {"type": "Recreate"}


def test_a_budget_without_room_for_a_second_replica_needs_a_human(service: Service) -> None:
    service.apply(hardware={"gpu": H100, "maxGPUs": 1})
    service.until_rolled_out(32768)
    service.apply(contextTokens=30000)
    assert "hardware.maxGPUs is 1" in service.until("Stalled", "True", "NoSpareGPU")
    assert len(service.ready_pods()) == 1
    service.apply(hardware={"gpu": H100, "maxGPUs": 2})
    service.until_rolled_out(30000)


def test_a_new_template_that_fails_leaves_the_old_fleet_and_names_the_cause(service: Service) -> None:
    service.apply(engine={"version": "0.30.0"})
    service.until_rolled_out(32768)
    old = service.ready_pods()
    # Between two recorded releases a flag may have gone: the planner lets it pass, this engine does not.
    service.apply(engine={"version": "0.30.0", "extraArgs": ["--enable-bf16x3-router-gemm"]})
    message = service.until("Stalled", "True", "BadFlag", within_seconds=60)
    assert "exit code 2" in message
    assert "enable-bf16x3-router-gemm" in message
    assert service.ready_pods() == old
    assert service.condition("Available")["status"] == "True"
    service.apply(engine={"version": "0.30.0"})
    service.until("Ready", "True", "FleetReady")
    assert service.ready_pods() == old


def test_a_pool_that_is_too_small_is_planned_again_once_and_then_needs_a_human(lab: Lab, service: Service) -> None:
    assert lab.fleet is not None
    assert lab.operator is not None
    lab.fleet.run(lab.fleet.fleet.fault_engines(missing_gib=50))
    service.apply(contextTokens=131072, hardware={"gpu": H100, "maxGPUs": 1})
    eventually(lambda: len(service.get("apps/controllerrevisions")["items"]) == 2, within_seconds=ENOUGH_SECONDS)
    eventually(lambda: "the engine found" in str(_assumptions(service)), within_seconds=ENOUGH_SECONDS)
    lab.operator.kill()
    lab.operator.await_ready()
    service.until_rolled_out(131072)
    lab.fleet.run(lab.fleet.fleet.fault_engines(missing_gib=54))
    service.get("core/pods")
    lab.plane.kubectl("delete", "pods", "--all", "-n", service.namespace, "--force", "--grace-period=0")
    message = service.until("Stalled", "True", "KVCacheTooSmall")
    assert "tried once" in message
    assert len(service.get("apps/controllerrevisions")["items"]) == 2


def _assumptions(service: Service) -> list[str]:
    found: list[str] = service.get("plimsoll/vllmservices/svc")["status"]["plan"]["assumptions"]
    return found


def test_memory_that_others_hold_is_waited_for_and_changes_no_plan(lab: Lab, service: Service) -> None:
    assert lab.fleet is not None
    lab.fleet.run(lab.fleet.fleet.fault_engines(taken_gib=20))
    service.apply()
    message = service.until("Ready", "False", "NotEnoughFreeMemory")
    assert "less than desired GPU memory utilization" in message
    assert service.condition("Stalled")["status"] == "False"
    lab.fleet.run(lab.fleet.fleet.fault_engines())
    service.until("Ready", "True", "FleetReady")
    assert len(service.get("apps/controllerrevisions")["items"]) == 1


def test_a_quota_is_named(lab: Lab, service: Service) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight", "namespace": service.namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
    }
    lab.plane.kubectl.apply(quota)
    service.apply()
    message = service.until("Stalled", "True", "QuotaExceeded")
    assert "ResourceQuota tight is used up" in message
    lab.plane.kubectl("delete", "resourcequota", "tight", "-n", service.namespace)
    service.until("Ready", "True", "FleetReady")


def test_a_node_that_lost_its_gpu_is_named(lab: Lab, service: Service) -> None:
    assert lab.fleet is not None
    node = "l40s-0"
    lab.fleet.run(lab.fleet.fleet.fault_node(node, "no-gpu"))
    try:
        service.apply(hardware={"gpu": L40S})
        assert node in service.until("Ready", "False", "NodeWithoutGPU")
    finally:
        lab.fleet.run(lab.fleet.fleet.fault_node(node, "up"))
    service.until("Ready", "True", "FleetReady")


def test_an_operator_killed_in_the_middle_ends_the_roll_out_it_began(lab: Lab, service: Service) -> None:
    assert lab.operator is not None
    service.apply(scaling={"mode": "Auto", "minReplicas": 3})
    service.until_rolled_out(32768, 3)
    with fewest_ready(service) as fewest:
        service.apply(contextTokens=30000)
        eventually(lambda: len(service.ready_pods()) == 2, within_seconds=30)
        lab.operator.kill()
        lab.operator.await_ready()
        service.until_rolled_out(30000, 3)
    assert fewest() == 2


def test_count_and_template_do_not_change_together(service: Service) -> None:
    service.apply(scaling={"mode": "Fixed"}, replicas=2)
    service.until_rolled_out(32768, 2)
    service.apply(contextTokens=30000, replicas=3)
    seen: list[tuple[int, bool]] = []

    def done() -> bool:
        fleet = service.fleet
        new = "30000" in fleet["spec"]["template"]["spec"]["containers"][0]["args"]
        mixed = any("32768" in pod["spec"]["containers"][0]["args"] for pod in service.pods() if not _leaving(pod))
        seen.append((fleet["spec"]["replicas"], new and mixed))
        return fleet["spec"]["replicas"] == 3 and len(service.ready_pods()) == 3

    eventually(done, within_seconds=ENOUGH_SECONDS)
    assert {count for count, under_way in seen if under_way} == {2}


def test_no_request_is_lost_while_three_replicas_are_replaced(lab: Lab, service: Service) -> None:
    fleet = lab.fleet
    assert fleet is not None
    service.apply(scaling={"mode": "Auto", "minReplicas": 3})
    service.until_rolled_out(32768, 3)
    labels = {names.LABEL_SERVICE: "svc"}
    load = fleet.fleet.load(service.namespace, labels, rate=4, prompt_tokens=50, output_tokens=40, seconds=60)
    with ThreadPoolExecutor() as pool:
        requests = pool.submit(fleet.run, load)
        service.apply(contextTokens=30000)
        service.until_rolled_out(30000, 3, within_seconds=180)
        report = requests.result()
    assert report.failures == {}
    assert report.succeeded == report.sent == 240
