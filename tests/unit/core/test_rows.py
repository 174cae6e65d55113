"""Rows of ``plimsoll predict``: what goes in, what comes out, what is refused to be read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.predict import Models
from plimsoll.core import rows
from plimsoll.core.rows import answer
from plimsoll.facts import gpus

GIB = 1 << 30
MODELS = Models(Path())
H100 = "NVIDIA-H100-80GB-HBM3"
OUT = {
    "id", "outcome", "outcome_at_low", "reason", "message", "needed_bytes", "estimated_max_model_len",
    "available_kv_bytes", "weights_bytes", "memory", "block_size", "bytes_per_block", "num_blocks",
    "kv_cache_size_tokens", "max_concurrency", "blocks_per_request", "ttft_ms", "tpot_ms",
}  # fmt: skip


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1000,
    "max_position_embeddings": 2048,
}  # fmt: skip


def ask(**row: Any) -> dict[str, Any]:
    return answer({"id": "a", "model": "Qwen/Qwen3.5-9B", "gpu": H100, **row}, MODELS)


def test_every_field_of_the_contract() -> None:
    found = ask(flags={"max_model_len": 131072, "max_num_seqs": 256})
    assert set(found) == OUT
    assert found["outcome"] == "starts"
    assert {"item", "bytes", "basis"} == set(found["memory"][0])
    json.dumps(found, allow_nan=False)


def test_the_worked_example() -> None:
    """Qwen3.5-9B: one request of 262,144 tokens takes 8 GiB of bf16 KV and its states, not 32."""
    options = {"max_num_seqs": 64, "gdn_prefill_backend": "triton"}
    found = ask(
        flags={"max_model_len": 262144, **options},
        load={"prompt_tokens": 262000, "output_tokens": 144, "concurrency": 1},
    )
    request = found["blocks_per_request"] * found["bytes_per_block"]
    assert found["block_size"] == 528
    assert 8 * GIB < request < 8.2 * GIB


def test_a_pool_that_is_given_skips_the_memory_model() -> None:
    found = ask(available_kv_bytes=40 * GIB, flags={"max_model_len": 262144, "gdn_prefill_backend": "triton"})
    assert found["memory"] == []
    assert found["num_blocks"] == 2482
    assert found["weights_bytes"] > 17e9


def test_memory_alone_is_enough() -> None:
    row = {"id": 1, "model": "Qwen/Qwen3-8B", "gpu_memory_bytes": 80 * GIB - 5}
    found = answer(row, MODELS)
    assert found["outcome"] == "starts"
    unknown = answer({**row, "gpu": "ACME Accelerator 9000"}, MODELS)
    assert unknown["available_kv_bytes"] == found["available_kv_bytes"]


def test_the_drivers_figure_of_a_known_gpu_is_turned_into_the_engines() -> None:
    gpu = gpus.find(H100)
    assert gpu is not None
    plain = ask()["available_kv_bytes"]
    for size in (gpu.memory_driver_bytes, gpu.torch_total_bytes, 80 * GIB, 80 * 10**9):
        assert ask(gpu_memory_bytes=size)["available_kv_bytes"] == plain


def test_a_cpu_needs_its_pool() -> None:
    assert ask(gpu="cpu")["reason"] == "bad_row"
    given = answer(
        {"model": "Qwen/Qwen3-8B", "gpu": "cpu", "available_kv_bytes": GIB, "flags": {"max_model_len": 2048}}, MODELS
    )
    assert (given["outcome"], given["block_size"]) == ("starts", 128)


def test_a_config_in_the_row(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    inline = answer({"config": LLAMA, "gpu": H100}, MODELS)
    from_file = answer({"config": "config.json", "gpu": H100}, Models(tmp_path))
    assert inline == from_file
    assert inline["outcome"] == "starts"


def test_overrides_reach_the_configuration() -> None:
    flags = {"max_model_len": 131072, "hf_overrides": {"max_position_embeddings": 131072}}
    assert answer({"model": "Qwen/Qwen3-8B", "gpu": H100, "flags": flags}, MODELS)["outcome"] == "starts"


def test_a_context_that_the_file_does_not_limit_is_taken_as_asked() -> None:
    config = {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
    config |= {"hidden_size": 512, "vocab_size": 1000}
    assert answer({"config": config, "gpu": H100, "flags": {"max_model_len": 8192}}, MODELS)["outcome"] == "starts"


def test_the_longest_context_that_fits() -> None:
    row = {"model": "meta-llama/Llama-3.1-8B-Instruct", "available_kv_bytes": GIB, "gpu": H100}
    found = answer({**row, "flags": {"max_model_len": -1}}, MODELS)
    assert found["outcome"] == "starts"
    assert found["max_concurrency"] == pytest.approx(1, rel=0.01)


LOADED = {
    "model": "Qwen/Qwen3-8B",
    "gpu": H100,
    "flags": {"max_model_len": 4096},
    "load": {"prompt_tokens": 1000, "output_tokens": 100, "concurrency": 16},
}


def test_a_load_gets_its_latency_as_a_range_and_its_blocks() -> None:
    found = answer(LOADED, MODELS)
    for key in ("ttft_ms", "tpot_ms"):
        assert 0 < found[key]["low"] < found[key]["mid"] < found[key]["high"]
    assert found["blocks_per_request"] == 69
    assert answer({k: v for k, v in LOADED.items() if k != "load"}, MODELS)["ttft_ms"] is None


def test_a_gpu_known_only_by_its_memory_has_no_known_latency() -> None:
    row = {k: v for k, v in LOADED.items() if k != "gpu"} | {"gpu_memory_bytes": 80 * GIB}
    found = answer(row, MODELS)
    assert found["outcome"] == "starts"
    assert found["ttft_ms"] is found["tpot_ms"] is None


@pytest.mark.parametrize("version", ["0.9.2", "0.40.0"])
def test_a_release_without_rules_takes_the_nearest_and_says_so(version: str) -> None:
    found = ask(engine_version=version, flags={"max_num_seqs": 64, "max_model_len": 8192})
    assert found["outcome"] == "starts"
    assert version in found["message"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param([], "JSON object", id="not an object"),
        pytest.param({"gpu": H100}, "model or config", id="no model"),
        pytest.param({"model": "x", "gpus": 1}, "did you mean 'gpu'?", id="unknown key"),
        pytest.param({"model": "Qwen/Qwen3-8B"}, "one is needed", id="no device"),
        pytest.param({"model": "Qwen/Qwen3-8B", "gpu": "H1000"}, "nearest", id="unknown GPU"),
        pytest.param({"model": "Qwen/Qwen3-8B", "gpu": 5}, "product name", id="GPU of another type"),
        pytest.param({"model": "Qwen/Qwen3-8B", "gpu": H100, "flags": []}, "flags", id="flags of another type"),
        pytest.param({"model": "Qwen/Qwen3-8B", "gpu_memory_bytes": -1}, "gpu_memory_bytes", id="negative"),
        pytest.param({"model": "Qwen/Qwen3-8B", "gpu_memory_bytes": 1e400}, "gpu_memory_bytes", id="infinite"),
        pytest.param({"model": "Qwen/Qwen3-8B", "gpu_memory_bytes": 10**5000}, "bits", id="a number too long to print"),
        pytest.param({"model": "Qwen/Qwen3-8B", "gpu_memory_bytes": True}, "whole number", id="a truth value"),
        pytest.param({"model": "Qwen/Qwen3-8B", "gpu": H100, "engine_version": "new"}, "engine_version", id="version"),
        pytest.param(
            {"model": "Qwen/Qwen3-8B", "gpu": H100, "load": {}}, "load.prompt_tokens", id="load without figures"
        ),
        pytest.param(
            {"model": "Qwen/Qwen3-8B", "gpu": H100, "load": {"prompt": 1}}, "load.prompt", id="unknown key of load"
        ),
        pytest.param({"config": "/nowhere/config.json", "gpu": H100}, "cannot be read", id="missing file"),
        pytest.param(
            {"config": {**LLAMA, "hidden_size": "wide"}, "gpu": H100}, "hidden_size", id="configuration of wrong types"
        ),
        pytest.param({"config": 7, "gpu": H100}, "neither an object nor a path", id="configuration of another type"),
    ],
)
def test_bad_rows_name_the_field(row: Any, words: str) -> None:
    found = answer(row, MODELS)
    assert (found["outcome"], found["reason"]) == ("unknown", "bad_row")
    assert words in found["message"]


def test_what_nobody_described_is_unknown_not_guessed() -> None:
    found = answer({"config": {"architectures": ["MysteryForCausalLM"], "model_type": "mystery"}, "gpu": H100}, MODELS)
    assert (found["outcome"], found["reason"]) == ("unknown", "unknown_architecture")
    assert answer({"model": "nobody/nothing", "gpu": H100}, MODELS)["reason"] == "unknown_model"


def test_a_default_that_was_guessed_refuses_nothing() -> None:
    """Without a GPU nobody knows whether 256 or 1,024 sequences are the default; a pool of 900 blocks holds 256."""
    row = {"model": "Qwen/Qwen3.5-9B", "available_kv_bytes": 900 * 17_301_504, "flags": {"max_model_len": 8192}}
    assert answer(row, MODELS)["outcome"] == "starts"
    assert answer({**row, "gpu": H100}, MODELS)["reason"] == "max_num_seqs_above_state_blocks"


def test_a_short_name_is_the_commonest_part_and_the_message_says_so() -> None:
    found = ask(gpu="H100")
    assert found["available_kv_bytes"] == ask()["available_kv_bytes"]
    assert found["message"] == "gpu H100: taken for NVIDIA-H100-80GB-HBM3"
    assert ask(gpu="NVIDIA A100", gpu_memory_bytes=40 * GIB)["available_kv_bytes"]["mid"] < 20 * GIB


def seen_gib(**row: Any) -> float:
    """What a pool, weights and the rest come to: the engine's part of the device, at 100 %."""
    found = ask(**row, flags={"max_model_len": 4096, "max_num_seqs": 8, "gpu_memory_utilization": 0.5})
    taken = sum(item["bytes"] for item in found["memory"])
    return float((taken + found["available_kv_bytes"]["mid"]) * 2 / GIB)


