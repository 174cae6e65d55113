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

QWEN = "Qwen/Qwen3-8B"


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
