"""The one flag that an experienced operator would turn next, for what limits a service. Pure.

The order within a finding is that of least risk; a change counts only if planning with it gives a start that holds on
the same GPUs. What the user wrote in ``engine.extraArgs`` is never turned. Source of the order: vLLM's optimisation
guide and ``docs/tuning.md``.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.api import findings
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.demand import FILLED
from plimsoll.core.plan.extra_args import BadFlagError, read_argv
from plimsoll.core.plan.release import rules_of
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.core.tuned import OFF, ON, argument
from plimsoll.facts import gpus

MOST_UTILISATION: Final = 0.95
"""Above it the first allocation beside the pool ends the engine."""
UTILISATION_STEP: Final = 0.03
USUAL_UTILISATION: Final = 0.9
"""vLLM's own default for years: up to it nobody goes in small steps."""
MOST_SEQUENCES: Final = 1024
SEQUENCE_STEP: Final = 8
LEAST_STEP_TOKENS: Final = 1024
MOST_STEP_TOKENS: Final = 32768
WORTH_A_REPLICA: Final = 1.5
"""A pool so much larger carries the tokens of a fleet of three in two replicas."""
WORTH: Final = 0.02
"""A pool that grows by less is not worth a restart."""
UNSHARED_PERCENT: Final = 2
"""With fewer tokens of prompts found in the prefix cache, it is of no use."""
NOTHING_KEPT: Final[Mapping[str, str]] = {}
_CANARY: Final = "a canary beside a control of the same age (docs/tuning.md), or you"
JUDGED_BY: Final[Mapping[str, str]] = {
    "MaxNumSeqs": f"{_CANARY}: time to first token, time per token",
    "MaxNumBatchedTokens": f"{_CANARY}: time to first token, time per token",
    "GPUMemoryUtilization": f"{_CANARY}: time to first token, preemptions, restarts",
    "PrefixCaching": f"{_CANARY}: time to first token, preemptions",
    "KVCacheMemoryBytes": f"{_CANARY}: time to first token, preemptions, restarts",
    "KVCacheDtype": (
        "the quality gate that spec.tuning.qualityGate names, and only then a canary (docs/tuning.md); without one "
        "you: compare answers on your own prompts"
    ),
}
FIXED: Final = ("gpu", "gpusPerReplica", "nodesPerReplica", "tensorParallel", "pipelineParallel", "dataParallel")

Flags = Mapping[str, Any]
Planning = Callable[[VLLMServiceSpec], Plan | Refusal]


@dataclass(frozen=True)
class Seen:
    """What running pods have shown; None: it is not known."""

    pool_blocks: int | None = None
    """KV blocks of one engine of the plan that runs, which all its engines report."""
    hit_percent: int | None = None
    """Of prompts' tokens, what prefix caches had on the best of the last days."""


NOTHING_SEEN: Final = Seen()


