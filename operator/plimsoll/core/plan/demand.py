"""What the traffic asks of a service: requests at once or a second, their lengths, and the latency they must meet."""

from dataclasses import dataclass
from typing import Final

from plimsoll.api.units import duration_seconds
from plimsoll.api.v1alpha1 import LoadSpec, SLOSpec, VLLMServiceSpec

DEFAULT_PROMPT_TOKENS: Final = 1024
DEFAULT_OUTPUT_TOKENS: Final = 256
"""Lengths where the spec has none: a chat turn, cut to the context."""
DEFAULT_PERCENTILE: Final = 95


@dataclass(frozen=True)
class Demand:
    """Traffic of the whole service and its latency targets (seconds); ``given`` says whether the spec has a load.

    ``long_…`` are lengths that 95 % do not exceed, where somebody said so; ``tokens_per_step`` what a step yields for a
    request: more than one under speculative decoding, when somebody measured it.
    """

    prompt_tokens: int
    output_tokens: int
    shared_tokens: int = 0
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


def read_demand(spec: VLLMServiceSpec) -> Demand:
    """The demand of a spec, with documented defaults for what it leaves out."""
    load, slo = spec.load or LoadSpec(), spec.slo or SLOSpec()
    prompt, output = _lengths(load, spec.context_tokens)
    return Demand(
        prompt_tokens=prompt,
        output_tokens=output,
        shared_tokens=min(load.shared_prefix_tokens or 0, prompt),
        concurrency=load.concurrency,
        rate=load.requests_per_second,
        ttft_seconds=duration_seconds(slo.ttft) if slo.ttft else None,
        itl_seconds=duration_seconds(slo.itl) if slo.itl else None,
        percentile=slo.percentile,
        long_prompt_tokens=load.prompt_tokens_p95,
        long_output_tokens=load.output_tokens_p95,
        tokens_per_step=(spec.engine.speculative and spec.engine.speculative.accepted_tokens_per_step) or 1.0,
        assumptions=_assumptions(load, prompt, output),
    )


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
