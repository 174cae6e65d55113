"""Writing children beside others: refusals, contests and conflicts, against an API server that plays them."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from plimsoll.adapters.ports import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    INFERENCE_POOLS,
    LEADER_WORKER_SETS,
    NETWORK_SERVICES,
    POD_MONITORS,
    ClusterError,
    ForbiddenError,
    InvalidError,
    Kind,
    NotFoundError,
    UnreachableError,
)
from plimsoll.api import names
from plimsoll.control.beside import Beside
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Applied, Children
from plimsoll.control.turns import Turns
from plimsoll.core import drift
from plimsoll.core.kinds import INFERENCE_POOL, LEADER_WORKER_SET, POD_MONITOR, Availability, Kinds
from plimsoll.core.managers import holders
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.pdb import disruption_budget
from plimsoll.core.manifests.service import network_service
from plimsoll.core.manifests.workload import workloads
from plimsoll.core.request import Request, read_request

KEY = Key("llm", "svc")
OWNER = Owner("llm", "svc", "u1")
FLEET, GROUPS = workloads("svc")


def _request(**changes: Any) -> Request:
    base = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "NVIDIA-L40S"}, "contextTokens": 8192}
    spec = {**base, **changes}
    return read_request({"metadata": {"name": "svc", "namespace": "llm", "uid": "u1"}, "spec": spec})


def _deployment(**spec: Any) -> dict[str, Any]:
    base = {"selector": {"matchLabels": {"a": "b"}}, "progressDeadlineSeconds": 900}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": OWNER.metadata(), "spec": {**base, **spec}}


class World:
    """An API server that keeps what is applied, refuses what it is told to, and overrules fields; and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.version = 0
        self.objects: dict[tuple[Kind, str], dict[str, Any]] = {}
        self.writes: list[Kind] = []
        self.refuse: dict[Kind, ClusterError] = {}
        self.away = ""
        self.overrule: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.unlisted: dict[Kind, str] = {}
        self.found = {kind: Availability("usable") for kind in (LEADER_WORKER_SET, POD_MONITOR, INFERENCE_POOL)}
        self.cache = Cache()
        turns = Turns(self, lambda: self.now)  # type: ignore[arg-type]
        self.children = Children(self, self.cache, turns, self.may_not_list, self.kinds)  # type: ignore[arg-type]
        self.beside = Beside(self.children, self.kinds, {})

    def kinds(self, _namespace: str) -> Kinds:
        return Kinds(self.found)

    def may_not_list(self, kind: Kind, _namespace: str) -> str:
        return self.unlisted.get(kind, "")

    async def apply(self, kind: Kind, manifest: Mapping[str, Any], manager: str) -> dict[str, Any]:
        self.writes.append(kind)
        if kind in self.refuse:
            raise self.refuse[kind]
        if manager == self.away:
            raise ClusterError("no answer")
        self.version += 1
        before = self.objects.get((kind, manifest["metadata"]["name"]), {"spec": {"replicas": 1}})
        meta = {"uid": "u2", **manifest["metadata"], "resourceVersion": str(self.version)}
        if manager == names.MANAGER_SCALE:
            meta = {**before["metadata"], "resourceVersion": str(self.version)}
        if "replicas" in manifest.get("spec", {}):
            held = [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
            meta |= {"managedFields": held}
        spec = {**before["spec"], **manifest.get("spec", {}), **self.overrule}
        self.objects[kind, meta["name"]] = {"metadata": meta, "spec": spec}
        return self.objects[kind, meta["name"]]

    async def delete(self, kind: Kind, _namespace: str, name: str, _uid: str, *, version: str) -> None:
        self.writes.append(kind)
        if kind in self.refuse:
            raise self.refuse[kind]
        assert version == self.objects[kind, name]["metadata"]["resourceVersion"]
        del self.objects[kind, name]  # and our watch lags

    async def get(self, kind: Kind, _namespace: str, name: str) -> dict[str, Any]:
        if (kind, name) not in self.objects:
            raise NotFoundError("no")
        found = self.objects[kind, name]
        fields = [{"manager": who, "operation": "Apply", "fieldsV1": what} for who, what in self.claims.items()]
        return {**found, "metadata": {**found["metadata"], "managedFields": fields}}

    def edit(self, kind: Kind, **spec: Any) -> None:
        """Somebody changes fields, and our watch shows it."""
        self.version += 1
        found = self.objects[kind, "svc"]
        meta = {**found["metadata"], "resourceVersion": str(self.version)}
        self.objects[kind, "svc"] = {"metadata": meta, "spec": {**found["spec"], **spec}}
        self.cache.put(kind, self.objects[kind, "svc"])

    async def bring(self, *manifests: Mapping[str, Any], replicas: int = 1) -> Applied:
        return await self.children.bring(_request(), manifests, FLEET, replicas, self.cache.children(KEY))

    async def bring_beside(self, **spec: Any) -> list[str]:
        """Reasons of what is in the way of PodMonitor and InferencePool."""
        found = await self.beside.bring(_request(**spec), self.cache.children(KEY), Applied())
        return [problem.reason for problem in found]


@pytest.fixture
def world() -> World:
    return World()


async def test_twice_is_once(world: World) -> None:
    await world.bring(_deployment())
    await world.bring(_deployment())
    assert world.writes == [DEPLOYMENTS]


async def test_a_parked_fleet_is_made_without_pods_and_its_count_is_then_claimed(world: World) -> None:
    world.away = names.MANAGER_SCALE  # the operator dies, say, between the two
    with pytest.raises(ClusterError):
        await world.bring(_deployment(), replicas=0)
    made = world.objects[DEPLOYMENTS, "svc"]
    assert made["spec"]["replicas"] == 0
    assert holders(made, "spec", "replicas") == [names.MANAGER_CHILDREN]
    world.away = ""
    for _ in range(2):
        await world.bring(_deployment(), replicas=0)
    assert names.MANAGER_SCALE in holders(world.objects[DEPLOYMENTS, "svc"], "spec", "replicas")
    assert len(world.writes) == 3


async def test_what_is_refused_is_not_tried_again_at_once_whatever_happens_around_it(world: World) -> None:
    world.refuse[DEPLOYMENTS] = InvalidError('422 admission webhook "w" denied the request: no')
    for _ in range(20):
        applied = await world.bring(_deployment())
        world.now += 0.5
        assert applied.blocked is not None
        assert applied.blocked.reason == "DeniedByPolicy"
    assert len(world.writes) == 2
    await world.bring(_deployment(progressDeadlineSeconds=1))
    assert len(world.writes) == 3  # another intent is worth a try
    world.refuse.clear()
    world.now += 5
    assert (await world.bring(_deployment())).blocked is None


async def test_without_the_right_to_a_budget_the_fleet_is_still_written(world: World) -> None:
    world.refuse[DISRUPTION_BUDGETS] = ForbiddenError(
        '403 User "u" cannot patch resource "poddisruptionbudgets" in API group "policy" in the namespace "llm"'
    )
    applied = await world.bring(disruption_budget(OWNER), _deployment())
    assert applied.blocked is None
    assert applied.lacking is not None
    assert "may not patch poddisruptionbudgets.policy" in applied.lacking.message
    assert (DEPLOYMENTS, "svc") in world.objects


async def test_what_may_not_be_listed_is_not_written_and_said(world: World) -> None:
    world.unlisted[DEPLOYMENTS] = 'User "u" cannot list resource "deployments" in API group "apps" at the cluster scope'
    applied = await world.bring(network_service(OWNER), _deployment(), disruption_budget(OWNER))
    assert world.writes == [NETWORK_SERVICES]
    assert applied.blocked is not None
    assert "may not list deployments.apps" in applied.blocked.message
    world.unlisted.clear()
    assert (await world.bring(_deployment())).blocked is None


async def test_a_webhook_that_does_not_answer_is_waited_for(world: World) -> None:
    world.refuse[DEPLOYMENTS] = UnreachableError('500 failed calling webhook "w.example": Post: connection refused')
    applied = await world.bring(_deployment())
    assert applied.blocked is None
    assert "w.example does not answer" in applied.waiting


async def test_an_api_server_that_is_away_is_tried_again_later(world: World) -> None:
    world.refuse[DEPLOYMENTS] = UnreachableError("503 away")
    with pytest.raises(UnreachableError):
        await world.bring(_deployment())


async def test_another_selector_is_said_and_not_written(world: World) -> None:
    await world.bring(_deployment())
    world.edit(DEPLOYMENTS, selector={"matchLabels": {"other": "x"}})
    applied = await world.bring(_deployment())
    assert applied.blocked is not None
    assert applied.blocked.reason == "ImmutableField"
    assert "selects other=x" in applied.blocked.message
    assert "kubectl delete deployment svc -n llm" in applied.blocked.message
    assert len(world.writes) == 1


FIELD: Final[Mapping[str, Any]] = {"f:spec": {"f:progressDeadlineSeconds": {}}}


async def _fight(world: World, seconds: float) -> Applied:
    applied = await world.bring(_deployment())
    until = world.now + seconds
    while world.now < until:
        world.edit(DEPLOYMENTS, progressDeadlineSeconds=1)
        applied = await world.bring(_deployment())
        world.now += 0.5
    return applied


async def test_a_fight_is_bounded_named_and_over_when_they_let_go(world: World) -> None:
    world.claims = {"argocd-controller": FIELD}
    applied = await _fight(world, 60)
    assert len(world.writes) <= 10
    assert applied.contest is not None
    assert "argocd-controller keeps changing spec.progressDeadlineSeconds" in applied.contest.problem.message
    assert applied.contest.fleet_differs
    assert applied.again_seconds is not None
    assert applied.again_seconds > 10
    world.claims = {}
    await world.bring(_deployment())
    assert world.objects[DEPLOYMENTS, "svc"]["spec"]["progressDeadlineSeconds"] == 900
    world.now += 400
    assert (await world.bring(_deployment())).contest is None


async def test_a_count_that_somebody_insists_on_is_bounded_too(world: World) -> None:
    world.claims = {"hpa": {"f:spec": {"f:replicas": {}}}}
    await world.bring(_deployment())
    for _ in range(120):
        world.edit(DEPLOYMENTS, replicas=7)
        applied = await world.bring(_deployment())
        world.now += 0.5
    assert len(world.writes) <= 10
    assert applied.contest is not None
    assert "hpa keeps changing spec.replicas" in applied.contest.problem.message


async def test_admission_has_the_last_word(world: World) -> None:
    world.overrule = {"progressDeadlineSeconds": 77}
    world.claims = {names.MANAGER_CHILDREN: FIELD}
    for _ in range(20):
        applied = await world.bring(_deployment())
        world.now += 0.1
    assert len(world.writes) == 1
    assert applied.contest is not None
    assert applied.contest.problem.reason == "ChangedByAdmission"
    assert not applied.contest.fleet_differs


async def test_a_deletion_again_and_again_is_bounded(world: World) -> None:
    for _ in range(120):
        applied = await world.bring(_deployment())
        if found := world.objects.pop((DEPLOYMENTS, "svc"), None):
            world.cache.drop(DEPLOYMENTS, found)
        world.now += 0.5
    assert len(world.writes) <= 10
    assert applied.contest is not None
    assert applied.contest.problem.reason == "KeepsBeingRemoved"


async def test_what_is_forgotten_starts_anew(world: World) -> None:
    await _fight(world, 30)
    world.children.forget(KEY)
    before = len(world.writes)
    await world.bring(_deployment())
    assert len(world.writes) == before + 1


def test_the_stamp_is_part_of_what_is_compared() -> None:
    live = drift.stamp(_deployment())
    changed = drift.stamp(_deployment(revisionHistoryLimit=5))
    assert [*drift.differences(changed, {**live, "spec": changed["spec"]})] == [
        ("metadata", "annotations", names.ANNOTATION_HASH)
    ]


PICKER: Final = {"routing": {"endpointPicker": {"service": "epp"}}}
NO_RIGHT: Final = '403 User "u" cannot patch resource "podmonitors" in API group "monitoring.coreos.com"'


async def test_what_stands_beside_is_made_once_and_goes_when_it_is_not_wanted(world: World) -> None:
    for _ in range(2):
        assert await world.bring_beside(**PICKER) == []
    assert world.writes == [POD_MONITORS, INFERENCE_POOLS]
    for _ in range(2):
        assert await world.bring_beside() == []
    assert world.writes[2:] == [INFERENCE_POOLS]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(ForbiddenError(NO_RIGHT), "Forbidden", id="no right to write"),
        pytest.param(InvalidError('422 admission webhook "w" denied the request: no'), "DeniedByPolicy", id="a policy"),
        pytest.param(NotFoundError("404 no such kind"), "KindUnusable", id="gone a moment ago"),
        pytest.param(UnreachableError("500 conversion webhook failed"), "KindUnusable", id="its own server is broken"),
        pytest.param(UnreachableError('500 failed calling webhook "w"'), "KindUnusable", id="its webhook is away"),
    ],
)
async def test_trouble_with_one_kind_concerns_that_kind_only(world: World, error: ClusterError, reason: str) -> None:
    world.refuse[POD_MONITORS] = error
    for _ in range(10):
        assert await world.bring_beside(**PICKER) == [reason]
    assert world.writes.count(INFERENCE_POOLS) == 1
    world.refuse.clear()
    world.now += 5
    assert await world.bring_beside(**PICKER) == []