def test_a_size_near_a_known_products_is_that_product() -> None:
    """As sold within 12 %, as measured within 2 thousandths; else it is another size of the part."""
    known = gpus.find(H100)
    assert known is not None
    engine = known.torch_total_bytes / GIB
    assert seen_gib() == pytest.approx(engine, abs=1e-6)
    assert seen_gib(gpu_memory_bytes=80 * GIB) == pytest.approx(engine, abs=1e-6), "the figure it is sold by"
    assert seen_gib(gpu_memory_bytes=80 * 10**9) == pytest.approx(engine, abs=1e-6), "in either unit"
    driver = known.memory_driver_bytes
    assert seen_gib(gpu_memory_bytes=round(driver * 1.0019)) == pytest.approx(engine, abs=1e-6)
    assert seen_gib(gpu_memory_bytes=round(driver * 1.0021)) == pytest.approx(driver * 1.0021 / GIB, abs=1e-6)
    assert seen_gib(gpu_memory_bytes=64 * GIB) == pytest.approx(gpus.torch_total_bytes(64 * GIB) / GIB, abs=1e-6)


@pytest.mark.parametrize(
    ("row", "basis"),
    [
        pytest.param({"gpu_memory_bytes": 70 * GIB}, (9, 0), id="70 GiB: as Hopper"),
        pytest.param({"gpu_memory_bytes": 70 * GIB - 1}, (8, 9), id="less: as Ada"),
    ],
)
def test_an_unknown_part_is_one_of_its_size(row: dict[str, Any], basis: tuple[int, int]) -> None:
    device = rows._device({"gpu": "made up", **row}, needs_memory=True)
    assert not isinstance(device, str)
    assert (device.capability, device.vendor, device.dense_flops) == (basis, "nvidia", {})
    assert device.name == "made up"


