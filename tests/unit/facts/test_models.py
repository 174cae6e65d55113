"""What each family's spelling is read as, in miniature, and how errors name what is wrong."""

from typing import Any

import pytest

from plimsoll.facts.models import (
    CompressedAttention,
    IndexerKeys,
    LatentAttention,
    ModelConfigError,
    ModelFacts,
    RecurrentState,
    SoftmaxAttention,
    UnknownArchitecture,
    read_model,
)

PLAIN: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}


def read(architecture: str, model_type: str, **keys: Any) -> ModelFacts:
    return read_model(PLAIN | {"architectures": [architecture], "model_type": model_type} | keys)


def windows(facts: ModelFacts) -> list[int | None]:
    return [cache.window_tokens for cache in facts.caches if isinstance(cache, SoftmaxAttention)]


def test_plain_attention() -> None:
    facts = read_model(PLAIN)
    assert facts.caches == (SoftmaxAttention(8, 2, 8, 8),) * 4
    assert (facts.head_size, facts.max_model_len, facts.dtype) == (8, 4096, "float32")
    assert not facts.has_state
    assert not facts.uses_latent_attention


def test_a_wrapper_is_its_decoder() -> None:
    inner = {key: value for key, value in PLAIN.items() if key != "architectures"}
    facts = read_model(
        {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": inner}
    )
    assert facts.multimodal
    assert facts.caches == (SoftmaxAttention(8, 2, 8, 8),) * 4


def test_a_nested_wrapper_is_its_innermost_decoder() -> None:
    thinker: dict[str, Any] = {"thinker_config": {"text_config": PLAIN | {"model_type": "qwen3_omni_moe_text"}}}
    facts = read_model(
        {"architectures": ["Qwen3OmniMoeForConditionalGeneration"], "model_type": "qwen3_omni_moe"} | thinker
    )
    assert len(facts.layers) == 4


@pytest.mark.parametrize(
    ("architecture", "model_type", "keys", "expected"),
    [
        ("MistralForCausalLM", "mistral", {"sliding_window": 128}, [128, 128, 128, 128]),
        ("MistralForCausalLM", "mistral", {"sliding_window": None}, [None, None, None, None]),
        ("MistralForCausalLM", "mistral", {}, [None, None, None, None]),
        ("Qwen2ForCausalLM", "qwen2", {"use_sliding_window": False, "sliding_window": 128}, [None] * 4),
        ("Gemma2ForCausalLM", "gemma2", {"sliding_window": 128}, [128, None, 128, None]),
        ("GptOssForCausalLM", "gpt_oss", {"sliding_window": 128}, [128, None, 128, None]),
        ("Olmo3ForCausalLM", "olmo3", {"sliding_window": 128}, [128, 128, 128, None]),
        ("Cohere2ForCausalLM", "cohere2", {"sliding_window": 128}, [129, 129, 129, None]),
        (
            "Exaone4ForCausalLM",
            "exaone4",
            {"sliding_window": 128, "sliding_window_pattern": "LLG"},
            [128, 128, None, None],
        ),
        (
            "Gemma3ForCausalLM",
            "gemma3_text",
            {"sliding_window": 128, "layer_types": ["full_attention", "sliding_attention"] * 2},
            [None, 128, None, 128],
        ),
    ],
)
def test_which_layers_slide(architecture: str, model_type: str, keys: Any, expected: list[int | None]) -> None:
    assert windows(read(architecture, model_type, **keys)) == expected


def test_latent_attention_is_one_vector() -> None:
    facts = read("DeepseekV3ForCausalLM", "deepseek_v3", **LATENT)
    assert facts.caches[0] == LatentAttention(8, 512, 64, 128, 128)
    assert facts.head_size == 576


def test_a_decoder_of_that_family_without_ranks_is_plain() -> None:
    facts = read("DeepseekV2ForCausalLM", "deepseek_v2", kv_lora_rank=None, qk_nope_head_dim=0, qk_rope_head_dim=0)
    assert isinstance(facts.caches[0], SoftmaxAttention)


def test_sparse_attention_adds_indexer_keys() -> None:
    facts = read(
        "DeepseekV32ForCausalLM", "deepseek_v32", **LATENT, index_head_dim=128, index_topk=2048, index_n_heads=64
    )
    keys, latent = facts.layers[0].caches
    assert isinstance(latent, LatentAttention)
    assert latent.sparse
    assert keys == IndexerKeys(key_bytes=132)


def test_compressed_attention_reads_a_ratio_a_layer() -> None:
    facts = read(
        "DeepseekV4ForCausalLM",
        "deepseek_v4",
        head_dim=512,
        sliding_window=128,
        index_head_dim=128,
        compress_ratios=[0, 4, 128, 0],
    )
    ratios = [cache.ratio for cache in facts.caches if isinstance(cache, CompressedAttention)]
    assert ratios == [0, 4, 128, 0]


def test_gated_delta_net_keeps_a_state() -> None:
    facts = read(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        full_attention_interval=4,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_conv_kernel_dim=4,
    )
    state = facts.caches[0]
    assert isinstance(state, RecurrentState)
    assert [(t.role, t.rows, t.columns) for t in state.tensors] == [("conv", 128, 3), ("ssm", 4, 256)]
    assert isinstance(facts.caches[3], SoftmaxAttention)


def test_a_letter_pattern_names_each_layer() -> None:
    facts = read(
        "NemotronHForCausalLM",
        "nemotron_h",
        hybrid_override_pattern="M-*E",
        mamba_num_heads=8,
        mamba_head_dim=16,
        ssm_state_size=32,
        n_groups=2,
        conv_kernel=4,
    )
    assert [type(layer.caches[0]).__name__ if layer.caches else None for layer in facts.layers] == [
        "RecurrentState",
        None,
        "SoftmaxAttention",
        None,
    ]
    assert facts.state_dtype == "float32"


def test_shared_layers_store_nothing() -> None:
    facts = read(
        "Gemma3nForCausalLM",
        "gemma3n_text",
        sliding_window=128,
        num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    )
    assert [layer.shares_cache_of for layer in facts.layers] == [None, None, 0, 1]
    assert facts.layers[2].caches == ()


def test_chunks_alternate_with_full_attention() -> None:
    facts = read("Llama4ForCausalLM", "llama4_text", attention_chunk_size=8192, no_rope_layer_interval=4)
    chunks = [cache.chunk_tokens for cache in facts.caches if isinstance(cache, SoftmaxAttention)]
    assert chunks == [8192, 8192, 8192, None]


def test_a_loop_adds_a_window_for_each_later_pass() -> None:
    facts = read("IQuestLoopCoderForCausalLM", "iquestloopcoder", loop_num=3, loop_window_size=64)
    assert windows(facts)[:3] == [None, 64, 64]
    assert len(facts.caches) == 12


@pytest.mark.parametrize(
    ("config", "quant_config", "method", "kv_dtype"),
    [
        ({}, None, None, None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, None, "fp8", None),
        ({"quant_method": "awq", "bits": 4}, None, "awq", None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}, None, "compressed-tensors", "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, None, "modelopt_fp4", None),
        (
            {},
            {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}},
            "modelopt",
            "fp8_e4m3",
        ),
    ],
)
def test_quantisation(config: Any, quant_config: Any, method: str | None, kv_dtype: str | None) -> None:
    facts = read_model(PLAIN | ({"quantization_config": config} if config else {}), quant_config)
    assert (facts.quantisation.method, facts.quantisation.kv_cache_dtype) == (method, kv_dtype)


