"""Room for one more pod, counted as the scheduler counts: whole cards on one node, of nodes that take the pod."""

from decimal import Decimal
from typing import Any

import pytest

from plimsoll.core.capacity import Room, may_take, read_node, room, taken_of
from plimsoll.core.placement import Needs, pod_requests, read_needs, repelled_by, selects
from plimsoll.core.surge import no_room

PRODUCT = "nvidia.com/gpu.product"
H100 = "NVIDIA-H100-80GB-HBM3"
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def _node(name: str, gpus: int = 8, *, product: str = H100, ready: str = "True", **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name, "labels": {PRODUCT: product}},
        "spec": spec,
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": ready}]},
    }


def _pod(gpus: int, phase: str = "Running", memory: str = "8Gi") -> dict[str, Any]:
    resources = {"requests": {"memory": memory}, "limits": {"nvidia.com/gpu": str(gpus)}}
    return {"spec": {"containers": [{"name": "c", "resources": resources}]}, "status": {"phase": phase}}


def _needs(gpus: int = 1, memory: str = "16Gi", **spec: Any) -> Needs:
    body = _pod(gpus, memory=memory)["spec"]
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return read_needs({**body, "nodeSelector": {PRODUCT: H100}, "tolerations": tolerations, **spec})


def _room(needs: Needs, *nodes: dict[str, Any], **pods: list[dict[str, Any]]) -> Room:
    read = [read_node(node) for node in nodes]
    return room(needs, read, {name: taken_of(there) for name, there in pods.items()})


@pytest.mark.parametrize(
    ("needs", "nodes", "pods", "fits"),
    [
        pytest.param(_needs(), [_node("a")], {}, 8, id="an empty node"),
        pytest.param(_needs(2), [_node("a")], {"a": [_pod(1)]}, 3, id="whole pods only"),
        pytest.param(_needs(4), [_node("a"), _node("b")], {"a": [_pod(6)], "b": [_pod(6)]}, 0, id="scattered GPUs"),
        pytest.param(_needs(), [_node("a", 1)], {"a": [_pod(1)]}, 0, id="the only GPU is taken"),
        pytest.param(_needs(), [_node("a", 1)], {"a": [_pod(1, "Succeeded"), _pod(1, "Failed")]}, 1, id="pods over"),
        pytest.param(_needs(), [_node("a", product="NVIDIA-L40S")], {}, 0, id="another product"),
        pytest.param(_needs(), [_node("a", 0)], {}, 0, id="joined without its GPU"),
        pytest.param(_needs(), [_node("a", ready="False")], {}, 0, id="not Ready"),
        pytest.param(_needs(), [_node("a", ready="Unknown")], {}, 0, id="nobody knows"),
        pytest.param(_needs(), [_node("a", unschedulable=True)], {}, 0, id="cordoned"),
        pytest.param(_needs(), [_node("a", taints=[GPU_TAINT])], {}, 8, id="a taint that the pod tolerates"),
        pytest.param(
            _needs(), [_node("a", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])], {}, 0, id="a taint"
        ),
        pytest.param(
            _needs(), [_node("a", taints=[{"key": "team", "effect": "PreferNoSchedule"}])], {}, 8, id="a mild taint"
        ),
        pytest.param(_needs(memory="400Gi"), [_node("a")], {"a": [_pod(1, memory="200Gi")]}, 0, id="no memory left"),
    ],
)  # fmt: skip
def test_room(needs: Needs, nodes: list[dict[str, Any]], pods: dict[str, list[dict[str, Any]]], fits: int) -> None:
    assert _room(needs, *nodes, **pods).fits == fits


def test_why_there_is_no_room_names_nodes_and_figures() -> None:
    tainted = _node("t", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    found = _room(_needs(), _node("a", 2), tainted, _node("c", unschedulable=True), _node("g", 0), a=[_pod(2)])
    text = no_room(found)
    assert "0 of 2 GPUs on a are free" in text
    assert "t has the taint team=x:NoSchedule" in text
    assert "c cordoned or not Ready" in text
    assert "g labelled with the product but without a GPU to give" in text
    assert no_room(_room(_needs(), _node("z", product="NVIDIA-L4"))) == "no node of the GPU product is in the cluster"


def test_only_nodes_that_could_take_the_pod_need_their_pods_listed() -> None:
    nodes = [_node("a"), _node("b", product="NVIDIA-L4"), _node("c", unschedulable=True), _node("d", 0)]
    assert [n.name for n in map(read_node, nodes) if may_take(_needs(), n)] == ["a"]


def test_a_mig_slice_is_counted_by_its_own_resource() -> None:
    slice_ = "nvidia.com/mig-3g.40gb"
    node = _node("a", 0)
    node["status"]["allocatable"][slice_] = "2"
    spec = {"containers": [{"resources": {"limits": {slice_: "1"}}}], "nodeSelector": {PRODUCT: H100}}
    held = {"spec": {"containers": [{"resources": {"limits": {slice_: "1"}}}]}, "status": {}}
    found = _room(read_needs(spec), node, a=[held])
    assert (found.fits, found.gpus_free, read_needs(spec).gpu_resource) == (1, 1, slice_)


def test_requests_of_a_pod_are_its_containers_and_sidecars_or_its_largest_init_container() -> None:
    one = {"resources": {"requests": {"cpu": "1"}}}
    big = {"resources": {"requests": {"cpu": "5"}}}
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
    spec = {"containers": [one, one], "initContainers": [big, sidecar], "overhead": {"cpu": "250m"}}
    assert pod_requests(spec)["cpu"] == Decimal("5.25")
    assert pod_requests({**spec, "initContainers": [sidecar]})["cpu"] == Decimal("2.75")


@pytest.mark.parametrize(
    ("toleration", "repelled"),
    [
        ({"operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": "k", "value": "v"}, False),
        ({"key": "k", "operator": "Equal", "value": "other"}, True),
        ({"key": "other", "operator": "Exists"}, True),
    ],
)
def test_tolerations(toleration: dict[str, str], repelled: bool) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    assert bool(repelled_by(Needs({}, tolerations=[toleration]), [taint])) is repelled


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "none", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, False),
        ({"key": "cores", "operator": "Gt", "values": ["32"]}, True),
        ({"key": "zone", "operator": "Lt", "values": ["32"]}, False),
    ],
)
def test_required_node_affinity(expression: dict[str, Any], matches: bool) -> None:
    needs = Needs({}, terms=[{"matchExpressions": [expression]}])
    assert selects(needs, {"zone": "a", "cores": "64"}) is matches
