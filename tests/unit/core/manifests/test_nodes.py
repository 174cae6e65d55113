"""A replica over several nodes: one node serves, the others work, and no selector takes one for the other."""

import ast
from collections.abc import Mapping
from typing import Any

import pytest

from e2e.fleet import recordings, vllm_args
from plimsoll.core.manifests.identity import track_selector, traffic_selector
from plimsoll.core.manifests.nodes import first_release, node_templates, spans_nodes
from tests.unit.core.manifests import several

Template = Mapping[str, Any]


@pytest.fixture(scope="module")
def leader() -> Template:
    return several.revision().template


@pytest.fixture(scope="module")
def worker() -> Template:
    found = several.revision().worker_template
    assert found is not None
    return found


def _engine(template: Template) -> Mapping[str, Any]:
    (container,) = template["spec"]["containers"]
    return container  # type: ignore[no-any-return]


def _value(template: Template, flag: str) -> str:
    args = _engine(template)["args"]
    return str(args[args.index(flag) + 1])


def _selected(template: Template, selector: Mapping[str, str]) -> bool:
    labels: Mapping[str, str] = template["metadata"]["labels"]
    return selector.items() <= labels.items()


def test_every_node_gets_the_same_engine_but_for_its_rank_and_the_way_to_the_leader(
    leader: Template, worker: Template
) -> None:
    own = {"--node-rank", "--master-addr"}
    left, right = (list(_engine(t)["args"]) for t in (leader, worker))
    assert right.pop(right.index("--headless")) == "--headless"
    differ = {left[i - 1] for i, (a, b) in enumerate(zip(left, right, strict=True)) if a != b}
    assert differ == own
    assert _value(leader, "--nnodes") == _value(worker, "--nnodes") == "2"
    assert _value(leader, "--node-rank") == "0"
    assert _value(worker, "--node-rank") == "$(LWS_WORKER_INDEX)"
    assert _value(worker, "--master-addr") == "$(LWS_LEADER_ADDRESS)"


def test_the_leader_binds_its_own_address(leader: Template) -> None:
    assert _value(leader, "--master-addr") == "$(VLLM_HOST_IP)"
    by_name = {entry["name"]: entry for entry in _engine(leader)["env"]}
    assert by_name["VLLM_HOST_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


@pytest.mark.parametrize("role", ["leader", "worker"])
def test_each_pod_takes_its_nodes_share_of_the_gpus(role: str, request: pytest.FixtureRequest) -> None:
    template = request.getfixturevalue(role)
    assert _engine(template)["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_only_the_leader_is_behind_the_service_and_counts_as_a_replica(leader: Template, worker: Template) -> None:
    for selector in (traffic_selector("svc"), track_selector("svc")):
        assert _selected(leader, selector)
        assert not _selected(worker, selector)


def test_a_users_own_labels_are_on_every_node() -> None:
    labels = {"team": "docs", "app.kubernetes.io/name": "vllm"}
    base = several.revision().template
    made = node_templates({**base, "metadata": {"labels": labels}}, "svc", 2)
    assert made.worker is not None
    assert made.worker["metadata"]["labels"]["team"] == "docs"
    assert made.worker["metadata"]["labels"]["app.kubernetes.io/name"] == "vllm-worker"


def test_what_serves_nothing_is_not_probed_and_opens_no_port(leader: Template, worker: Template) -> None:
    assert {"ports", "startupProbe", "readinessProbe"} <= _engine(leader).keys()
    assert not {"ports", "startupProbe", "readinessProbe", "livenessProbe"} & _engine(worker).keys()


def test_an_evicted_worker_waits_for_the_leader_to_drain_and_no_longer(leader: Template, worker: Template) -> None:
    command = _engine(worker)["lifecycle"]["preStop"]["exec"]["command"]
    ast.parse(command[-1])
    assert "LWS_LEADER_ADDRESS" in command[-1]
    grace = "terminationGracePeriodSeconds"
    assert worker["spec"][grace] == leader["spec"][grace]


def test_a_setting_of_the_api_server_is_not_given_to_nodes_without_one() -> None:
    base = several.revision().template
    engine = {"name": "vllm", "args": ["m", "--api-server-count", "4", "--max-num-seqs=8", "-asc=2"]}
    template = {**base, "spec": {"containers": [engine, {"name": "sidecar", "args": ["--api-server-count", "1"]}]}}
    made = node_templates(template, "svc", 2)
    assert made.worker is not None
    first, sidecar = made.worker["spec"]["containers"]
    assert first["args"][:2] == ["m", "--max-num-seqs=8"]
    assert "--api-server-count" in made.leader["spec"]["containers"][0]["args"]
    assert sidecar == template["spec"]["containers"][1]


@pytest.mark.parametrize(
    ("version", "spans"), [("0.10.2", False), ("0.11.2", False), ("0.12.0", True), ("0.13.0", True), ("0.32.0", True)]
)
def test_releases_that_span_nodes_by_themselves(version: str, spans: bool) -> None:
    assert spans_nodes(version) is spans
    assert first_release() == "0.12.0"


SPANNING = [version for version in recordings.flag_tables() if spans_nodes(version)]


@pytest.mark.parametrize("version", SPANNING)
@pytest.mark.parametrize(("role", "rank"), [("leader", 0), ("worker", 1)])
def test_every_release_that_spans_nodes_reads_what_it_is_given(
    version: str, role: str, rank: int, request: pytest.FixtureRequest
) -> None:
    given = {"$(LWS_WORKER_INDEX)": "1", "$(LWS_LEADER_ADDRESS)": "a.b.c", "$(VLLM_HOST_IP)": "10.0.0.1"}
    args = _engine(request.getfixturevalue(role))["args"]
    # Only what this module adds: the rest is the planner's, and each release's own.
    added = [given.get(word, word) for word in args[args.index("--nnodes") :]]
    headless = [word for word in args if word == "--headless"]
    read = vllm_args.parse(["model", *added, *headless], version)
    assert (read["nnodes"], read["node_rank"], bool(read["headless"])) == (2, rank, role == "worker")
