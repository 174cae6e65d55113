"""Fields that cost memory: adapters, speculation, a second KV tier, stretched positions, fp8 KV by leave."""

import json
from dataclasses import replace
from typing import Any

import pytest

from e2e.fleet import vllm_args
from plimsoll.core.plan.inventory import Inventory, Stock
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Refusal
from plimsoll.facts import engines
from tests.unit.core.plan.asking import H100, L40S, answer, flags, load, plan, refusal

SMALL, NINE, VISION = "Qwen/Qwen3-8B", "Qwen/Qwen3.5-9B", "Qwen/Qwen3-VL-8B-Instruct"
LORA = {"maxLoras": 4, "maxRank": 64, "modules": [{"name": "sql", "path": "acme/sql"}, {"name": "b", "path": "/b"}]}
DRAFT = {"method": "DraftModel", "model": "Qwen/Qwen3-0.6B", "tokens": 3}
GIB = 1 << 30


def engine(version: str = "0.32.0", **features: Any) -> dict[str, Any]:
    return {"engine": {"version": version, **features}}


@pytest.mark.parametrize("version", [v for v in engines.RECORDED if v not in {"0.10.2", "0.11.0"}])
def test_every_release_takes_the_arguments_of_all_features(version: str) -> None:
    features = engine(version, lora=LORA, speculative=DRAFT, kvOffload={"hostMemory": "8Gi"})
    found = plan(SMALL, H100, 8192, **features)
    parsed = vllm_args.parse([SMALL, *found.choice.args], version)
    assert (parsed["max_loras"], parsed["max_lora_rank"], parsed["kv_offloading_size"]) == (4, 64, 8.0)
    assert parsed["lora_modules"] == ["sql=acme/sql", "b=/b"]
    assert json.loads(flags(found)["--speculative-config"])["num_speculative_tokens"] == 3


@pytest.mark.parametrize(
    "feature",
    [
        pytest.param({"lora": LORA}, id="slots of adapters"),
        pytest.param({"speculative": DRAFT}, id="a draft model"),
        pytest.param({"speculative": {"method": "Eagle3", "model": "acme/qwen3-eagle3", "tokens": 3}}, id="a head"),
    ],
)
def test_a_feature_takes_memory_from_the_cache(feature: dict[str, Any]) -> None:
    plain, found = plan(SMALL, L40S, 8192, **engine()), plan(SMALL, L40S, 8192, **engine(**feature))
    assert found.available_kv_bytes.mid < plain.available_kv_bytes.mid
    assert found.kv.max_concurrency < plain.kv.max_concurrency


def test_a_field_counts_as_the_users_own_argument_does() -> None:
    field = plan(SMALL, L40S, 8192, **engine(lora={"maxLoras": 4, "maxRank": 64}))
    own = plan(SMALL, L40S, 8192, **engine(), args=["--enable-lora", "--max-loras=4", "--max-lora-rank=64"])
    assert (field.memory, field.kv, field.host) == (own.memory, own.kv, own.host)


def test_adapters_take_slots_times_rank() -> None:
    """Llama-3.1-8B at rank 16: about 84 MB a slot over all linear layers, in bfloat16."""
    llama = "meta-llama/Llama-3.1-8B-Instruct"
    asked: list[dict[str, Any]] = [{}, {"lora": {}}, {"lora": {"maxLoras": 8}}]
    none, one, eight = (
        {item.item: item.bytes for item in plan(llama, L40S, 8192, **engine(**lora)).memory} for lora in asked
    )
    assert "adapters" not in none
    assert 80e6 < one["adapters"] < 110e6
    assert eight["adapters"] == 8 * one["adapters"]


def test_a_second_tier_asks_for_host_memory_and_holds_no_request() -> None:
    plain = plan(SMALL, L40S, 8192, **engine())
    tier = plan(SMALL, L40S, 8192, **engine(kvOffload={"hostMemory": "20Gi"}))
    assert tier.host.memory_bytes - plain.host.memory_bytes == 20 * GIB
    assert tier.kv == plain.kv


