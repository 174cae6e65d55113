"""Parameters of models that no table holds, against the counts their makers publish."""

from typing import Any

import pytest

from plimsoll.core.memory.tensors import Ranks
from plimsoll.core.memory.weights import read_weights, total_bytes
from plimsoll.facts.models import read_model

WHOLE = Ranks()

FALCON = {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "vocab_size": 65024, "multi_query": True}
CASES: dict[str, tuple[float, dict[str, Any]]] = {
    "Falcon 7B: no width in the file, one KV head": (
        7.22,
        {**FALCON, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71},
    ),
    "Falcon 40B: the same with eight KV heads": (
        41.8,
        {
            **FALCON,
            "hidden_size": 8192,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "new_decoder_architecture": True,
        },
    ),
    "OLMoE: experts in every layer": (
        6.92,
        {
            "architectures": ["OlmoeForCausalLM"],
            "model_type": "olmoe",
            "hidden_size": 2048,
            "intermediate_size": 1024,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "vocab_size": 50304,
        },
    ),
    "Starcoder2 15B: an MLP without a gate": (
        15.96,
        {
            "architectures": ["Starcoder2ForCausalLM"],
            "model_type": "starcoder2",
            "hidden_size": 6144,
            "intermediate_size": 24576,
            "num_hidden_layers": 40,
            "num_attention_heads": 48,
            "num_key_value_heads": 4,
            "vocab_size": 49152,
            "tie_word_embeddings": False,
        },
    ),
    "Command R: a head that is the embedding unless said otherwise": (
        34.98,
        {
            "architectures": ["CohereForCausalLM"],
            "model_type": "cohere",
            "hidden_size": 8192,
            "intermediate_size": 22528,
            "num_hidden_layers": 40,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "vocab_size": 256000,
        },
    ),
    "Mixtral 8x22B": (
        140.6,
        {
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "hidden_size": 6144,
            "intermediate_size": 16384,
            "num_hidden_layers": 56,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "vocab_size": 32768,
        },
    ),
    "Granite 4 H Small: states, experts and a shared one": (
        32.2,
        {
            "architectures": ["GraniteMoeHybridForCausalLM"],
            "model_type": "granitemoehybrid",
            "hidden_size": 4096,
            "intermediate_size": 768,
            "shared_intermediate_size": 1536,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 72,
            "num_experts_per_tok": 10,
            "vocab_size": 100352,
            "tie_word_embeddings": True,
            "layer_types": ["attention" if layer in {5, 15, 25, 35} else "mamba" for layer in range(40)],
            "mamba_d_conv": 4,
            "mamba_d_head": 64,
            "mamba_d_state": 128,
            "mamba_expand": 2,
            "mamba_n_groups": 1,
            "mamba_n_heads": 128,
        },
    ),
    "Whisper large v3: encoder and decoder": (
        1.54,
        {
            "architectures": ["WhisperForConditionalGeneration"],
            "model_type": "whisper",
            "d_model": 1280,
            "encoder_layers": 32,
            "decoder_layers": 32,
            "encoder_attention_heads": 20,
            "decoder_attention_heads": 20,
            "encoder_ffn_dim": 5120,
            "decoder_ffn_dim": 5120,
            "vocab_size": 51866,
            "max_source_positions": 1500,
            "max_target_positions": 448,
            "num_mel_bins": 128,
            "num_hidden_layers": 32,
        },
    ),
    "Gemma 3n E4B, text: a width for each layer, embeddings per layer": (
        6.87,
        {
            "architectures": ["Gemma3nForCausalLM"],
            "model_type": "gemma3n_text",
            "hidden_size": 2048,
            "intermediate_size": [16384] * 35,
            "num_hidden_layers": 35,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "vocab_size": 262400,
            "vocab_size_per_layer_input": 262144,
            "hidden_size_per_layer_input": 256,
            "num_kv_shared_layers": 15,
            "sliding_window": 512,
            "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 7,
        },
    ),
    "Qwen2.5-VL 7B: a vision tower": (
        8.29,
        {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "model_type": "qwen2_5_vl",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
            "tie_word_embeddings": False,
            "vision_config": {
                "model_type": "qwen2_5_vl",
                "depth": 32,
                "hidden_size": 1280,
                "intermediate_size": 3420,
                "num_heads": 16,
                "in_chans": 3,
                "out_hidden_size": 3584,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
        },
    ),
}


@pytest.mark.parametrize(("billions", "config"), CASES.values(), ids=CASES.keys())
def test_count(billions: float, config: dict[str, Any]) -> None:
    facts = read_model({"torch_dtype": "bfloat16", "max_position_embeddings": 4096, **config})
    weights = read_weights(facts)
    stored = weights.bytes_on(WHOLE) - total_bytes(weights.everywhere, WHOLE, (0, 0))
    assert stored / 2e9 == pytest.approx(billions, rel=0.012)
    assert weights.assumed == ()


def test_blocks_that_differ_or_have_no_mlp() -> None:
    """Nemotron-NAS: a block's width is a multiple of the hidden size; a block without attention or MLP has neither."""
    attention = {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}

    def parameters(*multiples: float | None) -> float:
        blocks = [
            {"attention": attention, "ffn": {"ffn_mult": multiple, "no_op": multiple is None}} for multiple in multiples
        ]
        config = {
            "architectures": ["DeciLMForCausalLM"],
            "model_type": "nemotron-nas",
            "torch_dtype": "bfloat16",
            "hidden_size": 8192,
            "num_hidden_layers": len(blocks),
            "num_attention_heads": 64,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            "block_configs": blocks,
        }
        return read_weights(read_model(config)).bytes_on(WHOLE) / 2

    assert parameters(5.25, 5.25) - parameters(5.25, None) == pytest.approx(3 * 8192 * 28672, rel=1e-3)
    assert parameters(2.625, None) - parameters(None, None) == pytest.approx(3 * 8192 * 14336, rel=1e-3)
