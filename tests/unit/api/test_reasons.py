"""The table of reasons is complete, and its names are those of `plimsoll predict`."""

import re

import pytest

from plimsoll.api import (
    engine_reasons,
    experiment_reasons,
    metrics_reasons,
    names,
    pool_reasons,
    reasons,
    rollout_reasons,
    scaling_reasons,
    write_reasons,
)


@pytest.mark.parametrize(
    ("predicted", "reason"),
    [
        ("kv_cache_too_small", reasons.KV_CACHE_TOO_SMALL),
        ("no_memory_for_kv", reasons.NO_MEMORY_FOR_KV),
        ("weights_do_not_fit", reasons.WEIGHTS_DO_NOT_FIT),
        ("not_enough_free_memory", reasons.NOT_ENOUGH_FREE_MEMORY),
        ("oom_risk", reasons.OOM_RISK),
        ("max_num_seqs_above_state_blocks", reasons.MAX_NUM_SEQS_ABOVE_STATE_BLOCKS),
        ("heads_not_divisible", reasons.HEADS_NOT_DIVISIBLE),
        ("kv_dtype_unsupported", reasons.KV_DTYPE_UNSUPPORTED),
        ("no_attention_backend", reasons.NO_ATTENTION_BACKEND),
        ("max_model_len_above_model", reasons.MAX_MODEL_LEN_ABOVE_MODEL),
        ("unknown_architecture", reasons.UNKNOWN_ARCHITECTURE),
        ("unknown_gpu", reasons.UNKNOWN_GPU),
        ("bad_flag", reasons.BAD_FLAG),
        ("quantization_unsupported", reasons.QUANTIZATION_UNSUPPORTED),
        ("dtype_unsupported", reasons.DTYPE_UNSUPPORTED),
    ],
)
def test_a_predicted_refusal_is_the_same_word_in_the_cluster(predicted: str, reason: reasons.Reason) -> None:
    assert reasons.camel_reason(predicted) == reason.name
    assert {names.PLANNED, names.STALLED} <= set(reason.conditions)


@pytest.mark.parametrize("reason", reasons.REASONS.values(), ids=str)
def test_every_reason_can_stand_in_a_condition_and_says_what_to_do(reason: reasons.Reason) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z0-9]*", reason.name)
    assert reason.conditions
    assert set(reason.conditions) <= names.CONDITIONS.keys()
    assert reason.meaning.endswith(".")
    assert reason.runbook.endswith(".")


def test_no_name_is_given_twice() -> None:
    """A second constant of the same name would silently replace the first in the table."""
    modules = (
        reasons,
        engine_reasons,
        experiment_reasons,
        metrics_reasons,
        pool_reasons,
        rollout_reasons,
        scaling_reasons,
        write_reasons,
    )
    constants = [value for m in modules for value in vars(m).values() if isinstance(value, reasons.Reason)]
    assert len(constants) == len(reasons.REASONS)
