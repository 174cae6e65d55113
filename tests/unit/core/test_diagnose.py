"""What limits a service: by several signals of one engine together, and never by what is not known."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.demand import ReplicaCapacity
from plimsoll.core.diagnose import STUCK_TICKS, Finding, diagnose
from plimsoll.core.evidence import Case
from plimsoll.core.latencies import Targets
from plimsoll.core.signals import NotANumber, PodView, Stale
from plimsoll.core.steady import Steady
from tests.unit.core.fleets import CAPACITY, busy, case, quiet

FULL: dict[str, Any] = {"USAGE": 0.97, "USAGE_PEAK": 1.0}
NO_TARGETS = Targets()
LITTLE: dict[str, Any] = {"USAGE": 0.05, "USAGE_PEAK": 0.1, "RUNNING": 3, "PROMPT_TOKENS": 9, "REQUESTS": 0}
LONG = replace(CAPACITY, request_blocks=300)


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        pytest.param(case(), "NothingRuns", id="no pods: zero is a known state (B15, C04)"),
        pytest.param(case(PodView("a", "loading")), "Loading", id="all load"),
        pytest.param(case(PodView("a", "loading"), busy("b")), "Healthy", id="one loads, one serves"),
        pytest.param(case(busy()), "Healthy", id="busy within its targets"),
        pytest.param(case(busy(**FULL)), "Healthy", id="a full pool alone is good batching"),
        pytest.param(case(busy(**FULL, TTFT=1.9, ITL=0.049)), "Healthy", id="full, and just within the targets"),
        pytest.param(case(busy(**FULL, WAITING=30)), "KVBound", id="full, and requests wait"),
        pytest.param(case(busy(**FULL, PREEMPTIONS=0.4)), "KVBound", id="full, and requests are preempted (C35)"),
        pytest.param(
            case(busy(USAGE=0.62, USAGE_PEAK=1.0, WAITING=15, PREEMPTIONS=3)), "KVBound", id="a saturated pool swings"
        ),
        pytest.param(
            case(busy(USAGE=0.72, USAGE_PEAK=0.74, WAITING=4), capacity=LONG),
            "KVBound",
            id="a prompt that does not fit the rest of the pool waits before the pool is full",
        ),
        pytest.param(
            case(busy(**FULL, RUNNING=64, WAITING=9, PREEMPTIONS=2)), "KVBound", id="preempted at the cap: blocks"
        ),
        pytest.param(
            case(busy(RUNNING=64, WAITING=40)), "SequenceCapBound", id="the cap on requests, with blocks to spare"
        ),
        pytest.param(
            case(busy(RUNNING=64, WAITING=40, ITL=0.09)), "DecodeBound", id="at the cap with late tokens: no more of it"
        ),
        pytest.param(case(busy(ITL=0.08)), "DecodeBound", id="tokens are late"),
        pytest.param(case(busy(ITL=0.08, TTFT=3.0)), "ComputeBound", id="first tokens and tokens are late"),
        pytest.param(case(busy(TTFT=3.0)), "PrefillBound", id="first tokens are late, the pool has room (C26, C40)"),
        pytest.param(
            case(busy(USAGE=0.32, USAGE_PEAK=0.33, WAITING=40), targets=NO_TARGETS),
            "PrefillBound",
            id="KV flat at 32 % while the queue grows (B21)",
        ),
        pytest.param(case(busy(WAITING=1)), "Healthy", id="one waits between two steps"),
        pytest.param(case(busy(RUNNING=60, WAITING=4)), "Healthy", id="a few of many wait"),
        pytest.param(
            case(busy("a", **FULL, WAITING=12), busy("b", USAGE=0.1), busy("c", USAGE=0.2)),
            "Imbalanced",
            id="one is full, two have room",
        ),
        pytest.param(
            case(busy("a", **FULL, WAITING=12), busy("b", **FULL, WAITING=3), busy("c", USAGE=0.2)),
            "KVBound",
            id="most are full",
        ),
        pytest.param(
            case(busy("a", **FULL, WAITING=12), busy("b", USAGE=0.8)), "KVBound", id="the other one is nearly full too"
        ),
        pytest.param(
            case(busy("a", **FULL), busy("b", USAGE=0.1, WAITING=1)),
            "Healthy",
            id="one is full and another has a request that waits: not the same engine",
        ),
        pytest.param(case(busy(USAGE=0.9, USAGE_PEAK=0.95, WAITING=1)), "KVBound", id="just full, and one waits"),
        pytest.param(case(busy(RUNNING=64, WAITING=1)), "SequenceCapBound", id="at the cap, and one waits"),
        pytest.param(case(busy(WAITING=3), targets=NO_TARGETS), "PrefillBound", id="just a queue"),
        pytest.param(case(busy("a", **FULL, WAITING=12), busy("b", USAGE=0.55)), "Imbalanced", id="one just has room"),
        pytest.param(case(quiet(RUNNING=1)), "StuckEngine", id="one request, and no token"),
        pytest.param(case(quiet(PROMPT_TOKENS=0.5)), "Healthy", id="a prompt now and then is not idle"),
        pytest.param(
            case(busy("a", **LITTLE, WAITING=1), busy("b", **LITTLE)), "Healthy", id="little, and one waits"
        ),
        pytest.param(case(busy("a", **LITTLE), busy("b", **LITTLE)), "OverProvisioned", id="little"),
        pytest.param(
            case(*(busy(n, USAGE=0.3, USAGE_PEAK=0.45, RUNNING=3, PROMPT_TOKENS=100) for n in "ab")),
            "Healthy",
            id="blocks alone would be too full with one fewer",
        ),
        pytest.param(
            case(*(busy(n, USAGE=0.05, USAGE_PEAK=0.1, RUNNING=30, PROMPT_TOKENS=100) for n in "ab")),
            "Healthy",
            id="sequences alone would be too many with one fewer",
        ),
        pytest.param(
            case(*(quiet(n, PROMPT_TOKENS=10, GENERATION_TOKENS=5, TTFT=3.0) for n in "ab")),
            "Healthy",
            id="first tokens were late a moment ago: not too much",
        ),
        pytest.param(case(busy(REJECTED=0.5)), "AdmissionLimited", id="requests are turned away"),
        pytest.param(case(busy(REJECTED=0.017)), "Healthy", id="one was turned away in a minute"),
        pytest.param(
            case(busy(GENERATION_TOKENS=0, PROMPT_TOKENS=0)), "StuckEngine", id="requests and no token (D09, D10)"
        ),
        pytest.param(
            case(quiet(WAITING=5)), "StuckEngine", id="some wait, none runs, no token"
        ),
        pytest.param(case(busy(GENERATION_TOKENS=0)), "Healthy", id="prompts are computed, no token yet"),
        pytest.param(case(quiet("a"), quiet("b")), "Idle", id="nothing runs"),
        pytest.param(
            case(busy("a", RUNNING=1, USAGE=0.02, USAGE_PEAK=0.03), quiet("b"), quiet("c")),
            "OverProvisioned",
            id="one request on three replicas",
        ),
        pytest.param(case(busy("a", RUNNING=1, USAGE=0.02, USAGE_PEAK=0.03)), "Healthy", id="one is the least"),
        pytest.param(
            case(*(busy(n, USAGE=0.3, USAGE_PEAK=0.34, RUNNING=10, PROMPT_TOKENS=3000) for n in "ab")),
            "OverProvisioned",
            id="both would fit one with head-room",
        ),
        pytest.param(
            case(*(busy(n, USAGE=0.3, USAGE_PEAK=0.45, RUNNING=10) for n in "ab")),
            "Healthy",
            id="the survivor would be too full (C23)",
        ),
        pytest.param(
            case(*(busy(n, USAGE=0.05, USAGE_PEAK=0.1, RUNNING=3, PROMPT_TOKENS=6000) for n in "ab")),
            "Healthy",
            id="little KV and much to compute is not too much",
        ),
        pytest.param(
            case(*(busy(n, USAGE=0.05, USAGE_PEAK=0.1, RUNNING=40) for n in "ab")),
            "Healthy",
            id="little KV and many sequences is not too much",
        ),
    ],
)  # fmt: skip
def test_a_finding_rests_on_signals_that_agree(seen: Case, word: str) -> None:
    assert diagnose(seen).word == word


UNKNOWN = [
    pytest.param({"USAGE": None}, id="use is missing"),
    pytest.param({"RUNNING": None}, id="running is missing"),
    pytest.param({"WAITING": NotANumber("nan")}, id="waiting is no number"),
    pytest.param({"USAGE": Stale(700)}, id="use is stale"),
    pytest.param({"PROMPT_TOKENS": None}, id="prompt tokens are missing"),
]


@pytest.mark.parametrize("lacking", UNKNOWN)
@pytest.mark.parametrize("calm", [busy, quiet])
def test_what_is_not_known_is_neither_idle_nor_too_much_nor_well(
    calm: Callable[..., PodView], lacking: dict[str, Any]
) -> None:
    pods = (calm("a"), calm("b", **lacking))
    assert diagnose(case(*pods)).word == "Unknown"


@pytest.mark.parametrize("lacking", [{"error": "down"}, {"partial": "a store is away"}, {"engines_per_pod": 2}])
def test_nor_is_what_is_known_in_part(lacking: dict[str, Any]) -> None:
    assert diagnose(case(quiet(), **lacking)).word == "Unknown"


def test_what_is_certain_is_found_on_partial_data() -> None:
    """A pod that does not report cannot make another's full pool emptier."""
    found = diagnose(case(busy("a", **FULL, WAITING=9), busy("b", **FULL, WAITING=2), busy("c", USAGE=None)))
    assert found.word == "KVBound"


