"""Starts that vLLM refuses: exit code, words, and where in the log they stand."""

import re

import pytest

from e2e.fleet import enginelog, gpus, pool, recordings, vllm_args
from e2e.fleet.refusals import Refusal, heads_not_divisible, kv_cache_too_small, model_len_above_model
from e2e.fleet.refusals import utilisation_out_of_range as out_of_range

QWEN = ("Qwen/Qwen3.5-9B", "--gdn-prefill-backend", "triton")
H100 = "NVIDIA-H100-80GB-HBM3"


def start(gpu: str, *argv: str, visible_gpus: int = 8) -> pool.Pool:
    args = vllm_args.parse(argv)
    pool.check_config(args, visible_gpus)
    return pool.size(args, gpus.find(gpu))


@pytest.mark.parametrize(
    ("gpu", "argv", "says"),
    [
        pytest.param("NVIDIA-L4", QWEN, r"max seq len \(262144\), \(\d+\.\d+ GiB KV cache is needed", id="too small"),
        pytest.param(H100, (*QWEN, "--gpu-memory-utilization", "0.2"), "No available memory", id="no memory left"),
        pytest.param(H100, (*QWEN, "--max-model-len", "300000"), r"max_model_len \(300000\) is greater", id="too long"),
        pytest.param(H100, (*QWEN, "-tp", "3"), r"attention heads \(16\) must be divisible", id="heads"),
        pytest.param(H100, (*QWEN, "--gpu-memory-utilization", "1.5"), "less than or equal to 1", id="range"),
        pytest.param(H100, (*QWEN, "--gpu-memory-utilization", "0.999"), "Free memory on device", id="not free"),
        pytest.param(
            H100, (*QWEN, "--max-num-seqs", "9999"), "exceeds available Mamba cache blocks", id="state blocks"
        ),
        pytest.param("Tesla-T4", ("Qwen/Qwen3-32B",), "CUDA out of memory", id="weights alone are too much"),
        pytest.param(H100, ("microsoft/phi-4", "-tp", "4"), "10 KV heads", id="rejected before planning"),
    ],
)
def test_refused_as_vllm_refuses(gpu: str, argv: tuple[str, ...], says: str) -> None:
    with pytest.raises(Refusal, match=says) as refused:
        start(gpu, *argv)
    assert refused.value.exit_code == 1


def test_more_ranks_than_gpus_of_the_container() -> None:
    with pytest.raises(Refusal, match=r"World size \(2\) is larger than the number of available GPUs \(1\)"):
        start(H100, *QWEN, "-tp", "2", visible_gpus=1)


def test_eager_engines_do_not_check_state_blocks() -> None:
    assert start(H100, *QWEN, "--max-num-seqs", "9999", "--enforce-eager").num_blocks < 9999


def test_auto_length_is_the_longest_that_fits() -> None:
    chosen = start("NVIDIA-L4", *QWEN, "--max-model-len", "auto", "--max-num-seqs", "16").max_model_len
    start("NVIDIA-L4", *QWEN, "--max-model-len", str(chosen), "--max-num-seqs", "16")
    with pytest.raises(Refusal, match=f"estimated maximum model length is {chosen}"):
        start("NVIDIA-L4", *QWEN, "--max-model-len", str(chosen + 1), "--max-num-seqs", "16")


def test_utilisation_buys_what_it_says() -> None:
    """The pool is utilisation of what torch sees, less recorded weights, less the committed reserve."""
    low, high = (start(H100, *QWEN, "--gpu-memory-utilization", u).available_bytes for u in ("0.5", "0.9"))
    assert high - low == pytest.approx(0.4 * gpus.find(H100).torch_total_bytes, abs=2)


@pytest.mark.parametrize(
    ("case", "ours"),
    [
        ("kv_too_small_for_max_model_len", kv_cache_too_small(8192, 8_388_608, 2_000_000, 1792)),
        ("max_model_len_above_model", model_len_above_model(16384, 8192)),
        ("tp_not_dividing_heads", heads_not_divisible(4, 3)),
        ("bad_value_range", out_of_range(1.5)),
    ],
)
def test_words_equal_the_recorded_ones(case: str, ours: Refusal) -> None:
    recorded = recordings.refusals()[case]["key_lines"][0]
    assert recorded.endswith(str(ours).strip())


def test_the_cause_is_not_in_the_last_lines_of_the_log() -> None:
    refusal = kv_cache_too_small(131_072, 5 << 30, 1 << 30, 20_000)
    lines = list(enginelog.refused(refusal))
    assert any(str(refusal) in line for line in lines)
    assert str(refusal) not in "\n".join(lines)[-2048:]
    assert lines[-2].startswith("RuntimeError: Engine core initialization failed. See root cause above.")


def test_start_up_lines_carry_the_figures_of_the_pool() -> None:
    args = vllm_args.parse([*QWEN, "--max-model-len", "131072"])
    sized = pool.size(args, gpus.find(H100))
    text = "\n".join(enginelog.started(sized, args, 12.0))
    printed = re.search(
        r"GPU KV cache size: ([\d,]+) tokens, Maximum concurrency for 131,072 tokens per request: ", text
    )
    assert printed is not None
    assert int(printed[1].replace(",", "")) == sized.size_tokens
    assert f"Available KV cache memory: {sized.available_bytes / gpus.GIB:.2f} GiB" in text
    assert "init engine (profile, create kv cache, warmup model) took 12.00 s" in text
