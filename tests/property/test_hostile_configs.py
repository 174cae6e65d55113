"""Whatever a config.json holds, reading it ends in facts or in an error that names the field, and planning in a layout
or a refusal.
"""

import contextlib
import copy
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.core.kv import EngineOptions, Refusal, capacity, plan_layout
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.models import ModelConfigError, UnknownArchitecture, read_model
from tests.property.amount import examples

_GPU = gpus.find("NVIDIA-H100-80GB-HBM3")
_FIFTY_GIB = 50 << 30

# One of each family's spelling, wrappers and quantised files among them.
_MODELS = (
    "Qwen/Qwen3.5-9B",
    "ai21labs/Jamba-v0.1",
    "deepseek-ai/DeepSeek-V3.2",
    "deepseek-ai/DeepSeek-V4-Flash",
    "deepseek-ai/DeepSeek-V4.1-Flash",
    "google/gemma-3-27b-it",
    "google/gemma-4-31B-it",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "meta-llama/Meta-Llama-3.1-8B",
    "moonshotai/Kimi-K3",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "openai/gpt-oss-20b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "thinkingmachines/Inkling",
    "XiaomiMiMo/MiMo-V2-Flash",
    "zai-org/GLM-5.3-Flash",
)
_CONFIGS = {name: entry.config for name in _MODELS if (entry := catalogue.find(name)) is not None}

_JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**30), max_value=10**30),
    st.sampled_from([0, 1, 2, 3, 7, 128, 1 << 20, 1 << 40, 10**4000, -1]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["full_attention", "sliding_attention", "mamba", "llama", "LlamaForCausalLM", "bfloat16", "M*E-"]),
    st.lists(st.one_of(st.integers(-3, 200), st.text(max_size=3), st.none()), max_size=5),
    st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=3)), max_size=3),
    st.just([1] * 5000),
)


def _paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, Mapping):
        inner = [_paths(child, (*path, key)) for key, child in value.items()]
        return [path, *(found for part in inner for found in part)]
    return [path]


def _replaced(config: Any, path: tuple[Any, ...], junk: object) -> Any:
    copied = copy.deepcopy(config)
    owner = copied
    for key in path[:-1]:
        owner = owner[key]
    if junk is _REMOVED:
        del owner[path[-1]]
    else:
        owner[path[-1]] = junk
    return copied


_REMOVED = object()
_PATHS = {name: [path for path in _paths(config) if path] for name, config in _CONFIGS.items()}


def _plan(config: Any, quant_config: Any = None) -> None:
    """Read and plan; anything but the three errors fails the test."""
    assert _GPU is not None
    with contextlib.suppress(ModelConfigError, UnknownArchitecture, Refusal):
        facts = read_model(config, quant_config)
        layout = plan_layout(facts, EngineOptions(device=_GPU))
        capacity(layout, _FIFTY_GIB)


@given(data=st.data(), name=st.sampled_from(sorted(_CONFIGS)))
@settings(max_examples=examples(250), deadline=None)
def test_one_spoilt_key_is_named_or_planned(data: st.DataObject, name: str) -> None:
    path = data.draw(st.sampled_from(_PATHS[name]))
    junk = data.draw(st.one_of(_JUNK, st.just(_REMOVED)))
    _plan(_replaced(_CONFIGS[name], path, junk))


@given(
    config=st.recursive(
        _JUNK, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    )
)
@settings(max_examples=examples(150), deadline=None)
def test_nonsense_is_never_a_traceback(config: Any) -> None:
    _plan(config)
    _plan({"architectures": ["LlamaForCausalLM"], "quantization_config": config, "text_config": config})
    _plan(_CONFIGS["meta-llama/Meta-Llama-3.1-8B"], config)


def test_the_models_of_these_tests_are_bundled() -> None:
    assert set(_CONFIGS) == set(_MODELS)
