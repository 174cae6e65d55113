"""Requests in flight while pods are replaced: a change of the plan, and a node drain under the disruption budget."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from e2e.controlplane.kubectl import KubectlError
from e2e.eventually import eventually
from e2e.node.suite.services import Services

REPLICAS: Final = 3
RATE: Final = 12
ROLLOUT_SECONDS: Final = 240.0


@pytest.fixture
def fleet(services: Services) -> Services:
    """Three replicas of `svc`, all Ready."""
    services.apply("svc", replicas=REPLICAS)
    services.until("svc", "Ready", "True")
    return services


def names_of(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def test_a_rolling_update_under_load_loses_no_request(
    fleet: Services, record_property: Callable[[str, object], None]
) -> None:
    before = names_of(fleet.pods("svc"))
    seconds = 90
    fleet.start_client("client", fleet.address("svc"), f"--rate={RATE}", f"--seconds={seconds}", "--output=200")
    eventually(lambda: fleet.get("pod", "client")["status"]["phase"] == "Running")

    fleet.apply("svc", replicas=REPLICAS, contextTokens=16384)
    eventually(
        lambda: len(now := names_of(fleet.pods("svc"))) == REPLICAS and not now & before,
        within_seconds=ROLLOUT_SECONDS,
    )
    fleet.until("svc", "Ready", "True")

    report = fleet.client_report("client", within_seconds=seconds + 60)
    lost = report["sent"] - report["succeeded"]
    figure = {"bench": "requests_lost_in_a_rolling_update", "value": lost, "unit": "requests", **report}
    record_property("figure", figure)
    assert report["sent"] >= 1000
    assert report["failures"] == {}
    assert report["succeeded"] == report["sent"]


def test_an_eviction_waits_for_the_one_before(fleet: Services) -> None:
    first, second, _ = sorted(names_of(fleet.pods("svc")))
    fleet.start_client("client", fleet.address("svc"), f"--rate={RATE}", "--seconds=30", "--output=200")
    eventually(lambda: fleet.get("pod", "client")["status"]["phase"] == "Running")

    evict(fleet, first)
    with pytest.raises(KubectlError, match="disruption budget"):
        evict(fleet, second)
    eventually(lambda: len(names_of(fleet.pods("svc")) - {first}) == REPLICAS)
    fleet.until("svc", "Ready", "True")
    eventually(lambda: fleet.get("pdb", "svc")["status"]["disruptionsAllowed"] == 1)
    evict(fleet, second)
    fleet.until("svc", "Ready", "True")

    report = fleet.client_report("client", within_seconds=90)
    assert report["failures"] == {}
    assert report["succeeded"] == report["sent"]


def evict(fleet: Services, pod: str) -> None:
    """Ask as `kubectl drain` does."""
    path = f"/api/v1/namespaces/{fleet.namespace}/pods/{pod}/eviction"
    metadata = {"name": pod, "namespace": fleet.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    fleet.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
