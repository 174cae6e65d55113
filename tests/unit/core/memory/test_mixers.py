"""Shapes of weight matrices, worked out from what a layer is: a model of 64 hidden elements and few heads."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.memory import inventory, mixers, mlps, rotary
from plimsoll.core.memory.decoder import Decoder
from plimsoll.core.memory.mlps import Experts
from plimsoll.core.memory.states import state_mixer
from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.facts.fields import Fields
from plimsoll.facts.models import (
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    Layer,
    ModelFacts,
    RecurrentState,
    SoftmaxAttention,
    StateTensor,
    read_model,
)

HIDDEN = 64
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": 160,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 1000,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
FACTS = read_model(CONFIG)
O, I, H, N, V = Cut.OUTPUTS, Cut.INPUTS, Cut.HEADS, Cut.NONE, Cut.VOCABULARY  # noqa: E741


def decoder(facts: ModelFacts = FACTS, **text: Any) -> Decoder:
    return Decoder(facts, Fields(text, "", ""), HIDDEN)


def shapes(tensors: Iterable[Tensor]) -> dict[str, tuple[int, int, Cut]]:
    """By the last part of a name; ``~`` behind what no format quantises."""
    return {
        each.path.rpartition(".")[2] + "~" * (not each.linear): (each.outputs, each.inputs, each.cut)
        for each in tensors
    }


HEADS = SoftmaxAttention(8, 2, 8, 4)


def test_attention() -> None:
    assert shapes(mixers.attention(decoder(), "a", HEADS)) == {
        "q_proj": (64, 64, O), "k_proj": (16, 64, H), "v_proj": (8, 64, H), "o_proj": (64, 32, I),
    }  # fmt: skip
    assert [t.unit for t in mixers.attention(decoder(), "a", HEADS)] == [1, 8, 4, 1]


@pytest.mark.parametrize(
    ("text", "query"),
    [({"attn_output_gate": True}, 128), ({"linear_num_value_heads": 4}, 128), ({"attn_output_gate": False}, 64)],
)
def test_a_gated_query_is_twice_as_wide(text: dict[str, Any], query: int) -> None:
    assert shapes(mixers.attention(decoder(**text), "a", HEADS))["q_proj"] == (query, 64, O)


LATENT = LatentAttention(8, latent_dim=32, rope_dim=4, nope_dim=8, value_dim=6)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        pytest.param(
            {"q_lora_rank": 24}, {"q_a_proj": (24, 64, N), "q_b_proj": (96, 24, O)}, id="queries through a rank"
        ),
        pytest.param({}, {"q_proj": (96, 64, O)}, id="queries at once"),
        pytest.param({"gated_mla": True}, {"q_proj": (96, 64, O), "g_proj": (48, 64, O)}, id="a gated output"),
        pytest.param(
            {"mla_use_output_gate": True}, {"q_proj": (96, 64, O), "g_proj": (48, 64, O)}, id="by another name"
        ),
    ],
)
def test_latent_attention(text: dict[str, Any], more: dict[str, Any]) -> None:
    always = {"kv_a_proj_with_mqa": (36, 64, N), "kv_b_proj": (112, 32, O), "o_proj": (64, 48, I)}
    assert shapes(mixers.latent_attention(decoder(**text), "a", LATENT)) == {**always, **more}


def test_whole_heads_may_be_cached_of_latent_projections() -> None:
    """MiniCPM3: the file has the latent's rank, the class keeps K and V; values are as wide as a head by division."""
    text = {
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "hidden_size": 64,
        "num_attention_heads": 8,
    }
    found = shapes(mixers.cache_mixers(decoder(FACTS, **text), 0, "l", Layer((HEADS,))))
    assert found == {
        "q_proj": (96, 64, O), "kv_a_proj_with_mqa": (36, 64, N), "kv_b_proj": (128, 32, O), "o_proj": (64, 64, I),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("index", "text", "window", "query"),
    [
        pytest.param(1, {"num_attention_heads_per_layer": [8, 4]}, None, 32, id="a list"),
        pytest.param(2, {"num_attention_heads_per_layer": [8, 4]}, None, 64, id="beyond the list"),
        pytest.param(0, {"attention_other_setting": {"num_attention_heads": 6}}, 128, 48, id="sliding layers differ"),
        pytest.param(0, {"attention_other_setting": {"num_attention_heads": 6}}, None, 64, id="the others do not"),
        pytest.param(0, {"attention_other_setting": {}}, 128, 64, id="a setting that says nothing"),
    ],
)
def test_query_heads_of_a_layer(index: int, text: dict[str, Any], window: int | None, query: int) -> None:
    layer = Layer((replace(HEADS, window_tokens=window),))
    assert shapes(mixers.cache_mixers(decoder(**text), index, "l", layer))["q_proj"] == (query, 64, O)


