"""Parts of reading manifests on their own: walking, values of charts, neighbours, custom resources."""

from typing import Any

import pytest

from plimsoll.core.workloads.candidates import candidates
from plimsoll.core.workloads.customs import _extra, _hub_id, _without_runtime_flags
from plimsoll.core.workloads.neighbours import Named, gathered, meets
from plimsoll.core.workloads.tree import along, at, entries, is_small, part, seconds, text, walk, whole
from plimsoll.core.workloads.values import _image, _is_compose, charted_autoscaling, charted_exposure, values_candidates

TREE = {"a": {"b": [{"c": 1}, "x", {"c": {"d": 2}}]}}


def test_walking_gives_paths_that_lead_back() -> None:
    found = dict(walk(TREE))
    assert list(found) == ["", "a", "a.b[0]", "a.b[2]", "a.b[2].c"]
    for path, mapping in found.items():
        if path:
            assert list(along(TREE, path))[-1] is mapping
    assert [*along(TREE, "a.b[2].c")] == [TREE["a"], TREE["a"]["b"][2], {"d": 2}]
    assert [*along(TREE, "a.b[3].c")] == [TREE["a"]], "a list that is too short"
    assert [*along(TREE, "a.b[x].c")] == [TREE["a"]], "no number"
    assert [*along(TREE, "a.b[1].c")] == [TREE["a"]], "no mapping"


def test_a_tree_deeper_than_forty_is_cut() -> None:
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"k": deep}
    assert len(list(walk(deep))) == 41


def test_what_is_of_another_type_is_absent() -> None:
    odd: dict[str, Any] = {"a": [1, {"b": 2}, "x"], "t": True, "n": 5, "f": 1.5, "s": "text"}
    assert entries(odd, "a") == [{"b": 2}]
    assert entries(odd, "s") == []
    assert [text(odd, key) for key in ("t", "n", "f", "s", "missing")] == [None, "5", "1.5", "text", None]
    assert at(odd, "a", "b") is None
    assert part(odd, "a") == {}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (5, 5),
        (5.9, 5),
        (float("nan"), None),
        (True, None),
        (" 7 ", 7),
        ("7a", None),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        (None, None),
    ],
)
def test_whole_numbers(value: object, found: int | None) -> None:
    assert whole(value) == found


def test_seconds_of_a_probe() -> None:
    probe = {"periodSeconds": 5, "timeoutSeconds": 0}
    assert [seconds(probe, key, 10) for key in ("periodSeconds", "timeoutSeconds", "other")] == [5, 10, 10]


@pytest.mark.parametrize(("most", "small"), [(6, True), (5, False)])
def test_a_small_tree(most: int, small: bool) -> None:
    assert is_small({"a": [1, 2, {"b": 3}]}, most) is small


@pytest.mark.parametrize(
    ("image", "name"),
    [
        pytest.param("vllm/vllm-openai:v1", "vllm/vllm-openai:v1", id="a text"),
        pytest.param({"registry": "r.example", "repository": "vllm", "tag": "v1"}, "r.example/vllm:v1", id="in parts"),
        pytest.param({"repository": "vllm"}, "vllm", id="without a tag"),
        pytest.param({"name": "vllm", "tag": 1}, "vllm:1", id="a number for a tag"),
        pytest.param(
            {"repository": "vllm", "tag": "v1", "digest": "sha256:a"}, "vllm@sha256:a", id="a digest counts first"
        ),
        pytest.param({"tag": "v1"}, None, id="a tag of nothing"),
        pytest.param(["vllm"], None, id="of another type"),
    ],
)
def test_an_image_of_a_charts_values(image: object, name: str | None) -> None:
    assert _image(image) == name


