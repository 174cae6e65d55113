"""Laws that hold for every model, device and flag: what grows, what never exceeds what, what does not matter."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plimsoll.core.kv import Capacity, EngineOptions, KVLayout, Refusal, capacity, fitting_max_model_len, plan_layout
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.engines import RECORDED, EngineVersion
from plimsoll.facts.models import ModelConfigError, ModelFacts, read_model

_GIB = 1 << 30


def _readable() -> dict[str, ModelFacts]:
    found = {}
    for name in catalogue.names()[::4]:
        entry = catalogue.find(name)
        assert entry is not None
        try:
            found[name] = read_model(entry.config, entry.quant_config)
        except ModelConfigError:
            continue
    return found


_MODELS = _readable()
_DEVICES = [gpus.find(label) for label in ("NVIDIA-H100-80GB-HBM3", "NVIDIA-B200", "NVIDIA-L40S", "NVIDIA-L4")]

models = st.sampled_from(sorted(_MODELS)).map(_MODELS.__getitem__)
options = st.builds(
    EngineOptions,
    device=st.sampled_from(_DEVICES),
    version=st.sampled_from(RECORDED).map(EngineVersion.parse),
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8"]),
    enable_prefix_caching=st.sampled_from([None, True, False]),
    max_num_batched_tokens=st.sampled_from([None, 2048, 16384]),
)


def _layout(facts: ModelFacts, chosen: EngineOptions) -> KVLayout:
    """The layout, where vLLM would start at all."""
    try:
        return plan_layout(facts, chosen)
    except Refusal:
        assume(False)
        raise


def _pool(layout: KVLayout, available: int) -> Capacity | Refusal:
    try:
        return capacity(layout, available)
    except Refusal as refusal:
        return refusal


@given(facts=models, chosen=options, tokens=st.integers(1, 1 << 20), more=st.integers(0, 1 << 20))
@settings(max_examples=150, deadline=None)
def test_more_context_never_needs_fewer_blocks(
    facts: ModelFacts, chosen: EngineOptions, tokens: int, more: int
) -> None:
    layout = _layout(facts, chosen)
    assert layout.blocks_for_request(tokens) <= layout.blocks_for_request(tokens + more)


@given(facts=models, chosen=options)
@settings(max_examples=100, deadline=None)
def test_more_ranks_never_store_more_each(facts: ModelFacts, chosen: EngineOptions) -> None:
    """By token, because a hybrid's block grows when its pages shrink."""
    alone = _layout(facts, replace(chosen, tensor_parallel=1))
    shared = _layout(facts, replace(chosen, tensor_parallel=2))
    length = facts.max_model_len
    needed = [layout.blocks_for_request(length) * layout.bytes_per_block for layout in (alone, shared)]
    # Rounding to whole blocks may cost one block a group.
    assert needed[1] <= needed[0] + len(shared.groups) * shared.bytes_per_block


@given(facts=models, chosen=options, available=st.integers(0, 200 * _GIB))
@settings(max_examples=150, deadline=None)
def test_blocks_never_exceed_what_is_left(facts: ModelFacts, chosen: EngineOptions, available: int) -> None:
    layout = _layout(facts, chosen)
    pool, longest = _pool(layout, available), fitting_max_model_len(layout, available)
    if isinstance(pool, Refusal):
        assert pool.estimated_max_model_len in (None, longest)
        assert longest < layout.resolved.max_model_len
        return
    assert pool.num_blocks * pool.bytes_per_block <= available
    # Releases before 0.19 check layer by layer, and may start with less than one padded request.
    assert pool.max_concurrency >= 1 or not chosen.version.at_least(19)
    assert longest == layout.resolved.max_model_len


@given(facts=models, chosen=options, available=st.integers(_GIB, 100 * _GIB))
@settings(max_examples=100, deadline=None)
def test_the_longest_context_fits_and_one_more_does_not(
    facts: ModelFacts, chosen: EngineOptions, available: int
) -> None:
    layout = _layout(facts, chosen)
    longest = fitting_max_model_len(layout, available)
    assume(0 < longest < layout.resolved.max_model_len)
    assert capacity(layout, available, longest).num_blocks > 0
    with pytest.raises(Refusal) as caught:
        capacity(layout, available, longest + 1)
    assert caught.value.reason == "kv_cache_too_small"


def _renamed(config: Any) -> Any:
    renamed = copy.deepcopy(config)
    renamed["_name_or_path"] = "somebody/else"
    renamed["transformers_version"] = "9.9.9"
    return dict(reversed(renamed.items()))


@given(name=st.sampled_from(sorted(_MODELS)))
@settings(max_examples=40, deadline=None)
def test_a_name_changes_nothing(name: str) -> None:
    entry = catalogue.find(name)
    assert entry is not None
    renamed = read_model(_renamed(entry.config), entry.quant_config)
    assert renamed.layers == _MODELS[name].layers
    assert renamed.quantisation.kv_cache_dtype == _MODELS[name].quantisation.kv_cache_dtype
    assert renamed.max_model_len == _MODELS[name].max_model_len
