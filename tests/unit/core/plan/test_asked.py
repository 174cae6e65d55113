"""What a request names besides its figures: configurations in ConfigMaps, drafts, stretched positions."""

import json
from typing import Any

import pytest

from plimsoll.api.v1alpha1 import ConfigRef
from plimsoll.core.plan.asked import draft_name, stretch_of
from plimsoll.core.plan.configmaps import UnreadableError, catalogued, files_of, referenced
from plimsoll.core.plan.extra_args import Overrides
from plimsoll.facts.engines import EngineVersion
from tests.unit.core.kv.recorded import bundled_facts
from tests.unit.core.plan.asking import L40S, spec_of

QWEN = "Qwen/Qwen3-8B"
FILES = files_of(
    {
        "config.json": '{"a": 1}', "hf_quant_config.json": '{"q": 1}',
        "own.json": '{"b": 1}', "own.hf_quant_config.json": '{"q": 2}',
        "org--m.json": '{"c": 1}', "broken.json": "{", "list.json": "[1]",
    },
    "ConfigMap llm/m",
)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "config", "quant"),
    [
        pytest.param("config.json", {"a": 1}, {"q": 1}, id="the usual names"),
        pytest.param("own.json", {"b": 1}, {"q": 2}, id="one of its own beside it"),
        pytest.param("org--m.json", {"c": 1}, {"q": 1}, id="the usual one for any"),
    ],
)
def test_a_configuration_that_is_named(key: str, config: dict[str, Any], quant: dict[str, Any]) -> None:
    found = referenced(FILES, ConfigRef(name="m", key=key), "ConfigMap llm/m")
    assert (found.config, found.quant_config, found.origin) == (config, quant, "ConfigMap llm/m")


@pytest.mark.parametrize(
    ("files", "key", "says"),
    [
        (FILES, "other.json", "it has: broken.json, config.json"),
        ({}, "other.json", "it has: none"),
        (FILES, "broken.json", "key broken.json: not JSON"),
        (FILES, "list.json", "key list.json: a JSON list, not an object"),
    ],
)
def test_a_configuration_that_cannot_be_read(files: dict[str, tuple[str, str]], key: str, says: str) -> None:
    with pytest.raises(UnreadableError, match=says):
        referenced(files, ConfigRef(name="m", key=key), "ConfigMap llm/m")


def test_a_configuration_of_the_catalogue() -> None:
    found = catalogued(FILES, "org/m")
    assert found is not None
    assert (found.config, found.quant_config) == ({"c": 1}, None), "the usual name is of another model there"
    assert catalogued(FILES, "org/other") is None


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({"speculative": {"method": "DraftModel", "model": "org/d", "tokens": 3}}, "org/d", id="a field"),
        pytest.param({"speculative": {"method": "NGram", "tokens": 3}}, None, id="no model"),
        pytest.param(
            {"extraArgs": ["--speculative-config", json.dumps({"model": "org/d"})]}, "org/d", id="an argument"
        ),
        pytest.param({"extraArgs": ["--speculative-config", json.dumps({"method": "ngram"})]}, None, id="without one"),
        pytest.param({"extraArgs": ["--speculative-config", json.dumps({"model": 5})]}, None, id="that is no name"),
        pytest.param({"extraArgs": ["--no-such-flag"]}, None, id="arguments that cannot be read"),
        pytest.param({"extraArgs": ["--seed", "1"]}, None, id="other arguments"),
    ],
)
def test_the_draft_that_a_request_names(engine: dict[str, Any], name: str | None) -> None:
    assert draft_name(spec_of(QWEN, L40S, 4096, engine=engine)) == name


@pytest.mark.parametrize(
    ("tokens", "asked", "stretched"),
    [
        pytest.param(40960, {"ropeScaling": "YaRN"}, False, id="just the model's own"),
        pytest.param(40961, {"ropeScaling": "YaRN"}, True, id="a token more"),
        pytest.param(40961, {}, False, id="nobody asks"),
    ],
)
def test_positions_are_stretched_beyond_the_model_only(tokens: int, asked: dict[str, Any], stretched: bool) -> None:
    facts = bundled_facts(QWEN)
    assert facts.max_model_len == 40960
    found = stretch_of(spec_of(QWEN, L40S, tokens, **asked), facts, EngineVersion.parse("0.32.0"), Overrides())
    assert (found is not None) is stretched