def test_every_engine_of_a_replica_has_a_tier_of_its_own() -> None:
    args = ["--tensor-parallel-size=1", "--data-parallel-size=4", "--enable-expert-parallel"]
    asked = ("Qwen/Qwen3-30B-A3B-FP8", H100, 8192)
    plain = plan(*asked, **engine(), args=args)
    tier = plan(*asked, **engine(kvOffload={"hostMemory": "10Gi"}), args=args)
    assert tier.host.memory_bytes - plain.host.memory_bytes == 4 * 10 * GIB


def test_connectors_of_old_releases_give_up_the_groups() -> None:
    """Up to 0.20 a KV connector turned the hybrid manager off: windows are budgeted in full, states cannot be."""
    tier = {"kvOffload": {"hostMemory": "8Gi"}}
    gemma = "google/gemma-3-27b-it"
    old, new = (plan(gemma, H100, 32_768, **engine(version, **tier)) for version in ("0.19.1", "0.32.0"))
    assert old.kv.max_concurrency < plan(gemma, H100, 32_768, **engine("0.19.1")).kv.max_concurrency
    assert new.kv == plan(gemma, H100, 32_768, **engine("0.32.0")).kv
    assert isinstance(answer(NINE, H100, 8192, **engine("0.19.1", **tier)), Refusal)
    assert plan(NINE, H100, 8192, **engine("0.32.0", **tier)).kv.num_blocks > 0