@pytest.mark.parametrize(
    ("name", "vendor"),
    [("AMD made up", "amd"), ("an instinct", "amd"), ("MI999X", "amd"), ("admired", "nvidia"), ("", "nvidia")],
)
def test_a_vendor_by_its_name(name: str, vendor: str) -> None:
    device = rows._device({"gpu": name, "gpu_memory_bytes": 64 * GIB}, needs_memory=True)
    assert not isinstance(device, str)
    assert device.vendor == vendor


def test_without_a_device_a_large_one_is_taken_where_its_memory_does_not_matter() -> None:
    device = rows._device({}, needs_memory=False)
    assert not isinstance(device, str)
    assert (device.torch_total_bytes, device.name) == (
        gpus.torch_total_bytes(71 * GIB),
        "a GPU known only by its memory",
    )


@pytest.mark.parametrize(
    ("written", "planned", "noted"),
    [
        ("0.31.0", (0, 31), False),
        ("0.9.2", (0, 10), True),
        ("v0.40.1", (0, 33), True),
        ("1.0", (0, 33), True),
        (None, (0, 32), False),
    ],
)
def test_which_release_a_row_is_planned_as(written: object, planned: tuple[int, int], noted: bool) -> None:
    version, notes = rows._version(written)
    assert (version.major, version.minor) == planned
    assert bool(notes) is noted


