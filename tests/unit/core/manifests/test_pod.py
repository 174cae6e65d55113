"""The pod of an engine: it starts at the first try, ends without losing requests, and is the same bytes each time."""

import json
from typing import Any

import pytest

from plimsoll.api import names
from plimsoll.core.manifests.container import SHM_VOLUME
from plimsoll.core.manifests.gpu import gpu_claim
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.steps import Step
from tests.unit.core.manifests.rendering import engine, planned, pod, request, template


def test_the_same_request_gives_the_same_bytes() -> None:
    asked: dict[str, Any] = {"model": {"source": {"hub": {"tokenSecret": {"name": "hf"}}}}}
    first, second = json.dumps(template(**asked)), json.dumps(template(**asked))
    assert first == second


def test_probes_follow_the_plan() -> None:
    container, found = engine(), planned(request()).startup
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= found.probe_seconds >= 2 * found.seconds
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert "livenessProbe" not in container


def test_tls_of_the_engine_is_tls_of_its_probes() -> None:
    for args in (["--ssl-certfile", "/tls/a", "--ssl-keyfile=/tls/b"], ["--ssl-certfile=/tls/a", "--ssl-keyfile=/b"]):
        container = engine(engine={"extraArgs": args})
        assert (
            container["startupProbe"]["httpGet"]["scheme"]
            == container["readinessProbe"]["httpGet"]["scheme"]
            == "HTTPS"
        )


def test_the_end_of_a_pod_follows_the_plan() -> None:
    found, spec = planned(request()).drain, pod()
    assert spec["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": found.pre_stop_seconds}}}
    assert spec["terminationGracePeriodSeconds"] == found.grace_seconds


def test_shared_memory_and_requests_are_the_plans() -> None:
    spec, host = pod(), planned(request()).host
    (shared,) = (volume["emptyDir"] for volume in spec["volumes"] if volume["name"] == SHM_VOLUME)
    assert shared == {"medium": "Memory", "sizeLimit": str(host.shared_memory_bytes)}
    assert {"name": SHM_VOLUME, "mountPath": "/dev/shm"} in spec["containers"][0]["volumeMounts"]
    requests = spec["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": str(host.cpu_cores), "memory": str(host.memory_bytes)}


def test_replicas_spread_over_nodes_and_zones_where_they_can() -> None:
    spreads = pod()["topologySpreadConstraints"]
    assert [s["topologyKey"] for s in spreads] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert {s["whenUnsatisfiable"] for s in spreads} == {"ScheduleAnyway"}
    labels = template()["metadata"]["labels"]
    assert all(s["labelSelector"]["matchLabels"].items() <= labels.items() for s in spreads)


def test_the_progress_deadline_leaves_room_for_pulls_and_the_probes_budget() -> None:
    from plimsoll.core import rollout  # noqa: PLC0415

    asked = request()
    revision = rollout.render(asked, planned(asked), 1)
    (fleet,) = (
        c for c in rollout.children(asked, revision, Step(revision, 1, "OneAtATime")) if c["kind"] == "Deployment"
    )
    assert fleet["spec"]["progressDeadlineSeconds"] == planned(asked).startup.deadline_seconds


@pytest.mark.parametrize(
    ("product", "strategy", "resource", "selector"),
    [
        ("NVIDIA-L40S", "single", "nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-L40S"}),
        ("NVIDIA-L40S", "mixed", "nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-L40S"}),
        ("NVIDIA-L40S-SHARED", "single", "nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-L40S-SHARED"}),
        (
            "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
            "single",
            "nvidia.com/gpu",
            {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"},
        ),
        (
            "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
            "mixed",
            "nvidia.com/mig-3g.40gb",
            {"nvidia.com/mig-3g.40gb.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"},
        ),
        (
            "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me",
            "mixed",
            "nvidia.com/mig-1g.5gb.me",
            {"nvidia.com/mig-1g.5gb.me.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me"},
        ),
    ],
)
def test_how_gpus_are_asked_for(product: str, strategy: Any, resource: str, selector: dict[str, str]) -> None:
    claim = gpu_claim(product, strategy)
    assert (claim.resource, claim.node_selector) == (resource, selector)


def test_a_slice_of_a_gpu_is_planned_and_asked_for() -> None:
    spec = pod(hardware={"gpu": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"})
    assert spec["nodeSelector"] == {names.GPU_PRODUCT_LABEL: "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"}
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("asked", "started_by"),
    [
        pytest.param({}, None, id="the image's own entry point"),
        pytest.param({"version": "0.19.1"}, None, id="of an older release"),
        pytest.param({"version": "0.11.0"}, ["vllm", "serve"], id="which once took no model's name"),
        pytest.param({"image": "nvcr.example.com/vllm:26.01"}, ["vllm", "serve"], id="an own image"),
    ],
)
def test_what_starts_the_engine(asked: dict[str, Any], started_by: list[str] | None) -> None:
    container = engine(engine=asked)
    assert container.get("command") == started_by
    assert container["args"][0] == "Qwen/Qwen3-8B"


def test_ranks_of_one_pod_are_its_gpus() -> None:
    container = engine(
        model={"id": "Qwen/Qwen3-32B"}, hardware={"gpu": "NVIDIA-L40S"}, config=bundled_config("Qwen/Qwen3-32B")
    )
    ranks = container["args"][container["args"].index("--tensor-parallel-size") + 1]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": ranks}
    assert int(ranks) > 1
