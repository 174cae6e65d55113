"""What attention computes and reads for a token, by what a layer is; and a load that never changes, by its law."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll.core.kv.specs import LayerSpec
from plimsoll.core.latency.attention import EVERY_TOKEN, Attention, _flops, _parts, _reach
from plimsoll.core.latency.load import Load, running_limit, steady_state
from plimsoll.core.latency.precision import precision_of
from plimsoll.core.latency.work import Matrices, _matrices, _multiplied, read_predictor_work, read_work
from plimsoll.core.memory import MemoryFlags
from plimsoll.core.memory.formats import EIGHT_BIT_TENSOR, MXFP4, NVFP4, Format, grouped, plain
from plimsoll.core.memory.tensors import Cut, Ranks, Tensor
from plimsoll.facts.models import (
    Cache,
    CompressedAttention,
    CrossAttention,
    IndexerKeys,
    LatentAttention,
    Layer,
    SoftmaxAttention,
)
from tests.unit.core.kv.recorded import bundled_facts
from tests.unit.core.kv.test_layouts import gpu, options

FACTS = replace(bundled_facts("meta-llama/Llama-3.1-8B-Instruct"), raw={})
HEADS = SoftmaxAttention(32, 8, 128, 64)
LATENT = LatentAttention(128, latent_dim=512, rope_dim=64, nope_dim=128, value_dim=96)
COMPRESSED, EXPANDED = 2 * (2 * 512 + 64), 2 * (128 + 64 + 96)
V4 = CompressedAttention("v4", head_dim=512, window_tokens=128, ratio=4, owns_keys=True)
HOPPER, BLACKWELL = "NVIDIA-H100-80GB-HBM3", "NVIDIA-B200"


@pytest.mark.parametrize(
    ("cache", "label", "ranks", "found"),
    [
        pytest.param(HEADS, HOPPER, 1, [(EVERY_TOKEN, 2 * 32 * 192, 2 * 32 * 192)], id="keys and values of every head"),
        pytest.param(HEADS, HOPPER, 4, [(EVERY_TOKEN, 2 * 8 * 192, 2 * 8 * 192)], id="of a rank's heads"),
        pytest.param(replace(HEADS, window_tokens=99), HOPPER, 1, [(99, 2 * 32 * 192, 2 * 32 * 192)], id="in a window"),
        pytest.param(replace(HEADS, chunk_tokens=98), HOPPER, 1, [(98, 2 * 32 * 192, 2 * 32 * 192)], id="in a chunk"),
        pytest.param(LATENT, HOPPER, 1, [(EVERY_TOKEN, 128 * COMPRESSED, 128 * EXPANDED)], id="latents are expanded"),
        pytest.param(LATENT, HOPPER, 8, [(EVERY_TOKEN, 64 * COMPRESSED, 16 * EXPANDED)], id="decoding fills its tiles"),
        pytest.param(
            replace(LATENT, window_tokens=99),
            HOPPER,
            1,
            [(99, 128 * COMPRESSED, 128 * EXPANDED)],
            id="latents in a window",
        ),
        pytest.param(
            replace(LATENT, sparse=True),
            HOPPER,
            8,
            [(2048, 64 * COMPRESSED, 64 * COMPRESSED)],
            id="sparse: not expanded",
        ),
        pytest.param(
            replace(LATENT, sparse=True), BLACKWELL, 8, [(2048, 64 * COMPRESSED, 128 * COMPRESSED)], id="larger tiles"
        ),
        pytest.param(
            IndexerKeys(132), HOPPER, 1, [(EVERY_TOKEN, 2 * 64 * 132, 2 * 64 * 132)], id="an indexer's usual heads"
        ),
        pytest.param(
            V4, HOPPER, 2, [(128, 4 * 16 * 512, 4 * 16 * 512), (EVERY_TOKEN, 16 * 512, 16 * 512)], id="pooled ones"
        ),
        pytest.param(
            replace(V4, indexer_dim=64),
            HOPPER,
            2,
            [(128, 4 * 16 * 512, 4 * 16 * 512), (8192, 16 * 512, 16 * 512)],
            id="those that are picked",
        ),
        pytest.param(replace(V4, ratio=0), HOPPER, 1, [(128, 4 * 32 * 512, 4 * 32 * 512)], id="a window only"),
        pytest.param(CrossAttention(8, 8, 64, 1500), HOPPER, 1, [], id="an encoder's output is no context"),
    ],
)
def test_what_a_token_computes_with_one_of_context(
    cache: Cache, label: str, ranks: int, found: list[tuple[int, float, float]]
) -> None:
    parts = _flops(cache, FACTS, options(label, tensor_parallel=ranks), 2048)
    assert [(each.reach_tokens, each.decode_flops, each.prefill_flops) for each in parts] == found


def test_an_indexer_as_written() -> None:
    facts = replace(FACTS, raw={"index_n_heads": 4, "index_head_dim": 16})
    (found,) = _flops(IndexerKeys(132), facts, options(), 2048)
    assert found == Attention(EVERY_TOKEN, decode_flops=2 * 4 * 16, prefill_flops=2 * 4 * 16)


def _spec(kind: Any = "full", content: Any = "x", **more: Any) -> LayerSpec:
    return LayerSpec(kind, 16, 1600, content, **more)


@pytest.mark.parametrize(
    ("spec", "cache", "reach"),
    [
        pytest.param(_spec("sliding", window_tokens=99), HEADS, 99, id="a window"),
        pytest.param(_spec("chunked", window_tokens=98), HEADS, 98, id="a chunk"),
        pytest.param(_spec(), HEADS, EVERY_TOKEN, id="all"),
        pytest.param(_spec("latent", ("latent", 576)), replace(LATENT, sparse=True), 7, id="what an indexer picked"),
        pytest.param(
            _spec("latent", ("indexer", 132)), replace(LATENT, sparse=True), EVERY_TOKEN, id="its own keys whole"
        ),
        pytest.param(_spec("latent", ("latent", 576)), LATENT, EVERY_TOKEN, id="nothing is picked"),
        pytest.param(
            _spec("latent", ("pooled", 584)), replace(V4, indexer_dim=64), 28, id="pooled ones of four tokens"
        ),
        pytest.param(
            _spec("latent", ("indexer", 584)), replace(V4, indexer_dim=64), EVERY_TOKEN, id="their indexer's keys"
        ),
        pytest.param(_spec("latent", ("pooled", 584)), V4, EVERY_TOKEN, id="all that are pooled"),
    ],
)
def test_how_far_back_a_cache_is_read(spec: LayerSpec, cache: Cache, reach: int) -> None:
    assert _reach(spec, Layer((cache,)), 7) == reach


@pytest.mark.parametrize(
    ("spec", "nbytes"),
    [
        pytest.param(_spec(), 1600 / 16 / 2, id="a rank's share of the tokens"),
        pytest.param(_spec(sharded=False), 100, id="tokens that every rank keeps"),
        pytest.param(_spec("state"), None, id="a state is read once, not for every token"),
    ],
)
def test_bytes_that_are_read_of_a_token(spec: LayerSpec, nbytes: float | None) -> None:
    asked = options(tensor_parallel=16, decode_context_parallel=2)
    found = list(_parts(Layer(), (spec,), FACTS, asked))
    assert [each.bytes_per_token for each in found] == ([] if nbytes is None else [nbytes])


def test_an_indexer_picks_as_many_as_are_written() -> None:
    layer = Layer((replace(LATENT, sparse=True),))
    for raw, picked in (({"index_topk": 512}, 512), ({}, 2048)):
        (found,) = _parts(layer, (), replace(FACTS, raw=raw), options())
        assert found.reach_tokens == picked


def test_layers_alike_add_up() -> None:
    one = Attention(9, 1.0, 2.0, 3.0)
    assert Attention(9, 10.0, 20.0, 30.0).plus(one, 4) == Attention(9, 14.0, 28.0, 42.0)


def _layout(needed: int, cap: int) -> Any:
    return SimpleNamespace(blocks_for_request=lambda _: needed, resolved=SimpleNamespace(max_num_seqs=cap))


@pytest.mark.parametrize(
    ("needed", "cap", "running"),
    [
        pytest.param(10, 64, 10.0, id="100 blocks beside the null block"),
        pytest.param(10, 8, 8, id="the cap"),
        pytest.param(1000, 64, 1.0, id="one at least"),
        pytest.param(0, 64, 64.0, id="a request that holds no block"),
    ],
)
def test_requests_of_a_load_that_run_at_once(needed: int, cap: int, running: float) -> None:
    assert running_limit(_layout(needed, cap), 101, Load(100, 60, 16)) == running


def test_the_mean_request_has_half_of_its_answer() -> None:
    layout: Any = SimpleNamespace(blocks_for_request=lambda tokens: tokens, resolved=SimpleNamespace(max_num_seqs=4))
    assert running_limit(layout, 261, Load(100, 60, 16)) == 260 / 130


# Steps of a second, prompts of a millisecond a token, in chunks of 100 tokens.
TIMES: Any = SimpleNamespace(
    pipeline_parallel=1,
    correction=1.0,
    fit=SimpleNamespace(arrival_seconds=0.5, wait_steps=2.0, prefill_share=1.0, burst_share=0.25),
    step_seconds=lambda *_: 1.0,
    prefill_seconds=lambda tokens, *_: tokens / 1000,
    prefill_attention_seconds=lambda _: 0.0,
    chunks=lambda tokens, _: tokens / 100,
    room_tokens=lambda _: 100.0,
    body_seconds=lambda _requests, _context, carried: 1.0 + carried / 1000,
)


@pytest.mark.parametrize(
    ("load", "limit", "ttft", "tpot"),
    [
        pytest.param(Load(100, 50, 1), 9, 0.5 + 2 + 0.1, 1.0, id="alone: the steps under way and its own prompt"),
        pytest.param(
            Load(100, 50, 6), 9, 0.5 + 2 + 0.1 + 0.25 * 5 * 0.1, 1 + 0.1 * 0.1, id="five others: a tenth of steps"
        ),
        pytest.param(
            Load(100, 50, 12), 6, 2.725 + 1 * (2.725 + 50 * 1.01), 1.01, id="as many again wait for all of it"
        ),
    ],
)
def test_a_load_that_never_changes(load: Load, limit: float, ttft: float, tpot: float) -> None:
    found = steady_state(TIMES, load, limit)
    assert found.ttft_seconds == pytest.approx(ttft)
    assert found.tpot_seconds == pytest.approx(tpot)


def test_steps_that_yield_two_tokens_are_half_as_many() -> None:
    """Of 25 steps a fifth carries a prompt of the five others."""
    found = steady_state(TIMES, Load(100, 50, 6), 9, tokens_per_step=2.0)
    assert found.tpot_seconds == pytest.approx((1 + 0.2 * 0.1) / 2)


@pytest.mark.parametrize(
    ("fmt", "label", "found"),
    [
        pytest.param(NVFP4, BLACKWELL, ("fp4", False), id="four bits where they are multiplied"),
        pytest.param(NVFP4, HOPPER, ("bf16", True), id="unpacked elsewhere"),
        pytest.param(MXFP4, BLACKWELL, ("fp8", False), id="with eight-bit activations"),
        pytest.param(MXFP4, HOPPER, ("bf16", True), id="which Hopper has not for four bits"),
        pytest.param(EIGHT_BIT_TENSOR, HOPPER, ("fp8", False), id="eight bits"),
        pytest.param(EIGHT_BIT_TENSOR, "NVIDIA-A100-SXM4-80GB", ("bf16", True), id="before Ada"),
        pytest.param(EIGHT_BIT_TENSOR, "Tesla-T4", ("fp16", True), id="before Ampere"),
        pytest.param(grouped(4, 128, zero_points=False), BLACKWELL, ("bf16", True), id="integers are unpacked"),
        pytest.param(plain(2), HOPPER, ("bf16", False), id="half precision"),
        pytest.param(plain(2), BLACKWELL, ("bf16", False), id="half precision anywhere"),
    ],
)
def test_what_a_matrix_is_multiplied_in(fmt: Format, label: str, found: tuple[str, bool]) -> None:
    assert precision_of(fmt, gpu(label)) == found


ROW = Tensor("", 100, 64, Cut.OUTPUTS)
EXPERT = Tensor("", 20, 64, Cut.EXPERT_OUTPUTS, copies=8)


@pytest.mark.parametrize(
    ("counts", "ranks", "found"),
    [
        pytest.param({}, Ranks(2), Matrices(0.0, 0.0, {}), id="nothing"),
        pytest.param(
            {(ROW, plain(2)): 4}, Ranks(2), Matrices(4 * 50 * 64 * 2, 0.0, {"bf16": 2 * 4 * 50 * 64}), id="a rank's",
        ),
        pytest.param(
            {(EXPERT, plain(2)): 3}, Ranks(4, expert=4),
            Matrices(3 * 2 * 20 * 64 * 2, 0.0, {"bf16": 2 * 3 * 20 * 64 * 8}), id="bytes of its experts, FLOPs of all",
        ),
        pytest.param(
            {(ROW, plain(2)): 1, (EXPERT, plain(2)): 1}, Ranks(),
            Matrices(2 * (6400 + 8 * 1280), 0.0, {"bf16": 2 * (6400 + 8 * 1280)}), id="added up",
        ),
    ],
)  # fmt: skip
def test_bytes_and_flops_of_matrices(counts: Any, ranks: Ranks, found: Matrices) -> None:
    assert _matrices(counts, ranks, gpu(HOPPER)) == found


def test_elements_that_are_unpacked() -> None:
    fmt = grouped(4, 64, zero_points=False)
    found = _matrices({(ROW, fmt): 3, (EXPERT, fmt): 1}, Ranks(4, expert=4), gpu(HOPPER))
    assert found.unpacked == 3 * 25 * 64 + 2 * 20 * 64


def test_vectors_are_too_small_to_matter() -> None:
    counts = {(Tensor("", n, m), plain(2)): 1 for n, m in ((1, 64), (64, 1), (2, 64), (64, 2))}
    assert {(tensor.outputs, tensor.inputs) for tensor, _ in _multiplied(counts)} == {(2, 64), (64, 2)}


def test_experts_are_apart_and_a_token_visits_a_share_of_them() -> None:
    facts = bundled_facts("Qwen/Qwen3-30B-A3B")
    work = read_work(facts, options(tensor_parallel=2), MemoryFlags(expert_parallel=True), gpu(HOPPER))
    assert (work.expert_share, work.expert_ranks, work.routed_layers, work.layers) == (8 / 128, 2, 48, 48)
    assert work.experts.bytes == 48 * 64 * 3 * 2048 * 768 * 2
    assert work.head.bytes == 151_936 * 2048 * 2 / 2
    assert work.experts.flops["bf16"] == 2 * 48 * 128 * 3 * 2048 * 768
    dense = read_work(bundled_facts("meta-llama/Llama-3.1-8B-Instruct"), options(), MemoryFlags(), gpu(HOPPER))
    assert (dense.expert_share, dense.experts, dense.routed_layers, dense.state_bytes) == (
        0.0,
        Matrices(0, 0, {}),
        0,
        0,
    )
    assert dense.matrices == 32 * 7
    assert dense.dense.bytes == 2 * 32 * (4096 * (4096 * 2 + 1024 * 2) + 3 * 4096 * 14336)


def test_a_predictor_attends_as_one_layer() -> None:
    facts = bundled_facts("Qwen/Qwen3-30B-A3B")
    facts = replace(facts, draft_layers=facts.layers[:1], draft_modules=1)
    whole = read_work(facts, options(), MemoryFlags(), gpu(HOPPER))
    module = read_predictor_work(facts, options(), MemoryFlags(), gpu(HOPPER))
    assert (module.layers, module.state_bytes) == (1, 0)
    assert module.attention[0].bytes_per_token == pytest.approx(whole.attention[0].bytes_per_token / 48)
    assert module.attention[0].prefill_flops == pytest.approx(whole.attention[0].prefill_flops / 48)
