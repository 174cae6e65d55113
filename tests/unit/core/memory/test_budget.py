"""What is left for KV, against starts that public logs tell of, and item by item."""

import statistics
from dataclasses import replace
from functools import cache

import pytest

from plimsoll.core.kv import EngineOptions, Speculation
from plimsoll.core.memory import MemoryBudget, MemoryFlags, budget
from plimsoll.core.memory.coefficients import Coefficients, fitted
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts, read_model
from tools.fit_memory import DATA, GIB, Outcome, fit, leave_one_model_out, read_starts, reserved_bytes


@cache
def judged() -> tuple[Outcome, ...]:
    """The judged starts, predicted by the shipped coefficients."""
    found = []
    for start in read_starts(DATA):
        if start.eval:
            left = start.predict(fitted()).available_kv_bytes
            found.append(Outcome(start, left.low, left.mid, left.high))
    return tuple(found)


def facts_of(model: str) -> ModelFacts:
    entry = catalogue.find(model)
    assert entry is not None
    return read_model(entry.config, entry.quant_config)


def gpu(name: str) -> GPU:
    found = gpus.find(name)
    assert found is not None
    return found


H100 = gpu("NVIDIA-H100-80GB-HBM3")
LLAMA = facts_of("meta-llama/Llama-3.1-8B-Instruct")


def plan(flags: MemoryFlags | None = None, facts: ModelFacts = LLAMA, **options: object) -> MemoryBudget:
    return budget(facts, EngineOptions(**{"device": H100, **options}), flags)  # type: ignore[arg-type]


def items(found: MemoryBudget) -> dict[str, int]:
    return {item.item: item.bytes for item in found.items}


def test_every_judged_start_is_read() -> None:
    assert len(judged()) == 77


def test_error_of_the_pool() -> None:
    assert statistics.median(outcome.relative for outcome in judged()) <= 0.02
    large = [outcome.relative for outcome in judged() if outcome.start.kv_bytes >= 10 * GIB]
    assert statistics.mean(large) <= 0.03
    assert statistics.mean(outcome.of_requested for outcome in judged()) <= 0.02


def test_the_range_holds_the_truth_and_is_narrow() -> None:
    within = [outcome.low <= outcome.start.kv_bytes <= outcome.high for outcome in judged()]
    assert sum(within) >= 0.9 * len(within)
    assert sum(outcome.low > 1.02 * outcome.start.kv_bytes for outcome in judged()) <= 0.02 * len(judged())
    widths = [(outcome.high - outcome.low) / outcome.start.requested for outcome in judged()]
    assert statistics.median(widths) <= 0.08


def test_a_model_never_seen_is_predicted_as_well() -> None:
    starts = [start for start in read_starts(DATA) if start.kind == "nvidia" and "gemma" not in start.model]
    unseen = [start for start in read_starts(DATA) if "gemma" in start.model and start.eval]
    assert unseen
    outcomes = leave_one_model_out([*starts[:12], *unseen], fitted())
    assert max(outcome.of_requested for outcome in outcomes if outcome.start in unseen) < 0.05


def test_fitting_repairs_a_wrong_coefficient() -> None:
    starts = [start for start in read_starts(DATA) if start.kind == "nvidia" and start.eval][:40]
    wrong = replace(fitted(), sample_bytes_per_logit=30.0)

    def error(candidate: Coefficients) -> int:
        return sum(abs(reserved_bytes(start.step, candidate) - (start.reserved or 0)) for start in starts)

    assert error(fit(starts, wrong, 4)) < 0.5 * error(wrong)


def test_items_add_up_to_what_is_taken() -> None:
    found = plan()
    assert found.requested_bytes - sum(items(found).values()) == found.available_kv_bytes.mid
    assert found.available_kv_bytes.low < found.available_kv_bytes.mid < found.available_kv_bytes.high


def test_each_item_says_how_sure_it_is() -> None:
    bases = {item.item: item.basis for item in plan().items}
    assert bases == {"weights": "fitted", "activations": "fitted", "non_torch": "fitted", "cuda_graphs": "assumed"}


