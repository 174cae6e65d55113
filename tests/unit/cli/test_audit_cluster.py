# ruff: noqa: E501 - a row of a table is one line
"""Reading a live cluster: what is asked, what may be refused, what running pods say."""

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from plimsoll.adapters.ports import AUTOSCALERS, DEPLOYMENTS, NODES, PODS, ForbiddenError, Kind
from plimsoll.cli.audit_result import Options, audit_reading
from plimsoll.cli.audit_usage import period_seconds, queries
from plimsoll.cli.main import app
from plimsoll.cli.workload_cluster import ClusterReading, Reader
from tests.unit.core.audit.deployments import beside, deployment, judged

LIVE = {"uid": "1", "namespace": "llm", "name": "qwen"}


class Cluster:
    """Answers lists, and what pods say of themselves."""

    def __init__(self, objects: Mapping[Kind, list[dict[str, Any]]], forbidden: Collection[Kind] = ()) -> None:
        self.objects, self.forbidden = objects, forbidden
        self.asked: list[tuple[str, str | None]] = []

    async def which_served(self, kinds: Collection[Kind]) -> frozenset[Kind]:
        return frozenset(kind for kind in kinds if kind in self.objects or kind in self.forbidden)

    async def list(self, kind: Kind, namespace: str | None = None) -> AsyncIterator[dict[str, Any]]:
        self.asked.append((kind.plural, namespace))
        if kind in self.forbidden:
            raise ForbiddenError(f"{kind.plural} is forbidden")
        for each in self.objects.get(kind, ()):
            yield {key: value for key, value in each.items() if key not in {"kind", "apiVersion"}}

    async def ask_pod(self, namespace: str, pod: str, port: int, path: str) -> dict[str, Any]:
        self.asked.append((f"{pod}:{port}{path}", namespace))
        return {"version": "0.25.1"}


def live(**fields: Any) -> dict[str, Any]:
    return {**deployment(**fields), "metadata": dict(LIVE)}


def pod(**status: Any) -> dict[str, Any]:
    meta = {
        "name": "qwen-1",
        "namespace": "llm",
        "labels": {"app": "qwen"},
        "ownerReferences": [{"kind": "ReplicaSet"}],
    }
    return {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {"phase": "Running", **status}}


def node(product: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": product}}}


async def read(cluster: Cluster, *namespaces: str) -> ClusterReading:
    return await Reader(cluster, "ctx", namespaces, None).read()  # type: ignore[arg-type] # as much of it as is asked


async def test_the_gpu_is_that_of_the_node_a_pod_runs_on() -> None:
    bare = live(pod={"nodeSelector": None})
    found = await read(Cluster({DEPLOYMENTS: [bare], PODS: [pod()], NODES: [node("NVIDIA-L40S")]}))
    [judgement] = audit_reading(found.reading, Options(), found.known).judged
    assert judgement.server.product == "NVIDIA-L40S"
    assert judgement.where()[0] == "cluster/ctx/llm/Deployment/qwen"


async def test_an_engine_says_its_release_where_the_image_does_not() -> None:
    cluster = Cluster({DEPLOYMENTS: [live(container={"image": "vllm/vllm-openai:latest"})], PODS: [pod()]})
    found = await read(cluster)
    [judgement] = audit_reading(found.reading, Options(), found.known).judged
    assert judgement.server.release == (0, 25, 1)
    assert ("qwen-1:8000/version", "llm") in cluster.asked


async def test_what_may_not_be_read_is_said_and_left_out() -> None:
    found = await read(Cluster({DEPLOYMENTS: [live()]}, forbidden=[NODES, AUTOSCALERS]))
    assert len(found.reading.servers()) == 1
    assert [note.split(":")[0] for note in found.reading.notes] == [
        "horizontalpodautoscalers in llm not read", "nodes not read, so GPUs are those that manifests name",
    ]  # fmt: skip


async def test_only_the_namespaces_that_were_named() -> None:
    cluster = Cluster({DEPLOYMENTS: [live()]})
    await read(cluster, "llm", "chat")
    assert {namespace for plural, namespace in cluster.asked if plural == "deployments"} == {"llm", "chat"}


@pytest.mark.parametrize(
    ("metadata", "fixed"),
    [
        pytest.param({}, False, id="the autoscaler alone"),
        pytest.param({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"spec":{"replicas":2}}'}}, True, id="kubectl apply"),
        pytest.param({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"spec":{}}'}}, False, id="an apply without it"),
        pytest.param({"managedFields": [{"operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]}, True, id="server-side apply"),
        pytest.param({"managedFields": [{"operation": "Update", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]}, False, id="the scale subresource"),
    ],
)  # fmt: skip
def test_who_writes_the_replicas_of_a_live_workload(metadata: dict[str, Any], fixed: bool) -> None:
    workload = {**deployment(spec={"replicas": 2}), "metadata": {**LIVE, **metadata}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "qwen"}
    scaler = beside("HorizontalPodAutoscaler", "q", spec={"scaleTargetRef": target})
    rules = {each.rule.id for judgement in judged(workload, scaler) for each in judgement.findings}
    assert ("two-writers-of-replicas" in rules) == fixed


def test_queries_ask_for_every_spelling_and_one_workload() -> None:
    [judgement] = judged(deployment())
    asked = queries(judgement.server, 3600.0)
    assert 'namespace="llm",pod=~"qwen-.+"' in asked["pools"]
    assert "vllm:gpu_cache_usage_perc" in asked["pools"]
    assert "[3600s:5s]" in asked["pools"]


@pytest.mark.parametrize(("written", "seconds"), [("7d", 604800), ("12h", 43200), ("2w", 1209600)])
def test_periods(written: str, seconds: float) -> None:
    assert period_seconds(written) == seconds


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["--cluster"], 3, "no usable Kubernetes credentials", id="no kubeconfig"),
        pytest.param(["--all-contexts"], 3, "no contexts", id="no contexts"),
        pytest.param(["-", "--prometheus", "http://127.0.0.1:9", "--period", "soon"], 2, "--period", id="no period"),
        pytest.param(["-", "--prometheus", "http://127.0.0.1:9"], 3, "cannot be reached", id="no Prometheus"),
    ],
)
def test_what_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    result = CliRunner().invoke(app, ["audit", *words], input=yaml.safe_dump(deployment()), catch_exceptions=False)
    assert result.exit_code == code
    assert said in result.stderr