@pytest.mark.parametrize(
    ("services", "compose"),
    [
        ({"vllm": {"image": "a"}}, True),
        ({"vllm": {"build": "."}}, True),
        ({"vllm": {"args": []}}, False),
        ({"vllm": "image"}, False),
        ({}, False),
    ],
)
def test_compose_is_not_kubernetes(services: dict[str, Any], compose: bool) -> None:
    assert _is_compose({"services": services}) is compose


def _application(values: dict[str, Any]) -> dict[str, Any]:
    source = {"helm": {"valuesObject": values}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "a"},
        "spec": {"source": source},
    }


ROOT = "spec.source.helm.valuesObject"


@pytest.mark.parametrize(
    ("values", "found"),
    [
        pytest.param({"service": {"type": "LoadBalancer"}}, (f"{ROOT}.service", "LoadBalancer"), id="a Service"),
        pytest.param({"service": {"type": "ClusterIP"}}, None, id="one inside"),
        pytest.param({"server": {"serviceType": "NodePort"}}, (f"{ROOT}.server", "NodePort"), id="by another name"),
        pytest.param({"ingress": {"enabled": True}}, (f"{ROOT}.ingress", "ingress"), id="an Ingress"),
        pytest.param({"ingress": {"enabled": False}}, None, id="one that is off"),
        pytest.param({"cache": {"enabled": True}}, None, id="something else that is on"),
        pytest.param({"other": {"type": "LoadBalancer"}}, None, id="no Service's type"),
    ],
)
def test_what_a_chart_opens(values: dict[str, Any], found: tuple[str, str] | None) -> None:
    assert charted_exposure(_application(values)) == found


@pytest.mark.parametrize(
    ("autoscaling", "scales"),
    [
        ({"targetCPUUtilizationPercentage": 80}, True),
        ({"targetCPUUtilizationPercentage": 80, "enabled": True}, True),
        ({"targetCPUUtilizationPercentage": 80, "enabled": False}, False),
        ({"targetCPUUtilizationPercentage": 0, "enabled": True}, False),
    ],
)
def test_an_autoscaler_on_cpu(autoscaling: dict[str, Any], scales: bool) -> None:
    assert charted_autoscaling(_application({"autoscaling": autoscaling})) == (
        f"{ROOT}.autoscaling" if scales else None
    )


def test_a_container_of_a_charts_values_has_what_stands_above_it() -> None:
    values = {
        "replicaCount": 2, "image": {"repository": "far", "tag": "1"}, "resources": {"limits": {"a": 1}},
        "server": {
            "image": {"repository": "near", "tag": "2"}, "args": ["--model", "x"], "updateStrategy": "Recreate",
            "livenessProbe": {"httpGet": {}}, "probes": {"readiness": {"spec": {"exec": {}}}},
            "startupProbe": {"enabled": False},
        },
    }  # fmt: skip
    (found,) = values_candidates(_application(values))
    assert (found.path, found.scope, found.replicas) == (f"{ROOT}.server", "values", 2)
    assert found.container["image"] == "near:2"
    assert found.container["args"] == ["--model", "x"]
    assert found.container["resources"] == {"limits": {"a": 1}}
    assert (found.container["livenessProbe"], found.container["readinessProbe"]) == ({"httpGet": {}}, {"exec": {}})
    assert "startupProbe" not in found.container
    assert found.pod["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("one", "other", "meet"), [("a", "a", True), ("a", "b", False), ("", "b", True), ("a", "", True)]
)
def test_namespaces_that_may_be_the_same(one: str, other: str, meet: bool) -> None:
    assert meets(one, other) is meet


