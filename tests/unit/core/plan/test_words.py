"""Releases that nobody recorded, JSON of a plan, why a candidate was not chosen, what stands just at a bound."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.kv import Refusal, plan_layout
from plimsoll.core.plan import explain, refuse
from plimsoll.core.plan.claims import _most_replicas
from plimsoll.core.plan.extra_args import BadFlagError, _check_context, _check_shutdown
from plimsoll.core.plan.fit import Engine, fit
from plimsoll.core.plan.pods import _slow
from plimsoll.core.plan.release import release_of, rules_of, unrecorded
from plimsoll.core.plan.result import MemoryItem, Range, Rejected, to_json
from plimsoll.core.plan.search import Candidate, search, why_not
from plimsoll.core.plan.serving import Serving
from plimsoll.core.plan.shapes import Shape
from plimsoll.facts import engines
from tests.unit.core.kv.test_layouts import gpu
from tests.unit.core.plan.asking import L40S, load, plan, spec_of
from tests.unit.core.plan.test_fit import wish_of

QWEN = "Qwen/Qwen3-8B"
NEWEST = engines.EngineVersion.parse(engines.NEWEST)


@pytest.mark.parametrize(
    ("written", "known"),
    [
        (engines.NEWEST, True),
        (f"{NEWEST.major}.{NEWEST.minor}.9", True),
        (f"{NEWEST.major}.{NEWEST.minor + 1}.0", False),
        (".".join(map(str, engines.OLDEST_RELEASE)), True),
        (f"{engines.OLDEST_RELEASE[0]}.{engines.OLDEST_RELEASE[1] - 1}", False),
        ("1", False),
        ("nightly", False),
    ],
)
def test_a_release_that_nobody_recorded_is_said_to_be(written: str, known: bool) -> None:
    assert (unrecorded(written) == "") is known


@pytest.mark.parametrize(
    ("written", "planned"),
    [("0.9.2", "0.10"), ("0.1", "0.10"), ("nightly", engines.NEWEST), ("9", engines.NEWEST), ("99.1", engines.NEWEST)],
)
def test_it_is_planned_as_the_nearest(written: str, planned: str) -> None:
    assert f"planned as {planned}," in unrecorded(written)


def test_rules_of_what_is_no_release() -> None:
    """What names no two numbers is as likely the newest as a message says, and not the oldest."""
    assert rules_of("nightly") == rules_of("0-dev") == NEWEST
    assert rules_of("0.9.x") == engines.EngineVersion(*engines.OLDEST_RELEASE)
    assert rules_of("0.10.2") == engines.EngineVersion.parse("0.10.2")


@pytest.mark.parametrize(
    ("engine", "text", "notes"),
    [
        pytest.param({}, engines.NEWEST, ["the newest vLLM with a table"], id="nothing is said"),
        pytest.param({"image": "registry.example/vllm:v0.31.0"}, "0.31.0", [], id="the image's tag"),
        pytest.param(
            {"image": "registry.example/vllm:mine"}, engines.NEWEST, ["names no version"], id="a tag of one's own"
        ),
        pytest.param({"image": "a/b:v0.31", "version": "0.31.2"}, "0.31.2", [], id="both say the same"),
        pytest.param({"image": "a/b:v0.30.0", "version": "0.31.2"}, "0.31.2", ["although the tag"], id="they differ"),
        pytest.param(
            {"version": "0.77.0"}, "0.77.0", [f"the rules of {engines.NEWEST} are taken"], id="newer than known"
        ),
    ],
)
def test_which_release_is_planned_with(engine: dict[str, Any], text: str, notes: list[str]) -> None:
    _, written, said = release_of(spec_of(QWEN, L40S, 4096, engine=engine))
    assert written == text
    assert len(said) == len(notes)
    assert all(note in each for note, each in zip(notes, said, strict=True))


def test_json_of_a_plan_leaves_out_what_is_none_and_what_is_the_owners() -> None:
    assert to_json(MemoryItem("weights", 5, "exact", "the file")) == {
        "item": "weights", "bytes": 5, "basis": "exact", "from": "the file",
    }  # fmt: skip
    found = plan(QWEN, L40S, 4096)
    told = to_json(replace(found, typical=None))
    assert "typical" not in told
    assert "policy" not in told
    assert "availableKVBytes" in to_json(found)
    assert to_json({"a": [Range(1, 2, 3)]}) == {"a": [{"low": 1, "mid": 2, "high": 3}]}


def test_a_plan_that_is_too_long_loses_rejections_first() -> None:
    found = plan(QWEN, L40S, 4096)
    assert explain.bounded(found) is found
    long = Rejected("x" * 2000, "Costlier", "y" * 2000)
    most = replace(found, rejected=(long,) * 5, assumptions=("z" * 500,) * 3)
    cut = explain.bounded(most)
    assert 0 < len(cut.rejected) < 5
    assert cut.assumptions == most.assumptions
    words = explain.bounded(replace(found, rejected=(long,), assumptions=("z" * 5000,) * 4))
    assert (words.rejected, 0 < len(words.assumptions) < 4) == ((), True)


def _candidates() -> tuple[Candidate, Candidate]:
    found = search(wish_of(8192, load=load(concurrency=2), objective="Latency")).candidates
    return found[0], found[1]


def _serving(**changes: Any) -> Serving:
    return replace(Serving(1, 1.0, 0.5, 0.5, Range(1, 2, 3000), Range(1, 2, 40)), **changes)


@pytest.mark.parametrize(
    ("best", "other", "objective", "word"),
    [
        pytest.param({}, {"load_excess": 1.2, "excess": 1.2}, "Balanced", "LoadNotHeld", id="too much load"),
        pytest.param({"load_excess": 1.3}, {"load_excess": 1.2, "excess": 1.2}, "Balanced", "SLOMissed", id="for both"),
        pytest.param({}, {"load_excess": 1.0, "excess": 1.2}, "Balanced", "SLOMissed", id="just the load it bears"),
        pytest.param(
            {"load_excess": 1.0}, {"load_excess": 1.2, "excess": 1.2}, "Balanced", "LoadNotHeld", id="not of both"
        ),
        pytest.param({}, {"excess": 1.0}, "Balanced", "Costlier", id="just within its targets"),
        pytest.param({}, {}, "Latency", "Slower", id="slower"),
        pytest.param({}, {}, "Throughput", "LessThroughput", id="fewer tokens"),
    ],
)
def test_why_a_candidate_was_not_chosen(best: dict[str, Any], other: dict[str, Any], objective: str, word: str) -> None:
    first, second = _candidates()
    wish = wish_of(8192, load=load(concurrency=2), objective=objective)
    one = replace(first, serving=_serving(**best), cost=10.0)
    two = replace(second, serving=_serving(**other), cost=12.0)
    reason, message = why_not(wish, one, two)
    assert reason == word
    assert word != "Costlier" or message.endswith("cost 12 against 10")
    assert why_not(wish, one, replace(two, serving=_serving(), cost=10.0))[0] == {"Balanced": "NotSimplest"}.get(
        objective, word
    )


def test_latency_is_told_or_said_to_be_unknown() -> None:
    first, second = _candidates()
    wish = wish_of(8192, load=load(concurrency=2), objective="Latency")
    told = why_not(wish, replace(first, serving=_serving()), replace(second, serving=_serving()))[1]
    assert told == "TTFT up to 3.00 s, ITL up to 40.0 ms"
    for missing in ("ttft_ms", "itl_ms"):
        unknown = replace(second, serving=_serving(**{missing: None}))
        assert why_not(wish, replace(first, serving=_serving()), unknown)[1] == "latency unknown"


def test_seconds_of_a_span_are_its_slow_end() -> None:
    assert (_slow(None), _slow(Range(1, 2, 2500))) == (None, 2.5)


def _engine() -> Engine:
    engine = fit(wish_of(8192), Shape(gpu=gpu(L40S), label=L40S, tensor_parallel=1))
    assert isinstance(engine, Engine)
    return engine


@pytest.mark.parametrize(("tokens", "sequences", "refused"), [(256, 256, False), (255, 256, True)])
def test_a_step_has_a_token_for_each_sequence(tokens: int, sequences: int, refused: bool) -> None:
    engine = _engine()
    resolved = replace(engine.layout.resolved, max_num_batched_tokens=tokens, max_num_seqs=sequences)
    assert (refuse.fewer_tokens_than_sequences(engine.start, resolved) is not None) is refused


@pytest.mark.parametrize(
    ("field", "beyond", "reason"),
    [
        ("weights_bytes", 0, None),
        ("weights_bytes", 1, "weights_do_not_fit"),
        ("requested_bytes", 0, None),
        ("requested_bytes", 1, "not_enough_free_memory"),
    ],
)
def test_what_is_free_is_enough_or_a_byte_too_little(field: str, beyond: int, reason: str | None) -> None:
    """Of the device a context's half GiB is gone, and what other engines hold."""
    engine = _engine()
    others = 3 << 30
    start = replace(engine.start, flags=replace(engine.start.flags, other_engines_bytes=others))
    free = engine.memory.total_bytes - (1 << 29) - others
    memory = replace(engine.memory, **{"weights_bytes": 0, "requested_bytes": 0, field: free + beyond})  # type: ignore[arg-type]
    if reason is None:
        refuse.check_device(start, memory.step, memory)
        return
    with pytest.raises(Refusal) as caught:
        refuse.check_device(start, memory.step, memory)
    assert (caught.value.reason, caught.value.available_bytes) == (reason, free)