@dataclass(frozen=True)
class Change:
    """One flag with another value; ``setting`` is the word of ``spec.tuning.allow``."""

    setting: str
    flag: str
    after: str
    risk: str

    @property
    def dest(self) -> str:
        """The flag's name as the parser has it."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def written(self) -> str:
        """The flag as it stands in an argv, without its value."""
        return argument(self.flag, self.after).partition("=")[0]


@dataclass(frozen=True)
class Recommendation:
    """A change with its grounds, as ``status.recommendation`` tells it."""

    change: Change
    before: str
    why: str
    expected: str
    patch: str
    """A JSON merge patch of the VLLMService."""

    def status(self) -> dict[str, str]:
        """Without the time."""
        change = self.change
        return {
            "setting": change.setting,
            "flag": change.flag,
            "from": self.before,
            "to": change.after,
            "why": self.why,
            "expected": self.expected,
            "risk": change.risk,
            "judgedBy": JUDGED_BY[change.setting],
            "undo": f"take {change.written} out of spec.engine.extraArgs again; the pods roll back one by one",
            "patch": self.patch,
        }


def recommend(
    finding: str,
    why: str,
    plan: Mapping[str, Any],
    spec: VLLMServiceSpec,
    planning: Planning,
    kept: Mapping[str, str] = NOTHING_KEPT,
    failed: Collection[tuple[str, str]] = (),
    *,
    first: Collection[str] = (),
    seen: Seen = NOTHING_SEEN,
) -> Recommendation | None:
    """The first change that helps against a finding and holds; None where no flag would, or all are the user's.

    ``plan`` is the kept plan that runs, ``planning`` makes one of a ``spec`` as the user wrote it. ``kept``: flags that
    experiments have found since, ``failed``: flags and values that were tried in vain. ``first``: settings that come
    before all others, since they may be tried by themselves: what waits for a person must not stand in their way.
    ``seen``: what running pods have shown.
    """
    if finding not in RULES:
        return None
    plan = _with_pool(plan, seen)
    try:
        flags, own = _flags(plan, plan["choice"]["args"]), _flags(plan, spec.engine.extra_args)
    except BadFlagError:
        return None
    tried = (
        _tried(change, flags, why, plan, spec, planning, kept)
        for change in sorted(_changes(finding, flags, plan, seen), key=lambda change: change.setting not in first)
        if change.dest not in own and (change.flag, change.after) not in failed
    )
    return next((found for found in tried if found is not None), None)


def _flags(plan: Mapping[str, Any], args: Sequence[str]) -> dict[str, Any]:
    """An argv by the names that the parser of the plan's release gives."""
    version = rules_of(plan["choice"]["engineVersion"])
    found = list(read_argv(args, version))
    off = {each.flag.dest for each in found if each.flag.switch and each.written.startswith("--no-")}
    return {each.flag.dest: each.value for each in found} | dict.fromkeys(off, False)


def _with_pool(plan: Mapping[str, Any], seen: Seen) -> Mapping[str, Any]:
    """The plan with the pool that its engines really have: what a change gives is told against that."""
    kv = plan["kv"]
    if not seen.pool_blocks or seen.pool_blocks == kv["numBlocks"]:
        return plan
    tokens = kv["tokens"] * seen.pool_blocks // kv["numBlocks"]
    return {**plan, "kv": {**kv, "numBlocks": seen.pool_blocks, "tokens": tokens}}


def _tried(
    change: Change,
    flags: Flags,
    why: str,
    plan: Mapping[str, Any],
    spec: VLLMServiceSpec,
    planning: Planning,
    kept: Mapping[str, str],
) -> Recommendation | None:
    others = (argument(flag, value) for flag, value in sorted(kept.items()) if flag != change.flag)
    args = [*spec.engine.extra_args, *others, argument(change.flag, change.after)]
    engine = spec.engine.model_copy(update={"extra_args": tuple(args)})
    found = planning(spec.model_copy(update={"engine": engine}))
    if isinstance(found, Refusal):
        return None
    after = to_json(found)
    same = all(after["choice"].get(key) == plan["choice"].get(key) for key in FIXED)
    expected = list(_expected(plan, after))
    if not same or not expected or _late(after, spec):
        return None
    patch = json.dumps({"spec": {"engine": {"extraArgs": args}}})
    return Recommendation(change, _word(flags.get(change.dest, "unset")), why, "; ".join(expected), patch)


