"""What attention computes and reads for a token, by what a layer is; and a load that never changes, by its law."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll.core.kv.specs import LayerSpec
from plimsoll.core.latency.attention import EVERY_TOKEN, Attention, _flops, _parts, _reach
from plimsoll.core.latency.load import Load, running_limit, steady_state
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
from tests.unit.core.kv.test_layouts import options

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
