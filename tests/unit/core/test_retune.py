"""What to turn next: the flag, its grounds, and that it holds by the planner's own arithmetic."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from plimsoll.api.findings import FINDINGS
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core import retune
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.facts.gpus import GPU, find

QWEN = "Qwen/Qwen3-8B"
ON, OFF = "--enable-prefix-caching", "--no-enable-prefix-caching"


def gpu(label: str) -> GPU:
    found = find(label)
    assert found is not None
    return found


def spec(*args: str, **more: Any) -> VLLMServiceSpec:
    hardware = {"gpu": "NVIDIA-L40S", "maxGPUs": 4}
    engine = {"extraArgs": list(args)}
    base = {"model": {"id": QWEN}, "hardware": hardware, "contextTokens": 16384, "engine": engine}
    return VLLMServiceSpec.model_validate(base | more)


def planning(wanted: VLLMServiceSpec) -> Plan | Refusal:
    return plan_service(wanted, 1, bundled_config(QWEN))


def kept(wanted: VLLMServiceSpec, **flags: str) -> dict[str, Any]:
    """The plan that runs: the planner's own, with some of its flags turned since."""
    found = planning(wanted)
    assert isinstance(found, Plan)
    plan: dict[str, Any] = to_json(found)
    args = plan["choice"]["args"]
    for name, value in flags.items():
        args[args.index("--" + name.replace("_", "-")) + 1] = value
    return plan


def turned(finding: str, wanted: VLLMServiceSpec, **flags: str) -> retune.Recommendation | None:
    return retune.recommend(finding, "because", kept(wanted, **flags), wanted, planning)


@pytest.mark.parametrize(
    ("finding", "flags", "setting", "to"),
    [
        ("SequenceCapBound", {"max_num_seqs": "8"}, "MaxNumSeqs", "16"),
        ("KVBound", {"gpu_memory_utilization": "0.95"}, "KVCacheDtype", "fp8"),
        ("PrefillBound", {"max_num_batched_tokens": "2048"}, "MaxNumBatchedTokens", "4096"),
        ("DecodeBound", {"max_num_batched_tokens": "8192"}, "MaxNumBatchedTokens", "4096"),
        ("DecodeBound", {"max_num_batched_tokens": "1024", "max_num_seqs": "64"}, "MaxNumSeqs", "48"),
    ],
)
def test_the_flag_that_is_turned_first(finding: str, flags: dict[str, str], setting: str, to: str) -> None:
    found = turned(finding, spec(), **flags)
    assert found is not None
    assert (found.change.setting, found.change.after) == (setting, to)
    assert found.before == next(iter(flags.values())) or setting in ("KVCacheDtype", "MaxNumSeqs")
    told = found.status()
    assert told["why"] == "because"
    assert told["expected"]
    assert json.loads(told["patch"]) == {"spec": {"engine": {"extraArgs": [f"{found.change.flag}={to}"]}}}


def test_more_of_the_gpu_comes_before_fewer_bits() -> None:
    cautious = kept(spec("--gpu-memory-utilization=0.85"))
    found = retune.recommend("KVBound", "because", cautious, spec(), planning)
    assert found is not None
    assert (found.change.setting, found.before, found.change.after) == ("GPUMemoryUtilization", "0.85", "0.9")
    assert "tokens (+" in found.expected


@pytest.mark.parametrize(
    ("allowed", "turned_first"),
    [
        ((), "GPUMemoryUtilization"),
        (("MaxNumSeqs",), "MaxNumSeqs"),
        (("MaxNumSeqs", "GPUMemoryUtilization"), "GPUMemoryUtilization"),
        (("MaxNumBatchedTokens",), "GPUMemoryUtilization"),
    ],
)
def test_what_may_be_tried_comes_before_what_waits_for_a_person(allowed: tuple[str, ...], turned_first: str) -> None:
    plan = kept(spec("--gpu-memory-utilization=0.85", "--max-num-seqs=256"))
    plan["typical"]["blocks"] = plan["kv"]["numBlocks"] // 16
    found = retune.recommend("KVBound", "because", plan, spec(), planning, first=allowed)
    assert found is not None
    assert found.change.setting == turned_first


def test_more_cache_is_told_in_tokens() -> None:
    found = turned("KVBound", spec(), gpu_memory_utilization="0.95")
    assert found is not None
    assert "tokens (+" in found.expected


