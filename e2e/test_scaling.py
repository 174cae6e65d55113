"""Scaling on the whole chain: load → engines → Prometheus → operator → Deployment → pods, with short windows."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from e2e.look import Apply, Look, applier
from plimsoll.api import names

pytestmark = pytest.mark.controlplane

WINDOW_SECONDS: Final = 8
ENDS_WITHIN_SECONDS: Final = 20
SEQUENCES: Final = 4
"""The cap of a replica: a few requests are then a load, and the machine that runs the test has little to do."""
SMALL: Final = {"extraArgs": [f"--max-num-seqs={SEQUENCES}"]}
SHORT: Final = {
    "PLIMSOLL_METRICS_INTERVAL_SECONDS": "1.5",
    "PLIMSOLL_METRICS_WINDOW_SECONDS": "8",
    "PLIMSOLL_METRICS_STALE_SECONDS": "10",
    "PLIMSOLL_SCALE_DOWN_SECONDS": str(WINDOW_SECONDS),
    "PLIMSOLL_EXPERIMENT_WINDOW_SECONDS": "4",
}
FEW_BLOCKS: Final = {"extraArgs": [f"--kv-cache-memory-bytes={160 * 2359296}", "--max-num-seqs=64"]}
"""160 blocks of Qwen3-8B: a few requests fill them."""
L40S: Final = "NVIDIA-L40S"
_JUDGES: Final = """
import json, os, time
time.sleep(3)
with open(os.environ["TERMINATION_MESSAGE_PATH"], "w") as file:
    json.dump({"score": 0.99, "threshold": 0.9, "message": os.environ["PLIMSOLL_CANDIDATE_URL"]}, file)
