"""What is recorded of a plan suffices to make it again, fits a line of the log, and holds nobody's secrets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core import replay
from plimsoll.core.ledger import PLAN, Entry, logged
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction
from plimsoll.core.plan.demand import LearnedLoad
from plimsoll.core.plan.inventory import Inventory, Stock
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.planned import Asked, chosen
from plimsoll.core.policy import read_policy
from plimsoll.core.replay import UnreadableError, again
from tests.unit.api.strategies import MANIFESTS

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
L4 = "NVIDIA-L4"
MODELS = ("Qwen/Qwen3-8B", "Qwen/Qwen3.5-9B", "Qwen/Qwen3-32B", "nobody/knows-it")
KNOWN = Inventory(
    products={L4: Stock(price=0.7, gpus=12, reserve_bytes=1 << 30), "NVIDIA-L40S": Stock(price=1.9)},
    gpu_budget=16,
    priorities={"llm": 3},
    policy=read_policy(
        {
            "allow": {"hostPaths": ["/models"]},
            "drain": {"endpointDelay": "7s"},
            "defaults": {"spec": {"containers": [{"name": "vllm", "env": [{"name": "A", "value": "hunter2"}]}]}},
        }
    ),
    pools={"abc": 1000},
    speeds={"def": 1.2},
    load=LearnedLoad(prompt_tokens=700, requests_per_second=2.5),
)
LEARNED = Correction("the engine said so", missing_bytes=1 << 28, most_sequences=24)


def spec(**fields: Any) -> VLLMServiceSpec:
    base = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": L4, "maxGPUs": 8}, "contextTokens": 4096}
    return VLLMServiceSpec.model_validate({**base, **fields})


def entry(asked: Asked, answer: Plan | Refusal) -> dict[str, Any]:
    """As a reader of the log finds it."""
    reason, message = ("FirstPlan", "planned") if isinstance(answer, Plan) else (answer.reason, answer.message)
    made = Entry(PLAN, reason, message, after="svc-a", grounds=replay.planned(asked, answer))
    found: dict[str, Any] = json.loads(json.dumps(logged(made, "2027-01-15T08:00:00Z"), allow_nan=False))
    return found


def asked(wanted: VLLMServiceSpec, known: Inventory = KNOWN, correction: Correction = NOTHING_LEARNED) -> Asked:
    return Asked(wanted, bundled_config(wanted.model.id), known, correction)


@settings(max_examples=60)
@given(
    MANIFESTS,
    st.sampled_from(MODELS),
    st.sampled_from([{"gpu": L4}, {"gpus": [L4, "NVIDIA-L40S"], "maxGPUs": 8}]),
    st.sampled_from([4096, 200_000]),
    st.sampled_from([Inventory(), KNOWN]),
    st.sampled_from([NOTHING_LEARNED, LEARNED]),
)
def test_every_answer_is_given_again(
    manifest: dict[str, Any],
    model: str,
    hardware: dict[str, Any],
    context_tokens: int,
    known: Inventory,
    correction: Correction,
) -> None:
    ours = {"model": {"id": model}, "hardware": hardware, "contextTokens": context_tokens}
    try:
        wanted = VLLMServiceSpec.model_validate({**manifest["spec"], **ours})
    except ValidationError:
        return  # fields that do not go together
    given_ = asked(wanted, known, correction)
    told = entry(given_, given_.plan())
    if told["reason"] == "PodTemplateRefused":
        assert "grounds" not in told
        return
    made = again(told)
    assert made is not None
    assert made.same_as(told), made


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_a_small_part_of_a_line(path: Path) -> None:
    wanted = next(d for d in yaml.safe_load_all(path.read_text()) if d and d["kind"] == "VLLMService")
    given_ = asked(VLLMServiceSpec.model_validate(wanted["spec"]))
    assert len(json.dumps(replay.planned(given_, given_.plan()))) < 4000


def test_another_planner_shows_and_says_where() -> None:
    given_ = asked(spec(load={"concurrency": 4, "promptTokens": 16, "outputTokens": 20}))
    told = entry(given_, given_.plan())
    told["grounds"]["asked"]["spec"]["load"]["concurrency"] = 100
    made = again(told)
    assert made is not None
    assert not made.same_as(told)
    assert "--max-num-seqs" in made.message
    told["grounds"]["asked"]["spec"]["context_tokens"] = 10_000_000
    refused = again(told)
    assert refused is not None
    assert (refused.reason, refused.same_as(told)) == ("MaxModelLenAboveModel", False)


def test_nobodys_secrets_are_recorded() -> None:
    secret = {"name": "A", "value": "hunter2"}
    template = {"spec": {"containers": [{"name": "vllm", "env": [secret]}]}}
    gate = {"podTemplate": {"spec": {"containers": [{"name": "gate", "image": "evals:7", "env": [secret]}]}}}
    for args in (["--api-key", "hunter2", "hunter2"], ["--api_key=hunter2"], ["--hf-token=hunter2"]):
        wanted = spec(engine={"extraArgs": args}, podTemplate=template, tuning={"qualityGate": gate})
        given_ = asked(wanted)
        told = entry(given_, given_.plan())
        assert "hunter2" not in json.dumps(told)
        made = again(told)
        assert made is not None
        assert made.same_as(told)


OWN = bundled_config("Qwen/Qwen3-8B")
assert OWN is not None
RENAMED = ModelConfig(OWN.config, None, "ConfigMap llm/own")
LONG = replace(RENAMED, config={**OWN.config, "quantization_config": {"ignore": ["layer"] * 2000}})


def test_a_configuration_of_ones_own_is_recorded_whole() -> None:
    given_ = Asked(spec(model={"id": "us/own"}), RENAMED, Inventory())
    answer = given_.plan()
    assert isinstance(answer, Plan)
    told = entry(given_, answer)
    made = again(told)
    assert made is not None
    assert made.same_as(told)


@pytest.mark.parametrize("config", [LONG, replace(RENAMED, weights_bytes=7)], ids=["too long", "another one now"])
def test_a_configuration_that_is_not_here_is_said_to_be(config: ModelConfig) -> None:
    given_ = Asked(spec(), config, Inventory())
    told = entry(given_, given_.plan())
    told["grounds"]["asked"]["model"].pop("config", None)
    with pytest.raises(UnreadableError, match=r"another configuration of Qwen/Qwen3-8B was planned with"):
        again(told)


def test_what_does_not_fit_a_line_is_left_out() -> None:
    products = {f"NVIDIA-Made-Up-{number}": Stock(price=float(number)) for number in range(400)}
    given_ = asked(spec(), Inventory(products))
    answer = given_.plan()
    assert replay.planned(given_, answer) == {}
    assert isinstance(answer, Plan)
    assert chosen(answer)["kvTokens"] == answer.kv.tokens
