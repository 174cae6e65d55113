"""What a change is expected to give, by a planner that answers what it is told to: worth a restart or not."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core import retune
from plimsoll.core.plan.result import Choice, KVBudget, Plan, Range, Refusal, Typical, to_json
from tests.unit.core.test_retune import planning, spec

FLAGS = ("--max-num-seqs", "8", "--max-num-batched-tokens", "8192", "--gpu-memory-utilization", "0.9")
PLANNED = planning(spec())
assert isinstance(PLANNED, Plan)
RUNS = replace(
    PLANNED,
    choice=Choice("NVIDIA-L40S", 3, 1, "0.32.0", FLAGS),
    kv=KVBudget(16, 1 << 20, 6251, 100_000, 6.1),
    typical=Typical(1000, 100, 0.1, 20.0, 200, 0),
    latency={"ttftMs": Range(1, 1000, 1), "itlMs": Range(1, 20, 1)},
    slo_met="yes",
)
SLO = {"slo": {"itl": "50ms"}}


def told(after: Plan, before: dict[str, Any] | None = None, **wanted: Any) -> str | None:
    """What one more step of requests at once would give, or None where it is not proposed."""
    runs = {**to_json(RUNS), **(before or {})}
    found = retune.recommend("SequenceCapBound", "because", runs, spec(**wanted), lambda _: after)
    return found.expected if found else None


def tokens(count: int) -> Plan:
    return replace(RUNS, kv=replace(RUNS.kv, tokens=count))


def latency(**mid: float) -> Plan:
    return replace(RUNS, latency={key: Range(1, value, 1) for key, value in mid.items()})


@pytest.mark.parametrize(
    ("after", "says"),
    [
        pytest.param(RUNS, None, id="nothing"),
        pytest.param(tokens(101_999), None, id="less than a fiftieth more"),
        pytest.param(tokens(102_000), "KV cache of an engine 100,000 -> 102,000 tokens (+2%)", id="a fiftieth more"),
        pytest.param(tokens(98_000), "KV cache of an engine 100,000 -> 98,000 tokens (-2%)", id="a fiftieth less"),
        pytest.param(tokens(149_000), "KV cache of an engine 100,000 -> 149,000 tokens (+49%)", id="nearly half more"),
        pytest.param(
            tokens(150_000),
            "KV cache of an engine 100,000 -> 150,000 tokens (+50%); "
            "1.5 replicas' KV cache in one: as many tokens with fewer of them",
            id="as much as three replicas in two",
        ),
        pytest.param(
            tokens(239_000),
            "KV cache of an engine 100,000 -> 239,000 tokens (+139%); "
            "2.3 replicas' KV cache in one: as many tokens with fewer of them",
            id="no more than it is",
        ),
        pytest.param(
            replace(RUNS, choice=replace(RUNS.choice, args=("--max-num-seqs", "16", *FLAGS[2:]))),
            "requests at once, at most: 8 -> 16",
            id="more requests",
        ),
        pytest.param(
            replace(RUNS, choice=replace(RUNS.choice, args=(*FLAGS[:3], "4096", *FLAGS[4:]))),
            "tokens a step: 8192 -> 4096",
            id="smaller steps",
        ),
        pytest.param(
            replace(RUNS, typical=Typical(1000, 98)),
            "KV blocks of a typical request: 100 -> 98",
            id="fewer blocks each",
        ),
        pytest.param(replace(RUNS, typical=Typical(1000, 99)), None, id="a block less"),
        pytest.param(replace(RUNS, typical=None), None, id="what a request holds is not known"),
        pytest.param(latency(ttftMs=980), "time to first token, expected: 1e+03 -> 980 ms", id="first tokens"),
        pytest.param(latency(ttftMs=981), None, id="hardly sooner"),
        pytest.param(latency(itlMs=20.5), "between two tokens, expected: 20 -> 20.5 ms", id="tokens later"),
        pytest.param(replace(RUNS, latency={}), None, id="no time is known"),
        pytest.param(
            replace(tokens(200_000), choice=replace(RUNS.choice, tensor_parallel=2)), None, id="other GPUs altogether"
        ),
    ],
)
def test_what_is_expected_of_it(after: Plan, says: str | None) -> None:
    assert told(after) == says


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        pytest.param(4, 3, "replicas for the load of the spec: 4 -> 3", id="one fewer"),
        pytest.param(3, 3, "2 replicas' KV cache in one: as many tokens with fewer of them", id="as many"),
        pytest.param(None, 3, "2 replicas' KV cache in one: as many tokens with fewer of them", id="not known"),
    ],
)
def test_a_larger_pool_is_told_in_replicas(was: int | None, now: int, says: str) -> None:
    after = replace(tokens(200_000), choice=replace(RUNS.choice, replicas=now))
    found = told(after, {"plannedReplicas": was})
    assert found is not None
    assert found.partition("; ")[2] == says


@pytest.mark.parametrize(
    ("slo_met", "wanted", "proposed"),
    [("no", SLO, False), ("no", {}, True), ("yes", SLO, True), ("unknown", SLO, True)],
)
def test_what_would_miss_a_target_that_was_asked_for_is_not_proposed(
    slo_met: Any, wanted: dict[str, Any], proposed: bool
) -> None:
    assert (told(replace(tokens(200_000), slo_met=slo_met), **wanted) is not None) is proposed


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        pytest.param(None, "100,000 -> 110,000", id="not seen: as planned"),
        pytest.param(6251, "100,000 -> 110,000", id="as planned"),
        pytest.param(5626, "90,001 -> 110,000", id="a tenth less than planned"),
        pytest.param(12_502, "200,000 -> 110,000", id="twice as much"),
    ],
)
def test_it_is_told_against_the_pool_that_was_seen(blocks: int | None, says: str) -> None:
    seen = retune.Seen(pool_blocks=blocks)
    found = retune.recommend("SequenceCapBound", "", to_json(RUNS), spec(), lambda _: tokens(110_000), seen=seen)
    assert found is not None
    assert says in found.expected


@pytest.mark.parametrize(
    ("kept", "failed", "proposed"),
    [
        pytest.param({}, [], ["--max-num-seqs=16"], id="alone"),
        pytest.param(
            {"--max-num-batched-tokens": "4096", "--max-num-seqs": "8"},
            [],
            ["--max-num-batched-tokens=4096", "--max-num-seqs=16"],
            id="beside what was kept, but for its own flag",
        ),
        pytest.param({}, [("--max-num-seqs", "16")], None, id="tried in vain"),
        pytest.param({}, [("--max-num-seqs", "32")], ["--max-num-seqs=16"], id="another value was tried in vain"),
    ],
)
def test_what_is_planned_with(kept: dict[str, str], failed: list[tuple[str, str]], proposed: list[str] | None) -> None:
    asked: list[list[str]] = []

    def answers(wanted: Any) -> Plan:
        asked.append(list(wanted.engine.extra_args))
        return tokens(110_000)

    found = retune.recommend("SequenceCapBound", "because", to_json(RUNS), spec(), answers, kept, failed)
    assert asked == ([proposed] if proposed else [])
    assert (found is not None) is (proposed is not None)


def test_a_flag_says_what_it_was() -> None:
    found = retune.recommend("SequenceCapBound", "because", to_json(RUNS), spec(), lambda _: tokens(110_000))
    assert found is not None
    assert (found.before, found.change.after) == ("8", "16")
    unset = replace(RUNS, choice=replace(RUNS.choice, args=FLAGS[:4]))
    fp8 = retune.recommend("KVBound", "because", to_json(unset), spec(), lambda _: tokens(200_000))
    assert fp8 is not None
    assert (fp8.change.setting, fp8.before) == ("KVCacheDtype", "unset")


def test_what_does_not_hold_leaves_room_for_the_next() -> None:
    def more_fails(wanted: Any) -> Plan | Refusal:
        more = any("utilization" in argument for argument in wanted.engine.extra_args)
        return Refusal("OOMRisk", "no") if more else tokens(200_000)

    found = retune.recommend("KVBound", "because", to_json(RUNS), spec(), more_fails)
    assert found is not None
    assert found.change.setting == "KVCacheDtype"


@pytest.mark.parametrize(
    ("utilisation", "setting"),
    [
        pytest.param("0.93", "KVCacheMemoryBytes", id="two hundredths are left"),
        pytest.param("0.95", "KVCacheDtype", id="nothing is left"),
        pytest.param(None, "KVCacheDtype", id="how much is used is not known"),
    ],
)
def test_bytes_are_turned_as_far_as_the_utilisation_would_be(utilisation: str | None, setting: str) -> None:
    args = FLAGS[:4] if utilisation is None else (*FLAGS[:5], utilisation)
    runs = to_json(replace(RUNS, choice=replace(RUNS.choice, args=args)))
    seen = retune.Seen(pool_blocks=6251)
    found = retune.recommend("KVBound", "because", runs, spec(), lambda _: tokens(200_000), seen=seen)
    assert found is not None
    assert found.change.setting == setting


@pytest.mark.parametrize(("hits", "setting"), [(2, "PrefixCaching"), (3, "GPUMemoryUtilization")])
def test_a_cache_in_which_a_fiftieth_is_found_is_of_no_use(hits: int, setting: str) -> None:
    runs = to_json(replace(RUNS, choice=replace(RUNS.choice, args=(*FLAGS, "--enable-prefix-caching"))))
    seen = retune.Seen(hit_percent=hits)
    found = retune.recommend("KVBound", "because", runs, spec(), lambda _: tokens(200_000), seen=seen)
    assert found is not None
    assert found.change.setting == setting
