"""One second try with the engine's own figures: what is learned, that it helps, and that it is not tried again."""

import dataclasses
import json
from typing import Any

import pytest

from plimsoll.core import learn, replan, rollout
from plimsoll.core.logs import GIB, EngineLog, read_log
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.revision import Revision, read_revision
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction, from_dict, to_dict
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.request import Request, read_request
from plimsoll.core.rollout import Target

SPEC: dict[str, Any] = {
    "model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True},
    "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 1},
    "contextTokens": 131072,
}
TOO_SMALL = (
    "ValueError: To serve at least one request with the model's max seq len (131072), (4.11 GiB KV cache is needed, "
    "which is larger than the available KV cache memory ({found} GiB). Based on the available memory, the estimated "
    "maximum model length is 100000."
)


def _request(**spec: Any) -> Request:
    meta = {"namespace": "ns", "name": "svc", "uid": "u", "generation": 1}
    return read_request({"metadata": meta, "spec": {**SPEC, **spec}})


def _planned(request: Request, correction: Correction = NOTHING_LEARNED) -> Plan | Refusal:
    config = bundled_config(request.spec.model.id)
    return plan_service(request.spec, request.minimum_replicas, config, correction=correction)


def _plan(request: Request, correction: Correction = NOTHING_LEARNED) -> Plan:
    found = _planned(request, correction)
    assert isinstance(found, Plan)
    return found


def _lesson(text: str, revision: Revision) -> Correction:
    log = read_log(text)
    assert log.failure is not None
    found = learn.correction(log.failure, log, revision.plan)
    assert found is not None
    return found


def _flag(plan: Plan, name: str) -> str:
    return plan.choice.args[plan.choice.args.index(name) + 1]


@pytest.fixture
def asked() -> Request:
    return _request()


@pytest.fixture
def failed(asked: Request) -> Revision:
    return rollout.render(asked, _plan(asked), 1)


