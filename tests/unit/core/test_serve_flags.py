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


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8", 8), ("8k", 8000), ("8K", 8192), ("2m", 2_000_000), ("2M", 2 << 20), ("1g", 10**9), ("1G", 1 << 30),
        ("3GiB", 3 << 30), ("3gB", 3 * 10**9), (16.0, 16), (1 << 50, 1 << 50), (1, 1),
    ],
)  # fmt: skip
def test_numbers_as_the_parser_takes_them(written: object, value: int) -> None:
    assert read(kv_cache_memory_bytes=written).memory == {"kv_cache_memory_bytes": value}


@pytest.mark.parametrize(
    "written", [(1 << 50) + 1, float((1 << 50) + 2), 16.5, "1.5", "16x", False, -1, [], "1234567890123456"]
)
def test_numbers_that_it_does_not(written: object) -> None:
    with pytest.raises(Refusal):
        read(kv_cache_memory_bytes=written)


@pytest.mark.parametrize(
    ("share", "fine"), [(1, True), (0.01, True), (0, False), (1.01, False), (True, False), ("x", False)]
)
def test_a_share_is_above_nothing_and_at_most_all(share: object, fine: bool) -> None:
    if fine:
        assert read(gpu_memory_utilization=share).memory == {"gpu_memory_utilization": share}
        return
    with pytest.raises(Refusal):
        read(gpu_memory_utilization=share)


@pytest.mark.parametrize(("length", "found"), [(-1, -1), ("-1", -1), ("auto", -1), (1, 1)])
def test_a_length_may_be_whatever_fits(length: object, found: int) -> None:
    assert read(max_model_len=length).options == {"max_model_len": found}


def test_a_number_that_may_be_minus_one() -> None:
    assert read(max_cudagraph_capture_size=-1).memory == {"max_cudagraph_capture_size": -1}
    with pytest.raises(Refusal):
        read(max_cudagraph_capture_size=-2)


@pytest.mark.parametrize(
    ("flags", "prefixes"),
    [
        ({"no_enable_prefix_caching": False}, True),
        ({"enable_prefix_caching": 1}, True),
        ({"enable_prefix_caching": "0"}, False),
        ({"enable_prefix_caching": "TRUE"}, True),
        ({"--no-enable-prefix-caching": True}, False),
    ],
)
def test_switches_and_their_negatives(flags: dict[str, object], prefixes: bool) -> None:
    assert read(**flags).options == {"enable_prefix_caching": prefixes}


@pytest.mark.parametrize(
    ("version", "flags", "gives_up"),
    [
        pytest.param("0.20.0", {"kv_transfer_config": {"kv_connector": "NixlConnector"}}, True, id="any up to 0.20"),
        pytest.param("0.21.0", {"kv_transfer_config": {"kv_connector": "NixlConnector"}}, False, id="not from 0.21"),
        pytest.param("0.21.0", {"kv_transfer_config": {"kv_connector": "Mine"}}, True, id="those without support"),
        pytest.param("0.21.0", {"kv_transfer_config": {}}, False, id="no connector"),
        pytest.param("0.32.0", {"kv_offloading_size": 4}, False, id="the tier of its own"),
        pytest.param("0.32.0", {"kv_offloading_size": 0}, False, id="no tier"),
    ],
)
def test_connectors_that_give_the_groups_up(version: str, flags: dict[str, object], gives_up: bool) -> None:
    found = read_serve_flags(flags, EngineVersion.parse(version)).options
    assert found == ({"disable_hybrid_manager": True} if gives_up else {})


def test_the_users_own_word_on_groups_counts() -> None:
    flags = {"kv_transfer_config": {"kv_connector": "Mine"}, "disable_hybrid_kv_cache_manager": False}
    assert read(**flags).options == {"disable_hybrid_manager": False}


@pytest.mark.parametrize(
    ("limits", "text_only"), [({}, False), ({"image": 0}, True), ({"image": 0, "audio": 1}, False)]
)
def test_every_input_must_be_limited_to_none(limits: dict[str, int], text_only: bool) -> None:
    assert read(limit_mm_per_prompt=limits).options == ({"text_only": True} if text_only else {})


@pytest.mark.parametrize(
    ("flags", "memory"),
    [
        ({"enable_lora": True, "max_loras": 3}, {"max_loras": 3}),
        ({"enable_lora": False, "max_loras": 3}, {}),
        ({"runner": "generate"}, {}),
        ({"mm_encoder_tp_mode": "weights"}, {"whole_encoders": False}),
        ({"compilation_config": {"level": 0}}, {"enforce_eager": True}),
        ({"compilation_config": {"mode": 0, "max_cudagraph_capture_size": 8}},
         {"enforce_eager": True, "max_cudagraph_capture_size": 8}),
        ({"compilation_config": {"cudagraph_capture_sizes": 4}}, {"cudagraph_capture_sizes": (4,)}),
        ({"compilation_config": "  3"}, {}),
        ({"cpu_offload_gb": 1.5}, {"cpu_offload_bytes": 3 << 29}),
    ],
)  # fmt: skip
def test_what_takes_memory(flags: dict[str, object], memory: dict[str, object]) -> None:
    assert read(**flags).memory == memory


def test_a_task_of_an_old_release() -> None:
    old = EngineVersion.parse("0.12.0")
    assert read_serve_flags({"task": "embed"}, old).memory == {"pooling": True}
    assert read_serve_flags({"task": "generate"}, old).memory == {}


def test_dotted_names_are_gathered_below_their_flag() -> None:
    dotted = {"speculative_config.method": "mtp", "speculative_config": {"num_speculative_tokens": 2}}
    assert read(**dotted).speculative == {"method": "mtp", "num_speculative_tokens": 2}
    assert read(**{"speculative_config.method": "mtp"}).speculative == {"method": "mtp"}
    assert read(**{"speculative_config.method": None}).speculative == {}


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"}, {}),
        ({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, {"allow_long_max_model_len": True}),
        ({"VLLM_PP_LAYER_PARTITION": ""}, {}),
    ],
)
def test_variables_are_kept_and_some_are_flags(environment: dict[str, str], options: dict[str, object]) -> None:
    assert read(**environment).options == {"environment": environment, **options}


def test_a_value_is_shown_in_forty_letters() -> None:
    with pytest.raises(Refusal, match=r"'x{36}… is not a whole number"):
        read(max_num_seqs="x" * 39)
    with pytest.raises(Refusal, match=r"'x{38}' is not"):
        read(max_num_seqs="x" * 38)
