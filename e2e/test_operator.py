"""The operator as its users see it: real API server, real scheduler, GPU nodes and engines that are faithful fakes."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually
from e2e.labrun import CHECKOUT, Lab, LabOptions
from e2e.look import H100, OWNED, Apply, Look
from plimsoll.api import names

pytestmark = pytest.mark.controlplane

SWEEP_SECONDS: Final = "5"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    options = LabOptions(
        nodes="3*NVIDIA-H100-80GB-HBM3:8,1*NVIDIA-L40S:4",
        load_seconds=1.0,
        operator_env={"PLIMSOLL_SWEEP_SECONDS": SWEEP_SECONDS},
    )
    with Lab(options) as lab:
        yield lab


@pytest.fixture
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


def test_a_service_becomes_a_serving_fleet_and_leaves_nothing(apply: Apply, look: Look) -> None:
    apply("svc", scaling={"mode": "Auto", "minReplicas": 2})
    look.until("svc", "Ready", "True", "FleetReady")
    status = look.get("vllmservices", "svc")["status"]
    assert status["replicas"] == status["readyReplicas"] == 2
    assert status["summary"]["replicas"] == "2/2"
    assert status["selector"] == "app.kubernetes.io/instance=svc,plimsoll.dev/track=main"
    plan = status["plan"]
    assert plan["kv"]["blockSize"] == 528
    assert plan["kv"]["numBlocks"] * plan["kv"]["bytesPerBlock"] <= plan["availableKVBytes"]["mid"]
    assert {item["basis"] for item in plan["memory"]} <= {"exact", "fitted", "assumed"}
    assert {c["type"] for c in status["conditions"]} >= {"Ready", "Reconciling", "Stalled", "Planned", "Available"}

    fleet = look.get("deployments", "svc")
    container = fleet["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "vllm/vllm-openai:v0.32.0"
    assert container["args"][0] == "Qwen/Qwen3.5-9B"
    flags = dict(zip(container["args"][1::1], container["args"][2::1], strict=False))
    assert flags["--max-model-len"] == "131072"
    assert flags["--tensor-parallel-size"] == "1"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert fleet["spec"]["template"]["spec"]["enableServiceLinks"] is False
    assert fleet["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/instance": "svc",
        "plimsoll.dev/track": "main",
    }
    budget = look.get("poddisruptionbudgets", "svc")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["spec"]["selector"]["matchLabels"]["plimsoll.dev/track"] == "main"
    assert look.get("services", "svc")["spec"]["selector"]["app.kubernetes.io/instance"] == "svc"

    def reasons() -> set[str]:
        return {e["reason"] for e in look.all("events") if e["involvedObject"]["kind"] == names.KIND}

    eventually(lambda: "FleetReady" in reasons())  # events are written after the status that was waited for
    assert reasons() == {"Feasible", "FleetReady"}
    look.kubectl("delete", "vllm", "svc", "-n", look.namespace)
    left = (*OWNED, "replicasets", "pods")
    eventually(lambda: not [obj for kind in left for obj in look.all(kind)], within_seconds=60)


def test_it_writes_nothing_into_the_users_object_and_nothing_when_nothing_changed(
    apply: Apply, look: Look, lab: Lab
) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    look.observed("svc", "Idle")
    service = look.get("vllmservices", "svc")
    assert "finalizers" not in service["metadata"]
    assert not [a for a in service["metadata"].get("annotations", {}) if "plimsoll" in a or "kopf" in a]
    managers = {m["manager"] for m in service["metadata"]["managedFields"] if m.get("subresource") != "status"}
    assert not [m for m in managers if m.startswith("plimsoll")]
    before = look.quiet()
    assert lab.operator is not None
    lab.operator.stop()
    lab.operator.start()
    look.until("svc", "Ready", "True")
    assert look.quiet() == before


@pytest.mark.parametrize(
    ("edit", "repaired"),
    [
        pytest.param(
            ["set", "image", "deployment/svc", "vllm=other:1"],
            lambda look: "other" not in str(look.get("deployments", "svc")["spec"]),
            id="another image",
        ),
        pytest.param(
            ["scale", "deployment/svc", "--replicas=3"],
            lambda look: look.get("deployments", "svc")["spec"]["replicas"] == 1,
            id="another count",
        ),
        pytest.param(["delete", "service", "svc"], lambda look: look.maybe("services", "svc"), id="a deleted Service"),
        pytest.param(
            ["label", "service", "svc", "app.kubernetes.io/managed-by-", "plimsoll.dev/service-"],
            lambda look: look.get("services", "svc")["metadata"].get("labels", {}).get("plimsoll.dev/service") == "svc",
            id="labels taken away",
        ),
        pytest.param(
            ["patch", "service", "svc", "--type=json", '-p=[{"op":"remove","path":"/metadata/ownerReferences"}]'],
            lambda look: look.get("services", "svc")["metadata"].get("ownerReferences"),
            id="its owner taken away",
        ),
    ],
)
def test_drift_is_repaired(apply: Apply, look: Look, edit: list[str], repaired: Callable[[Look], object]) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    look.quiet()
    look.kubectl(*edit, "-n", look.namespace)
    eventually(lambda: repaired(look), within_seconds=15)
    look.until("svc", "Ready", "True")


def test_a_service_that_comes_back_takes_up_what_it_left(apply: Apply, look: Look) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    pods = {pod["metadata"]["uid"] for pod in look.all("pods")}
    look.kubectl("delete", "vllm", "svc", "-n", look.namespace, "--cascade=orphan")
    apply("svc")
    look.until("svc", "Ready", "True")
    uid = look.get("vllmservices", "svc")["metadata"]["uid"]
    owned = [child for kind in OWNED for child in look.all(kind)]
    assert {child["metadata"]["ownerReferences"][0]["uid"] for child in owned} == {uid}
    assert {pod["metadata"]["uid"] for pod in look.all("pods")} == pods


@pytest.mark.parametrize("kind", ["services", "controllerrevisions"])
def test_a_child_that_is_still_being_deleted_is_waited_for(apply: Apply, look: Look, kind: str) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    (child,) = look.all(kind)
    address = (kind, child["metadata"]["name"], "-n", look.namespace)
    look.kubectl("patch", *address, "--type=merge", "-p", '{"metadata":{"finalizers":["plimsoll.dev/test"]}}')
    look.kubectl("delete", *address, "--wait=false")
    waiting = look.until("svc", "Reconciling", "True")
    assert "still being deleted" in waiting["message"]
    look.kubectl("patch", *address, "--type=merge", "-p", '{"metadata":{"finalizers":[]}}')
    look.until("svc", "Reconciling", "False")
    eventually(lambda: [c["metadata"]["uid"] for c in look.all(kind)] not in ([], [child["metadata"]["uid"]]))


def test_a_foreign_object_is_left_alone_and_named(apply: Apply, look: Look) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "svc", "namespace": look.namespace, "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}},
    }
    look.kubectl.apply(foreign)
    apply("svc")
    stalled = look.until("svc", "Stalled", "True", "NameConflict")
    assert f"Service {look.namespace}/svc exists and is not ours (managed by Helm)" in stalled["message"]
    assert look.get("services", "svc")["spec"]["selector"] == {"app": "web"}
    assert not look.maybe("deployments", "svc")
    look.kubectl("delete", "service", "svc", "-n", look.namespace)
    look.until("svc", "Ready", "True")


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        pytest.param(
            {"model": {"id": "Qwen/Qwen3.5-9C"}}, "UnknownModel", ("Qwen/Qwen3.5-9B", "configRef"), id="unknown model"
        ),
        pytest.param(
            {"hardware": {"gpu": "NVIDIA-H999-80GB-HBM3"}},
            "UnknownGPU",
            ("NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.product"),
            id="unknown GPU",
        ),
        pytest.param(
            {"contextTokens": 300_000}, "MaxModelLenAboveModel", ("300000", "262144"), id="context above the model's"
        ),
        pytest.param(
            {
                "model": {"id": "Qwen/Qwen3-32B"},
                "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 1},
                "contextTokens": 32768,
            },
            "NoMemoryForKV",
            ("weights", "maxGPUs: 1 -> "),
            id="weights larger than the GPU",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_a_way_out(
    apply: Apply, look: Look, spec: dict[str, Any], reason: str, says: tuple[str, ...]
) -> None:
    apply("svc", **spec)
    planned = look.until("svc", "Planned", "False", reason)
    assert all(text in planned["message"] for text in says), planned["message"]
    look.until("svc", "Stalled", "True", reason)
    assert look.condition("svc", "Ready")["reason"] == reason
    assert not look.maybe("deployments", "svc")
    assert not look.maybe("services", "svc")


def test_an_impossible_change_leaves_the_last_good_fleet_serving(apply: Apply, look: Look) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    before = look.get("deployments", "svc")["spec"]
    apply("svc", contextTokens=300_000)
    ready = look.until("svc", "Ready", "False", "MaxModelLenAboveModel")
    assert "previous fleet keeps serving (1 ready)" in ready["message"]
    assert look.condition("svc", "Available")["status"] == "True"
    assert look.get("deployments", "svc")["spec"] == before
    assert look.get("vllmservices", "svc")["status"]["plan"]["choice"]["gpu"] == H100
    apply("svc")
    look.until("svc", "Ready", "True")
    assert look.get("deployments", "svc")["spec"]["template"] == before["template"]


def test_a_config_map_is_missing_then_broken_then_right(apply: Apply, look: Look) -> None:
    apply("svc", model={"id": "acme/nine", "configRef": {"name": "nine"}})
    assert "does not exist" in look.until("svc", "Planned", "False", "CatalogueUnreadable")["message"]
    _config_map(look, "{not json")
    eventually(lambda: "not JSON" in look.condition("svc", "Planned")["message"], within_seconds=60)
    _config_map(look, '{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": "wide"}')
    wrong = look.until("svc", "Planned", "False", "InvalidModelConfig")
    assert "hidden_size" in wrong["message"]
    _config_map(look, _bundled("Qwen--Qwen3.5-9B"))
    look.until("svc", "Planned", "True", "Feasible")
    assert look.maybe("deployments", "svc")


def _config_map(look: Look, text: str) -> None:
    meta = {"name": "nine", "namespace": look.namespace}
    look.kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"config.json": text}})


def _bundled(name: str) -> str:
    path = CHECKOUT / "operator" / "plimsoll" / "facts" / "catalogue" / f"{name}.json"
    return json.dumps(json.loads(path.read_text(encoding="utf-8"))["config"])


def test_the_operators_own_catalogue_adds_models_and_a_broken_entry_hurts_only_its_own(
    apply: Apply, look: Look
) -> None:
    labels = {names.LABEL_CATALOGUE: "true"}
    meta = {"name": "house-models", "namespace": "plimsoll-system", "labels": labels}
    data = {"acme--nine.json": _bundled("Qwen--Qwen3.5-9B"), "acme--broken.json": "[]"}
    look.kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    try:
        apply("nine", model={"id": "acme/nine"})
        apply("broken", model={"id": "acme/broken"})
        planned = look.until("nine", "Planned", "True", "Feasible")
        assert planned["status"] == "True"
        assert "house-models" in str(look.get("vllmservices", "nine")["status"]["plan"]["assumptions"])
        assert "a JSON list" in look.until("broken", "Planned", "False", "CatalogueUnreadable")["message"]
    finally:
        look.kubectl("delete", "configmap", "house-models", "-n", "plimsoll-system")


def test_a_plan_is_sticky_until_it_is_accepted(apply: Apply, look: Look) -> None:
    _config_map(look, _bundled("Qwen--Qwen3.5-9B"))
    model = {"id": "Qwen/Qwen3.5-9B", "configRef": {"name": "nine"}}
    apply("svc", model=model)
    look.until("svc", "Ready", "True")
    template = look.get("deployments", "svc")["spec"]["template"]
    _config_map(look, _bundled("Qwen--Qwen3-8B"))
    update = look.until("svc", "PlanUpdateAvailable", "True", "PlanNowInfeasible")
    assert "262144" in update["message"] or "40960" in update["message"]
    assert look.get("deployments", "svc")["spec"]["template"] == template
    assert look.condition("svc", "Ready")["status"] == "True"


def test_the_last_five_revisions_are_kept(apply: Apply, look: Look) -> None:
    def runs(context: int) -> bool:
        return f"'{context}'" in str(look.maybe("deployments", "svc"))

    for context in range(10_000, 17_000, 1_000):
        apply("svc", contextTokens=context)
        eventually(partial(runs, context))
    eventually(lambda: len(look.all("controllerrevisions")) == 5)
    numbers = sorted(r["revision"] for r in look.all("controllerrevisions"))
    assert numbers == [3, 4, 5, 6, 7]


def test_fixed_scaling_by_hand_within_the_gpu_budget(apply: Apply, look: Look) -> None:
    apply("svc", scaling={"mode": "Fixed"}, replicas=2, hardware={"gpu": H100, "maxGPUs": 3})
    look.until("svc", "Ready", "True")
    assert look.maybe("poddisruptionbudgets", "svc")
    look.kubectl("scale", "vllm", "svc", "--replicas=4", "-n", look.namespace)
    limited = look.until("svc", "ScalingLimited", "True", "MaxGPUs")
    assert "maxGPUs is 3" in limited["message"]
    eventually(lambda: look.get("deployments", "svc")["spec"]["replicas"] == 3)
    look.kubectl("scale", "vllm", "svc", "--replicas=1", "-n", look.namespace)
    eventually(lambda: look.get("deployments", "svc")["spec"]["replicas"] == 1)
    eventually(lambda: not look.maybe("poddisruptionbudgets", "svc"))


def test_scaling_by_hand_in_auto_explains_itself(apply: Apply, look: Look) -> None:
    apply("svc")
    with pytest.raises(KubectlError, match="External or Fixed"):
        look.kubectl("scale", "vllm", "svc", "--replicas=3", "-n", look.namespace)


@pytest.mark.parametrize(
    "held",
    [
        pytest.param({"annotations": {names.ANNOTATION_HOLD: "true"}}, id="hold"),
        pytest.param({"mode": "Shadow"}, id="shadow"),
    ],
)
def test_a_held_service_is_planned_and_not_touched(apply: Apply, look: Look, held: dict[str, Any]) -> None:
    apply("svc", **held)
    look.until("svc", "Planned", "True", "Feasible")
    assert look.condition("svc", "Reconciling")["reason"] == "OnHold"
    assert not look.maybe("deployments", "svc")
    apply("svc")
    look.until("svc", "Ready", "True")


def test_a_held_fleet_that_is_not_what_is_asked_is_not_ready(apply: Apply, look: Look) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    before = look.get("deployments", "svc")["spec"]
    held = {names.ANNOTATION_HOLD: "true"}
    apply("svc", held)
    assert look.until("svc", "Ready", "True")["reason"] == "FleetReady"
    apply("svc", held, contextTokens=65_536)
    ready = look.until("svc", "Ready", "False", "OnHold")
    assert "the previous fleet keeps serving (1 ready)" in ready["message"]
    assert look.condition("svc", "Available")["status"] == "True"
    assert look.get("deployments", "svc")["spec"] == before
    apply("svc", contextTokens=65_536)
    look.until("svc", "Ready", "True", "FleetReady")
    assert look.get("deployments", "svc")["spec"]["template"] != before["template"]


def test_only_a_new_value_of_the_annotation_restarts_pods(apply: Apply, look: Look) -> None:
    apply("svc", {names.ANNOTATION_RESTART: "monday"})
    look.until("svc", "Ready", "True")
    pods = {pod["metadata"]["uid"] for pod in look.all("pods")}
    template = look.get("deployments", "svc")["spec"]["template"]
    apply("svc", {names.ANNOTATION_HOLD: "false"})  # as a GitOps tool takes away what is not in Git
    kept = look.quiet()
    assert names.ANNOTATION_RESTART not in look.get("vllmservices", "svc")["metadata"]["annotations"]
    assert look.get("deployments", "svc")["spec"]["template"] == template
    apply("svc", {names.ANNOTATION_RESTART: "monday"})
    assert look.quiet().keys() == kept.keys()
    assert {pod["metadata"]["uid"] for pod in look.all("pods")} == pods
    apply("svc", {names.ANNOTATION_RESTART: "tuesday"})
    eventually(lambda: not pods & {pod["metadata"]["uid"] for pod in look.all("pods")}, within_seconds=90)
    look.until("svc", "Ready", "True")


def test_an_engine_that_dies_at_start_is_named(apply: Apply, look: Look) -> None:
    # Between two recorded releases a flag may have gone at any point: the planner lets it pass, this engine does not.
    apply("svc", engine={"version": "0.30.0", "extraArgs": ["--enable-bf16x3-router-gemm"]})
    ready = look.until("svc", "Ready", "False", "BadFlag")
    assert "exit code 2" in ready["message"]
    assert "--enable-bf16x3-router-gemm" in ready["message"]


def test_pods_that_find_no_gpu_are_named(apply: Apply, look: Look) -> None:
    apply(
        "svc", hardware={"gpu": "NVIDIA-L40S", "maxGPUs": 8}, contextTokens=32768, scaling={"mode": "Fixed"}, replicas=6
    )
    eventually(lambda: look.condition("svc", "Available").get("status") == "True", within_seconds=60)
    ready = look.until("svc", "Ready", "False", "NoFreeGPU")
    assert "0 of 4 GPUs on l40s-0 are free" in ready["message"]


def test_an_object_deleted_and_made_again_gets_a_fleet_of_its_own(apply: Apply, look: Look) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    first = look.get("deployments", "svc")["metadata"]["uid"]
    look.kubectl("delete", "vllm", "svc", "-n", look.namespace)
    apply("svc")
    look.until("svc", "Ready", "True")
    assert look.get("deployments", "svc")["metadata"]["uid"] != first


def test_kubectl_shows_what_the_issue_promises(apply: Apply, look: Look) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    header, row = look.kubectl("get", "vllm", "svc", "-n", look.namespace, "-o", "wide").splitlines()
    columns = dict(zip(header.split(), row.split(), strict=False))
    assert columns["MODEL"] == "Qwen/Qwen3.5-9B"
    assert columns["CONTEXT"] == "131072"
    assert columns["REPLICAS"] == "1/1"
    assert columns["REASON"] == "FleetReady"
    look.kubectl("wait", "vllm/svc", "--for=condition=Ready", "-n", look.namespace, "--timeout=10s")
    assert "Where the memory of the worst GPU goes" in look.kubectl("explain", "vllmservice.status.plan.memory")