def test_a_layer_that_shares_a_cache_computes_queries_only() -> None:
    facts = replace(FACTS, layers=(Layer((HEADS,)), Layer((), shares_cache_of=0)))
    assert set(shapes(mixers.layer_mixers(decoder(facts), 1, "l"))) == {"q_proj", "o_proj"}
    assert set(shapes(mixers.layer_mixers(decoder(facts), 0, "l"))) == {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_an_indexer_reads_the_query_rank_where_there_is_one() -> None:
    text: dict[str, Any] = {"index_n_heads": 4, "index_head_dim": 16}
    always = {"wk": (16, 64, N), "weights_proj~": (4, 64, N)}
    assert shapes(mixers.indexer(decoder(**text), "a")) == {**always, "wq_b": (64, 64, N)}
    assert shapes(mixers.indexer(decoder(**text, q_lora_rank=24), "a")) == {**always, "wq_b": (64, 24, N)}


COMPRESSED: dict[str, Any] = {
    "q_lora_rank": 24,
    "o_groups": 2,
    "o_lora_rank": 10,
    "num_attention_heads": 8,
    "index_n_heads": 4,
}


@pytest.mark.parametrize(
    ("ratio", "owns", "indexer", "more"),
    [
        pytest.param(0, True, None, {}, id="a window only"),
        pytest.param(128, True, None, {"compressor.wkv_gate~": (2 * 16, 64, N)}, id="keys and scores that are pooled"),
        pytest.param(4, True, None, {"compressor.wkv_gate~": (2 * 2 * 16, 64, N)}, id="windows that overlap"),
        pytest.param(1, True, None, {"compressor.wkv_gate~": (2 * 2 * 16, 64, N)}, id="of one token too"),
        pytest.param(5, True, None, {"compressor.wkv_gate~": (2 * 16, 64, N)}, id="no more than four do"),
        pytest.param(4, False, None, {}, id="an earlier layer's keys"),
        pytest.param(
            4, True, 6,
            {
                "compressor.wkv_gate~": (2 * 2 * 16, 64, N), "indexer.wq_b": (24, 24, N),
                "indexer.weights_proj~": (4, 64, N), "indexer.compressor.wkv_gate~": (2 * 2 * 6, 64, N),
            },
            id="and an indexer",
        ),
    ],
)  # fmt: skip
def test_compressed_attention(ratio: int, owns: bool, indexer: int | None, more: dict[str, Any]) -> None:
    cache = CompressedAttention("v4", 16, 128, ratio, owns_keys=owns, indexer_dim=indexer)
    found = {
        each.path.removeprefix("a.") + "~" * (not each.linear): (each.outputs, each.inputs, each.cut)
        for each in mixers.compressed_attention(decoder(**COMPRESSED), "a", cache)
    }
    assert found == {
        "wq_a": (24, 64, N), "wkv": (16, 64, N), "wq_b": (128, 24, O), "wo_a": (20, 64, O), "wo_b": (64, 20, I), **more,
    }  # fmt: skip


def test_cross_attention() -> None:
    assert shapes(mixers.cross_attention(decoder(), "a", CrossAttention(8, 2, 8, 1500))) == {
        "q_proj": (64, 64, O), "k_proj": (16, 64, H), "v_proj": (16, 64, H), "out_proj": (64, 64, I),
    }  # fmt: skip


def _state(kind: Any, *tensors: StateTensor, groups: int = 1, **text: Any) -> dict[str, tuple[int, int, Cut]]:
    return shapes(state_mixer(decoder(**text), "l", RecurrentState(kind, tensors, groups=groups)))


CONV = StateTensor("conv", 48, 3)


def test_a_gated_delta_net() -> None:
    assert _state("gdn", CONV, StateTensor("ssm", 4, 128), linear_value_head_dim=8) == {
        "in_proj_qkv": (48, 64, O), "in_proj_z": (32, 64, O), "in_proj_ba": (8, 64, O), "conv1d~": (48, 4, O),
        "out_proj": (64, 32, I),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        pytest.param({}, {"f_a_proj": (12, 64, N), "f_b_proj": (48, 12, O), "g_a_proj": (12, 64, N),
                          "g_b_proj": (48, 12, O)}, id="both through a head's width"),
        pytest.param({"linear_attn_config": {"use_full_rank_gate": True}},
                     {"f_a_proj": (12, 64, N), "f_b_proj": (48, 12, O), "g_proj": (48, 64, O)}, id="a full gate"),
        pytest.param({"no_kda_lora": True}, {"f_proj": (48, 64, O), "g_proj": (48, 64, O)}, id="both in full"),
    ],
)  # fmt: skip
def test_kimi_delta_attention(text: dict[str, Any], gates: dict[str, Any]) -> None:
    found = _state("kda", CONV, CONV, CONV, StateTensor("ssm", 4, 144), **text)
    each = {f"{n}_proj": (48, 64, O) for n in "qkv"} | {f"{n}_conv1d~": (48, 4, O) for n in "qkv"}
    assert found == {**each, "b_proj": (4, 64, O), "o_proj": (64, 48, I), **gates}