def test_few_full_engines_are_no_imbalance_while_the_others_are_not_known() -> None:
    seen = case(busy("a", **FULL, WAITING=12), busy("b", USAGE=None), busy("c", USAGE=0.2))
    assert diagnose(seen).word == "KVBound"


def test_data_parallel_ranks_are_judged_each_by_its_own_cap_and_pool() -> None:
    one = busy("a", RUNNING=32, WAITING=9).engines["0"]
    other = busy("a", RUNNING=10).engines["0"]
    pod = PodView("a", "ready", engines={"0": one, "1": other})
    found = diagnose(case(pod, engines_per_pod=2))
    assert found.word == "SequenceCapBound"  # 64 requests a replica are 32 a rank
    assert "a/0" in found.message


def test_evidence_names_values_windows_and_limits() -> None:
    found = diagnose(case(busy("a", **FULL, WAITING=9, PREEMPTIONS=0.4, TTFT=3.2), busy("b", **FULL, WAITING=1)))
    assert found.message == (
        "KV use at its highest 100% over 60 s (limit 95%), 10 waiting, 0.40 preemptions/s, on 2 of 2 engines (a, b); "
        "p95 of time to first token is 1.8 s (target 2.0 s); p95 of inter-token latency is 30 ms (target 50 ms)"
    )


