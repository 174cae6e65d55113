"""Optional kinds on a real API server: they come, go and are forbidden while the operator runs.

LeaderWorkerSet has its own controller and webhooks here. Its pods run an image that only runs: tested is who makes
them, whom selectors mean and what is said; what vLLM does with its arguments is tested elsewhere.
"""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import pytest

from e2e import optional
from e2e.controlplane.api import ApiError
from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from e2e.optional import LeaderWorkerSets
from plimsoll.api import names

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

H100: Final = "NVIDIA-H100-80GB-HBM3"
PREFIX: Final = {
    "vllmservices": "/apis/plimsoll.dev/v1alpha1",
    "deployments": "/apis/apps/v1",
    "controllerrevisions": "/apis/apps/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "services": "/api/v1",
    "pods": "/api/v1",
    "leaderworkersets": "/apis/leaderworkerset.x-k8s.io/v1",
    "podmonitors": "/apis/monitoring.coreos.com/v1",
    "inferencepools": "/apis/inference.networking.k8s.io/v1",
}
WRITTEN: Final = tuple(kind for kind in PREFIX if kind != "pods")
IDLE_IMAGE: Final = "registry.example.com/idle:1"
SMALL: Final[dict[str, Any]] = {
    "model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True},
    "hardware": {"gpu": H100},
    "contextTokens": 32768,
}
LARGE: Final[dict[str, Any]] = {
    "model": {"id": "deepseek-ai/DeepSeek-V3.2"},
    "hardware": {"gpu": H100, "maxGPUs": 32},
    "contextTokens": 65536,
    "engine": {"version": "0.32.0", "image": IDLE_IMAGE},
    "scaling": {"mode": "Fixed"},
    "replicas": 1,
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Five nodes of eight GPUs, and an operator that looks for kinds every second."""
    env = {
        "PLIMSOLL_DISCOVERY_SECONDS": "1",
        "PLIMSOLL_SWEEP_SECONDS": "5",
        "PLIMSOLL_PROMETHEUS_URL": "",  # what is seen of engines would be written, and nothing here is about it
        "PLIMSOLL_POD_MONITOR_LABELS": '{"release": "prom"}',
    }
    with Lab(LabOptions(nodes=f"5*{H100}:8", load_seconds=1.0, operator_env=env)) as lab:
        yield lab


@pytest.fixture(scope="module")
def sets(lab: Lab) -> LeaderWorkerSets:
    return LeaderWorkerSets(lab.plane)


@pytest.fixture
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


@pytest.fixture(autouse=True)
def no_fault_of_ours(lab: Lab) -> Iterator[None]:
    """Whatever happens to a kind, the operator takes it calmly."""
    yield
    assert lab.operator is not None
    assert "Traceback" not in lab.operator.process.log.read_text()
    assert lab.operator.process.restarts == 0


class Place:
    """One namespace, and questions about it."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self.kubectl, self.namespace, self._api = lab.plane.kubectl, namespace, lab.plane.api

    def apply(self, name: str, spec: dict[str, Any], **changes: Any) -> None:
        meta = {"name": name, "namespace": self.namespace}
        head = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta}
        self.kubectl.apply({**head, "spec": spec | changes})

    def maybe(self, kind: str, name: str) -> dict[str, Any]:
        """The object; nothing when there is none, or its kind is not served."""
        try:
            return self._api.get(f"{PREFIX[kind]}/namespaces/{self.namespace}/{kind}/{name}")
        except ApiError as error:
            if error.code != 404:
                raise
            return {}

    def all(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        query = f"?labelSelector={selector}" if selector else ""
        try:
            found = self._api.get(f"{PREFIX[kind]}/namespaces/{self.namespace}/{kind}{query}")
        except ApiError as error:
            if error.code != 404:
                raise
            return []
        items: list[dict[str, Any]] = found["items"]
        return items

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        found = self.maybe("vllmservices", name).get("status", {}).get("conditions") or []
        return next((c for c in found if c["type"] == kind), {})

    def until(self, name: str, kind: str, status: str, reason: str | None = None) -> str:
        """The condition's message, once it has this status (and reason) for the spec as it is."""

        def there() -> dict[str, Any] | None:
            service, found = self.maybe("vllmservices", name), self.condition(name, kind)
            current = found.get("observedGeneration") == service["metadata"]["generation"]
            return found if current and found["status"] == status and reason in (None, found["reason"]) else None

        found = eventually(there, within_seconds=90)
        assert found is not None
        return str(found["message"])

    def versions(self) -> dict[str, str]:
        """Resource versions of all that the operator writes here."""
        objects = [(kind, item["metadata"]) for kind in WRITTEN for item in self.all(kind)]
        return {f"{kind}/{meta['name']}": meta["resourceVersion"] for kind, meta in objects}

    def settled(self) -> dict[str, str]:
        """The versions, once two looks a moment apart are equal."""
        seen: list[dict[str, str]] = [{}]

        def same() -> bool:
            seen.append(self.versions())
            return seen[-1] == seen[-2]

        eventually(same, within_seconds=60)
        return seen[-1]

    def pods(self) -> dict[str, str]:
        """Uids of the pods that are not ending, by name."""
        found = [p["metadata"] for p in self.all("pods")]
        return {meta["name"]: meta["uid"] for meta in found if "deletionTimestamp" not in meta}


@pytest.fixture
def place(lab: Lab, kubectl: Kubectl, namespace: str) -> Iterator[Place]:
    place = Place(lab, namespace)
    yield place
    # Groups of eight GPUs a node must be gone before the next test wants them.
    kubectl("delete", "vllmservices", "--all", "-n", namespace)
    eventually(lambda: not place.pods(), within_seconds=120)
    eventually(lambda: not place.all("pods"), within_seconds=120)


@pytest.fixture
def with_sets(sets: LeaderWorkerSets) -> Iterator[LeaderWorkerSets]:
    sets.install()
    yield sets
    sets.remove()


def _written(lab: Lab) -> float:
    """Writes that the operator has sent so far, by its own count."""
    assert lab.operator is not None
    lines = _metrics(lab.operator.url).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("plimsoll_api_writes_total"))


