"""Flags by name → options, and what the engine's parser would say of bad ones."""

import pytest

from plimsoll.core.kv import Refusal
from plimsoll.core.serve_flags import ServeFlags, read_serve_flags
from plimsoll.facts import engine_flags
from plimsoll.facts.engines import EngineVersion


def read(**flags: object) -> ServeFlags:
    return read_serve_flags(flags, EngineVersion.parse("0.32.0"))


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ({"tensor_parallel_size": 2}, {"tensor_parallel": 2}),
        ({"max_model_len": "8k"}, {"max_model_len": 8000}),
        ({"max_model_len": "8K"}, {"max_model_len": 8192}),
        ({"max_model_len": "auto"}, {"max_model_len": -1}),
        ({"no_enable_prefix_caching": True}, {"enable_prefix_caching": False}),
        ({"enable_prefix_caching": "false"}, {"enable_prefix_caching": False}),
        ({"limit_mm_per_prompt": {"image": 0, "video": 0}}, {"text_only": True}),
        ({"limit_mm_per_prompt": {"image": 1, "video": 0}}, {}),
        ({"limit_mm_per_prompt": '{"image": 0}'}, {"text_only": True}),
        ({"max_num_seqs": None}, {}),
        ({"port": 8000, "served_model_name": "x"}, {}),
    ],
)
def test_options(flags: dict[str, object], options: dict[str, object]) -> None:
    assert read(**flags).options == options


@pytest.mark.parametrize(
    ("flags", "memory"),
    [
        ({"gpu_memory_utilization": "0.8"}, {"gpu_memory_utilization": 0.8}),
        ({"device_memory_utilization": 0.8}, {"gpu_memory_utilization": 0.8}),
        ({"kv_cache_memory_bytes": "64m"}, {"kv_cache_memory_bytes": 64_000_000}),
        ({"cpu_offload_gb": 2}, {"cpu_offload_bytes": 2 << 30}),
        ({"runner": "pooling"}, {"pooling": True}),
        ({"enable_lora": True, "max_lora_rank": 32}, {"max_loras": 1, "max_lora_rank": 32}),
        ({"max_loras": 4}, {}),
        ({"mm_encoder_tp_mode": "data"}, {"whole_encoders": True}),
        ({"skip_mm_profiling": True}, {"unprofiled_encoders": True}),
        ({"compilation_config": 0}, {"enforce_eager": True}),
        ({"optimization_level": "0"}, {"enforce_eager": True}),
        ({"compilation_config": 3}, {}),
        ({"compilation_config": '{"cudagraph_capture_sizes": [1, 2, 4]}'}, {"cudagraph_capture_sizes": (1, 2, 4)}),
        ({"compilation_config": {"cudagraph_mode": "NONE"}}, {"enforce_eager": True}),
        ({"-cc.mode": "none"}, {"enforce_eager": True}),
        ({"-cc.cudagraph_mode": "NONE", "compilation_config": {"mode": 3}}, {"enforce_eager": True}),
        ({"enforce_eager": True, "enable_expert_parallel": True}, {"enforce_eager": True, "expert_parallel": True}),
    ],
)
def test_memory(flags: dict[str, object], memory: dict[str, object]) -> None:
    assert read(**flags).memory == memory


def test_variables_of_the_environment() -> None:
    found = read(VLLM_PP_LAYER_PARTITION="16,32", VLLM_ALLOW_LONG_MAX_MODEL_LEN=1).options
    assert found["layer_partition"] == (16, 32)
    assert found["allow_long_max_model_len"] is True


def test_speculation_in_one_object_or_three_flags() -> None:
    written = {"method": "mtp", "num_speculative_tokens": 2}
    assert read(speculative_config=written).speculative == written
    assert read(spec_method="mtp", spec_tokens=2).speculative == written


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"max_num_seqs": "many"}, "max_num_seqs: 'many'"),
        ({"max_num_seqs": 0}, "at least 1"),
        ({"max_num_seqs": True}, "whole number"),
        ({"max_num_seqs": 10**40}, "whole number"),
        ({"gpu_memory_utilization": 1.5}, "at most 1"),
        ({"gpu_memory_utilization": float("nan")}, "a number"),
        ({"kv_cache_dtype": "fp7"}, "is not one of auto"),
        ({"no_such_flag": 1}, "no such flag"),
        ({"no_such.flag": 1}, "no such flag"),
        ({"-cc.": 1}, "no such flag"),
        ({"compilation_config": {"cudagraph_capture_sizes": "x"}}, "compilation_config.cudagraph_capture_sizes"),
        ({"max_num_seqs.x": 1}, "whole number"),
        ({"hf_overrides": "x"}, "an object"),
        ({"limit_mm_per_prompt": 3}, "an object"),
        ({"enforce_eager": "perhaps"}, "true or false"),
        ({"port": "abc"}, "whole number"),
    ],
)
def test_bad_flags_name_themselves(flags: dict[str, object], words: str) -> None:
    with pytest.raises(Refusal) as caught:
        read(**flags)
    assert caught.value.reason == "bad_flag"
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("version", "allowed"),
    [
        pytest.param("0.11.0", False, id="a closed list then"),
        pytest.param("0.12.0", True, id="any name from here on"),
        pytest.param("0.32.0", True, id="the newest"),
    ],
)
def test_a_list_of_choices_that_a_release_opened_stays_open(version: str, *, allowed: bool) -> None:
    flag = engine_flags.find("--reasoning-parser")
    assert flag is not None
    choices = flag.choices_of(EngineVersion.parse(version))
    assert (not choices or "minimax_m2" in choices) is allowed