def _object(kind: str, name: str, namespace: str = "llm", **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def _names(found: list[Named]) -> list[str]:
    return [str(each) for each in found]


AROUND = gathered(
    [
        _object("Service", "one", selector={"app": "a", "track": "main"}),
        _object("Service", "two", selector={"app": "a"}, type="NodePort"),
        _object("Service", "none"),
        _object("Service", "away", "other", selector={"app": "a"}),
        _object("HorizontalPodAutoscaler", "h", scaleTargetRef={"kind": "StatefulSet", "name": "w"}),
        _object("ScaledObject", "k", scaleTargetRef={"name": "w"}),
        _object("ScaledObject", "x", "other", scaleTargetRef={"name": "w"}),
        _object("Ingress", "i", rules=[{"http": {"paths": [{"backend": {"service": {"name": "one"}}}]}}]),
        _object("VirtualService", "v", http=[{"route": [{"destination": {"host": "two.llm.svc"}}]}]),
        _object("PersistentVolumeClaim", "c", accessModes=["ReadWriteOnce"]),
        _object("ServingRuntime", "r", containers=[]),
        {"kind": "ConfigMap", "metadata": {"generateName": "cfg-"}, "data": {"a": "1", "b": 2}},
        {"kind": "Node", "metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-L4", "zone": "a"}}},
        {"kind": "Node", "metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-L40S", "zone": "b"}}},
        {"kind": "Node", "metadata": {"labels": {"zone": "b"}}},
    ]
)


def test_services_whose_whole_selector_fits() -> None:
    assert _names(AROUND.services_of("llm", {"app": "a"})) == ["Service two"]
    assert _names(AROUND.services_of("llm", {"app": "a", "track": "main", "more": "x"})) == [
        "Service one",
        "Service two",
    ]
    assert _names(AROUND.services_of("", {"app": "a"})) == ["Service two", "Service away"]
    assert _names(AROUND.services_named("llm", "one")) == ["Service one"]
    assert AROUND.services_named("llm", "away") == []


def test_autoscalers_of_a_workload_and_a_deployment_where_no_kind_is_written() -> None:
    assert _names(AROUND.scalers_of("llm", "StatefulSet", "w")) == ["HorizontalPodAutoscaler h"]
    assert _names(AROUND.scalers_of("llm", "Deployment", "w")) == ["ScaledObject k"]
    assert AROUND.scalers_of("llm", "Deployment", "v") == []


def test_what_opens_a_service() -> None:
    opened = {each.name: _names(AROUND.opens(each)) for each in AROUND.services}
    assert opened == {"one": ["Ingress i"], "two": ["Service two", "VirtualService v"], "none": [], "away": []}


def test_claims_maps_runtimes_and_products_of_nodes() -> None:
    assert AROUND.claim("llm", "c") == {"accessModes": ["ReadWriteOnce"]}
    assert AROUND.claim("other", "c") is None
    assert AROUND.config_map("llm", "cfg") == {"a": "1"}
    assert AROUND.config_map("llm", "other") is None
    assert set(AROUND.runtimes) == {"r"}
    assert AROUND.products({}) == {"NVIDIA-L4", "NVIDIA-L40S"}
    assert AROUND.products({"zone": "b"}) == {"NVIDIA-L40S"}


CONTAINER = {"name": "c", "image": "vllm"}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}