async def test_what_may_not_be_deleted_is_said(world: World) -> None:
    await world.bring_beside(**PICKER)
    world.refuse[INFERENCE_POOLS] = ForbiddenError(NO_RIGHT.replace("patch", "delete"))
    assert await world.bring_beside() == ["Forbidden"]


async def test_a_monitor_that_somebody_insists_on_is_fought_no_more_than_a_deployment(world: World) -> None:
    applied = Applied()
    for _ in range(120):
        await world.bring_beside()
        if found := world.objects.pop((POD_MONITORS, "svc"), None):
            world.cache.drop(POD_MONITORS, found)
        applied = Applied()
        await world.beside.bring(_request(), world.cache.children(KEY), applied)
        world.now += 0.5
    assert len(world.writes) <= 10
    assert applied.contest is not None
    assert not applied.contest.fleet_differs


def _groups() -> dict[str, Any]:
    meta = {**OWNER.metadata(), "name": GROUPS.name}
    return {"apiVersion": GROUPS.api_version, "kind": GROUPS.kind, "metadata": meta, "spec": {"replicas": 1}}


async def test_groups_that_cannot_be_seen_are_not_written(world: World) -> None:
    world.found[LEADER_WORKER_SET] = Availability("forbidden", "may not list leaderworkersets")
    applied = await world.children.bring(_request(), [_groups()], GROUPS, 2, {})
    assert world.writes == []
    assert applied.blocked is not None
    assert applied.blocked.reason == "SeveralNodes"
    assert "left as it is" in applied.blocked.message


async def test_the_fleet_that_another_follows_is_scaled_and_then_goes(world: World) -> None:
    await world.bring(_deployment(), replicas=3)
    applied = Applied()
    for _ in range(2):
        await world.children.retire(_request(), FLEET, 2, world.cache.children(KEY), applied)
    assert world.objects[DEPLOYMENTS, "svc"]["spec"]["replicas"] == 2
    assert len(world.writes) == 3
    await world.children.retire(_request(), FLEET, None, world.cache.children(KEY), applied)
    assert (DEPLOYMENTS, "svc") not in world.objects
    assert applied.blocked is None


async def test_groups_of_a_kind_that_went_a_moment_ago_are_left_and_it_is_said(world: World) -> None:
    world.refuse[LEADER_WORKER_SETS] = NotFoundError("404 no such kind")
    applied = await world.children.bring(_request(), [_groups()], GROUPS, 1, {})
    assert applied.blocked is not None
    assert applied.blocked.reason == "SeveralNodes"
