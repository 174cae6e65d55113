"""The words in which vLLM 0.32 refuses to start, with figures rounded as it rounds them.

Shapes are those of ``data/refusals-0.32.0.jsonl.gz``; the GPU-only ones are as the engine's source has them.
"""

from __future__ import annotations

from e2e.fleet.gpus import GIB

BAD_RANGE, BAD_HEADS, TOO_LONG, IN_ENGINE, NO_MODEL = (
    "bad_value_range",
    "tp_not_dividing_heads",
    "max_model_len_above_model",
    "kv_too_small_for_max_model_len",
    "missing_model_dir",
)
SEE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
_CONFIG = "[type=value_error, input_value=ArgsKwargs((), {'model_co... 'shutdown_timeout': 0}), input_type=ArgsKwargs]"
_MODEL = "[type=value_error, input_value=ArgsKwargs((), {'model': ...nderer_num_workers': 1}), input_type=ArgsKwargs]"


class Refusal(Exception):  # noqa: N818 - the field's word for what vLLM does
    """vLLM would not start. ``case`` names the recorded refusal whose log shape is shown."""

    def __init__(self, case: str, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.case = case
        self.exit_code = exit_code


def utilisation_out_of_range(utilisation: float) -> Refusal:
    text = f"[type=less_than_equal, input_value={utilisation}, input_type=float]"
    return Refusal(BAD_RANGE, f"  Input should be less than or equal to 1 {text}")


def no_device() -> Refusal:
    return Refusal(NO_MODEL, "RuntimeError: Failed to infer device type, no GPU is visible to this container")


def heads_not_divisible(heads: int, ranks: int) -> Refusal:
    text = f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({ranks})."
    return Refusal(BAD_HEADS, f"  Value error, {text} {_CONFIG}")


def world_size_above_gpus(ranks: int, visible: int) -> Refusal:
    text = f"World size ({ranks}) is larger than the number of available GPUs ({visible}) in this node."
    return Refusal(BAD_HEADS, f"  Value error, {text} {_CONFIG}")


def model_len_above_model(asked: int, limit: int) -> Refusal:
    text = (
        f"User-specified max_model_len ({asked}) is greater than the derived max_model_len "
        f"(max_position_embeddings={float(limit)} or model_max_length=None in model's config.json). To allow "
        "overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. VLLM_ALLOW_LONG_MAX_MODEL_LEN must "
        "be used with extreme caution. If the model uses relative position encoding (RoPE), positions exceeding "
        "derived_max_model_len lead to nan. If the model uses absolute position encoding, positions exceeding "
        "derived_max_model_len will cause a CUDA array out-of-bounds error."
    )
    return Refusal(TOO_LONG, f"  Value error, {text} {_MODEL}")


def kv_cache_too_small(max_model_len: int, needed_bytes: int, available_bytes: int, estimated_len: int) -> Refusal:
    estimate = f"Based on the available memory, the estimated maximum model length is {estimated_len}. "
    text = (
        f"To serve at least one request with the model's max seq len ({max_model_len}), ({_gib(needed_bytes)} GiB KV "
        f"cache is needed, which is larger than the available KV cache memory ({_gib(available_bytes)} GiB). "
        f"{estimate if estimated_len > 0 else ''}Try increasing `gpu_memory_utilization` (which also controls CPU "
        f"memory on the CPU backend) or decreasing `max_model_len` when initializing the engine. {SEE}"
    )
    return Refusal(IN_ENGINE, f"ValueError: {text}")


def no_kv_memory() -> Refusal:
    text = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the"
    return Refusal(IN_ENGINE, f"ValueError: {text} engine. {SEE}")


def too_few_state_blocks(max_num_seqs: int, blocks: int) -> Refusal:
    text = (
        f"max_num_seqs ({max_num_seqs}) exceeds available Mamba cache blocks ({blocks}). Each decode sequence requires "
        "one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most "
        f"{blocks} or increase gpu_memory_utilization."
    )
    return Refusal(IN_ENGINE, f"ValueError: {text}")


def out_of_memory(weight_bytes: int, free_bytes: int, total_bytes: int) -> Refusal:
    text = (
        f"CUDA out of memory. GPU 0 has a total capacity of {total_bytes / GIB:.2f} GiB of which "
        f"{free_bytes / GIB:.2f} GiB is free. The weights of this rank take {weight_bytes / GIB:.2f} GiB."
    )
    return Refusal(IN_ENGINE, f"torch.OutOfMemoryError: {text}")


def not_enough_free_memory(free_bytes: int, total_bytes: int, utilisation: float, requested_bytes: int) -> Refusal:
    text = (
        f"Free memory on device cuda:0 ({_gib(free_bytes)}/{_gib(total_bytes)} GiB) on startup is less than desired "
        f"GPU memory utilization ({utilisation}, {_gib(requested_bytes)} GiB). Decrease GPU memory utilization or "
        "reduce GPU memory used by other processes."
    )
    return Refusal(IN_ENGINE, f"ValueError: {text}")


def rejected_before_planning(text: str) -> Refusal:
    """A configuration that recorded vLLM refused while choosing attention backend or splitting heads."""
    return Refusal(IN_ENGINE, f"ValueError: {text.removeprefix('rejected by vLLM: ')}")


def _gib(size_bytes: int) -> str:
    return str(round(size_bytes / GIB, 2))
