"""The scaler over time: looks come, demand moves, owners change, the process restarts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from plimsoll.api import names
from plimsoll.control.budgets import Budgets
from plimsoll.control.cache import Cache, Key
from plimsoll.control.scaler import Scaler
from plimsoll.control.sized_fleet import Fleet
from plimsoll.core import ledger, rollout
from plimsoll.core.autoscaler import Autoscaler
from plimsoll.core.budget import Claim
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.inventory import Inventory, Stock
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.pods import PodState
from plimsoll.core.replay import again
from plimsoll.core.request import Request, read_request
from plimsoll.core.signals import FleetView, Look, PodView, Sample, Signal
from plimsoll.core.sizing import Size

KEY = Key("llm", "svc")
TICK = 15.0
WALL = 1_800_000_000.0
AT = "2027-01-15T08:00:00Z"
"""The same moment: when all decisions here were made."""


def request_of(**spec: Any) -> Request:
    base = {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 8},
        "contextTokens": 16384,
        "load": {"concurrency": 4, "promptTokens": 1000, "outputTokens": 200},
    }
    return read_request({"metadata": {"name": "svc", "namespace": "llm", "uid": "u"}, "spec": {**base, **spec}})


@pytest.fixture(scope="module")
def revision() -> Revision:
    request = request_of()
    plan = plan_service(request.spec, 1, bundled_config("Qwen/Qwen3-8B"))
    assert isinstance(plan, Plan)
    return rollout.render(request, plan, 1)


@dataclass
class World:
    """A fleet whose Deployment does what it is told, with a status, and a Prometheus that may be away."""

    revision: Revision
    request: Request = field(default_factory=request_of)
    now: float = 1000.0
    live: int | None = None
    by_us: bool = True
    decisions: list[dict[str, Any]] = field(default_factory=list)
    usage: float | None = 0.3
    waiting: float = 0.0
    loading: int = 0
    other: Autoscaler | None = None
    pods: Sequence[PodState] = ()
    busy: str = ""
    shown: Look | None = None
    asked: float | None = None
    running: float = 4.0
    told: dict[str, Any] = field(default_factory=dict)
    recorded: list[dict[str, Any]] = field(default_factory=list)
    """The log."""
    cache: Cache = field(default_factory=Cache)
    inventory: Inventory = field(default_factory=Inventory)

    def __post_init__(self) -> None:
        self.scaler = self.fresh()

    def fresh(self) -> Scaler:
        budgets = Budgets(self.cache, lambda: self.inventory)
        return Scaler(self, self, budgets, lambda: self.now, lambda: WALL + self.now)

    @property
    def templates(self) -> tuple[str, ...]:
        return ("gateway",)

    def requests(self, _name: str, _key: Key) -> float | None:
        return self.asked

    def look(self, _key: Key) -> Look | None:
        return self.shown

    def tick(self) -> Size:
        self.now += TICK
        figures = {
            Signal.RUNNING: self.running,
            Signal.WAITING: self.waiting,
            Signal.PREEMPTIONS: 0,
            Signal.PROMPT_TOKENS: 0,
        }
        if self.usage is not None:
            figures[Signal.USAGE] = self.usage
        engine = {signal: Sample(value) for signal, value in figures.items()}
        serving = (self.live or 0) - self.loading
        pods = [PodView(f"p{i}", "ready", engines={"0": engine}) for i in range(serving)]
        pods += [PodView(f"l{i}", "loading") for i in range(self.loading)]
        self.shown = Look(FleetView(tuple(pods)), self.now)
        return self.reconcile()

    def reconcile(self) -> Size:
        fleet = self.fleet()
        size = self.scaler.size(fleet)
        self.decisions = ledger.added(self.decisions, size.entries, AT)
        self.recorded += [ledger.logged(entry, AT) for entry in size.entries]
        self.scaler.reported(KEY, size.entries)
        self.told = dict(size.scaling or {})
        if size.ours and not self.request.held_because:
            self.live, self.by_us = size.replicas, True
        return size

    def fleet(self) -> Fleet:
        workload = None
        if self.live is not None:
            managers = [names.MANAGER_SCALE] if self.by_us else ["kubectl"]
            workload = {"spec": {"replicas": self.live}, "managers": managers}
        fleet = Fleet(KEY, self.request, self.revision, workload, self.decisions, self.pods, self.busy, self.other)
        return replace(fleet, told=self.told)

    @property
    def made_again(self) -> list[str]:
        """Reasons of the recorded decisions that have grounds; each of them comes out the same a second time."""
        found = [(told, made) for told in self.recorded if (made := again(json.loads(json.dumps(told)))) is not None]
        assert all(made.same_as(told) for told, made in found)
        return [told["reason"] for told, _ in found]

    def ask(self, **spec: Any) -> None:
        self.request = request_of(**spec)

    @property
    def reasons(self) -> list[str]:
        return [entry["reason"] for entry in self.decisions]


@pytest.fixture
def world(revision: Revision) -> World:
    return World(revision)


def test_a_burst_is_caught_and_the_fleet_comes_down_after_a_window(world: World) -> None:
    world.tick()
    assert world.live == 1
    world.usage, world.waiting = 1.0, 60.0
    world.tick()
    grown = world.live
    assert grown > 1
    world.usage, world.waiting = 0.02, 0.0
    for _ in range(int(600 / TICK) - 1):
        world.tick()
    assert world.live == grown
    for _ in range(60):
        world.tick()
    assert world.live == 1
    assert world.reasons[:2] == ["Planned", "MoreDemand"]
    assert world.reasons[-1] == "LessDemand"
    assert {"MoreDemand", "LessDemand"} <= set(world.made_again)
    last = world.decisions[-1]
    assert last["inputs"]["waiting"] == "0"
    assert any(text.startswith("2: ") for text in last["alternatives"])


def test_one_look_is_decided_on_once(world: World) -> None:
    world.live, world.usage = 6, 0.01
    for _ in range(60):
        world.tick()
    before = world.live
    world.tick()
    after = world.live
    for _ in range(5):
        world.reconcile()
    assert world.live == after
    assert before - after <= 1


def test_pods_that_load_cause_no_more_scaling(world: World) -> None:
    world.tick()
    world.usage, world.waiting = 1.0, 2000.0
    first = world.tick().replicas
    for _ in range(5):
        world.loading = first - 1
        assert world.tick().replicas == first


@pytest.mark.parametrize("usage", [None, 0.0])
def test_after_a_restart_nothing_shrinks_before_a_window(world: World, usage: float | None) -> None:
    world.live, world.usage = 5, usage
    world.decisions = [{"kind": "Scale", "reason": "MoreDemand", "to": "5", "time": AT}]
    for _ in range(30):
        assert world.tick().replicas == 5
    world.scaler = world.fresh()
    for _ in range(30):
        assert world.tick().replicas == 5


def test_what_an_operator_before_us_wrote_is_not_taken_back_when_an_old_view_ends(world: World) -> None:
    """Found by the rig: an old view showed two replicas, and when it ended the third was thought to be an edit."""
    world.live, world.usage = 2, 0.01
    world.decisions = [{"kind": "Scale", "reason": "MoreDemand", "to": "2", "time": AT}]
    for _ in range(30):
        assert world.tick().replicas == 2
    world.live = 3
    for _ in range(30):
        assert world.tick().replicas == 3, "the window of the way down begins anew"


def test_a_count_that_is_not_seen_yet_stays_wanted(world: World) -> None:
    world.tick()
    world.usage, world.waiting = 1.0, 60.0
    before, grown = world.live, world.tick().replicas
    assert grown > 1
    world.waiting = 0.0
    for _ in range(3):
        world.live = before
        assert world.tick().replicas == grown


def test_after_a_restart_what_was_told_stays_until_the_first_look(world: World) -> None:
    world.tick()
    told = world.tick().scaling
    world.scaler, world.shown = world.fresh(), None
    assert world.reconcile().scaling == told
    world.ask(scaling={"mode": "External"}, replicas=3)
    assert (world.reconcile().scaling or {})["setBy"] == "spec.replicas"


def test_an_outage_of_prometheus_is_no_quiet_time(world: World) -> None:
    world.live, world.usage = 4, 0.7
    for _ in range(60):
        world.tick()
    world.usage = None
    for _ in range(80):
        assert world.tick().replicas == 4
    world.usage = 0.01
    for _ in range(int(600 / TICK)):
        assert world.tick().replicas == 4
    for _ in range(3):
        world.tick()
    assert world.live < 4


def test_an_edit_by_hand_is_put_back(world: World) -> None:
    world.tick()
    world.live, world.by_us = 7, False
    assert world.reconcile().replicas == 1


@pytest.mark.parametrize(
    ("wanted", "live", "by_us", "edited"),
    [
        pytest.param(None, 1, False, None, id="the default of a workload that names no count"),
        pytest.param(None, 3, False, 3, id="after a restart"),
        pytest.param(1, 1, False, None, id="still the default"),
        pytest.param(1, 3, False, 3, id="up"),
        pytest.param(4, 1, False, 1, id="down to one"),
        pytest.param(4, 4, True, None, id="ours"),
    ],
)
def test_a_count_that_somebody_else_set(
    world: World, wanted: int | None, live: int, by_us: bool, edited: int | None
) -> None:
    if wanted is not None:
        world.ask(scaling={"minReplicas": wanted})
        world.live = wanted
        world.tick()
    world.live, world.by_us = live, by_us
    assert world.scaler.edited_count(world.fleet()) == edited


def test_bounds_apply_at_once_without_any_metric(world: World) -> None:
    world.live = 3
    world.ask(scaling={"minReplicas": 5})
    assert world.reconcile().replicas == 5
    world.ask(scaling={"maxReplicas": 2})
    assert world.reconcile().replicas == 2
    assert world.reasons[-1] == "Limits"


def test_what_limits_is_said_and_raising_it_is_enough(world: World) -> None:
    world.ask(scaling={"maxReplicas": 1})
    world.usage, world.waiting = 1.0, 50.0
    world.tick()
    size = world.tick()
    assert size.limited is not None
    assert size.limited.reason == "MaxReplicas"
    world.ask()
    assert world.tick().replicas > 1


def test_a_roll_out_holds_the_count(world: World) -> None:
    world.tick()
    world.busy, world.usage, world.waiting = "a roll-out is under way", 1.0, 100.0
    assert world.tick().replicas == 1


def test_shadow_decides_once_and_writes_nothing(world: World) -> None:
    world.live = 1
    world.ask(mode="Shadow")
    world.usage, world.waiting = 1.0, 60.0
    for _ in range(5):
        size = world.tick()
    assert (world.live, size.replicas) == (1, 1)
    assert world.reasons.count("MoreDemand") == 1
    assert "not done (spec.mode is Shadow" in world.decisions[-1]["message"]
    assert world.made_again == ["MoreDemand"]


def test_external_recommends_and_copies(world: World) -> None:
    world.ask(scaling={"mode": "External"}, replicas=3)
    world.usage, world.waiting = 1.0, 60.0
    for _ in range(2):
        size = world.tick()
    assert size.replicas == 3
    assert size.scaling is not None
    assert size.scaling["recommendedReplicas"] > 3
    assert not size.entries


def test_another_autoscaler_is_left_alone_and_comes_back_from_without_a_loss(world: World) -> None:
    world.tick()
    world.live, world.by_us = 6, False
    world.other = Autoscaler("HorizontalPodAutoscaler", "h")
    size = world.tick()
    assert (size.ours, size.replicas) == (False, 6)
    assert size.contest is not None
    assert size.contest.problem.reason == "OtherAutoscaler"
    world.other = None
    for _ in range(10):
        assert world.tick().replicas == 6
    assert world.reasons[-2:] == ["Yielded", "TakenOver"]


def test_leaving_auto_is_a_floor_that_ends(world: World) -> None:
    world.live = 5
    world.tick()
    world.ask(scaling={"mode": "Fixed"}, replicas=1)
    world.now = 0.0
    size = world.reconcile()
    assert size.replicas == 5
    assert size.again_seconds == pytest.approx(600, abs=1)
    world.now += 599
    assert world.reconcile().replicas == 5
    world.now += 2
    assert world.reconcile().replicas == 1


def test_load_alone_never_drops_ready(world: World) -> None:
    assert world.tick().floor == 1
    world.usage, world.waiting = 1.0, 60.0
    size = world.tick()
    assert size.replicas > 1
    assert size.floor == 1


def test_a_planned_fleet_is_ready_as_planned_until_it_is_scaled(world: World, revision: Revision) -> None:
    world.revision = replace(revision, plan={**revision.plan, "plannedReplicas": 3})
    size = world.reconcile()
    assert (size.replicas, size.floor) == (3, 3)


def test_replicas_without_a_place_are_named_and_do_not_block_the_way_down(world: World) -> None:
    world.live, world.loading, world.usage = 4, 2, 0.01
    world.pods = [PodState("pending", f"u{i}", unplaced="Insufficient nvidia.com/gpu") for i in range(2)]
    sizes = [world.tick() for _ in range(50)]
    assert sizes[0].limited is not None
    assert sizes[0].limited.reason == "NoRoom"
    assert sizes[-1].replicas < 4


SLEEPS = {"minReplicas": 0, "activation": {"query": "gateway", "idleAfter": "120s"}}


def sleeping(world: World) -> World:
    world.ask(scaling=SLEEPS)
    world.tick()
    world.usage, world.running, world.asked = 0.0, 0.0, 0.0
    return world


def test_an_idle_service_goes_to_sleep_after_its_window_and_wakes_for_a_request(world: World) -> None:
    sleeping(world)
    for _ in range(8):
        assert world.tick().replicas == 1
    assert world.tick().replicas == 0
    assert world.tick().replicas == 0
    world.asked = 2.0
    size = world.tick()
    assert (size.replicas, size.floor) == (1, 0)
    assert world.reasons[-2:] == ["Idle", "Woken"]
    assert world.made_again[-2:] == ["Idle", "Woken"]


@pytest.mark.parametrize(
    "unknown",
    [pytest.param({"asked": None}, id="the gateway is not known"), pytest.param({"usage": None}, id="a pod is silent")],
)
def test_silence_puts_nothing_to_sleep_and_wakes_nothing(world: World, unknown: dict[str, Any]) -> None:
    sleeping(world)
    vars(world).update(unknown)
    for _ in range(40):
        assert world.tick().replicas == 1
    world.live, world.asked = 0, None
    world.scaler = world.fresh()
    for _ in range(3):
        assert world.tick().replicas == 0


def test_one_look_with_a_request_begins_the_window_anew(world: World) -> None:
    sleeping(world)
    for _ in range(7):
        world.tick()
    world.running = 1.0
    world.tick()
    world.running = 0.0
    for _ in range(8):
        assert world.tick().replicas == 1


def test_without_its_query_a_service_does_not_sleep_and_says_so(world: World) -> None:
    world.ask(scaling={"minReplicas": 0, "activation": {"query": "nobody"}})
    world.usage, world.running, world.asked = 0.0, 0.0, 0.0
    for _ in range(60):
        size = world.tick()
    assert size.replicas == 1
    assert size.refused is not None
    assert size.refused.reason == "UnknownActivation"
    assert "there are: gateway" in size.refused.message
    world.live = 0
    world.scaler = world.fresh()
    assert world.tick().replicas == 1


def test_a_shared_budget_goes_to_who_is_more_important(world: World) -> None:
    product = world.revision.plan["choice"]["gpu"]
    world.inventory = Inventory({product: Stock(shared_gpus=4)}, priorities={"llm/other": 5})
    world.live, world.usage, world.waiting = 3, 1.0, 100.0
    assert world.tick().replicas == 4
    size = world.tick()
    assert size.limited is not None
    assert size.limited.reason == "GPUBudget"
    other = Claim("llm/other", 1, held=1, wanted=3, floor=1, priority=5)
    world.scaler.budgets.claim(Key("llm", "other"), product, other)
    assert world.tick().replicas == 1
    world.scaler.forget(Key("llm", "other"))
    assert world.tick().replicas > 1


def test_a_new_important_service_gets_its_minimum_and_a_lesser_one_waits(world: World) -> None:
    product = world.revision.plan["choice"]["gpu"]
    world.inventory = Inventory({product: Stock(shared_gpus=3)}, priorities={"llm/svc": 5})
    world.scaler.budgets.claim(Key("llm", "other"), product, Claim("llm/other", 1, held=3, wanted=3, floor=1))
    world.ask(scaling={"minReplicas": 2})
    assert world.reconcile().replicas == 2
    other = Claim("llm/other", 1, held=3, wanted=3, floor=3, priority=9)
    world.scaler.budgets.claim(Key("llm", "other"), product, other)
    size = world.tick()
    assert size.replicas == 0
    assert size.refused is not None
    assert size.refused.reason == "GPUBudget"


def test_what_time_alone_may_change_is_looked_at_often(world: World) -> None:
    """And nothing else: a fleet that is as large as it has to be waits for news."""
    assert world.scaler.restless(KEY)
    for _ in range(3):
        world.tick()
    assert not world.scaler.restless(KEY), "one replica, and no fewer are allowed"
    world.usage, world.waiting = 1.0, 60.0
    world.tick()
    world.usage, world.waiting = 0.02, 0.0
    world.tick()
    assert world.scaler.restless(KEY), "fewer would do, once the window has passed"
    while world.live != 1:
        world.tick()
    world.tick()
    assert not world.scaler.restless(KEY)


@pytest.mark.parametrize(
    ("spec", "stock", "restless"),
    [
        pytest.param({"scaling": {"minReplicas": 0, "activation": {"query": "gateway"}}}, Stock(), True, id="sleeps"),
        pytest.param({}, Stock(shared_gpus=8), True, id="others share its GPUs"),
        pytest.param({"scaling": {"mode": "Fixed"}, "replicas": 1}, Stock(shared_gpus=8), False, id="fixed"),
    ],
)
def test_what_others_may_change_is_looked_at_often(world: World, spec: Any, stock: Stock, restless: bool) -> None:
    world.inventory = Inventory(products={"NVIDIA-L40S": stock})
    world.ask(**spec)
    for _ in range(3):
        world.tick()
    assert world.scaler.restless(KEY) is restless