def _expected(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What the arithmetic says would change; nothing: not worth a restart."""
    old, new = before["kv"]["tokens"], after["kv"]["tokens"]
    if abs(new - old) >= WORTH * old:
        yield f"KV cache of an engine {old:,} -> {new:,} tokens ({new / old - 1:+.0%})"
        yield from _fewer_replicas(before, after)
    flags = [_flags(before, each["choice"]["args"]) for each in (before, after)]
    for name, words in (("max_num_seqs", "requests at once, at most"), ("max_num_batched_tokens", "tokens a step")):
        was, now = (each.get(name) for each in flags)
        if was != now:
            yield f"{words}: {was} -> {now}"
    held, holds = ((each.get("typical") or {}).get("blocks") for each in (before, after))
    if held and holds and abs(holds - held) >= WORTH * held:
        yield f"KV blocks of a typical request: {held} -> {holds}"
    for key, words in (("ttft", "time to first token"), ("itl", "between two tokens")):
        was_ms, now_ms = (((each.get("latency") or {}).get(f"{key}Ms") or {}).get("mid") for each in (before, after))
        if was_ms and now_ms and abs(now_ms - was_ms) >= WORTH * was_ms:
            yield f"{words}, expected: {was_ms:.3g} -> {now_ms:.3g} ms"


def _word(value: object) -> str:
    return (ON if value else OFF) if isinstance(value, bool) else str(value)


def _fewer_replicas(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What another pool means to a fleet."""
    was, now = before.get("plannedReplicas"), after["choice"].get("replicas")
    times = after["kv"]["tokens"] / before["kv"]["tokens"]
    if was and now and was != now:
        yield f"replicas for the load of the spec: {was} -> {now}"
    elif times >= WORTH_A_REPLICA:
        yield f"{math.floor(10 * times) / 10:g} replicas' KV cache in one: as many tokens with fewer of them"


def _late(plan: Mapping[str, Any], spec: VLLMServiceSpec) -> bool:
    """Whether the plan itself expects to break the targets that it was asked to meet."""
    return bool(spec.slo) and plan.get("sloMet") == "no"


def _changes(finding: str, flags: Flags, plan: Mapping[str, Any], seen: Seen) -> Iterator[Change]:
    """All that could be turned against a finding, in the order in which an experienced operator would."""
    yield from _prefix_caching(finding, flags, plan, seen)
    if finding == findings.KV_BOUND.name:
        yield from _more_bytes(flags, plan, seen)
    yield from RULES[finding](flags, plan)


def _prefix_caching(finding: str, flags: Flags, plan: Mapping[str, Any], seen: Seen) -> Iterator[Change]:
    """On where prefixes are shared: fewer blocks, less to compute. Off where none ever was: on hybrid models each
    request then holds fewer states. Whether either gives anything here is the planner's to say.
    """
    on, shared = flags.get("enable_prefix_caching"), (plan.get("typical") or {}).get("sharedTokens") or 0
    full = findings.KV_BOUND.name
    if on is False and shared and finding != findings.SEQUENCE_CAP_BOUND.name:
        risk = "cached prefixes stay in the pool until somebody needs their blocks"
        yield Change("PrefixCaching", "--enable-prefix-caching", ON, risk)
    unused = seen.hit_percent is not None and seen.hit_percent <= UNSHARED_PERCENT and not shared
    if on is True and unused and finding == full:
        risk = "prompts that do begin alike are computed anew each time"
        yield Change("PrefixCaching", "--enable-prefix-caching", OFF, risk)


def _more_bytes(flags: Flags, plan: Mapping[str, Any], seen: Seen) -> Iterator[Change]:
    """The same step as of the utilisation, counted from the pool that the engines report: then it is exact, whatever
    the estimate of what stands beside it. Whole blocks.
    """
    gpu, block_bytes = gpus.find(str(plan["choice"]["gpu"])), plan["kv"]["bytesPerBlock"]
    given, utilisation = flags.get("kv_cache_memory_bytes"), flags.get("gpu_memory_utilization")
    if gpu is None or not block_bytes or not seen.pool_blocks or not utilisation:
        return
    total, now_bytes = gpu.torch_total_bytes, seen.pool_blocks * block_bytes
    share = (int(given) + sum(item["bytes"] for item in plan["memory"])) / total if given else float(utilisation)
    wanted = min(MOST_UTILISATION, max(USUAL_UTILISATION, share + UTILISATION_STEP))
    after = int(now_bytes + (wanted - share) * total) // block_bytes * block_bytes
    if after > now_bytes:
        risk = "less memory is left beside the KV cache: a long prompt or another process may end the engine"
        yield Change("KVCacheMemoryBytes", "--kv-cache-memory-bytes", str(after), risk)


def _more_sequences(flags: Flags, plan: Mapping[str, Any]) -> Iterator[Change]:
    """As many as the pool holds of typical requests, twice as many as now at most."""
    now = int(flags.get("max_num_seqs") or 0)
    after = min(2 * now, _room(plan) or MOST_SEQUENCES, MOST_SEQUENCES) // SEQUENCE_STEP * SEQUENCE_STEP
    if after > now:
        risk = "more requests share each step: tokens come slower, and a full KV cache preempts"
        yield Change("MaxNumSeqs", "--max-num-seqs", str(after), risk)


def _more_cache(flags: Flags, plan: Mapping[str, Any]) -> Iterator[Change]:
    """More of the GPU first, which changes no answer; 8 bits a value only after it."""
    now = float(flags.get("gpu_memory_utilization") or 0)
    after = min(MOST_UTILISATION, max(USUAL_UTILISATION, round(now + UTILISATION_STEP, 2)))
    if after > now > 0 and not flags.get("kv_cache_memory_bytes"):
        risk = "less memory is left beside the KV cache: a long prompt or another process may end the engine"
        yield Change("GPUMemoryUtilization", "--gpu-memory-utilization", f"{after:g}", risk)
    if str(flags.get("kv_cache_dtype", "auto")) in ("auto", "bfloat16") and _computes_fp8(plan):
        risk = "answers change a little: compare them on your own prompts before users see them"
        yield Change("KVCacheDtype", "--kv-cache-dtype", "fp8", risk)
    yield from _fewer_than_fit(flags, plan)


def _computes_fp8(plan: Mapping[str, Any]) -> bool:
    """Older GPUs convert at every step, and leave the quickest attention kernels for it: more tokens, each slower."""
    gpu = gpus.find(str(plan["choice"]["gpu"]))
    return gpu is not None and gpu.supports("fp8")


def _fewer_than_fit(flags: Flags, plan: Mapping[str, Any]) -> Iterator[Change]:
    """No more requests than the pool holds: those beyond are only begun to be thrown out again."""
    now, room = int(flags.get("max_num_seqs") or 0), _room(plan)
    after = room // SEQUENCE_STEP * SEQUENCE_STEP
    if now > after >= SEQUENCE_STEP:
        risk = "fewer requests run at once: the others wait"
        yield Change("MaxNumSeqs", "--max-num-seqs", str(after), risk)


def _room(plan: Mapping[str, Any]) -> int:
    """Typical requests that a well filled pool holds; 0 where that is not known."""
    typical = (plan.get("typical") or {}).get("blocks") or plan["kv"].get("blocksPerRequestAtLoad") or 0
    return int(FILLED * (plan["kv"]["numBlocks"] - 1) / typical) if typical else 0


def _larger_steps(flags: Flags, _plan: Mapping[str, Any]) -> Iterator[Change]:
    now = int(flags.get("max_num_batched_tokens") or 0)
    if now and now <= MOST_STEP_TOKENS // 2:
        risk = "a step with long prompts takes longer: tokens of the others come later"
        yield Change("MaxNumBatchedTokens", "--max-num-batched-tokens", str(2 * now), risk)


def _smaller_steps(flags: Flags, _plan: Mapping[str, Any]) -> Iterator[Change]:
    now, sequences = int(flags.get("max_num_batched_tokens") or 0), int(flags.get("max_num_seqs") or 0)
    after = now // 2
    if after >= max(LEAST_STEP_TOKENS, sequences):
        risk = "prompts take more steps: first tokens come later"
        yield Change("MaxNumBatchedTokens", "--max-num-batched-tokens", str(after), risk)
    fewer = sequences * 3 // 4 // SEQUENCE_STEP * SEQUENCE_STEP
    if fewer >= SEQUENCE_STEP:
        risk = "fewer requests run at once: the others wait"
        yield Change("MaxNumSeqs", "--max-num-seqs", str(fewer), risk)


def _nothing_more(_flags: Flags, _plan: Mapping[str, Any]) -> Iterator[Change]:
    """Both kinds of token are late: larger steps and smaller ones each make one of them later."""
    yield from ()


RULES: Final[Mapping[str, Callable[[Flags, Mapping[str, Any]], Iterator[Change]]]] = {
    findings.SEQUENCE_CAP_BOUND.name: _more_sequences,
    findings.KV_BOUND.name: _more_cache,
    findings.PREFILL_BOUND.name: _larger_steps,
    findings.DECODE_BOUND.name: _smaller_steps,
    findings.COMPUTE_BOUND.name: _nothing_more,
}
