"""Flags that left vLLM before the first release whose parser was recorded (0.10.2), and what came instead.

Names are those of vLLM's own release notes and parsers of 0.2 to 0.10; ``engine_flags`` has all that came later.
"""

from collections.abc import Mapping
from typing import Final

_V0: Final = "went with the V0 engine"
_SPECULATIVE: Final = "--speculative-config"
_PAST: Final[Mapping[str, str]] = {
    "device": "nothing: the device is found by itself",
    "num_scheduler_steps": _V0,
    "multi_step_stream_outputs": _V0,
    "use_v2_block_manager": _V0,
    "max_context_len_to_capture": "--max-cudagraph-capture-size",
    "worker_use_ray": "--distributed-executor-backend ray",
    "engine_use_ray": _V0,
    "enable_prompt_adapter": _V0,
    "max_prompt_adapters": _V0,
    "max_prompt_adapter_token": _V0,
    "speculative_model": _SPECULATIVE,
    "speculative_model_quantization": _SPECULATIVE,
    "speculative_draft_tensor_parallel_size": _SPECULATIVE,
    "speculative_disable_mqa_scorer": _SPECULATIVE,
    "speculative_max_model_len": _SPECULATIVE,
    "speculative_disable_by_batch_size": _SPECULATIVE,
    "num_speculative_tokens": _SPECULATIVE,
    "ngram_prompt_lookup_max": _SPECULATIVE,
    "ngram_prompt_lookup_min": _SPECULATIVE,
    "spec_decoding_acceptance_method": _SPECULATIVE,
    "typical_acceptance_sampler_posterior_threshold": _SPECULATIVE,
    "typical_acceptance_sampler_posterior_alpha": _SPECULATIVE,
    "disable_logprobs_during_spec_decoding": _SPECULATIVE,
    "enable_reasoning": "--reasoning-parser alone",
    "qlora_adapter_name_or_path": "--lora-modules",
    "long_lora_scaling_factors": _V0,
    "quantization_param_path": "scales in the checkpoint",
    "tokenizer_pool_size": _V0,
    "tokenizer_pool_type": _V0,
    "tokenizer_pool_extra_config": _V0,
    "image_input_type": "nothing: vLLM knows its models' inputs",
    "image_token_id": "nothing: vLLM knows its models' inputs",
    "image_input_shape": "nothing: vLLM knows its models' inputs",
    "image_feature_size": "nothing: vLLM knows its models' inputs",
    "disable_image_processor": "nothing: vLLM knows its models' inputs",
    "override_neuron_config": "--additional-config",
}


def find(name: str) -> str | None:
    """What came instead of a flag (underscores, no dashes before it); None when no old release had it either."""
    return _PAST.get(name)


def names() -> tuple[str, ...]:
    """Every name."""
    return tuple(_PAST)