@pytest.mark.parametrize(
    ("seen", "figures", "message"),
    [
        pytest.param(
            case(busy(GENERATION_TOKENS=0, PROMPT_TOKENS=0, WAITING=5)),
            (1,),
            "a: 25 requests, and not one token in 60 s for 8 ticks",
            id="stuck: those that run and those that wait",
        ),
        pytest.param(
            case(busy(REJECTED=0.5)), (0.5,), "0.50 requests a second are rejected (over 60 s), 0 wait", id="rejected"
        ),
        pytest.param(
            case(busy("a", **FULL, WAITING=12), busy("b", USAGE=0.1), busy("c", USAGE=0.2)),
            (0.5, pytest.approx(0.15)),
            "a: KV use at its highest 100% with 12 waiting, while the other 2 engines are at 15% (limit 55%)",
            id="imbalanced",
        ),
        pytest.param(
            case(
                *(
                    busy(n, USAGE=0.95, USAGE_PEAK=p, WAITING=1, TTFT=None, ITL=None)
                    for n, p in (("a", 1.0), ("b", 0.96))
                )
            ),
            (1.0, 2),
            "KV use at its highest 100% over 60 s (limit 95%), 2 waiting, 0.00 preemptions/s, on 2 of 2 engines (a, b)",
            id="the fullest pool, no latency is known",
        ),
        pytest.param(
            case(busy(USAGE=0.95, USAGE_PEAK=1.0, WAITING=1, TTFT=None, ITL=None)),
            (1.0, 1),
            "KV use at its highest 100% over 60 s (limit 95%), 1 waiting, 0.00 preemptions/s",
            id="one engine is not named",
        ),
        pytest.param(
            case(
                *(
                    busy(n, USAGE_PEAK=p, RUNNING=64, WAITING=2, TTFT=None, ITL=None)
                    for n, p in (("a", 0.6), ("b", 0.7))
                )
            ),
            (2, 0.7),
            "64 of at most 64 requests run, 4 wait, KV use at its highest 70% (full from 95%)"
            ", on 2 of 2 engines (a, b)",
            id="the cap, with the fullest pool",
        ),
        pytest.param(
            case(busy(WAITING=40, TTFT=None), targets=NO_TARGETS),
            (0.0, 1),
            "40 wait, 4000 prompt tokens/s over 60 s; KV use 50% (full from 95%)",
            id="a queue without a target",
        ),
        pytest.param(case(PodView("a", "failing")), (), "no replica serves", id="nobody serves, nobody loads"),
        pytest.param(
            case(busy("a", RUNNING=1, USAGE=0.02, USAGE_PEAK=0.03), quiet("b"), quiet("c"), quiet("d")),
            (0.25,),
            "1 of 4 replicas would do: KV blocks need 0.03, compute 0.40, sequences 0.02 replicas (at most 70% full)",
            id="too many",
        ),
        pytest.param(case(busy(TTFT=None, ITL=None)), (0.5,), "KV use 50%, 0 waiting", id="well, no latency is known"),
    ],
)
def test_what_is_said_rests_on_these_figures(seen: Case, figures: tuple[float, ...], message: str) -> None:
    found = diagnose(seen)
    assert found.figures == figures
    assert found.message == message


