"""Where a replica over several nodes may run, and what is said where it may not."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.kinds import LEADER_WORKER_SET, NOTHING_OPTIONAL, Availability, Kinds
from plimsoll.core.plan.result import Choice, Plan
from plimsoll.core.rollout import choose_target
from plimsoll.core.several_nodes import refusal
from tests.unit.core.manifests import several

ABSENT = Kinds({LEADER_WORKER_SET: Availability("absent", "LeaderWorkerSet is not served")})
FORBIDDEN = Kinds({LEADER_WORKER_SET: Availability("forbidden", "the operator may not list leaderworkersets")})


def _chosen(choice: Choice) -> Plan:
    return replace(several.plan(), choice=choice)


@pytest.mark.parametrize(
    ("kinds", "changes", "says"),
    [
        pytest.param(ABSENT, {}, ("not served", "Install it", "2 nodes"), id="no CRD"),
        pytest.param(FORBIDDEN, {}, ("may not list",), id="no rights"),
        pytest.param(NOTHING_OPTIONAL, {}, ("not been found out",), id="not known yet"),
        pytest.param(several.WITH_SETS, {"engine_version": "0.11.0"}, ("Ray", "0.12.0 or newer"), id="engine too old"),
        pytest.param(
            several.WITH_SETS,
            {"args": ("--distributed-executor-backend=ray",)},
            ("extraArgs", "ray"),
            id="Ray asked for",
        ),
        pytest.param(several.WITH_SETS, {"gpus_per_replica": 9}, ("evenly",), id="nine GPUs on two nodes"),
    ],
)
def test_it_is_refused_with_the_reason_and_a_way_out(kinds: Kinds, changes: dict[str, Any], says: tuple[str]) -> None:
    found = refusal(_chosen(replace(several.plan().choice, **changes)), kinds)
    assert found is not None
    assert all(text in found for text in says), found
    assert "quantised checkpoint" in found


def test_a_volume_of_one_node_cannot_be_mounted_by_all_of_them() -> None:
    plan = several.plan()
    found = refusal(replace(plan, host=replace(plan.host, exclusive_volume=True)), several.WITH_SETS)
    assert found is not None
    assert "ReadWriteMany" in found


def test_it_runs_where_sets_can_be_used() -> None:
    assert refusal(several.plan(), several.WITH_SETS) is None
    target = choose_target(several.request(), several.plan(), [], kinds=several.WITH_SETS)
    assert target.revision is not None
    assert target.revision.nodes == 2


def test_one_node_needs_nothing_optional() -> None:
    one = Choice("NVIDIA-L40S", 1, 1, "0.10.2", ())
    assert refusal(_chosen(one), NOTHING_OPTIONAL) is None


@pytest.mark.parametrize("kinds", [ABSENT, FORBIDDEN], ids=["CRD gone", "rights gone"])
def test_what_runs_stays_the_target_when_sets_can_no_longer_be_used(kinds: Kinds) -> None:
    running = several.revision()
    target = choose_target(several.request(), several.plan(), [running], kinds=kinds)
    assert target.revision is running
    assert target.refusal is None
    assert target.update is None


def test_a_change_meanwhile_is_refused_and_leaves_what_runs() -> None:
    running = several.revision()
    target = choose_target(several.request(contextTokens=32768), several.plan(), [running], kinds=ABSENT)
    assert target.revision is running
    assert target.frozen
    assert target.refusal is not None
    assert target.refusal.reason == "SeveralNodes"