@pytest.mark.parametrize(
    ("manifest", "found"),
    [
        pytest.param(
            {"kind": "Pod", "spec": {"containers": [CONTAINER]}},
            [("spec.containers[0]", "pod", None, 1, True)],
            id="a Pod",
        ),
        pytest.param(
            {"kind": "Deployment", "spec": {"replicas": 3, "selector": {"a": 1}, "template": TEMPLATE}},
            [("spec.template.spec.containers[0]", "pod", 3, 1, True)],
            id="a Deployment",
        ),
        pytest.param(
            {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}},
            [("spec.template.spec.containers[0]", "pod", None, 1, False)],
            id="a patch of one",
        ),
        pytest.param(
            {"kind": "Job", "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}},
            [("spec.template.spec.containers[0]", "pod", None, 1, True)],
            id="a Job has no selector",
        ),
        pytest.param(
            {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}},
            [("spec.jobTemplate.spec.template.spec.containers[0]", "pod", None, 1, True)],
            id="a CronJob",
        ),
        pytest.param(
            {
                "kind": "LeaderWorkerSet",
                "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": TEMPLATE}},
            },
            [("spec.leaderWorkerTemplate.workerTemplate.spec.containers[0]", "pod", 2, 4, True)],
            id="workers alone",
        ),
        pytest.param(
            {
                "kind": "LeaderWorkerSet",
                "spec": {"leaderWorkerTemplate": {"leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}},
            },
            [("spec.leaderWorkerTemplate.leaderTemplate.spec.containers[0]", "pod", None, 1, True)],
            id="the leader serves",
        ),
        pytest.param(
            {"kind": "ServingRuntime", "spec": {"containers": [CONTAINER]}},
            [("spec.containers[0]", "pod", None, 1, True)],
            id="a runtime",
        ),
        pytest.param(
            {"kind": "Odd", "spec": {"replicas": 5, "template": {"spec": {"containers": [CONTAINER]}}}},
            [("spec.template.spec.containers[0]", "pod", 5, 1, True)],
            id="a kind nobody knows",
        ),
        pytest.param(
            {"kind": "RayService", "spec": {"template": {"spec": {"containers": [CONTAINER]}}}},
            [("spec.template.spec.containers[0]", "operator", None, 1, True)],
            id="a kind that adds something",
        ),
        pytest.param(
            {"kind": "Odd", "spec": {"server": {"containers": [CONTAINER]}}},
            [("spec.server.containers[0]", "operator", None, 1, True)],
            id="no template",
        ),
        pytest.param(
            {"kind": "Odd", "spec": {"pod": {"mainContainer": CONTAINER}}},
            [("spec.pod.mainContainer", "operator", None, 1, True)],
            id="one main container",
        ),
        pytest.param({"kind": "Odd", "spec": {"containers": "none"}}, [], id="a text is no list"),
    ],
)
def test_containers_of_an_object(manifest: dict[str, Any], found: list[tuple[Any, ...]]) -> None:
    assert [(c.path, c.scope, c.replicas, c.nodes, c.given) for c in candidates(manifest)] == found


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        (["--model_id", "x", "--max-model-len", "8"], ["--max-model-len", "8"]),
        (["--model-id=x", "--dtype=half"], ["--dtype=half"]),
        (["--backend", "--dtype", "half"], ["--dtype", "half"]),
        (["--model_name", "x"], []),
        (["--task"], []),
        ([], []),
    ],
)
def test_flags_of_a_runtime_are_not_the_engines(args: list[str], kept: list[str]) -> None:
    assert list(_without_runtime_flags(args)) == kept


@pytest.mark.parametrize(
    ("container", "holder", "argv"),
    [
        pytest.param({"args": ["a"], "command": ["vllm"]}, {}, None, id="a command of its own"),
        pytest.param({"args": ["a"]}, {}, ("a",), id="arguments alone"),
        pytest.param({}, {}, None, id="nothing"),
        pytest.param(
            {"env": []}, {"parallelism": {"tensor": 2, "data": 0}}, ("--tensor-parallel-size", "2"), id="sizes"
        ),
        pytest.param(
            {"env": [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--dtype half"}], "args": ["a"]},
            {},
            ("a", "--dtype", "half"),
            id="and what is added",
        ),
        pytest.param({"env": [], "command": ["vllm"]}, {"parallelism": {"tensor": 2}}, None, id="but for a command"),
    ],
)
def test_what_a_controllers_template_passes_on(
    container: dict[str, Any], holder: dict[str, Any], argv: tuple[str, ...] | None
) -> None:
    assert _extra(container, holder) == argv


@pytest.mark.parametrize(
    ("url", "name"), [("hf://org/m", "org/m"), ("huggingface://m", "m"), ("s3://b/m", ""), ("org/m", "org/m"), ("", "")]
)
def test_names_of_the_hub(url: str, name: str) -> None:
    assert _hub_id(url) == name
