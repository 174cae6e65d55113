"""Which plan runs, and the children it means."""

import dataclasses
from typing import Any

import pytest

from plimsoll.api import names
from plimsoll.core import hold, observe, rollout
from plimsoll.core.live import LiveFleet
from plimsoll.core.manifests.revision import Revision, outdated, read_revision, restarted
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.demand import LearnedLoad
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Nearest, Plan, Refusal
from plimsoll.core.pods import Phase, PodState
from plimsoll.core.request import Request, read_request
from plimsoll.core.rollout import Unavailable, choose_target
from plimsoll.core.steps import Step
from plimsoll.core.surge import Way

SPEC: dict[str, Any] = {
    "model": {"id": "Qwen/Qwen3-8B"},
    "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 4},
    "contextTokens": 16384,
}


def _request(annotations: dict[str, str] | None = None, **spec: Any) -> Request:
    meta = {"namespace": "ns", "name": "svc", "uid": "u", "generation": 1, "annotations": annotations or {}}
    return read_request({"metadata": meta, "spec": {**SPEC, **spec}})


def _plan(request: Request) -> Plan:
    found = plan_service(request.spec, request.minimum_replicas, bundled_config(request.spec.model.id))
    assert isinstance(found, Plan)
    return found


@pytest.fixture
def request_() -> Request:
    return _request()


@pytest.fixture
def running(request_: Request) -> Revision:
    return rollout.render(request_, _plan(request_), 1)


def _other(plan: Plan) -> Plan:
    """What a newer planner might say."""
    return dataclasses.replace(plan, choice=dataclasses.replace(plan.choice, args=(*plan.choice.args, "--new-flag")))


def test_the_first_plan_becomes_the_first_revision(request_: Request) -> None:
    target = choose_target(request_, _plan(request_), [])
    assert target.revision is not None
    assert target.revision.number == 1
    assert target.refusal is None


def test_what_runs_stays_when_planning_again_says_the_same(request_: Request, running: Revision) -> None:
    target = choose_target(request_, _plan(request_), [running])
    assert target.revision is running
    assert target.update is None


def test_a_newer_planner_is_reported_and_changes_nothing(request_: Request, running: Revision) -> None:
    target = choose_target(request_, _other(_plan(request_)), [running])
    assert target.revision is running
    assert target.update is not None
    assert target.update.reason == "NewerPlan"
    assert "would change --new-flag added;" in target.update.message
    assert names.ANNOTATION_ACCEPT_PLAN in target.update.message


def test_a_learned_load_is_offered_and_enters_the_next_plan() -> None:
    def planned(request: Request) -> Plan:
        found = plan_service(request.spec, 1, bundled_config(request.spec.model.id), Inventory(load=request.load))
        assert isinstance(found, Plan)
        return found

    before = _request(load={"concurrency": 4, "promptTokens": 500, "outputTokens": 100})
    running = rollout.render(before, planned(before), 1)
    now = dataclasses.replace(before, load=LearnedLoad(concurrency=60))
    target = choose_target(now, planned(now), [running])
    assert target.revision is running, "nothing restarts"
    assert target.update is not None
    assert "for the load that was observed (status.load) would change --max-num-seqs: 32 -> 64" in target.update.message
    nearly = dataclasses.replace(before, load=LearnedLoad(concurrency=30))
    assert choose_target(nearly, planned(nearly), [running]).update is None, "no other choice, no update"
    changed = _request(load={"concurrency": 4, "promptTokens": 500, "outputTokens": 100}, contextTokens=8192)
    changed = dataclasses.replace(changed, load=LearnedLoad(concurrency=60))
    following = choose_target(changed, planned(changed), [running]).revision
    assert following is not None
    args = following.plan["choice"]["args"]
    assert args[args.index("--max-num-seqs") + 1] == "64"
    assert LearnedLoad.from_dict(following.load) == now.load
    assert any("declared: 4" in note for note in following.plan["assumptions"])


def test_an_accepted_update_becomes_the_next_revision(request_: Request, running: Revision) -> None:
    newer = _other(_plan(request_))
    offered = rollout.render(request_, newer, 2)
    accepted = dataclasses.replace(request_, accept_plan=offered.name)
    target = choose_target(accepted, newer, [running])
    assert target.revision is not None
    assert (target.revision.name, target.revision.number) == (offered.name, 2)


