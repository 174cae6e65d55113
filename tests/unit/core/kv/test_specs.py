"""Blocks that one request holds of each kind of cache, and what pages are made to be."""

import pytest

from plimsoll.core.kv.specs import Kind, LayerSpec


def _spec(kind: Kind, block_tokens: int = 16, natural_bytes: int = 16 * 100, **rest: int) -> LayerSpec:
    return LayerSpec(kind, block_tokens, natural_bytes, "content", **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "tokens", "parallel", "blocks"),
    [
        pytest.param(_spec("full"), 33, 1, 3, id="every token begun"),
        pytest.param(_spec("latent"), 32, 1, 2, id="whole blocks"),
        pytest.param(_spec("full"), 66, 4, 2, id="a rank's 17 of 66 tokens"),
        pytest.param(_spec("full", sharded=False), 66, 4, 5, id="tokens that every rank keeps"),
        pytest.param(
            _spec("sliding", window_tokens=1024), 131_072, 1, 65 + 1, id="window less one, a step of 17, one on"
        ),
        pytest.param(_spec("sliding", window_tokens=1024), 100, 1, 7 + 1, id="a request within the window"),
        pytest.param(
            _spec("sliding_latent", window_tokens=1024, retained_tokens=1), 131_072, 1, 66 + 1, id="a token for drafts"
        ),
        pytest.param(_spec("chunked", window_tokens=64), 131_072, 1, 6, id="a chunk of 64 and a step of 17"),
        pytest.param(_spec("chunked", window_tokens=64), 20, 1, 2, id="less than a chunk"),
        pytest.param(_spec("cross", encoder_tokens=1500), 9, 1, 94, id="all encoder positions, whatever is asked"),
        pytest.param(_spec("ring"), 131_072, 1, 1, id="a ring is one block"),
        pytest.param(_spec("state", state_blocks=3), 131_072, 1, 3, id="a state does not grow"),
        pytest.param(
            _spec("state", state_blocks=3, keeps_every_state=True), 33, 1, 3 + 3, id="a state for every block"
        ),
    ],
)
def test_blocks_of_a_request(spec: LayerSpec, tokens: int, parallel: int, blocks: int) -> None:
    assert spec.blocks_for(tokens, 17, parallel) == blocks


@pytest.mark.parametrize(
    ("kind", "becomes"),
    [
        ("sliding", ("full", 0, 0, 32, 3200)),
        ("sliding_latent", ("latent", 0, 0, 32, 3200)),
        ("chunked", ("full", 0, 0, 32, 3200)),
        ("full", ("full", 9, 1, 16, 1600)),
        ("state", ("state", 9, 1, 16, 1600)),
    ],
)
def test_windows_are_budgeted_for_every_token(kind: Kind, becomes: tuple[str, int, int, int, int]) -> None:
    spec = _spec(kind, window_tokens=9, retained_tokens=1).as_full(32)
    said = (spec.kind, spec.window_tokens, spec.retained_tokens, spec.block_tokens, spec.natural_bytes)
    assert said == becomes


def test_a_page_is_what_it_was_padded_to_and_a_stride_whole_units() -> None:
    spec = _spec("latent", stride_bytes=512)
    assert (spec.page_bytes, spec.stride) == (1600, 2048)
    padded = spec.padded_to(2049)
    assert (padded.page_bytes, padded.stride, padded.natural_bytes) == (2049, 2560, 1600)