@pytest.mark.parametrize(("text", "rank"), [({}, 4), ({"time_step_rank": 6}, 6), ({"mamba_dt_rank": 5}, 5)])
def test_mamba(text: dict[str, Any], rank: int) -> None:
    """The step's rank is a sixteenth of the hidden size, unless it is written."""
    assert _state("mamba1", CONV, StateTensor("ssm", 48, 16), **text) == {
        "in_proj": (96, 64, O), "conv1d~": (48, 4, O), "x_proj": (rank + 32, 48, I), "dt_proj": (48, rank, O),
        "A~": (48, 16, O), "out_proj": (64, 48, I),
    }  # fmt: skip


def test_mamba_2_projects_input_gate_step_and_groups_at_once() -> None:
    conv = replace(CONV, grouped_rows=20)
    state = RecurrentState("mamba2", (conv, StateTensor("ssm", 6, 128)), groups=2)
    tensors = list(state_mixer(decoder(), "l", state))
    assert [(t.path, t.outputs, t.inputs, t.cut, t.unit, t.linear) for t in tensors] == [
        ("l.mixer.in_proj", 2 * 48 + 6, 64, O, 1, True),
        ("l.mixer.in_proj", 40, 64, H, 20, True),
        ("l.mixer.conv1d", 88, 4, O, 1, False),
        ("l.mixer.out_proj", 64, 48, I, 1, True),
    ]


def test_a_short_convolution_and_linear_attention() -> None:
    assert _state("short_conv", CONV) == {"in_proj": (144, 64, O), "conv~": (48, 4, O), "out_proj": (64, 48, I)}
    assert _state("linear", StateTensor("ssm", 4, 64)) == {
        "qkv_proj": (96, 64, O), "output_gate": (32, 64, O), "out_proj": (64, 32, I),
    }  # fmt: skip
    assert _state("embedding_conv", CONV) == {}


def test_float32_is_kept_where_the_recurrence_needs_it() -> None:
    kda = state_mixer(decoder(), "l", RecurrentState("kda", (CONV, CONV, CONV, StateTensor("ssm", 4, 144))))
    assert {t.path.rpartition(".")[2] for t in kda if t.element_bytes == 4} == {"q_conv1d", "k_conv1d", "v_conv1d"}
    mamba = state_mixer(decoder(), "l", RecurrentState("mamba1", (CONV, StateTensor("ssm", 48, 16))))
    assert [t.path for t in mamba if t.element_bytes == 4] == ["l.mamba.A"]


