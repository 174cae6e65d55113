"""Which events are asked for, and how often: nobody's else, and not in a loop."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from plimsoll.adapters.ports import ClusterError, ForbiddenError, Kind, UnreachableError
from plimsoll.control.creation import FORBIDDEN_SECONDS, FRESH_SECONDS, Creation
from plimsoll.core.pods import PodState

NOW = 10_000.0
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
TEMPLATE = {"spec": {"volumes": [{"name": "w", "persistentVolumeClaim": {"claimName": "weights"}}]}}
ABSENT = 'MountVolume.SetUp failed for volume "conf" : configmap "settings" not found'


class Events:
    """An API server with one event for every object asked about."""

    def __init__(self, message: str = ABSENT) -> None:
        self.asked: list[str] = []
        self.refuse: ClusterError | None = None
        self.message = message
        self.now = 0.0

    async def list(self, kind: Kind, namespace: str, _selector: str, fields: str) -> AsyncIterator[Mapping[str, Any]]:
        self.asked.append(f"{kind.plural} of {namespace}: {fields}")
        if self.refuse:
            raise self.refuse
        yield {"metadata": {}, "type": "Warning", "reason": "FailedMount", "message": self.message}


def _creation(events: Events) -> Creation:
    return Creation(events, lambda: events.now)  # type: ignore[arg-type]


def _pod(seconds: float = 6, name: str = "p", unplaced: str = "") -> PodState:
    return PodState("pending", name, uid=f"uid-{name}", since_seconds=NOW - seconds, unplaced=unplaced)


async def test_the_pod_that_waits_longest_is_asked_about_once_in_a_while() -> None:
    events = Events()
    creation = _creation(events)
    for _ in range(100):
        found = await creation.told("llm", [_pod(6, "b"), _pod(9, "a")], TEMPLATE, NOW)
        assert found is not None
        assert "ConfigMap llm/settings" in found.message
        events.now += FRESH_SECONDS / 20
    assert events.asked == ["events of llm: involvedObject.kind=Pod,involvedObject.uid=uid-a"] * 5


async def test_a_pod_without_a_volume_is_asked_for_its_claims() -> None:
    events = Events('storageclass.storage.k8s.io "fast" not found')
    found = await _creation(events).told("llm", [_pod(unplaced=UNBOUND)], TEMPLATE, NOW)
    assert found is not None
    assert found.lasting
    (asked,) = events.asked
    assert "involvedObject.kind=PersistentVolumeClaim,involvedObject.name=weights" in asked


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([], id="no pod"),
        pytest.param([_pod(4)], id="made just now"),
        pytest.param([_pod(unplaced="Insufficient nvidia.com/gpu")], id="the scheduler says enough"),
        pytest.param([PodState("loading", "p", since_seconds=NOW - 99)], id="its engine loads"),
        pytest.param([PodState("failing", "p")], id="its status says why"),
    ],
)
async def test_where_nothing_is_to_be_learnt_nothing_is_asked(pods: list[PodState]) -> None:
    events = Events()
    assert await _creation(events).told("llm", pods, TEMPLATE, NOW) is None
    assert events.asked == []


async def test_without_the_right_it_goes_on_and_finds_it_given_back() -> None:
    events = Events()
    creation = _creation(events)
    events.refuse = ForbiddenError("may not list events")
    for _ in range(10):
        assert await creation.told("llm", [_pod()], TEMPLATE, NOW) is None
        events.now += 1
    assert len(events.asked) == 1
    events.refuse, events.now = None, FORBIDDEN_SECONDS
    assert await creation.told("llm", [_pod()], TEMPLATE, NOW) is not None


async def test_an_api_server_that_is_away_takes_back_nothing() -> None:
    events = Events()
    creation = _creation(events)
    before = await creation.told("llm", [_pod()], TEMPLATE, NOW)
    events.refuse, events.now = UnreachableError("away"), FRESH_SECONDS
    assert await creation.told("llm", [_pod()], TEMPLATE, NOW) == before