def test_fp8_is_told_in_replicas_too_and_where_the_gpu_computes_in_it() -> None:
    busy = spec(load={"concurrency": 400, "promptTokens": 6000, "outputTokens": 1000})
    plan = {**kept(busy, gpu_memory_utilization="0.95"), "plannedReplicas": 4}
    found = retune.recommend("KVBound", "because", plan, busy, planning)
    assert found is not None
    assert found.change.setting == "KVCacheDtype"
    assert "replicas for the load of the spec: 4 -> " in found.expected
    idle = turned("KVBound", spec(), gpu_memory_utilization="0.95")
    assert idle is not None
    assert "replicas' KV cache in one" in idle.expected
    ampere = spec(hardware={"gpu": "NVIDIA-A100-SXM4-80GB", "maxGPUs": 4})
    older = turned("KVBound", ampere, gpu_memory_utilization="0.95")
    assert older is None or older.change.setting != "KVCacheDtype"


@pytest.mark.parametrize(
    ("finding", "args"),
    [
        ("SequenceCapBound", ["--max-num-seqs=8"]),
        ("PrefillBound", ["--max-num-batched-tokens", "2048"]),
        ("KVBound", ["--gpu-memory-utilization=0.8", "--kv-cache-dtype=auto"]),
    ],
)
def test_what_the_user_wrote_is_never_turned(finding: str, args: list[str]) -> None:
    assert turned(finding, spec(*args)) is None


def test_the_patch_keeps_the_users_other_arguments() -> None:
    wanted = spec("--enforce-eager")
    found = turned("SequenceCapBound", wanted, max_num_seqs="8")
    assert found is not None
    assert json.loads(found.patch)["spec"]["engine"]["extraArgs"] == ["--enforce-eager", "--max-num-seqs=16"]


@pytest.mark.parametrize("finding", sorted(FINDINGS.keys() - retune.RULES.keys()))
def test_most_findings_are_not_mended_by_a_flag(finding: str) -> None:
    assert turned(finding, spec()) is None


def test_sequences_go_no_further_than_the_pool_holds() -> None:
    plan = kept(spec(), max_num_seqs="8")
    plan["typical"]["blocks"] = plan["kv"]["numBlocks"] // 8
    assert retune.recommend("SequenceCapBound", "because", plan, spec(), planning) is None


def test_what_would_not_hold_is_passed_over() -> None:
    refused: Callable[[VLLMServiceSpec], Plan | Refusal] = lambda _: Refusal("KVCacheTooSmall", "no")  # noqa: E731
    assert retune.recommend("KVBound", "because", kept(spec()), spec(), refused) is None


def test_a_change_that_breaks_a_target_is_none() -> None:
    slo = {"itl": "25ms", "ttft": "2s"}
    load = {"concurrency": 4, "promptTokens": 1000, "outputTokens": 200}
    wanted = spec(slo=slo, load=load)
    found = turned("PrefillBound", wanted, max_num_batched_tokens="2048")
    assert found is None or "between two tokens" not in found.expected


HYBRID = "Qwen/Qwen3.5-9B"
SHARED = {"concurrency": 8, "promptTokens": 3000, "outputTokens": 100, "sharedPrefixTokens": 2500}
UNSHARED = SHARED | {"sharedPrefixTokens": 0}


def cached(finding: str, model: str, load: dict[str, int], args: list[str], hits: int | None) -> tuple[str, str] | None:
    """The change of prefix caching that is proposed first, where an experiment has found these flags."""

    def plan_of(wanted: VLLMServiceSpec) -> Plan | Refusal:
        return plan_service(wanted, 1, bundled_config(model))

    wanted = spec(model={"id": model}, load=load)
    engine = wanted.engine.model_copy(update={"extra_args": tuple(args)})
    runs = plan_of(wanted.model_copy(update={"engine": engine}))
    assert isinstance(runs, Plan)
    seen = retune.Seen(hit_percent=hits)
    found = retune.recommend(finding, "because", to_json(runs), wanted, plan_of, seen=seen)
    if found is None or found.change.setting != "PrefixCaching":
        return None
    turned = json.loads(found.patch)["spec"]["engine"]["extraArgs"]
    assert found.status()["undo"].startswith(f"take {turned[-1]} out")
    return found.before, turned[-1]


