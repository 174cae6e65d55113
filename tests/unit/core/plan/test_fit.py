"""What the planner turns on one shape, and what it learns of what failed: figures of the rules, one at a time."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll.core.kv import Refusal as EngineRefusal
from plimsoll.core.plan import choose, fit, nearest
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction, corrected, from_dict, to_dict
from plimsoll.core.plan.curves import FleetSize, capacity_curve, fleet_size, requests_at_once
from plimsoll.core.plan.fit import Failed, Knobs
from plimsoll.core.plan.inventory import Inventory, Stock
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Range, Rejected
from plimsoll.core.plan.search import search
from plimsoll.core.plan.shapes import Shape
from plimsoll.core.plan.wish import Wish, resolve_wish
from plimsoll.facts.gpus import GPU
from tests.unit.core.kv.recorded import GIB
from tests.unit.core.kv.test_layouts import gpu
from tests.unit.core.plan.asking import L4, L40S, load, refusal, spec_of

QWEN = "Qwen/Qwen3-8B"


def wish_of(
    context: int = 16384, inventory: Inventory | None = None, learned: Correction = NOTHING_LEARNED, **fields: Any
) -> Wish:
    spec = spec_of(fields.pop("model", QWEN), fields.pop("gpu", L40S), context, **fields)
    return resolve_wish(
        spec, fields.get("replicas", 1), bundled_config(spec.model.id), inventory or Inventory(), learned
    )


def shape_of(label: str = L40S, **sizes: int) -> Shape:
    return Shape(**{"gpu": gpu(label), "label": label, "tensor_parallel": 1, **sizes})  # type: ignore[arg-type]


KNOBS = Knobs(8192, None, 256)


@pytest.mark.parametrize(
    ("knobs", "tokens"),
    [
        pytest.param(KNOBS, [4096, 2048, 1024], id="halves down to 1,024"),
        pytest.param(replace(KNOBS, sequences=2048), [4096, 2048], id="never fewer than the sequences"),
        pytest.param(replace(KNOBS, batched_tokens=2047), [], id="half of it is too few"),
        pytest.param(replace(KNOBS, batched_tokens=2048), [1024], id="half of it is not"),
    ],
)
def test_fewer_tokens_of_a_step(knobs: Knobs, tokens: list[int]) -> None:
    found = list(fit._fewer_tokens(knobs))
    assert [each.batched_tokens for each in found] == tokens
    assert all(each.turned == 1 for each in found)


def test_fewer_sequences_are_a_further_turn() -> None:
    one, two = replace(KNOBS, sequences=300, turned=0), replace(KNOBS, sequences=32, turned=2)
    found = [(each.sequences, each.turned) for each in fit._fewer_sequences((one, two))]
    assert found == [(256, 1), (32, 1), (8, 1), (8, 3)]


@pytest.mark.parametrize(
    ("sequences", "up", "down"), [(1, 8, 1), (7, 8, 7), (8, 8, 8), (9, 16, 8), (16, 16, 16), (0, 0, 1)]
)
def test_sequences_come_in_eights(sequences: int, up: int, down: int) -> None:
    assert (fit.rounded_up(sequences), fit.rounded_down(sequences)) == (up, down)


@pytest.mark.parametrize(
    ("asked", "sequences"),
    [
        pytest.param({"load": load(concurrency=50)}, 56, id="the load, in whole steps"),
        pytest.param({"load": load(concurrency=3)}, 32, id="32 at least"),
        pytest.param({"load": load(concurrency=5000)}, 1024, id="1,024 at most"),
        pytest.param({"load": load(rate=2.0)}, 256, id="a rate: many"),
        pytest.param({"load": load(concurrency=400, rate=2.0)}, 400, id="a rate and more at once"),
    ],
)
def test_sequences_that_are_allowed(asked: dict[str, Any], sequences: int) -> None:
    assert fit.sequences_for(wish_of(**asked)) == sequences


def test_what_an_engine_taught_bounds_the_defaults() -> None:
    learned = Correction("it said so", most_sequences=24, most_step_tokens=1500)
    knobs = fit.default_knobs(wish_of(load=load(concurrency=50), learned=learned), shape_of())
    assert (knobs.sequences, knobs.batched_tokens) == (24, 1500)
    few = fit.default_knobs(
        wish_of(load=load(concurrency=50), learned=replace(learned, most_step_tokens=8)), shape_of()
    )
    assert few.batched_tokens == 24, "a step has room for every sequence"


def test_of_a_shared_gpu_the_same_share_of_what_is_left() -> None:
    """A tenth is held by others: 0.92 of nine tenths, cut to a thousandth; its most usable is 0.95 of them."""
    device = gpu(L40S)
    held = Inventory({L40S: Stock(reserve_bytes=device.torch_total_bytes // 10)})
    wish = wish_of(inventory=held)
    assert fit.default_knobs(wish, shape_of()).utilisation == 0.828
    assert fit._share_of(wish, shape_of(), 0.8) == 0.72
    assert fit._share_of(wish, shape_of(), 0.87) == 0.783
    assert fit._most_usable_bytes(wish, shape_of()) == pytest.approx(device.torch_total_bytes * 0.9 * 0.95)
    assert fit.default_knobs(wish_of(), shape_of()).utilisation is None, "nobody else: the engine's own default"


def _freed(wish: Wish) -> float:
    """All knobs together: 0.03 of the device, tensors of a step of 8,192 tokens, logits of 256 sequences, a GiB."""
    dims = wish.facts.dims
    step = 8192 * 2 * (8 * dims.hidden_size + 4 * dims.intermediate_size)
    return gpu(L40S).torch_total_bytes * (0.95 - 0.92) + step + 256 * dims.vocab_size * 16 + GIB


@pytest.mark.parametrize(
    ("beyond", "far"),
    [pytest.param(-(1 << 20), False, id="just as much"), pytest.param(1 << 20, True, id="a mebibyte more")],
)
def test_what_no_knob_could_free_is_far_off(beyond: int, far: bool) -> None:
    wish = wish_of()
    refusal_ = EngineRefusal(
        "kv_cache_too_small", "", needed_bytes=int(3 * GIB + _freed(wish)) + beyond, available_bytes=3 * GIB
    )
    assert fit._far_off(wish, shape_of(), KNOBS, refusal_) is far
    assert not fit._far_off(wish, shape_of(), KNOBS, EngineRefusal("oom_risk", "")), "nothing is said"


def test_names_of_shapes() -> None:
    assert fit._sizes(shape_of(tensor_parallel=2)) == "TP 2"
    assert fit._sizes(shape_of(tensor_parallel=2, pipeline_parallel=3)) == "TP 2 PP 3"
    assert fit.named(shape_of(), "auto") == str(shape_of())
    assert fit.named(shape_of(), "fp8") == f"{shape_of()}, fp8 KV"


def _failed(reason: str, fits: int = 0, gpus_needed: int = 0) -> Failed:
    return Failed(shape_of(), Rejected(reason, reason, ""), fits, gpus_needed)


@pytest.mark.parametrize(
    ("failed", "closest"),
    [
        pytest.param([_failed("KVCacheTooSmall", 100), _failed("NoMemoryForKV", 300), _failed("OOMRisk")], 1,
                     id="the longest context"),
        pytest.param([_failed("KVCacheTooSmall"), _failed("NoMemoryForKV")], 1, id="the last of equals"),
        pytest.param([_failed("HeadsNotDivisible"), _failed("KVCacheTooSmall"), _failed("HeadsNotDivisible")], 1,
                     id="memory before divisors"),
        pytest.param([_failed("MaxGPUsExceeded", 0, 8), _failed("HeadsNotDivisible")], 1, id="a divisor first"),
        pytest.param([_failed("MaxGPUsExceeded", 900, 8), _failed("KVCacheTooSmall")], 1, id="within the limit"),
        pytest.param([_failed("MaxGPUsExceeded", 0, 8), _failed("MaxGPUsExceeded", 0, 4)], 1, id="the fewest GPUs"),
    ],
)  # fmt: skip
def test_the_refusal_is_of_what_came_closest(failed: list[Failed], closest: int) -> None:
    assert choose._closest(failed) is failed[closest]


def test_a_long_message_is_cut() -> None:
    given = refusal("nobody/knows-it", L4, 4096)
    assert choose._cut(replace(given, message="x" * 2000)).message == "x" * 2000
    assert choose._cut(replace(given, message="x" * 2001)).message == "x" * 2000 + "…"


@pytest.mark.parametrize(("asked", "judged"), [(1, 1), (3, 3), (4, 3)])
def test_somebody_elses_replicas_cost_what_they_cost(asked: int, judged: int) -> None:
    """Three GPUs are the most: of four replicas three are judged and paid."""
    wish = wish_of(8192, scaling={"mode": "Fixed"}, max_gpus=3)
    best = search(wish).candidates[0]
    as_asked = choose._as_asked(replace(wish, spec=wish.spec.model_copy(update={"replicas": asked})), best)
    assert as_asked.serving.replicas == judged
    assert as_asked.cost == pytest.approx(judged * best.engine.shape.gpus * wish.unit_price(best.engine.shape))


@pytest.mark.parametrize(
    ("asked", "tokens", "fits"),
    [
        pytest.param({}, 0, False, id="not even a token"),
        pytest.param({}, 1, True, id="a token"),
        pytest.param({}, 16383, True, id="a token less than asked"),
        pytest.param({}, 16384, False, id="no less than asked"),
        pytest.param({"load": load(1, prompt=2000, output=400)}, 2399, False, id="a typical request does not fit"),
        pytest.param({"load": load(1, prompt=2000, output=400)}, 2400, True, id="it just does"),
        pytest.param({"args": ["--max-model-len=16384"]}, 8192, False, id="the user's own flag"),
    ],
)
def test_a_shorter_context_is_offered_where_a_request_still_fits(
    asked: dict[str, Any], tokens: int, fits: bool
) -> None:
    found = nearest._with_context(wish_of(**asked), tokens)
    assert (found is not None) is fits
    if found is not None:
        assert found.text == f"contextTokens: 16384 -> {tokens}"
        assert found.wish.context_tokens == tokens


def test_the_longest_context_that_anything_holds_is_offered() -> None:
    (found,) = nearest._shorter(wish_of(), [_failed("KVCacheTooSmall", 4000), _failed("KVCacheTooSmall", 9000)])
    assert found.text == "contextTokens: 16384 -> 9000"
    assert not list(nearest._shorter(wish_of(), []))
    assert not list(nearest._shorter(wish_of(), [_failed("KVCacheTooSmall", 0)]))


@pytest.mark.parametrize(
    ("model", "text_only", "offered"),
    [("Qwen/Qwen3-VL-8B-Instruct", False, 1), ("Qwen/Qwen3-VL-8B-Instruct", True, 0), (QWEN, False, 0)],
)
def test_towers_may_be_left_out_where_there_are_any(model: str, text_only: bool, offered: int) -> None:
    assert len(list(nearest._without_towers(wish_of(model=model, textOnly=text_only)))) == offered


def test_weights_that_just_fill_a_gpu_are_too_heavy() -> None:
    wish = wish_of()
    assert fit._too_heavy(wish, shape_of()) is None
    room = fit._most_usable_bytes(wish, shape_of())
    wish.__dict__["least_weights_bytes"] = room
    assert fit._too_heavy(wish, shape_of()) is not None
    wish.__dict__["least_weights_bytes"] = 1.99 * room
    assert fit._too_heavy(wish, shape_of(tensor_parallel=2)) is None


def test_knobs_turned_one_after_the_other_then_together() -> None:
    """Three smaller steps; more memory with each and without; then fewer sequences."""
    wish = wish_of()
    too_small = EngineRefusal("kv_cache_too_small", "", needed_bytes=2 * GIB, available_bytes=GIB)
    found = list(fit._variants(wish, shape_of(), KNOBS, too_small))
    assert [(v.batched_tokens, v.utilisation, v.turned) for v in found[:7]] == [
        (4096, None, 1), (2048, None, 1), (1024, None, 1),
        (8192, 0.95, 1), (4096, 0.95, 2), (2048, 0.95, 2), (1024, 0.95, 2),
    ]  # fmt: skip
    assert [(v.batched_tokens, v.utilisation, v.sequences, v.turned) for v in found[7:]] == [
        (1024, None, 32, 2), (1024, 0.95, 32, 3), (1024, None, 8, 2), (1024, 0.95, 8, 3),
    ]  # fmt: skip
    less = list(fit._variants(wish, shape_of(), KNOBS, EngineRefusal("oom_risk", "")))
    assert [(v.utilisation, v.turned) for v in less] == [(0.9, 1), (0.87, 1), (0.84, 1), (0.8, 1)]
    fixed = wish_of(args=["--gpu-memory-utilization=0.9", "--max-num-batched-tokens=8192", "--max-num-seqs=256"])
    assert list(fit._variants(fixed, shape_of(), KNOBS, too_small)) == [KNOBS]
    assert not list(fit._variants(fixed, shape_of(), KNOBS, EngineRefusal("oom_risk", "")))


def test_an_inventory_that_says_how_much_memory_there_is() -> None:
    assert not Stock().says_memory
    assert Stock(memory_bytes=1).says_memory
    assert Stock(reserve_bytes=1).says_memory


def test_larger_products_are_offered_smallest_first() -> None:
    found = nearest._next_gpus(wish_of(gpu=[L4, L40S]))
    texts = [each.text for each in found]
    assert len(texts) == 6
    assert all(text.startswith(f"hardware.gpu: {L4} or {L40S} -> ") for text in texts)
    offered = [each.wish.products[0][0].torch_total_bytes for each in found]
    assert offered == sorted(offered)
    assert offered[0] > 1.05 * gpu(L40S).torch_total_bytes, "48 GB are no way out of 48 GB"
    three = nearest._next_gpus(wish_of(gpu=[L4, "NVIDIA-A10G", "NVIDIA-A10", L40S]))[0].text
    assert three.partition(" -> ")[0].count(" or ") == 2, "three are named"


def test_a_mixed_product_is_not_offered() -> None:
    first: GPU = nearest._next_gpus(wish_of())[0].wish.products[0][0]
    without = nearest._next_gpus(wish_of(inventory=Inventory({first.label: Stock(mixed=True)})))
    assert first.label not in {each.wish.products[0][1] for each in without}


def test_a_lower_floor_is_offered_where_only_the_number_is_too_high() -> None:
    found = refusal("Qwen/Qwen3-32B", L40S, 8192, 6, scaling={"minReplicas": 4, "maxReplicas": 6})
    assert [each.change for each in found.nearest if "minReplicas" in each.change] == ["scaling.minReplicas: 4 -> 3"]
    for failed in ([_failed("KVCacheTooSmall")], [_failed("MaxGPUsExceeded", gpus_needed=1)]):
        assert not list(nearest._fewer_replicas(wish_of(8192), failed)), "one replica is none too many"


def test_a_limit_is_raised_to_the_smallest_that_helps() -> None:
    failed = [_failed("MaxGPUsExceeded", gpus_needed=n) for n in (8, 2, 2, 0, 1, 1024, 1025)]
    assert nearest._needed(failed) == [1, 2, 8, 1024]


def test_a_quantised_checkpoint_of_the_same_name_is_offered() -> None:
    model = "Qwen/Qwen3-30B-A3B"
    (found,) = nearest._quantised(wish_of(8192, model=model, max_gpus=1))
    assert found.text == f"model.id: {model} -> {model}-FP8"
    assert not list(nearest._quantised(wish_of(8192, model=model, gpu=L4, max_gpus=1))), (
        "eight bits are too many as well"
    )
    assert not list(nearest._quantised(wish_of(8192, model=f"{model}-FP8", max_gpus=1))), "it is one already"
    assert nearest._relatives("Qwen/Qwen3-32B") == ["Qwen/Qwen3-32B-FP8-Static-PerTensor"]


@pytest.mark.parametrize(
    ("correction", "told"),
    [
        (NOTHING_LEARNED, {}),
        (Correction("so"), {"because": "so"}),
        (
            Correction("so", missing_bytes=5, most_sequences=8),
            {"because": "so", "missing_bytes": 5, "most_sequences": 8},
        ),
    ],
)
def test_a_correction_is_kept_without_what_it_does_not_say(correction: Correction, told: dict[str, Any]) -> None:
    assert to_dict(correction) == told
    assert from_dict({**told, "ofANewerRelease": 1}) == correction
    assert correction.empty is (not set(told) - {"because"})


def test_corrections_add_up_and_bounds_do_not() -> None:
    one = Correction("a", missing_bytes=5, outside_bytes=7, most_sequences=8, kv_cache_dtype=None)
    two = Correction(
        "b", missing_bytes=11, outside_bytes=13, most_sequences=16, most_step_tokens=99, kv_cache_dtype="auto"
    )
    expect = Correction("a", 16, 20, 8, 99, "auto")
    assert one.added_to(two) == expect
    assert two.added_to(one) == replace(expect, because="b")


def test_what_was_missing_is_taken_off_every_bound() -> None:
    wish = wish_of()
    engine = fit.fit(wish, shape_of())
    assert isinstance(engine, fit.Engine)
    estimate = replace(engine.memory, available_kv_bytes=Range(100, 200, 300), items=())
    memory = corrected(estimate, Correction("so", missing_bytes=40))
    assert memory.available_kv_bytes == Range(60, 160, 260)
    assert [(item.item, item.bytes) for item in memory.items] == [("found at start", 40)]


def test_requests_at_once_leave_the_null_block_out() -> None:
    layout: Any = SimpleNamespace(blocks_for_request=lambda tokens: -(-tokens // 16))
    assert requests_at_once(layout, 101, 160) == 10
    assert requests_at_once(SimpleNamespace(blocks_for_request=lambda _: 0), 101, 160) == 0  # type: ignore[arg-type]


def test_a_curve_has_two_points_a_doubling_down_to_256_tokens() -> None:
    layout: Any = SimpleNamespace(blocks_for_request=lambda tokens: tokens)
    curve = capacity_curve(layout, 1025, 2048)
    assert [tokens for tokens, _ in curve] == [361, 511, 723, 1023, 1448, 2048]
    assert curve[-1][1] == 0.5
    assert [tokens for tokens, _ in capacity_curve(layout, 10, 256)] == [256]


@pytest.mark.parametrize(("cap", "engines", "each"), [(0, 1, 10.0), (4, 1, 4), (4, 2, 8), (64, 2, 20.0)])
def test_a_replica_carries_what_blocks_and_cap_allow(cap: int, engines: int, each: float) -> None:
    layout: Any = SimpleNamespace(blocks_for_request=lambda _: 10, resolved=SimpleNamespace(max_num_seqs=cap))
    choice = SimpleNamespace(engines_per_replica=engines, gpus_per_replica=3)
    found = fleet_size(SimpleNamespace(kv=SimpleNamespace(num_blocks=101), choice=choice), layout, 160)  # type: ignore[arg-type]
    assert found == FleetSize(160, each, 3)


@pytest.mark.parametrize(("requests", "replicas"), [(0, 1), (10, 1), (10.5, 2), (20, 2), (21, 3)])
def test_replicas_that_hold_so_many(requests: float, replicas: int) -> None:
    assert FleetSize(160, 10.0, 3).replicas_for(requests) == replicas