@pytest.mark.parametrize(
    ("asked", "args", "says"),
    [
        pytest.param({"lora": {}}, ["--max-loras=2"], "spec.engine.lora says this already", id="adapters twice"),
        pytest.param({"speculative": DRAFT}, ["--spec-tokens=2"], "spec.engine.speculative says", id="a draft twice"),
        pytest.param(
            {"kvOffload": {"hostMemory": "1Gi"}}, ["--kv-transfer-config", "{}"], "spec.engine.kvOffload", id="tier"
        ),
        pytest.param(
            {"version": "0.11.0", "kvOffload": {"hostMemory": "1Gi"}}, [], "leave spec.engine.kvOffload out", id="early"
        ),
        pytest.param({"speculative": {"method": "MTP", "tokens": 1}}, [], "no predictor of its own", id="no predictor"),
        pytest.param(
            {}, ["--speculative-config", '{"method":"mtp"}'], "no predictor of its own", id="the same by hand"
        ),
        pytest.param(
            {}, ["--speculative-config", '{"model":"a/b","num_speculative_tokens":0}'], "0' is not", id="no tokens"
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(asked: dict[str, Any], args: list[str], says: str) -> None:
    no = refusal(SMALL, L40S, 8192, **engine(**asked), args=args)
    assert no.reason == "BadFlag"
    assert says in no.message


@pytest.mark.parametrize("by_field", [True, False])
def test_a_draft_of_any_size_must_be_known(by_field: bool) -> None:
    asked: dict[str, Any] = {"speculative": {**DRAFT, "model": "acme/secret"}} if by_field else {}
    args = [] if by_field else ["--speculative-config", '{"model":"acme/secret","num_speculative_tokens":3}']
    no = refusal(SMALL, L40S, 8192, **engine(**asked), args=args)
    assert no.reason == "UnknownModel"
    assert "acme/secret" in no.message
    target, draft = bundled_config(SMALL), bundled_config("Qwen/Qwen3-0.6B")
    assert target is not None
    known = replace(target, draft=draft)
    same = plan(SMALL, L40S, 8192, **engine(**asked), args=args, config=known)
    assert same.kv == plan(SMALL, L40S, 8192, **engine(speculative=DRAFT)).kv


def test_a_head_of_unknown_configuration_is_counted_and_said() -> None:
    found = plan(SMALL, L40S, 8192, **engine(speculative={"method": "Eagle3", "model": "acme/head", "tokens": 2}))
    assert any("nothing is known of acme/head: it counts as one layer" in note for note in found.assumptions)
    by_name = ["--speculative-config", '{"model":"acme/qwen3-EAGLE3","num_speculative_tokens":2}']
    assert plan(SMALL, L40S, 8192, **engine(), args=by_name).kv == found.kv


def test_predictors_of_a_checkpoint_are_counted() -> None:
    found = plan(NINE, H100, 8192, **engine(speculative={"method": "MTP", "tokens": 1}))
    assert found.kv.max_concurrency < plan(NINE, H100, 8192, **engine()).kv.max_concurrency
    alias = ["--speculative-config", '{"method":"qwen3_5_mtp","num_speculative_tokens":1}']
    assert plan(NINE, H100, 8192, **engine(), args=alias).kv == found.kv


def test_what_drafts_gain_is_counted_only_when_it_was_measured() -> None:
    asked = {"load": load(8), "slo": {"itl": "80ms"}}
    plain = plan(SMALL, H100, 8192, **engine(), **asked)
    hoped = plan(SMALL, H100, 8192, **engine(speculative=DRAFT), **asked)
    measured = plan(SMALL, H100, 8192, **engine(speculative={**DRAFT, "acceptedTokensPerStep": 2.5}), **asked)
    assert plain.latency["itlMs"].mid < hoped.latency["itlMs"].mid
    assert measured.latency["itlMs"].mid * 2 < hoped.latency["itlMs"].mid
    assert any("until acceptedTokensPerStep is measured" in note for note in hoped.assumptions)


@pytest.mark.parametrize(
    ("version", "key"), [("0.16.0", "rope_scaling"), ("0.19.1", "rope_parameters"), ("0.32.0", "rope_parameters")]
)
def test_positions_are_stretched_as_the_release_spells_it(version: str, key: str) -> None:
    """Qwen3 was trained on 32,768 positions: its owners' own advice for 131,072 is a factor of 4."""
    found = plan("Qwen/Qwen3-32B", H100, 131_072, ropeScaling="YaRN", **engine(version))
    override = json.loads(flags(found)["--hf-overrides"])
    rope = override[key]
    assert override["max_position_embeddings"] == 131_072
    assert (rope["rope_type"], rope["factor"], rope["original_max_position_embeddings"]) == ("yarn", 4.0, 32_768)
    assert ("rope_theta" in rope) == (key == "rope_parameters")
    assert flags(found)["--max-model-len"] == "131072"
    assert any("answers to short texts may be worse" in note for note in found.assumptions)


def test_what_the_rotary_entry_says_beside_the_scale_is_kept() -> None:
    found = plan(NINE, H100, 524_288, ropeScaling="YaRN")
    rope = json.loads(flags(found)["--hf-overrides"])["text_config"]["rope_parameters"]
    assert rope["mrope_section"] == [11, 11, 10]
    assert (rope["partial_rotary_factor"], rope["factor"]) == (0.25, 2.0)


def test_positions_stay_where_the_context_needs_no_more() -> None:
    assert "--hf-overrides" not in plan(SMALL, H100, 32_768, ropeScaling="YaRN").choice.args


@pytest.mark.parametrize(
    ("model", "context", "says"),
    [
        pytest.param("openai/gpt-oss-20b", 262_144, "scaled already (yarn)", id="scaled already"),
        pytest.param("meta-llama/Llama-3.2-1B-Instruct", 262_144, "scaled already (llama3)", id="by another kind"),
        pytest.param("google/gemma-4-31B-it", 524_288, "in several ways", id="two ways to rotate"),
        pytest.param(VISION, 524_288, "nothing in config.json says", id="sections that nobody wrote"),
        pytest.param("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 524_288, "nothing in config.json", id="no ropes"),
        pytest.param("Qwen/Qwen2.5-14B-Instruct", 262_144, "does not write rope_theta", id="a base that nobody wrote"),
    ],
)
def test_other_positions_cannot_be_stretched(model: str, context: int, says: str) -> None:
    no = refusal(model, H100, context, 64, ropeScaling="YaRN")
    assert no.reason == "MaxModelLenAboveModel"
    assert says in no.message


def test_a_context_above_the_limit_offers_to_stretch_where_that_helps() -> None:
    offered = [change.change for change in refusal("Qwen/Qwen3-32B", H100, 131_072).nearest]
    assert offered == ["contextTokens: 131072 -> 40960", "model.ropeScaling: None -> YaRN"]
    assert [c.change for c in refusal("microsoft/phi-4", H100, 32_768).nearest] == ["contextTokens: 32768 -> 16384"]


def test_own_overrides_and_stretched_positions_contradict() -> None:
    no = refusal("Qwen/Qwen3-32B", H100, 131_072, ropeScaling="YaRN", args=['--hf-overrides={"a":1}'])
    assert (no.reason, "write the ropes there" in no.message) == ("BadFlag", True)


@pytest.mark.parametrize(
    ("tuning", "dtype"),
    [
        pytest.param({}, None, id="nothing said"),
        pytest.param({"allow": ["KVCacheDtype"]}, None, id="only recommended"),
        pytest.param({"mode": "Auto", "allow": ["MaxNumSeqs"]}, None, id="another leave"),
        pytest.param({"mode": "Auto", "allow": ["KVCacheDtype"], "qualityGate": {}}, None, id="once it was judged"),
        pytest.param({"mode": "Auto", "allow": ["KVCacheDtype"]}, "fp8", id="by leave"),
    ],
)
def test_fp8_kv_makes_a_plan_possible_only_by_leave(tuning: dict[str, Any], dtype: str | None) -> None:
    """27.5 GiB of weights and 40,960 tokens of 0.16 MB each: too much for 44 GiB of which others hold 10."""
    beside = Inventory({L40S: Stock(reserve_bytes=10 * GIB)})
    found = answer("Qwen/Qwen3-14B", L40S, 40_960, 1, tuning=tuning, inventory=beside)
    if dtype is None:
        assert isinstance(found, Refusal)
        assert "engine.extraArgs: + --kv-cache-dtype=fp8" in [change.change for change in found.nearest]
        return
    assert not isinstance(found, Refusal)
    assert flags(found)["--kv-cache-dtype"] == dtype
    assert any("tuning.allow permits" in note for note in found.assumptions)


def test_fp8_kv_is_not_taken_without_gain_nor_against_the_users_word() -> None:
    leave = {"tuning": {"mode": "Auto", "allow": ["KVCacheDtype"]}}
    assert flags(plan(SMALL, L40S, 8192, **leave))["--kv-cache-dtype"] == "auto"
    own = plan(SMALL, L40S, 8192, **leave, args=["--kv-cache-dtype=bfloat16"])
    assert own.choice.args[-1] == "--kv-cache-dtype=bfloat16"


def test_fp8_kv_by_leave_saves_replicas_under_load() -> None:
    asked = {"load": load(120, prompt=6000, output=1000)}
    leave = {"tuning": {"mode": "Auto", "allow": ["KVCacheDtype"]}}
    plain, allowed = plan(SMALL, L40S, 8192, 32, **asked), plan(SMALL, L40S, 8192, 32, **asked, **leave)
    assert allowed.choice.replicas < plain.choice.replicas
    assert any(", fp8 KV" not in each.choice and each.reason == "Costlier" for each in allowed.rejected)


@pytest.mark.parametrize("lengths", [{"promptTokensP95": 7000}, {"outputTokensP95": 4000}])
def test_long_requests_take_room_in_the_pool(lengths: dict[str, int]) -> None:
    even, one_by_one = load(200, prompt=1000, output=400), ["-tp=1"]
    plain, long = (plan(SMALL, L40S, 8192, 64, load=asked, args=one_by_one) for asked in (even, {**even, **lengths}))
    assert long.choice.replicas > plain.choice.replicas
    same = {**even, "promptTokensP95": 1000, "outputTokensP95": 400}
    assert plan(SMALL, L40S, 8192, 64, load=same, args=one_by_one).choice == plain.choice


def test_long_prompts_make_others_wait() -> None:
    even = load(rate=6, prompt=1000, output=100)
    plain, long = (
        plan(SMALL, L40S, 32_768, 1, load=asked, slo={"ttft": "5s"})
        for asked in (even, {**even, "promptTokensP95": 20_000})
    )
    assert long.latency["ttftMs"].high > plain.latency["ttftMs"].high
