"""What the traffic asks of a service: requests at once or a second, their lengths, and the latency they must meet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.api.units import duration_seconds
from plimsoll.api.v1alpha1 import LoadSpec, SLOSpec, VLLMServiceSpec

DEFAULT_PROMPT_TOKENS: Final = 1024
DEFAULT_OUTPUT_TOKENS: Final = 256
"""Lengths where the spec has none: a chat turn, cut to the context."""
DEFAULT_PERCENTILE: Final = 95


@dataclass(frozen=True)
class LearnedLoad:
    """Figures that count instead of those of ``spec.load`` (``core/learned_load.py``); None: the declared one counts.

    ``prefix_hit_tokens`` of a prompt need no computing, without the blocks of a prefix that is declared as shared.
    """

    concurrency: int | None = None
    requests_per_second: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    shared_prefix_tokens: int | None = None
    prefix_hit_tokens: int | None = None

    def to_dict(self) -> dict[str, float]:
        """What was learned; for a revision's data."""
        return {key: value for key, value in vars(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LearnedLoad":
        """From a revision's data; what a newer version wrote beside is passed over."""
        return cls(**{key: value for key, value in data.items() if key in cls.__dataclass_fields__})


NOTHING_LEARNED: Final = LearnedLoad()


@dataclass(frozen=True)
class Demand:
    """Traffic of the whole service and its latency targets (seconds); ``given`` says whether its amount is known.

    ``hit_tokens`` of a prompt are in the cache, those of a shared prefix or more. ``long_…`` are lengths that 95 % do
    not exceed, where somebody said so; ``tokens_per_step`` what a step yields for a request: more than one under
    speculative decoding, when somebody measured it.
    """

    prompt_tokens: int
    output_tokens: int
    shared_tokens: int = 0
    hit_tokens: int = 0
    concurrency: int | None = None
    rate: float | None = None
    ttft_seconds: float | None = None
    itl_seconds: float | None = None
    percentile: int = DEFAULT_PERCENTILE
    long_prompt_tokens: int | None = None
    long_output_tokens: int | None = None
    tokens_per_step: float = 1.0
    assumptions: tuple[str, ...] = ()

    @property
    def given(self) -> bool:
        """Whether somebody said how much traffic there is."""
        return self.concurrency is not None or self.rate is not None

    @property
    def has_targets(self) -> bool:
        """Whether there is a latency to meet."""
        return self.ttft_seconds is not None or self.itl_seconds is not None


def read_demand(spec: VLLMServiceSpec, learned: LearnedLoad = NOTHING_LEARNED) -> Demand:
    """The demand of a spec, with what was learned instead of what it says, and documented defaults for the rest."""
    load, slo = _counted(spec.load or LoadSpec(), learned, spec.context_tokens), spec.slo or SLOSpec()
    prompt, output = _lengths(load, spec.context_tokens)
    shared = min(load.shared_prefix_tokens or 0, prompt)
    return Demand(
        prompt_tokens=prompt,
        output_tokens=output,
        shared_tokens=shared,
        hit_tokens=min(max(learned.prefix_hit_tokens or 0, shared), prompt),
        concurrency=load.concurrency,
        rate=load.requests_per_second,
        ttft_seconds=duration_seconds(slo.ttft) if slo.ttft else None,
        itl_seconds=duration_seconds(slo.itl) if slo.itl else None,
        percentile=slo.percentile,
        long_prompt_tokens=load.prompt_tokens_p95,
        long_output_tokens=load.output_tokens_p95,
        tokens_per_step=(spec.engine.speculative and spec.engine.speculative.accepted_tokens_per_step) or 1.0,
        assumptions=(*_assumptions(load, prompt, output), *_notes(spec.load or LoadSpec(), learned)),
    )


def _counted(load: LoadSpec, learned: LearnedLoad, context_tokens: int) -> LoadSpec:
    """The load with what was learned in place of what was declared, within the context of today."""
    if learned == NOTHING_LEARNED:
        return load
    found: dict[str, Any] = {key: value for key, value in learned.to_dict().items() if key in LoadSpec.model_fields}
    if learned.prompt_tokens is not None:
        found["prompt_tokens"] = min(learned.prompt_tokens, max(1, context_tokens - 1))
        if load.prompt_tokens_p95 is not None:
            found["prompt_tokens_p95"] = max(load.prompt_tokens_p95, found["prompt_tokens"])
    prompt = found.get("prompt_tokens", load.prompt_tokens)
    output = found.get("output_tokens", load.output_tokens)
    if found and output is not None:
        found["output_tokens"] = output = min(output, max(1, context_tokens - (prompt or 1)))
    if found and output is not None and load.output_tokens_p95 is not None:
        found["output_tokens_p95"] = max(load.output_tokens_p95, output)
    return load.model_copy(update=found)


def _notes(load: LoadSpec, learned: LearnedLoad) -> Iterator[str]:
    """What counts as it was observed, each with what is declared."""
    if learned == NOTHING_LEARNED:
        return
    told = []
    for name, value in learned.to_dict().items():
        declared = getattr(load, name, None)
        beside = "not declared" if declared is None else f"declared: {declared:,}"
        told.append(f"{name.replace('_', ' ')} {value:,} ({beside})")
    if told:
        yield f"load: counts as it was observed over the last days: {', '.join(told)}"


def _lengths(load: LoadSpec, context_tokens: int) -> tuple[int, int]:
    """Prompt and output, within the context."""
    if load.prompt_tokens is not None:
        room = max(0, context_tokens - load.prompt_tokens)
        output = load.output_tokens if load.output_tokens is not None else min(DEFAULT_OUTPUT_TOKENS, room)
        return load.prompt_tokens, max(1, output)
    output = load.output_tokens or min(DEFAULT_OUTPUT_TOKENS, max(1, context_tokens // 4))
    prompt = max(load.shared_prefix_tokens or 0, DEFAULT_PROMPT_TOKENS)
    return max(1, min(prompt, context_tokens - output)), output


def _assumptions(load: LoadSpec, prompt: int, output: int) -> tuple[str, ...]:
    notes = []
    if load.concurrency is None and load.requests_per_second is None:
        notes.append("load: no concurrency or requestsPerSecond given: planned for the context, one request at a time")
    if load.prompt_tokens is None or load.output_tokens is None:
        notes.append(f"load: a typical request is taken as {prompt} prompt and {output} output tokens")
    return tuple(notes)
