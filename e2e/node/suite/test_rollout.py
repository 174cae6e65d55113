"""Requests in flight while pods are replaced: a change of the plan, and a node drain under the disruption budget."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from e2e.controlplane.kubectl import KubectlError
from e2e.eventually import eventually
from e2e.node.suite.services import Services

REPLICAS: Final = 3
SHORT: Final = ("--rate=25", "--output=10")
LONG: Final = ("--rate=0.3", "--output=1500")  # 18 s a request: still running when the engine gets its SIGTERM
KEPT: Final = ("--rate=5", "--output=10", "--keep-alive")  # its connections stay with a pod that nobody else finds
KINDS: Final = {"short": SHORT, "long": LONG, "kept": KEPT}
REQUESTS: Final = 1000
PATIENCE_SECONDS: Final = 240.0

Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def fleet(services: Services) -> Services:
    """Three replicas of `svc`, all Ready."""
    services.apply("svc", replicas=REPLICAS)
    services.until("svc", "Ready", "True")
    return services


def names_of(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def test_a_rolling_update_under_load_loses_no_request(fleet: Services, record_property: Record) -> None:
    before = names_of(fleet.pods("svc"))
    start_load(fleet, "roll", at_least=REQUESTS)

    fleet.apply("svc", replicas=REPLICAS, contextTokens=16384)
    eventually(
        lambda: len(now := names_of(fleet.pods("svc"))) == REPLICAS and not now & before,
        within_seconds=PATIENCE_SECONDS,
    )
    fleet.until("svc", "Ready", "True")

    report = load_report(fleet, "roll")
    lost = report["sent"] - report["succeeded"]
    figure = {"bench": "requests_lost_in_a_rolling_update", "value": lost, "unit": "requests", **report}
    record_property("figure", figure)
    assert report["sent"] >= REQUESTS
    assert report["failures"] == {}
    assert lost == 0


def test_an_eviction_waits_for_the_one_before(fleet: Services) -> None:
    first, second, _ = sorted(names_of(fleet.pods("svc")))
    start_load(fleet, "evict", at_least=1)

    evict(fleet, first)
    with pytest.raises(KubectlError, match="disruption budget"):
        evict(fleet, second)
    eventually(lambda: len(names_of(fleet.pods("svc")) - {first}) == REPLICAS)
    fleet.until("svc", "Ready", "True")
    eventually(lambda: fleet.get("pdb", "svc")["status"]["disruptionsAllowed"] == 1)
    evict(fleet, second)
    eventually(lambda: len(names_of(fleet.pods("svc")) - {first, second}) == REPLICAS)
    fleet.until("svc", "Ready", "True")

    report = load_report(fleet, "evict")
    assert report["failures"] == {}
    assert report["succeeded"] == report["sent"]


def start_load(fleet: Services, name: str, *, at_least: int) -> None:
    """Many short requests and a few long ones through the Service's address; returns when all clients run."""
    for kind, options in KINDS.items():
        limits = ("--seconds=600", f"--at-least={at_least if kind == 'short' else 1}")
        fleet.start_client(f"{name}-{kind}", fleet.address("svc"), *options, *limits)
    for kind in KINDS:
        fleet.kubectl("wait", f"pod/{name}-{kind}", "-n", fleet.namespace, "--for=jsonpath={.status.phase}=Running")


def load_report(fleet: Services, name: str) -> dict[str, Any]:
    """What all saw together, ended now."""
    for kind in KINDS:
        fleet.signal(fleet.get("pod", f"{name}-{kind}"), "SIGUSR1")
    reports = {kind: fleet.client_report(f"{name}-{kind}", within_seconds=PATIENCE_SECONDS) for kind in KINDS}
    return {
        "sent": sum(report["sent"] for report in reports.values()),
        "succeeded": sum(report["succeeded"] for report in reports.values()),
        "failures": dict(sum((Counter(report["failures"]) for report in reports.values()), Counter[str]())),
        "kept": {key: reports["kept"][key] for key in ("sent", "askedAgain")},
        "ttftSeconds": reports["short"]["ttftSeconds"],
    }


def evict(fleet: Services, pod: str) -> None:
    """Ask as `kubectl drain` does."""
    path = f"/api/v1/namespaces/{fleet.namespace}/pods/{pod}/eviction"
    metadata = {"name": pod, "namespace": fleet.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    fleet.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
