"""Weights per rank from the configuration alone, against vLLM's own count for every model of the tables."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from plimsoll.core.memory.tensors import Ranks
from plimsoll.core.memory.weights import Weights, read_weights
from plimsoll.facts import catalogue
from plimsoll.facts.models import ModelFacts, read_model

DATA = Path(__file__).parents[3] / "data" / "memory" / "weights.jsonl.gz"

# What is more than 1 % off, how far, and why.
BEYOND = {
    "google/gemma-3-1b-it(text)": (0.25, "the file does not say how wide the MLP is"),
    "google/gemma-3-4b-it(text)": (0.35, "the file does not say how rotation is stretched"),
    "google/gemma-3-27b-it(text)": (0.04, "the file does not say how rotation is stretched"),
    "Qwen/Qwen3.8-Flash-Next": (0.04, "an index buffer a layer, as long as a step"),
    "deepseek-ai/DeepSeek-V4.1-Flash": (0.02, "padding at TP 4"),
    "stepfun-ai/Step-3.5-Flash": (0.02, "two layers that another kernel runs"),
}
TRIMMED = ("google/gemma-3-1b-it(text)", "google/gemma-3-4b-it(text)", "google/gemma-3-27b-it(text)")


def rows() -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def facts_of(model: str) -> ModelFacts:
    entry = catalogue.find(model)
    assert entry is not None, model
    return read_model(entry.config, entry.quant_config)


@cache
def weights_of(model: str) -> Weights:
    return read_weights(facts_of(model))


def error(row: dict[str, Any]) -> float:
    found = weights_of(row["model"]).bytes_on(Ranks(row["tp"]), tuple(row["capability"]))
    return found / int(row["bytes"]) - 1


def by_model() -> list[Any]:
    models: dict[str, list[dict[str, Any]]] = {}
    for row in rows():
        models.setdefault(row["model"], []).append(row)
    return [pytest.param(each, id=model) for model, each in models.items()]


@pytest.mark.parametrize("each", by_model())
def test_one_model_at_every_size(each: list[dict[str, Any]]) -> None:
    allowed = BEYOND.get(each[0]["model"], (0.01, ""))[0]
    off = {(row["tp"], row["capability"][0]): f"{error(row):+.2%}" for row in each if abs(error(row)) > allowed}
    assert not off


def test_exceptions_are_few_and_still_needed() -> None:
    every = rows()
    assert sum(abs(error(row)) <= 0.01 for row in every) >= 0.95 * len(every)
    described = [row for row in every if row["model"] not in TRIMMED]
    assert sum(abs(error(row)) <= 0.01 for row in described) >= 0.98 * len(described)
    needed = {row["model"] for row in every if abs(error(row)) > 0.01}
    assert needed == set(BEYOND)


def test_a_name_changes_nothing() -> None:
    entry = catalogue.find("Qwen/Qwen3-30B-A3B-FP8")
    assert entry is not None
    renamed = {**entry.config, "_name_or_path": "somebody/else-4bit-AWQ"}
    assert read_weights(read_model(renamed)).bytes_on(Ranks(2)) == weights_of(entry.model_id).bytes_on(Ranks(2))


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-9B", "deepseek-ai/DeepSeek-V3", "google/gemma-4-31B-it"])
@pytest.mark.parametrize("capability", [(9, 0), (10, 0)])
def test_more_ranks_never_hold_more_each(model: str, capability: tuple[int, int]) -> None:
    sizes = [weights_of(model).bytes_on(Ranks(tp), capability) for tp in (1, 2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)


def test_expert_parallelism_divides_whole_experts() -> None:
    cut = weights_of("Qwen/Qwen3-30B-A3B").bytes_on(Ranks(4))
    whole = weights_of("Qwen/Qwen3-30B-A3B").bytes_on(Ranks(4, expert=4))
    assert whole == pytest.approx(cut, rel=1e-3)
    assert weights_of("Qwen/Qwen3-30B-A3B").bytes_on(Ranks(4, expert=8)) < 0.6 * cut


def test_stages_of_a_pipeline_add_up_to_the_model() -> None:
    model = weights_of("meta-llama/Llama-3.1-8B-Instruct")
    parts = [model.bytes_on(Ranks(), stage=stage) for stage in (range(16), range(16, 32))]
    table = sum(fmt.bytes(tensor.outputs, tensor.inputs) for tensor, fmt in model.everywhere)
    assert sum(parts) == model.bytes_on(Ranks()) + table


def test_a_text_only_service_leaves_the_tower_out() -> None:
    facts = facts_of("Qwen/Qwen3.5-9B")
    tower = read_weights(facts).bytes_on(Ranks()) - read_weights(facts, text_only=True).bytes_on(Ranks())
    assert 0.8e9 < tower < 1.1e9


def test_a_tower_for_each_rank_is_not_cut() -> None:
    facts = facts_of("Qwen/Qwen3.5-9B")
    tower = read_weights(facts).bytes_on(Ranks()) - read_weights(facts, text_only=True).bytes_on(Ranks())
    more = read_weights(facts, whole_towers=True).bytes_on(Ranks(4)) - weights_of("Qwen/Qwen3.5-9B").bytes_on(Ranks(4))
    assert more == pytest.approx(0.75 * tower, rel=0.05)


def test_float32_is_twice_as_much_when_asked_for() -> None:
    facts = facts_of("meta-llama/Llama-3.1-8B-Instruct")
    half, full = (read_weights(facts, dtype=dtype).bytes_on(Ranks()) for dtype in ("auto", "float32"))
    assert full == 2 * half