@pytest.mark.parametrize(("length", "fine"), [(None, True), (16384, True), (16383, False), (-1, False), (20000, True)])
def test_a_flag_may_ask_for_no_shorter_context(length: int | None, fine: bool) -> None:
    if fine:
        _check_context(length, 16384)
        return
    with pytest.raises(BadFlagError, match=r"contradicts spec\.contextTokens 16384"):
        _check_context(length, 16384)


@pytest.mark.parametrize(
    ("seconds", "fine"), [("0", True), ("1000000", True), ("1000001", False), ("-1", False), ("²", False)]
)
def test_a_grace_is_a_number_of_seconds(seconds: str, fine: bool) -> None:
    given: Any = {"shutdown_timeout": _Given(seconds)}
    if fine:
        _check_shutdown(given)
        return
    with pytest.raises(BadFlagError, match="shutdown-timeout"):
        _check_shutdown(given)


class _Given:
    def __init__(self, value: str) -> None:
        self.value = value


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        pytest.param({}, 4, id="as many as GPUs allow"),
        pytest.param({"replicas": 3, "scaling": {"mode": "Fixed"}}, 3, id="as fixed"),
        pytest.param({"replicas": 7, "scaling": {"mode": "Fixed"}}, 4, id="fixed above what GPUs allow"),
        pytest.param({"scaling": {"maxReplicas": 2}}, 2, id="a ceiling"),
    ],
)
def test_replicas_that_a_volume_may_be_asked_for_by(fields: dict[str, Any], most: int) -> None:
    assert _most_replicas(spec_of(QWEN, L40S, 4096, 8, **fields), 2) == most