def test_a_spec_change_is_planned_afresh(running: Revision) -> None:
    changed = _request(contextTokens=8192)
    target = choose_target(changed, _plan(changed), [running])
    assert target.revision is not None
    assert target.revision.number == 2
    assert "8192" in str(target.revision.template)


def test_going_back_to_an_earlier_spec_finds_the_earlier_revisions_name(request_: Request, running: Revision) -> None:
    changed = _request(contextTokens=8192)
    second = rollout.render(changed, _plan(changed), 2)
    target = choose_target(request_, _plan(request_), [running, second])
    assert target.revision is not None
    assert (target.revision.name, target.revision.number) == (running.name, 3)


@pytest.mark.parametrize("outcome", [Refusal("KVCacheTooSmall", "no"), Unavailable("CatalogueUnreadable", "gone")])
def test_a_refused_change_keeps_the_running_fleet_frozen(running: Revision, outcome: Refusal | Unavailable) -> None:
    target = choose_target(_request(contextTokens=8192), outcome, [running])
    assert target.revision is running
    assert target.frozen
    assert target.refusal is not None
    assert target.refusal.reason == outcome.reason


def test_a_refusal_reports_what_would_fit_beside_what_runs(running: Revision) -> None:
    nearest = Nearest("contextTokens: 8192 -> 4096", "fits")
    refused = Refusal("KVCacheTooSmall", "no", nearest=(nearest,))
    first = rollout.reported_plan(choose_target(_request(), refused, []), 0)
    later = rollout.reported_plan(choose_target(_request(contextTokens=8192), refused, [running]), 1)
    wanted = [{"change": nearest.change, "message": nearest.message}]
    assert first is not None
    assert first["nearest"] == wanted
    assert "choice" not in first
    assert later is not None
    assert later["nearest"] == wanted
    assert later["choice"]["gpu"] == "NVIDIA-L40S"


def test_what_the_planner_says_of_a_request_is_its_answer_where_it_is_what_runs(
    request_: Request, running: Revision
) -> None:
    same, refused = _plan(request_), Refusal("KVCacheTooSmall", "no")
    assert choose_target(request_, same, []).answer is same
    assert choose_target(request_, same, [running]).answer is same
    assert choose_target(request_, _other(same), [running]).answer is None
    assert choose_target(_request(contextTokens=8192), refused, [running]).answer is refused


def test_a_template_alone_that_would_differ_is_said(request_: Request, running: Revision) -> None:
    older = {**running.template, "spec": {**running.template["spec"], "enableServiceLinks": True}}
    update = choose_target(request_, _plan(request_), [dataclasses.replace(running, template=older)]).update
    assert update is not None
    assert "would change pod template: spec.enableServiceLinks; apply with" in update.message
    more = {**running.template, "spec": {**running.template["spec"], "hostNetwork": True}}
    left = choose_target(request_, _plan(request_), [dataclasses.replace(running, template=more)]).update
    assert left is not None
    assert "would change pod template: fields left out; apply with" in left.message


def test_a_planner_that_would_now_refuse_what_runs_says_so_and_no_more(request_: Request, running: Revision) -> None:
    target = choose_target(request_, Refusal("UnknownModel", "forgotten"), [running])
    assert target.revision is running
    assert target.refusal is None
    assert target.update is not None
    assert target.update.reason == "PlanNowInfeasible"


def test_facts_that_cannot_be_read_now_leave_the_update_unknown(request_: Request, running: Revision) -> None:
    target = choose_target(request_, Unavailable("CatalogueUnreadable", "gone"), [running])
    assert target.revision is running
    assert target.update_unknown == "gone"