@pytest.mark.parametrize(
    ("finding", "model", "load", "args", "hits", "expect"),
    [
        pytest.param("PrefillBound", QWEN, SHARED, [OFF], None, ("off", ON), id="off, and prefixes are shared"),
        pytest.param("KVBound", QWEN, SHARED, [OFF], None, ("off", ON), id="blocks are saved too"),
        pytest.param("ComputeBound", QWEN, SHARED, [OFF], None, ("off", ON), id="no other flag would help"),
        pytest.param("SequenceCapBound", QWEN, SHARED, [OFF], None, None, id="not what limits it"),
        pytest.param("PrefillBound", QWEN, UNSHARED, [OFF], None, None, id="nothing is shared"),
        pytest.param("KVBound", HYBRID, UNSHARED, [], 0, ("on", OFF), id="a hybrid, and nothing was ever found"),
        pytest.param("KVBound", HYBRID, UNSHARED, [], None, None, id="whether anything was found is not known"),
        pytest.param("KVBound", HYBRID, UNSHARED, [], 30, None, id="prefixes are found that nobody declared"),
        pytest.param("KVBound", HYBRID, SHARED, [], 0, None, id="declared as shared"),
        pytest.param("KVBound", QWEN, UNSHARED, [], 0, None, id="without states it costs nothing"),
        pytest.param("PrefillBound", HYBRID, UNSHARED, [], 0, None, id="blocks are not what is short"),
    ],
)
def test_prefix_caching(
    finding: str,
    model: str,
    load: dict[str, int],
    args: list[str],
    hits: int | None,
    expect: tuple[str, str] | None,
) -> None:
    assert cached(finding, model, load, args, hits) == expect


@pytest.mark.parametrize("written", ["--enable-prefix-caching", "--no-enable-prefix-caching"])
def test_a_switch_that_the_user_wrote_is_never_turned(written: str) -> None:
    wanted = spec(written, load=SHARED)
    found = retune.recommend("ComputeBound", "because", kept(wanted), wanted, planning, seen=retune.Seen(hit_percent=0))
    assert found is None


def test_once_the_pool_was_seen_bytes_are_the_knob() -> None:
    plan = kept(spec("--gpu-memory-utilization=0.85"))
    real = plan["kv"]["numBlocks"] * 97 // 100
    found = retune.recommend("KVBound", "because", plan, spec(), planning, seen=retune.Seen(pool_blocks=real))
    assert found is not None
    assert (found.change.setting, found.change.flag) == ("KVCacheMemoryBytes", "--kv-cache-memory-bytes")
    block, total = plan["kv"]["bytesPerBlock"], gpu("NVIDIA-L40S").torch_total_bytes
    assert int(found.change.after) % block == 0
    assert int(found.change.after) - real * block == pytest.approx(0.05 * total, abs=block)
    made = planning(spec(f"--kv-cache-memory-bytes={found.change.after}"))
    assert isinstance(made, Plan)
    assert made.kv.num_blocks == int(found.change.after) // block
    assert f"{plan['kv']['tokens'] * 97 // 100:,}"[:4] in found.expected


def test_bytes_go_on_from_bytes_and_end_where_the_utilisation_does() -> None:
    plan, steps = kept(spec("--gpu-memory-utilization=0.85")), []
    for _ in range(6):
        seen = retune.Seen(pool_blocks=plan["kv"]["numBlocks"])
        found = retune.recommend("KVBound", "because", plan, spec(), planning, first=["KVCacheMemoryBytes"], seen=seen)
        if found is None or found.change.setting != "KVCacheMemoryBytes":
            break
        steps.append(int(found.change.after))
        plan = kept(spec(f"--kv-cache-memory-bytes={found.change.after}"))
    assert 1 < len(steps) < 6
    assert steps == sorted(steps)
    beside = sum(item["bytes"] for item in plan["memory"])
    share = (steps[-1] + beside) / gpu("NVIDIA-L40S").torch_total_bytes
    assert share == pytest.approx(retune.MOST_UTILISATION, abs=0.002)


def test_where_bytes_are_not_allowed_the_utilisation_is_turned() -> None:
    plan = kept(spec("--gpu-memory-utilization=0.85"))
    seen = retune.Seen(pool_blocks=plan["kv"]["numBlocks"])
    found = retune.recommend("KVBound", "because", plan, spec(), planning, first=["GPUMemoryUtilization"], seen=seen)
    assert found is not None
    assert found.change.setting == "GPUMemoryUtilization"
