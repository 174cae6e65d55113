"""The LeaderWorkerSet: a group is a replica, its name leaves room for what its controller derives from it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core import rollout
from plimsoll.core.manifests.group import read_status, set_name
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.pdb import disruption_budget
from plimsoll.core.manifests.revision import read_revision
from plimsoll.core.manifests.workload import scale, workload, workload_of, workloads
from plimsoll.core.steps import Step
from plimsoll.core.surge import Way
from tests.unit.core.manifests import several

OWNER = Owner("ns", "svc", "u")
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True)


@given(NAMES)
def test_every_name_that_follows_from_the_sets_fits_its_place(service: str) -> None:
    name = set_name(service)
    pod_label = f"{name}-999-{'f' * 10}"  # controller-revision-hash of a worker StatefulSet's pods
    assert len(pod_label) <= 63
    assert name[0].isalpha()
    assert name[-1].isalnum()
    assert name != service, "the set's controller makes a headless Service of the set's name"


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_two_services_have_two_sets(services: list[str]) -> None:
    assert set_name(services[0]) != set_name(services[1])


def _spec(way: Way = "OneAtATime") -> dict[str, Any]:
    spec: dict[str, Any] = workload(OWNER, several.revision(), way)["spec"]
    return spec


def test_a_group_is_a_replica_and_is_recreated_whole() -> None:
    template = _spec()["leaderWorkerTemplate"]
    assert template["size"] == 2
    assert template["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert "replicas" not in _spec(), "the count has a manager of its own"


@pytest.mark.parametrize(
    ("way", "surge", "unavailable"),
    [
        pytest.param("Surge", 1, 0, id="where a whole group fits beside"),
        pytest.param("OneAtATime", 0, 1, id="several groups make their own room"),
        pytest.param("Recreate", 0, "100%", id="the user allows an interruption"),
    ],
)
def test_groups_are_replaced_as_pods_of_a_deployment_are(way: Way, surge: int, unavailable: int | str) -> None:
    rolling = _spec(way)["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == (surge, unavailable)


def test_the_count_is_written_alone_and_to_the_set() -> None:
    target = workload_of("svc", several.revision())
    assert target == workloads("svc")[1]
    written = scale(OWNER, target, 3)
    assert written["spec"] == {"replicas": 3}
    assert (written["kind"], written["metadata"]["name"]) == ("LeaderWorkerSet", "svc-lws")


def test_the_fleet_of_such_a_plan_is_a_set_behind_the_same_service() -> None:
    revision = several.revision()
    kinds = [m["kind"] for m in rollout.children(several.request(), revision, Step(revision, 1, "OneAtATime"))]
    assert kinds == ["ControllerRevision", "Service", "LeaderWorkerSet"]


def test_a_revision_keeps_the_templates_of_every_node() -> None:
    kept = several.revision()
    read = read_revision(kept.manifest(OWNER))
    assert read == kept
    assert read is not None
    assert read.worker_template == kept.worker_template


def test_a_disruption_budget_counts_every_pod_of_a_replica() -> None:
    selector = disruption_budget(OWNER, 2)["spec"]["selector"]
    assert selector["matchLabels"] == {"app.kubernetes.io/instance": "svc"}
    assert selector["matchExpressions"][0]["values"] == ["main", "worker"]


@pytest.mark.parametrize(
    ("status", "generation", "seen"),
    [
        pytest.param({"observedGeneration": 3}, 4, 3, id="what it says"),
        pytest.param({"conditions": [{"type": "Available"}]}, 4, 4, id="before 0.9 it does not say"),
        pytest.param({}, 4, 0, id="nothing yet"),
    ],
)
def test_a_sets_status_is_read_as_a_deployments(status: dict[str, Any], generation: int, seen: int) -> None:
    found = read_status(status, generation)
    assert found["observedGeneration"] == seen
    assert found["replicas"] == 0
