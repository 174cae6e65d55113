"""What a decision says of itself: true to the law that made it, figure by figure."""

import re
from dataclasses import replace

import pytest

from plimsoll.core.demand import Demand, ReplicaCapacity
from plimsoll.core.outlook import Scene, alternatives, entry_of, grows_when, inputs, shrinks_when
from plimsoll.core.scale import DEFAULTS, Decision, Limits, Tuning, _need_down, replicas_for
from plimsoll.core.signals import FleetView, PodView, Sample, Signal

PLAIN = ReplicaCapacity(usable_blocks=1000, request_blocks=10, prompt_tokens=1000, max_num_seqs=0)
FULL = replace(PLAIN, max_num_seqs=64, prefill_seconds_per_token=1e-4)
LIMITS = Limits(1, 8)


def _pod(name: str, state: str = "ready", **figures: float) -> PodView:
    engine = {Signal[key]: Sample(value) for key, value in figures.items()}
    return PodView(name, state, engines={"0": engine})  # type: ignore[arg-type]


VIEW = FleetView(
    (
        _pod("a", USAGE=0.5, WAITING=3.0, RUNNING=20.0),
        _pod("b", USAGE=0.7, WAITING=4.0, RUNNING=30.0),
        _pod("c", "loading"),
    )
)
FOUND = Demand(blocks=1200, by_blocks=1.2, by_compute=0.6, by_sequences=0.8, by_flow=0.4)


def _share(text: str, of: str) -> float:
    match = re.search(rf"(\d+)% of the {of}", text)
    assert match, text
    return int(match[1]) / 100


@pytest.mark.parametrize("replicas", [1, 2, 3, 5, 7, 12, 40])
@pytest.mark.parametrize("tuning", [DEFAULTS, Tuning(noise=0.0), Tuning(noise=2.0), Tuning(up_share=0.5)])
def test_more_blocks_than_it_says_add_a_replica(replicas: int, tuning: Tuning) -> None:
    said = grows_when(PLAIN, replicas, Limits(1, 100), tuning)
    share = _share(said, "KV blocks")
    assert said == f"running and waiting requests need more than {share:.0%} of the KV blocks"
    below, above = (Demand(0, (share + by) * replicas, 0, 0) for by in (-0.006, 0.006))
    assert replicas_for(below, PLAIN, tuning) <= replicas < replicas_for(above, PLAIN, tuning)


@pytest.mark.parametrize("replicas", [2, 3, 5, 7, 12, 40])
@pytest.mark.parametrize("tuning", [DEFAULTS, Tuning(noise=0.0), Tuning(noise=2.0), Tuning(down_share=0.4)])
@pytest.mark.parametrize("capacity", [PLAIN, FULL, replace(FULL, ttft_seconds=2.0, itl_seconds=0.05)])
def test_less_than_it_says_takes_a_replica_away(replicas: int, tuning: Tuning, capacity: ReplicaCapacity) -> None:
    said = shrinks_when(capacity, replicas, Limits(1, 100), tuning)
    assert said.startswith(f"for {tuning.hold_seconds:.0f} s never more than ")
    share = _share(said, "KV blocks")
    below, above = (Demand(0, (share + by) * replicas, 0, 0) for by in (-0.006, 0.006))
    assert _need_down(below, capacity, tuning) <= replicas - 1 < _need_down(above, capacity, tuning)
    if not capacity.prefill_seconds_per_token:
        assert "prompts" not in said
        return
    time = _share(said, "time for prompts")
    below, above = (Demand(0, 0, (time + by) * replicas, 0) for by in (-0.006, 0.006))
    assert _need_down(below, capacity, tuning) <= replicas - 1 < _need_down(above, capacity, tuning)


def test_the_share_of_prompts_on_the_way_down_is_never_none() -> None:
    """A plan whose targets leave prompts next to nothing of the time would shrink only when idle."""
    tight = replace(FULL, decode_step_seconds=0.05, itl_seconds=0.05)
    assert _share(shrinks_when(tight, 2, LIMITS, Tuning(compute_gap=0.24)), "time for prompts") == 0.05