def test_layouts_of_a_plan_are_those_of_its_start() -> None:
    engine = _engine()
    assert plan_layout(engine.start.facts, engine.start.options).bytes_per_block == engine.layout.bytes_per_block


@pytest.mark.parametrize(
    ("experts", "raw", "refused"),
    [(0, {}, True), (1, {}, True), (2, {}, False), (0, {"ffn_config": {}}, False)],
)
def test_expert_parallelism_needs_experts(experts: int, raw: dict[str, Any], refused: bool) -> None:
    engine = _engine()
    facts = replace(engine.start.facts, dims=replace(engine.start.facts.dims, experts=experts), raw=raw)
    for asked in (True, False):
        start = replace(engine.start, facts=facts, flags=replace(engine.start.flags, expert_parallel=asked))
        found = refuse.experts_of_a_dense_model(start, engine.layout.resolved)
        assert (found is not None) is (refused and asked)


@pytest.mark.parametrize(
    ("label", "dtype", "refused"),
    [
        ("Tesla-T4", "bfloat16", True),
        ("Tesla-T4", "auto", False),
        ("NVIDIA-A100-SXM4-80GB", "bfloat16", False),
        ("AMD_Instinct_MI300X_OAM", "bfloat16", False),
    ],
)
def test_bfloat16_needs_ampere(label: str, dtype: str, refused: bool) -> None:
    engine = _engine()
    start = replace(engine.start, options=replace(engine.start.options, device=gpu(label), dtype=dtype))
    assert (refuse.bfloat16_of_gpu(start, engine.layout.resolved) is not None) is refused


@pytest.mark.parametrize(
    ("label", "method", "refused"),
    [
        ("NVIDIA-A100-SXM4-80GB", "fp8", False),
        ("Tesla-V100-SXM2-32GB", "fp8", True),
        ("AMD_Instinct_MI300X_OAM", "fp8", False),
        ("Tesla-V100-SXM2-32GB", None, False),
    ],
)
def test_a_method_needs_a_gpu_that_is_new_enough(label: str, method: str | None, refused: bool) -> None:
    engine = _engine()
    flags = replace(engine.start.flags, quantization=method)
    start = replace(engine.start, flags=flags, options=replace(engine.start.options, device=gpu(label)))
    assert (refuse.quantisation_of_gpu(start, engine.layout.resolved) is not None) is refused


def test_gpus_of_a_candidate_are_those_of_all_its_replicas() -> None:
    first, _ = _candidates()
    assert replace(first, serving=_serving(replicas=3)).gpus == 3 * first.engine.shape.gpus