EXPERTS = Experts(count=8, hidden=64, intermediate=20, shared_intermediate=0)


@pytest.mark.parametrize(
    ("experts", "matrices", "expect"),
    [
        pytest.param(EXPERTS, 3, {"gate~": (8, 64), "gate_proj": (20, 64), "up_proj": (20, 64), "down_proj": (64, 20)},
                     id="gate, up and down"),
        pytest.param(EXPERTS, 2, {"gate~": (8, 64), "up_proj": (20, 64), "down_proj": (64, 20)}, id="without a gate"),
        pytest.param(replace(EXPERTS, hidden=16), 2,
                     {"gate~": (8, 64), "latent_down~": (16, 64), "latent_up~": (64, 16), "up_proj": (20, 16),
                      "down_proj": (16, 20)}, id="through a latent"),
        pytest.param(replace(EXPERTS, biased=True), 2,
                     {"gate~": (8, 64), "up_proj": (20, 64), "down_proj": (64, 20), "up_bias~": (40, 1),
                      "down_bias~": (64, 1)}, id="with biases of gate and up together"),
    ],
)  # fmt: skip
def test_routed_experts(experts: Experts, matrices: int, expect: dict[str, tuple[int, int]]) -> None:
    tensors = list(mlps.routed("m", 64, experts, matrices))
    assert {name: shape[:2] for name, shape in shapes(tensors).items()} == expect
    assert {t.copies for t in tensors if ".experts." in t.path} == {8}


def test_shared_experts_are_a_dense_mlp_beside() -> None:
    found = list(mlps.routed("m", 64, replace(EXPERTS, shared_intermediate=24, router_bytes=4), 3))
    assert {(t.path, t.outputs, t.inputs) for t in found if "shared" in t.path} == {
        ("m.shared_experts.gate_proj", 24, 64),
        ("m.shared_experts.up_proj", 24, 64),
        ("m.shared_experts.down_proj", 64, 24),
    }
    assert [t.path for t in found if t.element_bytes == 4] == ["m.gate"]


@pytest.mark.parametrize(
    ("text", "sparse"),
    [
        pytest.param({}, [0, 1, 2, 3], id="all"),
        pytest.param({"first_k_dense_replace": 1}, [1, 2, 3], id="after the first"),
        pytest.param({"mlp_only_layers": [1]}, [0, 2, 3], id="but one"),
        pytest.param({"decoder_sparse_step": 2}, [1, 3], id="every second"),
        pytest.param({"moe_layer_freq": 2}, [0, 2], id="every second from the first"),
        pytest.param({"expert_layer_period": 2, "expert_layer_offset": 1}, [1, 3], id="with an offset"),
        pytest.param({"expert_layer_period": 3, "expert_layer_offset": 2}, [2], id="every third, from the third"),
        pytest.param({"expert_layer_period": 2}, [0, 2], id="without one"),
        pytest.param({"moe_layer_freq": [0, 1, 1, 0]}, [1, 2], id="a list of flags"),
        pytest.param({"moe_layers_enum": "1, 3"}, [1, 3], id="numbers in a text"),
        pytest.param({"moe_layers": [0, 3]}, [0, 3], id="numbers"),
        pytest.param({"mlp_layer_types": ["dense", "sparse", "dense", "sparse"]}, [1, 3], id="words"),
    ],
)
def test_layers_with_experts(text: dict[str, Any], sparse: list[int]) -> None:
    found = mlps.sparse_layers(4, Fields(text))
    assert [layer for layer, has in enumerate(found) if has] == sparse