def test_a_smaller_pool_is_taken_off_and_the_context_stays(asked: Request, failed: Revision) -> None:
    before = _plan(asked)
    lesson = _lesson(TOO_SMALL.format(found="3.50"), failed)
    assert lesson.missing_bytes == pytest.approx(before.available_kv_bytes.mid - 3.5 * GIB, abs=GIB // 100)
    after = _plan(asked, lesson)
    assert _flag(after, "--max-model-len") == "131072"
    assert float(_flag(after, "--gpu-memory-utilization")) > float(_flag(before, "--gpu-memory-utilization"))
    assert after.available_kv_bytes.mid < before.available_kv_bytes.mid
    assert any(item.item == "found at start" for item in after.memory)
    assert any("the engine found 3.50 GiB" in note for note in after.assumptions)


def test_a_context_that_cannot_be_held_is_refused_with_arithmetic_and_never_shortened(
    asked: Request, failed: Revision
) -> None:
    lesson = _lesson(TOO_SMALL.format(found="0.50"), failed)
    refusal = _planned(asked, lesson)
    assert isinstance(refusal, Refusal)
    assert "131072 needs" in refusal.message
    assert any("contextTokens: 131072 -> " in change.change for change in refusal.nearest)
    target, tried = rollout.replanned(asked, Target(failed), [failed], refusal, lesson)
    assert target.revision is failed
    assert refusal.message in tried
    reported = rollout.reported_plan(target, 1)
    assert reported is not None
    assert reported["nearest"]


def test_no_pool_at_all_is_read_from_the_log(failed: Revision) -> None:
    found = "INFO 11-29 1:1:1 [x] Available KV cache memory: -1.66 GiB\n"
    text = f"{found}ValueError: No available memory for the cache blocks."
    lesson = _lesson(text, failed)
    assert lesson.missing_bytes == pytest.approx(failed.plan["availableKVBytes"]["mid"] + 1.66 * GIB, abs=GIB // 100)


def test_memory_that_ran_out_after_the_pool_leaves_more_outside_it(asked: Request, failed: Revision) -> None:
    text = (
        "INFO 11-29 1:1:1 [x] GPU KV cache size: 100,000 tokens\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 44.40 "
        "GiB of which 1.00 GiB is free."
    )
    lesson = _lesson(text, failed)
    assert lesson.missing_bytes == 0
    assert GIB < lesson.outside_bytes < 2 * GIB
    before, after = _plan(asked), _plan(asked, dataclasses.replace(lesson, outside_bytes=4 * GIB))
    assert float(_flag(after, "--gpu-memory-utilization")) < float(_flag(before, "--gpu-memory-utilization"))


def test_memory_that_ran_out_before_the_pool_makes_the_step_smaller(asked: Request, failed: Revision) -> None:
    lesson = _lesson("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", failed)
    assert int(_flag(_plan(asked, lesson), "--max-num-batched-tokens")) < int(
        _flag(_plan(asked), "--max-num-batched-tokens")
    )


def test_state_blocks_bound_the_sequences(asked: Request, failed: Revision) -> None:
    lesson = _lesson("ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (20).", failed)
    assert int(_flag(_plan(asked, lesson), "--max-num-seqs")) <= 20


def test_a_cache_dtype_that_the_engine_refuses_is_undone(asked: Request, failed: Revision) -> None:
    lesson = _lesson(
        "ValueError: FP8 KV cache is not supported by the Triton attention backend on NVIDIA A100.", failed
    )
    assert _flag(_plan(asked, lesson), "--kv-cache-dtype") == "bfloat16"


@pytest.mark.parametrize(
    "said",
    [
        "ValueError: Free memory on device cuda:0 (14.66/178.36 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 160.53 GiB).",
        "vllm: error: unrecognized arguments: --no-such-flag",
        "RuntimeError: NCCL error: unhandled system error",
    ],
)
def test_what_is_not_the_plans_fault_changes_no_plan(said: str, failed: Revision) -> None:
    log = read_log(said)
    assert log.failure is not None
    assert learn.correction(log.failure, log, failed.plan) is None


def test_the_second_try_is_a_revision_that_remembers_it(asked: Request, failed: Revision) -> None:
    lesson = _lesson(TOO_SMALL.format(found="3.50"), failed)
    assert not replan.was_tried(asked, [failed])
    target, tried = rollout.replanned(asked, Target(failed), [failed], _plan(asked, lesson), lesson)
    assert tried == ""
    second = target.revision
    assert second is not None
    assert second.number == 2
    stored = json.loads(json.dumps(second.manifest(Owner("ns", "svc", "u"))))
    again = read_revision(stored)
    assert again == second
    kept = [failed, second]
    assert replan.was_tried(asked, kept)
    assert replan.known(asked, kept) == lesson
    # The planner asked again with what was learned gives what runs: nothing is offered, nothing restarts.
    settled = rollout.choose_target(asked, _plan(asked, lesson), kept, lesson)
    assert (settled.revision, settled.update) == (second, None)


def test_a_second_try_that_gives_the_same_plan_is_none(asked: Request, failed: Revision) -> None:
    target, tried = rollout.replanned(asked, Target(failed), [failed], _plan(asked), Correction("it was read"))
    assert target.revision is failed
    assert "the same plan" in tried


def test_another_request_of_the_same_engine_starts_from_what_was_learned(asked: Request, failed: Revision) -> None:
    lesson = _lesson(TOO_SMALL.format(found="3.50"), failed)
    second = rollout.replanned(asked, Target(failed), [failed], _plan(asked, lesson), lesson)[0].revision
    assert second is not None
    shorter, other = _request(contextTokens=100_000), _request(hardware={"gpu": "NVIDIA-L4", "maxGPUs": 8})
    assert replan.known(shorter, [failed, second]) == lesson
    assert not replan.was_tried(shorter, [failed, second])
    assert replan.known(other, [failed, second]) == NOTHING_LEARNED


def test_lessons_add_up() -> None:
    first, second = (
        Correction("a", 10, 1, most_sequences=8),
        Correction("b", 5, most_sequences=16, most_step_tokens=4096),
    )
    assert second.added_to(first) == Correction("b", 15, 1, 8, 4096)
    assert from_dict({**to_dict(first), "from a newer version": 1}) == first
    assert Correction("nothing").empty


def test_a_log_that_was_not_read_teaches_nothing_wrong(failed: Revision) -> None:
    failure = read_log(TOO_SMALL.format(found="3.50")).failure
    assert failure is not None
    assert learn.correction(failure, EngineLog(), failed.plan) is not None
