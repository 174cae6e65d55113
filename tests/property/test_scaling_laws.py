"""Laws of the scaler over whole histories of looks: noise, silence, restarts and changed limits in any order."""

from functools import cache
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.core import rollout
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.scale import DEFAULTS
from tests.unit.control.test_scaler import World, request_of

MAX_GPUS = 8


@cache
def revision() -> Revision:
    request = request_of()
    plan = plan_service(request.spec, 1, bundled_config("Qwen/Qwen3-8B"))
    assert isinstance(plan, Plan)
    return rollout.render(request, plan, 1)


looks = st.tuples(
    st.one_of(st.none(), st.floats(0, 1)),
    st.integers(0, 300),
    st.sampled_from(["", "", "", "restart", "limits", "roll-out"]),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(looks, min_size=20, max_size=70), st.integers(1, 8))
def test_never_above_the_gpus_and_never_down_on_what_is_not_known(
    history: list[tuple[float | None, int, str]], live: int
) -> None:
    world = World(revision(), live=live)
    for usage, waiting, event in history:
        world.usage, world.waiting = usage, waiting
        world.busy = "a roll-out is under way" if event == "roll-out" else ""
        if event == "restart":
            world.scaler = world.fresh()
        least = 3 if event == "limits" else 1
        world.ask(scaling={"minReplicas": least})
        before = world.live or 0
        after = world.tick().replicas
        assert least <= after <= MAX_GPUS
        if usage is None or event in ("restart", "roll-out"):
            assert after >= min(before, MAX_GPUS)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.5, 0.75), min_size=80, max_size=100), st.integers(2, 5))
def test_what_was_added_stays_for_a_window_whatever_the_noise(usages: list[float], live: int) -> None:
    world, moves = World(revision(), live=live), list[tuple[float, int]]()
    busy = live * 0.6
    for usage in usages:
        before = world.live or 1
        world.usage = min(1.0, busy * usage / 0.62 / before)
        after = world.tick().replicas
        if after != before:
            moves.append((world.now, after - before))
    for (at, first), (then, second) in pairwise(moves):
        assert not first > 0 > second or then - at >= DEFAULTS.hold_seconds


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(["Auto", "External", "Fixed"]), min_size=2, max_size=12), st.integers(1, 8), st.data())
def test_whoever_takes_over_nothing_is_lost_at_once(modes: list[str], live: int, data: st.DataObject) -> None:
    world = World(revision(), live=live)
    world.reconcile()
    world.now = 0.0
    previous = "Auto"
    for mode in modes:
        spec: dict[str, Any] = {"scaling": {"mode": mode}}
        if mode != "Auto":
            spec["replicas"] = data.draw(st.integers(1, 8))
        world.ask(**spec)
        before = world.live or 0
        after = world.reconcile().replicas
        if previous == "Auto" or mode == "Auto":
            assert after >= before
        previous = mode