def _metrics(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def test_groups_from_missing_kind_to_gone_again(
    lab: Lab, place: Place, sets: LeaderWorkerSets, kubectl: Kubectl
) -> None:
    place.apply("large", LARGE)
    assert "is not served by this cluster" in place.until("large", "Planned", "False", "SeveralNodes")
    assert not place.all("pods")

    sets.install()
    try:
        place.until("large", "Ready", "True")
        _serves_through_its_leader(place)
        before = place.settled()
        writes = _written(lab)
        _sweeps(lab, 2)
        assert place.versions() == before
        assert _written(lab) == writes, "an idle fleet of groups costs no write"
        _goes_unseen_and_comes_back(lab, place, kubectl)
    finally:
        sets.remove()
    stalled = place.until("large", "Stalled", "True", "SeveralNodes")
    assert "left as it is" in stalled


def _serves_through_its_leader(place: Place) -> None:
    assert place.condition("large", "Contested")["status"] == "False", "no webhook of the set's changes what is ours"
    status = place.maybe("vllmservices", "large")["status"]
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    (leader,) = place.all("pods", status["selector"])
    everything = place.all("pods")
    assert len(everything) == 2
    selector = place.maybe("services", "large")["spec"]["selector"]
    assert [p["metadata"]["name"] for p in place.all("pods", ",".join(f"{k}={v}" for k, v in selector.items()))] == [
        leader["metadata"]["name"]
    ]
    (worker,) = (pod for pod in everything if pod["metadata"]["uid"] != leader["metadata"]["uid"])
    assert leader["spec"]["nodeName"] != worker["spec"]["nodeName"]
    env = {e["name"]: e.get("value") for e in worker["spec"]["containers"][0]["env"]}
    assert env["LWS_WORKER_INDEX"] == "1"
    assert env["LWS_LEADER_ADDRESS"] == f"large-lws-0.large-lws.{place.namespace}"
    assert place.maybe("services", "large-lws")["spec"]["clusterIP"] == "None"


def _sweeps(lab: Lab, count: int) -> None:
    """Wait until the operator has listed everything that many times more."""
    assert lab.operator is not None
    url = lab.operator.url

    def swept() -> float:
        lines = [line for line in _metrics(url).splitlines() if line.startswith('plimsoll_sweeps_total{result="ok"}')]
        return float(lines[0].rsplit(" ", 1)[1]) if lines else 0.0

    start = swept()
    eventually(lambda: swept() >= start + count, within_seconds=60)


def _goes_unseen_and_comes_back(lab: Lab, place: Place, kubectl: Kubectl) -> None:
    """An operator starts that may not see groups: pods run on, it is said, nothing restarts once it may again."""
    assert lab.operator is not None
    pods = place.pods()
    rules: list[dict[str, Any]] = kubectl.get("clusterrole", "plimsoll")["rules"]
    _set_rules(kubectl, [rule for rule in rules if rule["resources"] != ["leaderworkersets"]])
    try:
        lab.operator.stop()
        lab.operator.start()
        assert "can be neither seen nor changed" in place.until("large", "Stalled", "True", "SeveralNodes")
        assert place.condition("large", "Available")["status"] == "True", "what serves is told from pods"
        assert "keeps serving (1 ready)" in place.condition("large", "Ready")["message"]
        assert place.pods() == pods
    finally:
        _set_rules(kubectl, rules)
    place.until("large", "Ready", "True")
    assert place.pods() == pods


@pytest.mark.usefixtures("with_sets")
def test_groups_scale_roll_and_are_repaired(place: Place, kubectl: Kubectl) -> None:
    place.apply("large", LARGE)
    place.until("large", "Ready", "True")
    kubectl("scale", "vllm", "large", "--replicas=2", "-n", place.namespace)
    eventually(lambda: place.maybe("vllmservices", "large")["status"]["readyReplicas"] == 2, within_seconds=60)
    assert len(place.pods()) == 4
    budget = eventually(lambda: place.maybe("poddisruptionbudgets", "large").get("status"))
    eventually(lambda: place.maybe("poddisruptionbudgets", "large")["status"]["expectedPods"] == 4)
    assert budget

    edit = {"spec": {"replicas": 1, "leaderWorkerTemplate": {"restartPolicy": "None"}}}
    kubectl("patch", "lws", "large-lws", "--type=merge", "-p", json.dumps(edit), "-n", place.namespace)

    def repaired() -> bool:
        spec = place.maybe("leaderworkersets", "large-lws")["spec"]
        policy = spec["leaderWorkerTemplate"]["restartPolicy"]
        return (spec["replicas"], policy) == (2, "RecreateGroupOnPodRestart")

    eventually(repaired)
    before = place.pods()
    place.apply("large", LARGE, replicas=2, contextTokens=32768)
    eventually(lambda: not set(before.values()) & set(place.pods().values()), within_seconds=120)
    place.until("large", "Ready", "True")
    leaders = place.all("pods", place.maybe("vllmservices", "large")["status"]["selector"])
    assert all("32768" in pod["spec"]["containers"][0]["args"] for pod in leaders)


@pytest.mark.usefixtures("with_sets")
def test_a_plan_that_needs_the_other_kind_starts_beside_the_fleet_that_serves(place: Place) -> None:
    place.apply("svc", SMALL, hardware={"gpu": H100, "maxGPUs": 8})
    place.until("svc", "Ready", "True")
    place.apply("svc", LARGE, hardware={"gpu": H100, "maxGPUs": 16})
    message = place.until("svc", "Stalled", "True", "NoSpareGPU")
    assert "17 would do" in message
    assert place.condition("svc", "Available")["status"] == "True"
    assert not place.all("leaderworkersets")
    place.apply("svc", LARGE, hardware={"gpu": H100, "maxGPUs": 17})
    place.until("svc", "Ready", "True")
    assert not place.maybe("deployments", "svc")
    assert place.maybe("leaderworkersets", "svc-lws")
    place.apply("svc", SMALL, hardware={"gpu": H100, "maxGPUs": 17})
    eventually(lambda: not place.maybe("leaderworkersets", "svc-lws"), within_seconds=90)
    place.until("svc", "Ready", "True")


def test_monitors_appear_with_their_kind_and_a_missing_right_concerns_nothing_else(
    place: Place, kubectl: Kubectl
) -> None:
    place.apply("svc", SMALL)
    place.until("svc", "Ready", "True")
    place.until("svc", "Integrated", "True", "InUse")
    rules: list[dict[str, Any]] = kubectl.get("clusterrole", "plimsoll")["rules"]
    _set_rules(kubectl, [rule for rule in rules if rule["resources"] != ["podmonitors"]])
    optional.install(kubectl, "podmonitors")
    try:
        message = place.until("svc", "Integrated", "False", "KindUnusable")
        assert "podmonitors.monitoring.coreos.com" in message
        assert place.condition("svc", "Ready")["status"] == "True"
        assert place.condition("svc", "Stalled")["status"] == "False"
        place.apply("other", SMALL)
        place.until("other", "Ready", "True")
        _set_rules(kubectl, rules)
        place.until("svc", "Integrated", "True", "InUse")
        monitor = place.maybe("podmonitors", "svc")
        assert monitor["metadata"]["labels"]["release"] == "prom"
        kubectl("delete", "podmonitor", "svc", "-n", place.namespace)
        eventually(lambda: place.maybe("podmonitors", "svc"))
    finally:
        _set_rules(kubectl, rules)
        optional.remove(kubectl, "podmonitors")
    place.until("svc", "Integrated", "True", "InUse")


def _set_rules(kubectl: Kubectl, rules: list[dict[str, Any]]) -> None:
    patch = [{"op": "replace", "path": "/rules", "value": rules}]
    kubectl("patch", "clusterrole", "plimsoll", "--type=json", "-p", json.dumps(patch))


def test_a_pool_is_made_when_its_kind_comes_kept_right_and_taken_away(place: Place, kubectl: Kubectl) -> None:
    routing = {"endpointPicker": {"service": "epp"}}
    place.apply("svc", SMALL, routing=routing)
    assert "spec.routing.endpointPicker" in place.until("svc", "Integrated", "False", "KindMissing")
    place.until("svc", "Ready", "True")
    pods = place.pods()
    optional.install(kubectl, "inferencepools")
    try:
        place.until("svc", "Integrated", "True", "InUse")
        _keeps_right(place, kubectl)
        place.apply("svc", SMALL)
        eventually(lambda: not place.maybe("inferencepools", "svc"))
        assert place.pods() == pods, "routing restarts nothing"
        _leaves_a_foreign_one_alone(place, kubectl, routing)
    finally:
        optional.remove(kubectl, "inferencepools")


def _keeps_right(place: Place, kubectl: Kubectl) -> None:
    before = place.settled()
    edit = {"spec": {"endpointPickerRef": {"name": "mine"}}}
    kubectl("patch", "inferencepool", "svc", "--type=merge", "-p", json.dumps(edit), "-n", place.namespace)
    eventually(lambda: place.maybe("inferencepools", "svc")["spec"]["endpointPickerRef"]["name"] == "epp")
    after = place.settled()
    assert before.keys() == after.keys()
    assert [key for key in after if after[key] != before[key]] == ["inferencepools/svc"]


def _leaves_a_foreign_one_alone(place: Place, kubectl: Kubectl, routing: dict[str, Any]) -> None:
    spec = {
        "selector": {"matchLabels": {"app": "theirs"}},
        "targetPorts": [{"number": 80}],
        "endpointPickerRef": {"name": "theirs", "port": {"number": 9002}},
    }
    meta = {"name": "svc", "namespace": place.namespace, "labels": {"app.kubernetes.io/managed-by": "Helm"}}
    kubectl.apply(
        {"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": meta, "spec": spec}
    )
    place.apply("svc", SMALL, routing=routing)
    assert "managed by Helm" in place.until("svc", "Integrated", "False", "NameConflict")
    assert place.maybe("inferencepools", "svc")["spec"]["endpointPickerRef"]["name"] == "theirs"
    assert place.condition("svc", "Ready")["status"] == "True"
