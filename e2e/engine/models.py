"""Tiny models of every kind of attention, with random weights: a configuration and a home-made tokenizer, written anew.

`write(folder)` makes a folder a model. Nothing is downloaded and nothing of a published model is in them: the shapes
are made up, small enough for a processor, and odd where odd shapes have found errors.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

VOCABULARY: Final = 512
CONTEXT_TOKENS: Final = 8192
_SPECIAL: Final = ("<pad>", "<s>", "</s>")
_HYBRID: Final = ["linear_attention"] * 3 + ["full_attention"]

_BASE: Final[Mapping[str, Any]] = {
    "vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "max_position_embeddings": CONTEXT_TOKENS,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "dtype": "bfloat16",
    "hidden_act": "silu", "initializer_range": 0.02, "rope_theta": 10000.0,
}  # fmt: skip
_EXPERTS: Final = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "decoder_sparse_step": 1,
    "norm_topk_prob": True, "mlp_only_layers": [],
}  # fmt: skip
_GEMMA: Final = {
    "head_dim": 64, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 256, "query_pre_attn_scalar": 64,
    "tie_word_embeddings": True,
}  # fmt: skip
_LATENT: Final = {
    "num_key_value_heads": 4, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 64, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 1, "topk_group": 1,
    "routed_scaling_factor": 1.0, "norm_topk_prob": False,
}  # fmt: skip
_DELTA: Final = {
    "head_dim": 64, "num_key_value_heads": 1, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 64,
    "linear_value_head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "full_attention_interval": 4, "partial_rotary_factor": 0.25,
}  # fmt: skip


_MAMBA2: Final = {
    "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_chunk_size": 64,
}  # fmt: skip
_PURE: Final = {"state_size": 16, "conv_kernel": 4, "expand": 2, "layer_norm_epsilon": 1e-5}


def _model(architecture: str, model_type: str, layers: int, **changes: object) -> dict[str, Any]:
    named = {"architectures": [architecture], "model_type": model_type, "num_hidden_layers": layers}
    return {**_BASE, **named, **changes}


def _without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def _gemma3(layer_types: list[str]) -> dict[str, Any]:
    return _model(
        "Gemma3ForCausalLM",
        "gemma3_text",
        len(layer_types),
        **_GEMMA,
        layer_types=layer_types,
        rope_local_base_freq=1e4,
    )


_FIVE_TO_ONE: Final = ["sliding_attention"] * 5 + ["full_attention"]

MODELS: Final[Mapping[str, dict[str, Any]]] = {
    "llama": _model("LlamaForCausalLM", "llama", 4),
    "qwen3": _model("Qwen3ForCausalLM", "qwen3", 3, head_dim=64, num_key_value_heads=1),
    "qwen3moe": _model("Qwen3MoeForCausalLM", "qwen3_moe", 2, **_EXPERTS),
    "mistral-window": _model("MistralForCausalLM", "mistral", 3, sliding_window=384),
    "gemma2": _model(
        "Gemma2ForCausalLM", "gemma2", 5, **_GEMMA, attn_logit_softcapping=50.0, final_logit_softcapping=30.0
    ),
    "gemma3": _gemma3(_FIVE_TO_ONE),
    "gemma3-8l": _gemma3([*_FIVE_TO_ONE, "sliding_attention", "sliding_attention"]),
    "gptoss": _model(
        "GptOssForCausalLM", "gpt_oss", 4, head_dim=64, num_local_experts=4, num_experts_per_tok=2, sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * 2, attention_bias=True, swiglu_limit=7.0,
        intermediate_size=128,
        rope_parameters={
            "rope_type": "yarn", "factor": 2.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 4096, "rope_theta": 150000.0,
        },
    ),
    "dsv2": _without(
        _model(
            "DeepseekV2ForCausalLM", "deepseek_v2", 3, **_LATENT, topk_method="greedy", scoring_func="softmax",
            aux_loss_alpha=0.001,
        ),
        "head_dim",
    ),
    "qwen3next": _model(
        "Qwen3NextForCausalLM", "qwen3_next", 4, **_DELTA, **_EXPERTS, layer_types=_HYBRID,
        shared_expert_intermediate_size=64,
    ),
    "qwen35": _model(
        "Qwen3_5ForCausalLM", "qwen3_5_text", 4, **_DELTA, layer_types=_HYBRID,
        rope_parameters={"rope_theta": 1e7, "partial_rotary_factor": 0.25, "rope_type": "default"},
    ),
    "jamba": _model(
        "JambaForCausalLM", "jamba", 4, attn_layer_period=4, attn_layer_offset=2, expert_layer_period=2,
        expert_layer_offset=1, num_experts=4, num_experts_per_tok=2, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2,
        mamba_dt_rank=8, use_mamba_kernels=False,
    ),
    "falcon-h1": _model(
        "FalconH1ForCausalLM", "falcon_h1", 3, **_MAMBA2, mamba_d_ssm=256, mlp_multipliers=[1.0] * 2,
        ssm_multipliers=[1.0] * 5,
    ),
    "nemotron-h": _model(
        "NemotronHForCausalLM", "nemotron_h", 6, hybrid_override_pattern="M-M*M-", mamba_num_heads=8, mamba_head_dim=32,
        ssm_state_size=16, n_groups=1, conv_kernel=4, chunk_size=64, expand=2, layer_norm_epsilon=1e-5,
        mamba_hidden_act="silu", mlp_hidden_act="relu2",
    ),
    "granite-hybrid": _model(
        "GraniteMoeHybridForCausalLM", "granitemoehybrid", 4, **_MAMBA2, num_local_experts=0, num_experts_per_tok=0,
        layer_types=["mamba", "mamba", "attention", "mamba"], shared_intermediate_size=256,
    ),
    "lfm2": _model(
        "Lfm2ForCausalLM", "lfm2", 4, layer_types=["conv", "conv", "full_attention", "conv"], conv_L_cache=3,
        norm_eps=1e-5, block_auto_adjust_ff_dim=False, block_dim=128, block_ff_dim=256, conv_dim=128, conv_dim_out=128,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    ),
    "mamba": _model("MambaForCausalLM", "mamba", 3, **_PURE, time_step_rank=8),
    "mamba2": _model("Mamba2ForCausalLM", "mamba2", 3, **_PURE, num_heads=8, head_dim=32, n_groups=1, chunk_size=64),
}  # fmt: skip


def write(folder: Path, models: Mapping[str, Mapping[str, Any]] = MODELS) -> None:
    """A folder for each model below `folder`."""
    for name, config in models.items():
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        _json(target / "config.json", config)
        _json(target / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})
        _json(target / "tokenizer.json", _tokenizer())
        _json(target / "tokenizer_config.json", _TOKENIZER_CONFIG)


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))


_TOKENIZER_CONFIG: Final = {
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": _SPECIAL[1], "eos_token": _SPECIAL[2],
    "pad_token": _SPECIAL[0], "model_max_length": CONTEXT_TOKENS, "clean_up_tokenization_spaces": False,
    "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ",
}  # fmt: skip


def _tokenizer() -> dict[str, Any]:
    """A token a byte, and no merges: any text has as many tokens as bytes."""
    special = [_special(index, text) for index, text in enumerate(_SPECIAL)]
    vocabulary = {text: index for index, text in enumerate([*_SPECIAL, *_byte_alphabet()])}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": [],
        },
    }  # fmt: skip


def _special(index: int, text: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": text, "special": True, **flags}


def _byte_alphabet() -> list[str]:
    """The printable stand-ins of byte-level tokenizers: a byte that prints is itself, the others follow from U+0100."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]