def test_the_restart_annotation_is_a_new_template_and_nothing_else(running: Revision) -> None:
    asked = _request(annotations={names.ANNOTATION_RESTART: "now"})
    target = choose_target(asked, _plan(asked), [running])
    assert target.revision is not None
    assert target.revision.name != running.name
    annotations = target.revision.template["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_RESTART] == "now"
    assert annotations[names.ANNOTATION_TEMPLATE] != running.template["metadata"]["annotations"]
    assert target.revision.plan["choice"] == running.plan["choice"]


def _children(replicas: int, running: Revision, request: Request, way: Way = "OneAtATime") -> dict[str, dict[str, Any]]:
    return {child["kind"]: child for child in rollout.children(request, running, Step(running, replicas, way))}


def test_children_of_one_and_of_several_replicas(request_: Request, running: Revision) -> None:
    one, several = _children(1, running, request_), _children(2, running, request_)
    assert list(one) == ["ControllerRevision", "Service", "Deployment"]
    assert list(several) == ["ControllerRevision", "Service", "Deployment", "PodDisruptionBudget"]
    for child in several.values():
        assert child["metadata"]["ownerReferences"][0]["uid"] == "u"
        assert child["metadata"]["labels"][names.LABEL_SERVICE] == "svc"
    assert "replicas" not in several["Deployment"]["spec"]


@pytest.mark.parametrize(
    ("way", "strategy"),
    [
        ("Surge", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
        ("OneAtATime", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
        ("AllAtOnce", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}}),
        ("Recreate", {"type": "Recreate"}),
    ],
)
def test_the_way_is_a_strategy_and_restarts_no_pod(
    way: Way, strategy: dict[str, Any], request_: Request, running: Revision
) -> None:
    fleet = _children(1, running, request_, way)["Deployment"]
    assert fleet["spec"]["strategy"] == strategy
    assert fleet["metadata"]["annotations"][names.ANNOTATION_WAY] == way
    assert fleet["spec"]["template"] == _children(1, running, request_)["Deployment"]["spec"]["template"]


def test_a_template_that_waits_is_kept_and_not_applied(running: Revision) -> None:
    changed = _request(contextTokens=8192)
    target = rollout.render(changed, _plan(changed), 2)
    made = {c["kind"]: c for c in rollout.children(changed, target, Step(running, 1, "OneAtATime"))}
    assert made["ControllerRevision"]["metadata"]["name"] == target.name
    assert made["Deployment"]["spec"]["template"] == running.template


def test_the_same_content_under_an_old_name_is_the_old_object_with_a_new_number(request_: Request) -> None:
    """A ControllerRevision's data is immutable: what a newer planner words differently must not be written over it."""
    old = dataclasses.replace(rollout.render(request_, _plan(request_), 1), plan={"worded": "differently"})
    other = rollout.render(_request(contextTokens=8192), _plan(_request(contextTokens=8192)), 2)
    target = choose_target(request_, _plan(request_), [old, other])
    assert target.revision == dataclasses.replace(old, number=3)


def test_every_selector_has_its_labels_and_every_pod_matches_it(request_: Request, running: Revision) -> None:
    children = _children(2, running, request_)
    pod = children["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        children["Deployment"]["spec"]["selector"]["matchLabels"],
        children["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        children["Service"]["spec"]["selector"],
    ):
        assert selector.items() <= pod.items()
        assert names.LABEL_INSTANCE in selector
    assert names.LABEL_TRACK not in children["Service"]["spec"]["selector"]


def test_a_draining_pod_outlives_its_drain(running: Revision) -> None:
    pod = running.template["spec"]
    container = pod["containers"][0]
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    timeout = int(container["args"][container["args"].index("--shutdown-timeout") + 1])
    assert pod["terminationGracePeriodSeconds"] > sleep + timeout
    assert pod["enableServiceLinks"] is False


def test_a_revision_survives_its_manifest(request_: Request, running: Revision) -> None:
    assert read_revision(running.manifest(rollout.owner(request_))) == running
    assert read_revision({"metadata": {"name": "x"}, "data": {"other": 1}}) is None


def test_the_oldest_revisions_go_first(running: Revision) -> None:
    kept = [dataclasses.replace(running, name=f"r{n}", number=n) for n in range(1, 8)]
    assert sorted(outdated(kept)) == ["r1", "r2"]


def _pod(phase: Phase, template: str) -> PodState:
    return PodState(phase, template=template)


@pytest.mark.parametrize(
    ("pods", "ready"),
    [
        pytest.param([_pod("ready", "old"), _pod("failing", "new")], 0, id="an old pod serves, the new one fails"),
        pytest.param([_pod("ready", "new"), _pod("terminating", "old")], 1, id="the new one serves"),
        pytest.param([], 1, id="pods cannot be seen: the workload's figures count"),
    ],
)
def test_pods_that_are_ready_with_the_present_template(pods: list[PodState], ready: int) -> None:
    template = {"metadata": {"annotations": {names.ANNOTATION_TEMPLATE: "new"}}}
    live = LiveFleet(asked=1, replicas=2, ready=1, updated=1, seen=True, template=template)
    assert observe.fleet(live, pods, 1, 1, waits=False).updated_ready == ready
    assert observe.fleet(live, pods, 1, 1, waits=True).updated_ready == 0


def test_an_acceptance_of_what_does_not_exist_is_said(running: Revision) -> None:
    for accepted, says in ((running.name, ""), ("svc-nonsense", "'svc-nonsense' names no plan"), ("", "")):
        request = _request({names.ANNOTATION_ACCEPT_PLAN: accepted})
        target = choose_target(request, _plan(request), [running])
        assert (
            (says in rollout.ignored(request, target, [running]))
            if says
            else not rollout.ignored(request, target, [running])
        )


RESTART = names.ANNOTATION_RESTART


@pytest.mark.parametrize(
    ("before", "after", "restarts"),
    [
        pytest.param({}, {RESTART: "1"}, True, id="set"),
        pytest.param({RESTART: "1"}, {RESTART: "2"}, True, id="another value"),
        pytest.param({RESTART: "1"}, {RESTART: "1"}, False, id="the same value"),
        pytest.param({RESTART: "1"}, {}, False, id="taken away"),
        pytest.param({}, {}, False, id="never set"),
    ],
)
def test_only_a_new_value_restarts(before: dict[str, str], after: dict[str, str], restarts: bool) -> None:
    first = rollout.render(_request(before), _plan(_request(before)), 1)
    request = _request(after).lasting(restarted([first]))
    target = choose_target(request, _plan(request), [first])
    assert target.revision is not None
    assert (target.revision.template != first.template) is restarts
    assert (target.revision.name != first.name) is restarts


def test_a_restart_lasts_through_a_change_of_the_spec_and_its_way_back() -> None:
    first = rollout.render(_request({RESTART: "1"}), _plan(_request()), 1)
    changed = _request(contextTokens=8192).lasting(restarted([first]))
    second = rollout.render(changed, _plan(changed), 2)
    back = _request().lasting(restarted([first, second]))
    target = choose_target(back, _plan(back), [first, second])
    assert target.revision is not None
    assert (target.revision.name, target.revision.number) == (first.name, 3)


@pytest.mark.parametrize(
    ("annotations", "spec", "asked", "expect"),
    [
        pytest.param({names.ANNOTATION_HOLD: "true"}, {}, 1, False, id="held, nothing changed"),
        pytest.param({names.ANNOTATION_HOLD: "true"}, {"contextTokens": 8192}, 1, True, id="held, another context"),
        pytest.param({}, {"contextTokens": 8192}, 1, False, id="not held: it is on its way"),
        pytest.param({}, {"mode": "Shadow", "contextTokens": 8192}, 1, True, id="Shadow, another context"),
        pytest.param({}, {"mode": "Shadow", "scaling": {"mode": "Fixed"}, "replicas": 2}, 1, True, id="another count"),
        pytest.param(
            {}, {"mode": "Shadow", "scaling": {"mode": "External"}, "replicas": 2}, 1, False, id="an HPA's wish"
        ),
        pytest.param({}, {"mode": "Shadow", "contextTokens": 8192}, 0, False, id="nothing runs that could be taken"),
    ],
)
def test_what_a_hold_keeps_from_the_fleet(
    running: Revision, annotations: dict[str, str], spec: dict[str, Any], asked: int, expect: bool
) -> None:
    request = _request(annotations, **spec)
    target = choose_target(request, _plan(request), [running]).revision
    assert target is not None
    live = LiveFleet(asked, asked, asked, asked, seen=True, template=running.template)
    wanted = request.spec.replicas if request.spec.scaling.mode == "Fixed" else 1
    assert hold.withheld(request, target, live, wanted) is expect