@pytest.mark.parametrize(
    ("text", "width"),
    [
        pytest.param({"n_shared_experts": 2}, 40, id="two as wide as the others"),
        pytest.param({"shared_expert_intermediate_size": 24}, 24, id="one of its own width"),
        pytest.param({"shared_expert_intermediate_size": 24, "num_shared_experts": 3}, 72, id="three of them"),
        pytest.param({"shared_expert_intermediate_size": 24, "num_shared_experts": 0}, 0, id="none of them"),
        pytest.param({"shared_intermediate_size": 30}, 30, id="all together"),
        pytest.param({}, 0, id="none"),
    ],
)
def test_the_width_of_shared_experts(text: dict[str, Any], width: int) -> None:
    facts = replace(FACTS, dims=replace(FACTS.dims, experts=8))
    found, written = mlps.read_experts(decoder(facts, moe_intermediate_size=20, **text))
    assert found is not None
    assert (found.shared_intermediate, found.intermediate, written) == (width, 20, True)


@pytest.mark.parametrize(
    ("experts", "text", "expect"),
    [
        pytest.param(0, {}, None, id="dense"),
        pytest.param(1, {}, None, id="one expert is a dense model"),
        pytest.param(2, {"moe_intermediate_size": 20}, (2, 20, True), id="two"),
        pytest.param(8, {"intermediate_size": 30}, (8, 30, True), id="as wide as a dense one"),
        pytest.param(8, {}, (8, 44, False), id="nobody says: 11/16 of the hidden size"),
        pytest.param(0, {"ffn_config": {"moe_num_experts": 4, "ffn_hidden_size": 12}}, (4, 12, True), id="in a part"),
    ],
)
def test_experts_of_a_model(experts: int, text: dict[str, Any], expect: tuple[int, int, bool] | None) -> None:
    found, written = mlps.read_experts(decoder(replace(FACTS, dims=replace(FACTS.dims, experts=experts)), **text))
    assert (None if found is None else (found.count, found.intermediate, written)) == expect


@pytest.mark.parametrize(
    ("text", "widths"),
    [
        pytest.param({"intermediate_size": 160}, (160,) * 4, id="one width"),
        pytest.param({"intermediate_size": [10, 20, 30, 40]}, (10, 20, 30, 40), id="a list"),
        pytest.param({"intermediate_size": 160, "num_kv_shared_layers": 1, "use_double_wide_mlp": True},
                     (160, 160, 160, 320), id="twice where a cache is shared"),
        pytest.param({"intermediate_size": 160, "num_kv_shared_layers": 1}, (160,) * 4, id="not by itself"),
        pytest.param({"intermediate_size": 160, "block_auto_adjust_ff_dim": True, "block_multiple_of": 50},
                     (150,) * 4, id="two thirds, rounded up"),
        pytest.param({"intermediate_size": 160, "block_auto_adjust_ff_dim": True}, (256,) * 4, id="to 256 by itself"),
        pytest.param({"block_configs": [{"ffn": {"ffn_mult": 6.1}}, {"ffn": {"no_op": True}}, {}, {"ffn": {}}]},
                     (512, 0, 0, 0), id="blocks: two thirds of a multiple of twice the hidden size"),
        pytest.param({}, (224,) * 4, id="nobody says: 10.5 hidden sizes squared over three matrices"),
    ],
)  # fmt: skip
def test_widths_of_dense_mlps(text: dict[str, Any], widths: tuple[int, ...]) -> None:
    assert mlps.dense_widths(FACTS, Fields(text))[0] == widths