"""
PASSES: Final = [sys.executable, "-c", _JUDGES]
INVENTORY: Final = {"products": {L40S: {"sharedGPUs": 3}}, "priorities": {"important": 10}}
# Requests that run at the service `front` stand for those that wait at a gateway.
ACTIVATION: Final = {
    "gateway": 'label_replace(sum by (namespace) (vllm:num_requests_running{service="front"}), '
    '"service", "sleeper", "", "")'
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("settings")
    options = LabOptions(
        nodes=f"2*NVIDIA-H100-80GB-HBM3:4,1*{L40S}:4",
        load_seconds=2.0,
        operator_env={
            **SHORT,
            "PLIMSOLL_INVENTORY": _file(folder / "inventory.json", INVENTORY),
            "PLIMSOLL_ACTIVATION": _file(folder / "activation.json", ACTIVATION),
        },
    )
    with Lab(options) as lab:
        yield lab


def _file(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)


@pytest.fixture
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


@contextmanager
def load(lab: Lab, look: Look, name: str, *, concurrency: float) -> Iterator[None]:
    """Requests of about 2.5 s each, so many at once, until the block is left; those under way then end."""
    assert lab.fleet is not None
    fleet, stop = lab.fleet, threading.Event()
    requests = fleet.fleet.load(
        look.namespace,
        {names.LABEL_SERVICE: name},
        rate=concurrency / 2.5,
        prompt_tokens=100,
        output_tokens=200,
        seconds=600,
        enough=lambda _: stop.is_set(),
    )

    async def send() -> None:
        sent = asyncio.ensure_future(requests)
        await asyncio.to_thread(stop.wait)
        await asyncio.wait([sent], timeout=ENDS_WITHIN_SECONDS)
        sent.cancel()  # what was asked of a node that died is never answered
        await asyncio.gather(sent, return_exceptions=True)

    sending = threading.Thread(target=lambda: fleet.run(send()), daemon=True)
    sending.start()
    try:
        yield
    finally:
        stop.set()
        sending.join()


def count(look: Look, name: str) -> int:
    return int(look.get("deployments", name)["spec"]["replicas"])


def decisions(look: Look, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = look.get("vllmservices", name)["status"].get("decisions", [])
    return found


def test_a_burst_is_caught_and_the_fleet_comes_down_afterwards(lab: Lab, apply: Apply, look: Look) -> None:
    apply("svc", engine=SMALL, contextTokens=8192)
    look.until("svc", "Ready", "True")
    seen: list[tuple[int, str, str]] = []

    def watch() -> int:
        found = {c["type"]: c["status"] for c in look.get("vllmservices", "svc")["status"]["conditions"]}
        seen.append((count(look, "svc"), found["Ready"], found["Reconciling"]))
        return seen[-1][0]

    with load(lab, look, "svc", concurrency=3 * SEQUENCES):
        eventually(lambda: watch() >= 3, within_seconds=60)
    eventually(lambda: watch() == 1, within_seconds=60)
    assert {state for _, *states in seen for state in [tuple(states)]} == {("True", "False")}
    told = decisions(look, "svc")
    grown = next(entry for entry in told if entry["reason"] == "MoreDemand")
    assert told[-1]["reason"] == "LessDemand"
    assert float(grown["inputs"]["replicasBySequences"]) > 1
    assert grown["alternatives"]
    events = {e["reason"] for e in look.all("events") if e["involvedObject"]["kind"] == names.KIND}
    assert {"MoreDemand", "LessDemand"} <= events


def test_replicas_that_do_not_come_cause_no_more_scaling(lab: Lab, apply: Apply, look: Look) -> None:
    nodes = look.kubectl("get", "nodes", "-o", "name").split()
    apply("svc", engine=SMALL, contextTokens=8192)
    look.until("svc", "Ready", "True")
    look.kubectl("cordon", *nodes)
    try:
        with load(lab, look, "svc", concurrency=6 * SEQUENCES):
            look.until("svc", "ScalingLimited", "True", "NoRoom")
            # A queue that grows, look after look: one step of four is all until somebody has come.
            _looks(lab, 10)
            assert 1 < count(look, "svc") <= 5
            assert look.condition("svc", "Ready")["status"] == "True"
            assert look.condition("svc", "Reconciling")["status"] == "False"
    finally:
        look.kubectl("uncordon", *nodes)


def test_a_storm_of_preemptions_ends(lab: Lab, apply: Apply, look: Look) -> None:
    apply("svc", model={"id": "Qwen/Qwen3-8B"}, engine=FEW_BLOCKS, contextTokens=2048)
    look.until("svc", "Ready", "True")
    storm = f'sum(increase(vllm:num_preemptions_total{{namespace="{look.namespace}"}}[5s]))'
    with load(lab, look, "svc", concurrency=16):
        eventually(lambda: _ask(lab, storm) > 0, within_seconds=60)
        eventually(
            lambda: "MoreDemand" in [decision["reason"] for decision in decisions(look, "svc")], within_seconds=60
        )
        eventually(lambda: look.get("deployments", "svc")["status"].get("readyReplicas", 0) > 1, within_seconds=60)
        eventually(lambda: _ask(lab, storm) == 0, within_seconds=60)


def test_a_flag_that_would_help_is_recommended_and_turned_by_nobody(lab: Lab, apply: Apply, look: Look) -> None:
    apply("svc", model={"id": "Qwen/Qwen3-8B"}, engine=FEW_BLOCKS, contextTokens=2048, scaling={"maxReplicas": 1})
    look.until("svc", "Ready", "True")
    pods = {pod["metadata"]["uid"] for pod in look.all("pods")}

    def advice() -> dict[str, Any]:
        found: dict[str, Any] = look.get("vllmservices", "svc")["status"].get("recommendation") or {}
        return found

    with load(lab, look, "svc", concurrency=16):
        told = eventually(advice, within_seconds=60)
        assert (told["flag"], told["to"]) == ("--kv-cache-dtype", "fp8")
        assert "waiting" in told["why"]
        assert "(+100%)" in told["expected"]
    eventually(lambda: not advice(), within_seconds=60)
    assert {pod["metadata"]["uid"] for pod in look.all("pods")} == pods
    look.kubectl("patch", "vllm", "svc", "-n", look.namespace, "--type=merge", "-p", told["patch"])
    eventually(lambda: "--kv-cache-dtype=fp8" in look.get("vllmservices", "svc")["status"]["plan"]["choice"]["args"])


def test_fp8_meets_users_only_after_its_quality_gate_has_passed(lab: Lab, apply: Apply, look: Look) -> None:
    """The Job judges, the pods are let in, a person ends it, and nothing is left."""
    gate = {"podTemplate": {"spec": {"containers": [{"name": "gate", "image": "process/gate", "command": PASSES}]}}}
    tuning = {"mode": "Auto", "allow": ["KVCacheDtype"], "qualityGate": gate}
    spec: dict[str, Any] = {"engine": FEW_BLOCKS, "contextTokens": 2048, "scaling": {"mode": "Fixed"}, "replicas": 2}
    apply("svc", model={"id": "Qwen/Qwen3-8B"}, tuning=tuning, **spec)
    look.until("svc", "Ready", "True")
    with load(lab, look, "svc", concurrency=32):
        look.until("svc", "Experimenting", "True", "Gating")
        answers = {f"svc-{side}": look.get("services", f"svc-{side}")["spec"] for side in ("candidate", "baseline")}
        assert {each["publishNotReadyAddresses"] for each in answers.values()} == {True}
        assert _on_trial(look) == [("canary", "True", "False"), ("control", "True", "False")]
        eventually(lambda: _on_trial(look) == [("canary", "True", "True"), ("control", "True", "True")])
        assert "score 0.99" in look.get("vllmservices", "svc")["status"]["tuning"]["experiment"]["gate"]
        annotation = f"{names.ANNOTATION_EXPERIMENT}=reject"
        look.kubectl("annotate", "vllm", "svc", "-n", look.namespace, "--overwrite", annotation)
        eventually(lambda: not look.all("jobs") and len(look.all("services")) == len(look.all("deployments")) == 1)
    assert [p["outcome"] for p in look.get("vllmservices", "svc")["status"]["tuning"]["past"]] == ["rejected"]
    eventually(lambda: {_track(pod) for pod in look.all("pods")} == {"main"}, within_seconds=60)


def test_prometheus_away_moves_nothing_and_comes_back(lab: Lab, apply: Apply, look: Look) -> None:
    apply("svc", engine=SMALL, contextTokens=8192, scaling={"minReplicas": 3})
    look.until("svc", "Ready", "True")
    _looks(lab, 2 * WINDOW_SECONDS)
    prometheus = lab.plane.processes["prometheus"]
    prometheus.stop()
    try:
        apply("svc", engine=SMALL, contextTokens=8192, scaling={"minReplicas": 1})
        _looks(lab, 2 * WINDOW_SECONDS)
        assert count(look, "svc") == 3
        assert look.condition("svc", "Ready")["status"] == "True"
    finally:
        prometheus.start()
    eventually(lambda: count(look, "svc") == 1, within_seconds=90)


def test_the_last_gpus_go_to_who_is_more_important(lab: Lab, apply: Apply, look: Look) -> None:
    kubectl = lab.plane.kubectl
    kubectl.make("namespace", "important")
    important = Look(lab, "important")
    spec: dict[str, Any] = {"engine": SMALL, "contextTokens": 8192, "hardware": {"gpu": L40S, "maxGPUs": 4}}
    spec["model"] = {"id": "Qwen/Qwen3-8B"}
    try:
        apply("lesser", **spec)
        look.until("lesser", "Ready", "True")
        with load(lab, look, "lesser", concurrency=4 * SEQUENCES):
            eventually(lambda: count(look, "lesser") == 3, within_seconds=60)
            look.until("lesser", "ScalingLimited", "True", "GPUBudget")
            applier(kubectl, "important")("chat", scaling={"minReplicas": 2}, **spec)
            important.until("chat", "Ready", "True")
            eventually(lambda: count(look, "lesser") == 1, within_seconds=30)
        assert "Limits" in [entry["reason"] for entry in decisions(look, "lesser")]
    finally:
        kubectl("delete", "vllm", "--all", "-n", "important", "--wait=false")


def test_a_service_sleeps_and_is_woken_by_requests_at_the_gateway(lab: Lab, apply: Apply, look: Look) -> None:
    activation = {"query": "gateway", "idleAfter": "4s"}
    apply("front", engine=SMALL, contextTokens=8192)
    apply("sleeper", engine=SMALL, contextTokens=8192, scaling={"minReplicas": 0, "activation": activation})
    apply("insomniac", engine=SMALL, contextTokens=8192, scaling={"minReplicas": 0, "activation": {"query": "nobody"}})
    look.until("sleeper", "Ready", "True")
    eventually(lambda: count(look, "sleeper") == 0, within_seconds=60)
    assert look.until("sleeper", "Ready", "True", "Parked")
    assert "there are: gateway" in look.until("insomniac", "Stalled", "True", "UnknownActivation")["message"]
    with load(lab, look, "front", concurrency=2):
        eventually(lambda: count(look, "sleeper") == 1, within_seconds=60)
        assert look.condition("sleeper", "Ready")["status"] == "True"
    eventually(lambda: count(look, "sleeper") == 0, within_seconds=60)
    story = ["Planned", "Idle", "Woken", "Idle"]
    # A request that ends late may wake it once more.
    eventually(lambda: [entry["reason"] for entry in decisions(look, "sleeper")][: len(story)] == story)
    assert count(look, "insomniac") == 1


def test_a_node_that_dies_under_load_is_made_up_for(lab: Lab, apply: Apply, look: Look) -> None:
    assert lab.fleet is not None
    # Pods of the test before that still drain would push both of ours to one node.
    eventually(lambda: not lab.plane.api.get("/api/v1/pods")["items"], within_seconds=120)
    apply("svc", engine=SMALL, contextTokens=8192, scaling={"minReplicas": 2})
    look.until("svc", "Ready", "True")
    # Of two pods on one node nobody would be left to report, and nothing moves on what is not known.
    node, *others = [pod["spec"]["nodeName"] for pod in look.all("pods")]
    assert others != [node]
    fleet = lab.fleet.fleet
    with load(lab, look, "svc", concurrency=2.5 * SEQUENCES):
        lab.fleet.run(fleet.fault_node(node, "down"))
        try:
            eventually(lambda: count(look, "svc") >= 3, within_seconds=90)
            eventually(lambda: look.get("deployments", "svc")["status"].get("readyReplicas", 0) >= 2, within_seconds=60)
        finally:
            lab.fleet.run(fleet.fault_node(node, "up"))


def _on_trial(look: Look) -> list[tuple[str, str, str]]:
    """Track, ContainersReady and Ready of the pods of an experiment."""
    found = []
    for pod in look.all("pods"):
        said = {c["type"]: c["status"] for c in pod["status"].get("conditions") or ()}
        if _track(pod) in ("canary", "control"):
            found.append((_track(pod), said.get("ContainersReady", ""), said.get("Ready", "")))
    return sorted(found)


def _track(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"][names.LABEL_TRACK])


def _ask(lab: Lab, promql: str) -> float:
    """The first value of the answer; -1: there is none."""
    found = lab.plane.query(promql)
    return float(found[0]["value"][1]) if found else -1.0


def _looks(lab: Lab, more: int) -> None:
    """Wait until the operator has asked Prometheus so many times more, answered or not."""
    assert lab.operator is not None
    operator = lab.operator
    since = operator.metric("plimsoll_sample_seconds_count")
    eventually(lambda: operator.metric("plimsoll_sample_seconds_count") >= since + more, within_seconds=120)