def test_growing_names_every_way() -> None:
    assert grows_when(FULL, 3, LIMITS).split(", or ")[1:] == [
        f"prompts need more than {FULL.prefill_share:.0%} of the time",
        "more than 192 requests run and wait",
    ]


@pytest.mark.parametrize(
    ("replicas", "limits", "says"),
    [
        (8, LIMITS, "never: scaling.maxReplicas is 8"),
        (9, LIMITS, "never: scaling.maxReplicas is 8"),
        (0, LIMITS, "a request waits at the gateway"),
        (7, LIMITS, "running and waiting"),
    ],
)
def test_when_it_grows(replicas: int, limits: Limits, says: str) -> None:
    assert grows_when(PLAIN, replicas, limits).startswith(says)


@pytest.mark.parametrize(
    ("replicas", "limits", "says"),
    [
        (1, Limits(1, 8), "never: scaling.minReplicas is 1"),
        (3, Limits(3, 8), "never: scaling.minReplicas is 3"),
        (2, Limits(1, 8), "for 600 s"),
        (4, Limits(3, 8), "for 600 s"),
        (1, Limits(0, 8), "it is idle"),
        (2, Limits(0, 8), "for 600 s"),
    ],
)
def test_when_it_shrinks(replicas: int, limits: Limits, says: str) -> None:
    assert shrinks_when(PLAIN, replicas, limits).startswith(says)


def test_an_entry_says_what_it_rests_on() -> None:
    decision = Decision(3, "KV blocks need 4 replicas", wanted=4, limited_by="maxGPUs is 3", demand=FOUND)
    entry = entry_of(decision, "KVBound", Scene(2, VIEW, FULL, LIMITS))
    assert (entry.before, entry.after) == ("2", "3")
    assert entry.message == "KV blocks need 4 replicas; maxGPUs is 3"
    assert entry.inputs == {
        "serving": "2",
        "loading": "1",
        "kvUse": "60%",
        "waiting": "7",
        "running": "50",
        "blocksNeeded": "1200 of 1000 a replica",
        "replicasByBlocks": "1.20",
        "replicasByCompute": f"{0.6 / FULL.prefill_share:.2f}",
        "replicasBySequences": "0.80",
        "replicasByQueue": "0.40",
    }
    assert entry.alternatives == (
        f"2: 60% of the blocks, prompts 30% of the time ({FULL.prefill_share:.0%} may be)",
        f"4: 30% of the blocks, prompts 15% of the time ({FULL.prefill_share:.0%} may be)",
        "4: maxGPUs is 3",
    )


def test_an_entry_of_nothing_known_says_only_what_was_seen() -> None:
    entry = entry_of(Decision(2, "held"), "Held", Scene(2, VIEW, PLAIN, LIMITS))
    assert (entry.message, entry.alternatives) == ("held", ())
    assert set(entry.inputs) == {"serving", "loading", "kvUse", "waiting", "running"}


@pytest.mark.parametrize(
    ("decision", "before", "says"),
    [
        pytest.param(Decision(1, "", demand=FOUND), 1, ["2"], id="not fewer than one"),
        pytest.param(Decision(2, "", demand=FOUND), 5, ["1", "3", "5"], id="where it came from"),
        pytest.param(Decision(2, "", wanted=2, demand=FOUND), 2, ["1", "3"], id="it got what it wanted"),
        pytest.param(Decision(3, "", wanted=2, demand=FOUND), 3, ["2", "4"], id="it wants fewer"),
    ],
)
def test_the_neighbours_are_compared(decision: Decision, before: int, says: list[str]) -> None:
    found = alternatives(decision, Scene(before, VIEW, PLAIN, LIMITS))
    assert [each.partition(":")[0] for each in found] == says


def test_a_wish_that_takes_several_steps_is_said() -> None:
    found = alternatives(Decision(2, "", wanted=9, demand=replace(FOUND, by_compute=0)), Scene(1, VIEW, PLAIN, LIMITS))
    assert found == ("1: 120% of the blocks", "3: 40% of the blocks", "9: more than one step")


def test_what_is_not_known_has_no_figure() -> None:
    blind = FleetView((_pod("a"),))
    assert inputs(Decision(1, ""), Scene(1, blind, PLAIN, LIMITS))["serving"] == "1"