@pytest.mark.parametrize(
    ("keys", "length"),
    [
        ({}, 4096),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 16384),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, 4096),
        ({"max_position_embeddings": None}, 2048),
        ({"model_max_length": 8192}, 8192),
    ],
)
def test_context_limit(keys: Any, length: int) -> None:
    config = {key: value for key, value in (PLAIN | keys).items() if value is not None}
    assert read_model(config | {"architectures": ["BloomForCausalLM"], "model_type": ""}).max_model_len == length


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"num_hidden_layers": "four"}, "num_hidden_layers"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**5000}, "num_hidden_layers"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"hidden_size": None}, "hidden_size"),
        ({"head_dim": [8]}, "head_dim"),
        ({"sliding_window": True}, "sliding_window"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["mamba"] * 4}, "layer_types"),
        ({"rope_scaling": "yarn"}, "rope_scaling"),
        ({"torch_dtype": 16}, "torch_dtype"),
        ({"quantization_config": [1]}, "quantization_config"),
    ],
)
def test_errors_name_the_field(keys: Any, field: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        read("MistralForCausalLM", "mistral", **keys)
    assert caught.value.field == field
    assert field in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "config",
    [
        PLAIN | {"architectures": ["FancyNewForCausalLM"], "model_type": "fancy_new"},
        PLAIN | {"architectures": [], "model_type": "fancy_new"},
        {"model_type": "fancy_new"},
        {},
        {"num_hidden_layers": 4, "num_attention_heads": 8},
    ],
)
def test_what_nobody_described_is_never_guessed(config: Any) -> None:
    with pytest.raises(UnknownArchitecture) as caught:
        read_model(config)
    assert caught.value.missing


def test_depth_and_width_of_nonsense_end_in_an_error() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"text_config": deep}
    with pytest.raises((ModelConfigError, UnknownArchitecture)):
        read_model(deep)
    with pytest.raises(ModelConfigError, match="layer_types"):
        read("MistralForCausalLM", "mistral", layer_types=["full_attention"] * 1_000_000)