@pytest.mark.parametrize(("count", "named"), [(3, "(a, b, c)"), (4, "(a, b, c and 1 more)")])
def test_three_engines_are_named_and_the_rest_counted(count: int, named: str) -> None:
    found = diagnose(case(*(busy(name, **FULL, WAITING=9) for name in "abcd"[:count])))
    assert named in found.message


def test_that_replicas_load_needs_no_second_look() -> None:
    assert ticks(case(PodView("a", "loading"))) == ["Loading"]


def ticks(*seen: Case) -> list[str]:
    steady: Steady[Finding] = Steady()
    said = []
    for each in seen:
        steady = steady.after(diagnose(each))
        said.append(steady.said.word if steady.said else "")
    return said


GOOD, BAD, STUCK = case(busy()), case(busy(**FULL, WAITING=9)), case(busy(GENERATION_TOKENS=0, PROMPT_TOKENS=0))


def test_a_finding_changes_when_the_evidence_has_held() -> None:
    assert ticks(GOOD, GOOD, GOOD, BAD, BAD, BAD) == ["", "", "Healthy", "Healthy", "Healthy", "KVBound"]


def test_evidence_that_comes_and_goes_changes_nothing() -> None:
    assert set(ticks(GOOD, GOOD, GOOD, *(BAD, GOOD) * 10)[2:]) == {"Healthy"}


def test_a_long_prompt_is_no_stuck_engine() -> None:
    assert "StuckEngine" not in ticks(*[GOOD] * 3, *[STUCK] * (STUCK_TICKS - 1), *[GOOD] * 3)
    assert ticks(*[GOOD] * 3, *[STUCK] * STUCK_TICKS)[-1] == "StuckEngine"


def test_a_capacity_without_a_cap_has_no_cap() -> None:
    free = replace(CAPACITY, max_num_seqs=0.0)
    assert isinstance(free, ReplicaCapacity)
    assert diagnose(case(busy(RUNNING=500), capacity=free)).word == "Healthy"