def test_a_width_that_nobody_wrote_depends_on_heads_and_matrices() -> None:
    many = replace(FACTS, dims=replace(FACTS.dims, kv_heads=8))
    two = replace(many, architecture="PhiForCausalLM")
    four_times = replace(FACTS, architecture="GPTJForCausalLM")
    assert mlps.dense_widths(many, Fields({})) == ((round(8 * 64 / 3),) * 4, False)
    assert mlps.dense_widths(two, Fields({})) == ((8 * 64 // 2,) * 4, False)
    assert mlps.dense_widths(four_times, Fields({})) == ((256,) * 4, True)


def test_a_predictor_joins_two_hidden_states() -> None:
    facts = replace(FACTS, draft_layers=(Layer((HEADS,)), Layer((HEADS,))))
    known = mlps.read_mlps(Decoder(facts, Fields(CONFIG), HIDDEN))
    found = shapes(inventory._draft_module(Decoder(facts, Fields(CONFIG), HIDDEN), known))
    assert found["eh_proj~"] == (64, 128, N)
    assert found["down_proj"] == (64, 160, I)
    assert len(found) == 1 + 4 + 3, "one module: a projection, attention, an MLP"


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        pytest.param({"hc_mult": 4}, {"hc_fn~": (2 * (2 + 4) * 4, 4 * 64, N)}, id="residual streams"),
        pytest.param({"hc_lowrank": 3, "hc_count": 2}, {"hc_lowrank~": (12, 128, N)}, id="through a rank"),
        pytest.param({"hc_lowrank": 3}, {"hc_lowrank~": (12, 64, N)}, id="one stream"),
        pytest.param({"hidden_size_per_layer_input": 5},
                     {"per_layer_input_gate": (5, 64, N), "per_layer_projection": (64, 5, N)}, id="added embeddings"),
        pytest.param({}, {}, id="neither"),
    ],
)  # fmt: skip
def test_what_is_beside_mixers_and_mlps(text: dict[str, Any], expect: dict[str, Any]) -> None:
    assert shapes(inventory._residual(decoder(**text), "l")) == expect


def test_embeddings_for_each_layer() -> None:
    found = shapes(inventory.embeddings_per_layer(decoder(hidden_size_per_layer_input=5)))
    assert found == {"embed_tokens_per_layer~": (1000, 20, V), "per_layer_model_projection~": (20, 64, O)}
    other = decoder(hidden_size_per_layer_input=5, vocab_size_per_layer_input=300)
    assert shapes(inventory.embeddings_per_layer(other))["embed_tokens_per_layer~"] == (300, 20, V)


@pytest.mark.parametrize(("top", "decoders", "tied"), [({}, True, True), ({}, False, False),
                                                       ({"tie_word_embeddings": False}, True, False),
                                                       ({"tie_word_embeddings": True}, False, True)])  # fmt: skip
def test_the_wrappers_word_on_the_head_counts_first(top: dict[str, Any], decoders: bool, tied: bool) -> None:
    facts = replace(FACTS, dims=replace(FACTS.dims, tie_word_embeddings=decoders))
    assert inventory.ties_embeddings(facts, Fields(top)) is tied


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        pytest.param({}, [(4096, 8)], id="every position, a head wide"),
        pytest.param({"rope_scaling": {"type": "linear", "factor": 4}}, [(16384, 8)], id="stretched"),
        pytest.param({"rope_scaling": {"rope_type": "linear"}}, [(4096, 8)], id="by nothing"),
        pytest.param({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, [(4096, 8)], id="other ways do not stretch"),
        pytest.param({"partial_rotary_factor": 0.5}, [(4096, 4)], id="half a head"),
        pytest.param({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.5}}, [(4096, 8)],
                     id="a whole table of half a rotation"),
        pytest.param({"rope_local_base_freq": 10000}, [(4096, 8), (4096, 8)], id="a second base"),
        pytest.param({"swa_rope_theta": 10000}, [(4096, 8), (4096, 8)], id="by another name"),
        pytest.param({"qk_rope_head_dim": 6}, [(4096, 6)], id="the part that rotates"),
        pytest.param({"rope_parameters": {"full_attention": {}, "sliding_attention": {}}, "global_head_dim": 10},
                     [(4096, 10), (4096, 8)], id="one a kind of layer"),
        pytest.param({"mla_use_nope": True}, [], id="nothing rotates"),
        pytest.param({"compress_ratios": [4], "qk_rope_head_dim": 6}, [(8192, 6)], id="DeepSeek V4's two"),
    ],
)  # fmt: skip
def test_tables_of_rotations(text: dict[str, Any], tables: list[tuple[int, int]]) -> None:
    found = rotary.rotary_tables(decoder(max_position_embeddings=4096, **text))
    assert [(table.outputs, table.inputs) for table in found] == tables