@pytest.mark.parametrize(("version", "share"), [("0.19.1", 0.9), ("0.20.0", 0.92), ("0.32.0", 0.92)])
def test_the_share_of_memory_is_the_releases_default(version: str, share: float) -> None:
    found = plan(version=EngineVersion.parse(version))
    assert found.requested_bytes == pytest.approx(share * found.total_bytes, abs=2)


def test_sequences_times_vocabulary_is_what_the_sampler_needs() -> None:
    few, many = (items(plan(max_num_seqs=seqs))["activations"] for seqs in (64, 1024))
    assert many - few > 960 * LLAMA.dims.vocab_size * 8


def test_sorting_samplers_need_twice_as_much() -> None:
    old, new = (
        items(plan(version=EngineVersion.parse(v), max_num_seqs=1024))["activations"] for v in ("0.18.0", "0.19.0")
    )
    assert old > 1.8 * new


def test_graphs_are_inside_the_budget_from_0_21_on_unless_eager() -> None:
    assert "cuda_graphs" not in items(plan(version=EngineVersion.parse("0.20.0")))
    assert "cuda_graphs" not in items(plan(MemoryFlags(enforce_eager=True)))
    assert items(plan(MemoryFlags(max_cudagraph_capture_size=8)))["cuda_graphs"] < items(plan())["cuda_graphs"]


def test_experts_add_a_workspace() -> None:
    found = items(plan(facts=facts_of("Qwen/Qwen3-30B-A3B")))
    assert found["moe_workspace"] == pytest.approx(8192 * 8 * 2 * 2048 * 2 * fitted().moe_workspace)


def test_known_weights_are_exact_and_shared_as_the_rules_share_them() -> None:
    entry = catalogue.find("meta-llama/Llama-3.1-8B-Instruct")
    assert entry is not None
    total = 16_060_522_496
    facts = read_model(entry.config, weights_bytes=total)
    found = plan(facts=facts)
    assert found.items[0].basis == "exact"
    assert found.weights_bytes == pytest.approx(total, rel=0.003)
    assert plan(facts=facts, tensor_parallel=2).weights_bytes == pytest.approx(total / 2, rel=0.006)


def test_a_predictor_that_is_not_used_is_not_loaded() -> None:
    facts = facts_of("deepseek-ai/DeepSeek-V3")
    without = plan(facts=facts, tensor_parallel=8).weights_bytes
    drafting = plan(facts=facts, tensor_parallel=8, speculation=Speculation("mtp", 1)).weights_bytes
    assert 1e9 < drafting - without < 3e9


def test_a_guessed_width_widens_the_range() -> None:
    entry = catalogue.find("Qwen/Qwen3-8B")
    assert entry is not None
    bare = {key: value for key, value in entry.config.items() if key != "intermediate_size"}
    found, known = plan(facts=read_model(bare)), plan(facts=read_model(entry.config))
    assert any("intermediate_size" in note for note in found.assumptions)
    assert found.items[0].basis == "assumed"
    assert found.available_kv_bytes.low < known.available_kv_bytes.low < found.available_kv_bytes.high


def test_the_pool_may_be_given() -> None:
    left = plan(MemoryFlags(kv_cache_memory_bytes=5 * GIB)).available_kv_bytes
    assert (left.low, left.mid, left.high) == (5 * GIB, 5 * GIB, 5 * GIB)


def test_a_mig_slice_has_its_share() -> None:
    found = plan(device=gpu("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"))
    assert found.total_bytes == pytest.approx(H100.torch_total_bytes / 2, rel=0.01)


def test_other_vendors_and_shared_memory_are_less_sure() -> None:
    sure = plan().available_kv_bytes
    unsure = plan(device=replace(H100, name="NVIDIA GH200")).available_kv_bytes
    assert unsure.high - unsure.low > 2 * (sure.high - sure.low)


def test_a_cpu_has_no_device_memory() -> None:
    with pytest.raises(ValueError, match="kv_cache_memory_bytes"):
        plan(device="cpu")