def test_a_release_has_three_digits_at_most() -> None:
    assert rows._release("0.123.4") == (0, 123)
    assert rows._release("v1.2") == (1, 2)
    assert rows._release("0.1234") is None


@pytest.mark.parametrize("written", ["40", "0.1234", "0.x", "", 32, 0.32])
def test_what_is_no_release(written: object) -> None:
    with pytest.raises(rows.BadRowError, match="engine_version"):
        rows._version(written)


@pytest.mark.parametrize(
    ("value", "least", "found"),
    [(5, 1, 5), (5.0, 1, 5), (0, 0, 0), (1 << 50, 1, 1 << 50), (float(1 << 50), 1, 1 << 50), (None, 1, None)],
)
def test_bytes_of_a_row(value: object, least: int, found: int | None) -> None:
    assert rows._bytes({"x": value}, "x", least=least) == found


@pytest.mark.parametrize(
    ("value", "least"), [(0, 1), (-1, 0), (5.5, 1), ((1 << 50) + 1, 1), (float((1 << 50) + 2), 1), ("5", 1)]
)
def test_no_bytes_of_a_row(value: object, least: int) -> None:
    with pytest.raises(rows.BadRowError, match="whole number"):
        rows._bytes({"x": value}, "x", least=least)


def test_a_figure_of_a_load_must_be_there() -> None:
    with pytest.raises(rows.BadRowError, match=r"load\.x: None"):
        rows._bytes({}, "x", least=1, needed="load.")
    load = {"prompt_tokens": 1, "output_tokens": 0, "concurrency": 1}
    assert rows._load({"load": load}) is not None
    for key in ("prompt_tokens", "concurrency"):
        with pytest.raises(rows.BadRowError, match=key):
            rows._load({"load": {**load, key: 0}})


@pytest.mark.parametrize(
    ("value", "fine"), [(1, True), (0.5, True), (0, False), (1e6, False), (999_999, True), (True, False), ("1", False)]
)
def test_accepted_tokens_are_a_number_above_nothing(value: object, fine: bool) -> None:
    if fine:
        assert rows._number({"x": value}, "x") == value
        return
    with pytest.raises(rows.BadRowError, match="above 0"):
        rows._number({"x": value}, "x")


@pytest.mark.parametrize(
    ("row_id", "echoed"),
    [("a", "a"), (1, 1), (1.5, 1.5), (float("nan"), None), (float("inf"), None), ([1], None), (None, None)],
)
def test_an_id_is_given_back_where_json_can_write_it(row_id: object, echoed: object) -> None:
    assert answer({"id": row_id}, MODELS)["id"] == echoed


def test_another_vendors_kernels_are_left_out() -> None:
    """Block sizes and backends of ROCm mean nothing to a CUDA layout."""
    options = {"block_size": 64, "attention_backend": "ROCM_ATTN", "max_num_seqs": 8}
    known = gpus.find(H100)
    assert known is not None
    assert rows._portable(options, known) == {"max_num_seqs": 8}
    cuda = {**options, "attention_backend": "FLASHINFER"}
    assert rows._portable(cuda, known) == cuda
    assert rows._portable(cuda, replace(known, vendor="amd")) == {"max_num_seqs": 8}
    assert rows._portable({"block_size": 16}, "cpu") == {"block_size": 16}


@pytest.mark.parametrize(("value", "shown"), [("x" * 58, 60), ("x" * 59, 58)])
def test_a_value_is_shown_in_sixty_letters(value: str, shown: int) -> None:
    assert len(rows._short(value)) == shown
    assert rows._short(1 << 199) == repr(1 << 199), "sixty digits"
    assert rows._short(1 << 200) == "a number of 201 bits"


def test_a_short_name_is_said_to_be_taken_and_a_whole_one_is_not() -> None:
    assert rows._taken_for("h100") == ("gpu h100: taken for NVIDIA-H100-80GB-HBM3",)
    assert rows._taken_for(H100) == rows._taken_for(None) == rows._taken_for("NVIDIA-L40S") == ()
