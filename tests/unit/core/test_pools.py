"""Pools that pods report: whether the plan foresaw them, and what later plans make of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core import pools
from plimsoll.core.kv import EngineOptions
from plimsoll.core.memory import budget
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, Range, to_json
from plimsoll.core.pools import Pool
from plimsoll.core.signals import FleetView, PodView, Sample, Signal, Stale
from plimsoll.facts import gpus
from tests.unit.core.kv.recorded import bundled_facts

QWEN = "Qwen/Qwen3-8B"


def spec(context: int = 16384, **more: Any) -> VLLMServiceSpec:
    hardware = {"gpu": "NVIDIA-L40S", "maxGPUs": 4}
    return VLLMServiceSpec.model_validate(
        {"model": {"id": QWEN}, "hardware": hardware, "contextTokens": context, **more}
    )


def planned(wanted: VLLMServiceSpec, known: Mapping[str, int] | None = None) -> Plan:
    found = plan_service(wanted, 1, bundled_config(QWEN), Inventory(pools=known or {}))
    assert isinstance(found, Plan)
    return found


PLAN = planned(spec())
TOLD = to_json(PLAN)
BLOCKS = PLAN.kv.num_blocks


def fleet(*blocks: float) -> FleetView:
    pods = [PodView(f"p{i}", "ready", engines={"0": {Signal.NUM_BLOCKS: Sample(n)}}) for i, n in enumerate(blocks)]
    return FleetView(tuple(pods))


@pytest.mark.parametrize(
    ("blocks", "reason", "says"),
    [
        pytest.param([BLOCKS], "Predicted", f"{BLOCKS:,} blocks", id="exact"),
        pytest.param([0.995 * BLOCKS] * 3, "Predicted", "-0.5%", id="within the range"),
        pytest.param([0.95 * BLOCKS] * 2, "PoolSmaller", "-5.0%; likely cuda_graphs", id="a little too small"),
        pytest.param([0.7 * BLOCKS] * 2, "PoolSmaller", "-30.0%; likely memory that others hold", id="far too small"),
        pytest.param([1.4 * BLOCKS], "PoolLarger", "+40.0%", id="too large"),
        pytest.param([BLOCKS, 0.9 * BLOCKS], "PoolsDiffer", "on the GPUs of p1", id="one pod has less"),
        pytest.param([], "NoObservation", "no engine has reported", id="nobody says"),
    ],
)
def test_the_pool_is_judged_by_the_range_that_was_planned(blocks: list[float], reason: str, says: str) -> None:
    found = pools.judge(fleet(*blocks), TOLD)
    assert found.word == reason
    assert says in found.message


def test_the_next_plan_of_the_same_engine_has_the_pool_that_was_seen() -> None:
    for seen in (BLOCKS - 700, BLOCKS + 700):
        known = pools.learned([Pool(PLAN.pool_key, seen)])
        same = planned(spec(), known)
        assert same.kv.num_blocks == seen
        assert pools.judge(fleet(seen), to_json(same)).word == "Predicted"
        item = next(each for each in same.memory if each.item == pools.ITEM)
        assert item.basis == "exact"
        assert f"{seen:,} blocks" in item.source


def test_a_pool_that_is_too_small_for_the_context_is_planned_around() -> None:
    wanted = spec(context=32768)
    first = planned(wanted)
    known = {first.pool_key: first.kv.num_blocks // 8}
    second = planned(wanted, known)
    assert second.pool_key != first.pool_key
    assert second.kv.max_concurrency >= 1


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        pytest.param({}, True, id="nothing"),
        pytest.param({"context": 8192}, True, id="the context"),
        pytest.param({"engine": {"version": "0.31.0"}}, False, id="the engine"),
        pytest.param({"engine": {"extraArgs": ["--gpu-memory-utilization=0.8"]}}, False, id="the share of memory"),
        pytest.param({"engine": {"extraArgs": ["--enforce-eager"]}}, False, id="no graphs"),
        pytest.param({"engine": {"extraArgs": ["--max-num-seqs=16"]}}, False, id="fewer sequences"),
        pytest.param({"hardware": {"gpu": "NVIDIA-H100-80GB-HBM3"}}, False, id="the GPU"),
    ],
)
def test_what_decides_the_pool_is_its_key(change: dict[str, Any], is_same: bool) -> None:
    base = planned(spec(engine={"extraArgs": ["--max-num-seqs=64"]}))
    extra = (change.get("engine") or {}).get("extraArgs", [])
    kept = [] if any("max-num-seqs" in arg for arg in extra) else ["--max-num-seqs=64"]
    other = planned(spec(**{**change, "engine": {**change.get("engine", {}), "extraArgs": [*kept, *extra]}}))
    assert (other.pool_key == base.pool_key) is is_same


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=5))
def test_sources_that_differ_teach_nothing(blocks: list[int]) -> None:
    found = pools.learned(Pool("k", count) for count in blocks)
    agree = max(blocks) - min(blocks) <= pools.AGREE_SHARE * max(blocks)
    assert found == ({"k": min(blocks)} if agree else {})


def test_what_was_seen_stays_while_nobody_says_and_goes_when_they_differ() -> None:
    seen = pools.after(None, fleet(BLOCKS, BLOCKS), TOLD)
    assert seen == Pool(PLAN.pool_key, BLOCKS)
    silent = FleetView((PodView("p", "ready", engines={"0": {Signal.NUM_BLOCKS: Stale(300.0)}}),))
    assert pools.after(seen, silent, TOLD) == seen
    assert pools.after(seen, FleetView(()), TOLD) == seen
    assert pools.after(seen, silent, {**TOLD, "poolKey": "another"}) is None
    assert pools.after(seen, fleet(BLOCKS, 0.9 * BLOCKS), TOLD) is None
    assert pools.after(seen, fleet(BLOCKS), {**TOLD, "poolKey": ""}) is None


def _plan_of(*items: tuple[str, str, int], exact: int = 1000) -> dict[str, Any]:
    """A pool of so many blocks of 10 bytes, one per cent more or less."""
    memory = [{"item": item, "basis": basis, "bytes": nbytes} for item, basis, nbytes in items]
    kv = {"numBlocks": exact, "bytesPerBlock": 10}
    return {"kv": kv, "availableKVBytes": {"low": 9.9 * exact, "high": 10.1 * exact}, "memory": memory}


@pytest.mark.parametrize(
    ("blocks", "reason", "says"),
    [
        pytest.param(
            986, "Predicted", "986 blocks of KV cache an engine, planned 1,000 (990 to 1,010): -1.4%", id="lo"
        ),
        pytest.param(985, "PoolSmaller", "-1.5%; likely", id="half a per cent below the range"),
        pytest.param(1015, "Predicted", "+1.5%", id="high"),
        pytest.param(1016, "PoolLarger", "+1.6%; likely", id="half a per cent above the range"),
    ],
)
def test_half_a_per_cent_beside_the_range_is_the_same_pool(blocks: int, reason: str, says: str) -> None:
    found = pools.judge(fleet(blocks, blocks), _plan_of(("cuda_graphs", "fitted", 200)))
    assert found.word == reason
    assert says in found.message
    assert found.figures == (blocks / 1000,)


def test_pools_that_differ_are_told_from_the_smallest_to_the_largest() -> None:
    found = pools.judge(fleet(1000, 900, 950), _plan_of())
    assert "900 to 1,000 blocks" in found.message
    assert ": -10.0%; likely memory that others hold on the GPUs of p1" in found.message
    assert pools.judge(fleet(1000, 995), _plan_of()).word == "Predicted", "half a per cent apart is the same pool"


@pytest.mark.parametrize(
    ("items", "blocks", "likely"),
    [
        pytest.param([("cuda_graphs", "fitted", 1000)], 910, "cuda_graphs (fitted,", id="thrice 300 bytes explain 900"),
        pytest.param([("cuda_graphs", "fitted", 1000)], 909, "memory that others hold", id="but not 910"),
        pytest.param([("a", "assumed", 100), ("b", "fitted", 400)], 960, "b (fitted,", id="least certain"),
        pytest.param([("a", "assumed", 130), ("b", "fitted", 400)], 960, "a (assumed,", id="assumed may be all wrong"),
        pytest.param([("weights", "exact", 40_000), ("b", "assumed", 300)], 960, "weights (exact,", id="1% of weights"),
        pytest.param([("a", "assumed", -500), ("b", "fitted", 400)], 960, "a (assumed,", id="a credit too"),
    ],
)  # fmt: skip
def test_the_least_certain_item_is_named(items: list[tuple[str, str, int]], blocks: int, likely: str) -> None:
    assert f"; likely {likely}" in pools.judge(fleet(blocks), _plan_of(*items)).message


@pytest.mark.parametrize("items", [[], [("reserve", "exact", 5000)]])
def test_where_nothing_is_doubtful_the_engines_own_rules_are(items: list[tuple[str, str, int]]) -> None:
    assert "the engine's own rules" in pools.judge(fleet(1100), _plan_of(*items)).message


def test_a_pool_that_was_seen_is_known_to_less_than_a_block() -> None:
    device = gpus.find("NVIDIA-L40S")
    assert device is not None
    any_budget = budget(bundled_facts(QWEN), EngineOptions(device=device))
    estimate = replace(any_budget, items=(), available_kv_bytes=Range(900, 1000, 1100))
    found = pools.measured(estimate, 97, 10)
    assert found.available_kv_bytes == Range(970, 970, 979)
    assert [(item.item, item.bytes, item.basis) for item in found.items] == [(pools.ITEM, 30, "exact")]


def test_of_sources_that_agree_the_smallest_counts() -> None:
    assert pools.learned([Pool("a", 1000), Pool("a", 995), Pool("b", 7)]) == {"a": 995, "b": 7}


def test_an_engine_that_does_not_say_teaches_nothing() -> None:
    two = PodView(
        "p", "ready", engines={"0": {Signal.NUM_BLOCKS: Sample(1000)}, "1": {Signal.NUM_BLOCKS: Stale(300.0)}}
    )
    assert pools.after(None, FleetView((two,)), TOLD) is None
    assert pools.after(None, fleet(1000, 996), TOLD) == Pool(PLAN.pool_key, 996)
    assert pools.is_reported(FleetView((two,)))
    assert not pools.is_reported(FleetView(()))


def test_a_pool_in_a_status_is_read_back() -> None:
    assert pools.told({"pool": {"key": "k", "numBlocks": 12}}) == Pool("k", 12)
    assert pools.told({}) is None
