"""From step times to what a client sees: time per output token and to the first token in a closed loop."""

from dataclasses import dataclass

from plimsoll.core.kv import KVLayout
from plimsoll.core.latency.step import StepTimes


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic of one engine: ``concurrency`` clients that each send the next request when the last is answered."""

    prompt_tokens: int
    output_tokens: int
    concurrency: float


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady state of a load, in seconds: what a user waits for, and the step behind it.

    ``running`` requests are served at once, the rest of the load queues.
    """

    ttft_seconds: float
    tpot_seconds: float
    decode_step_seconds: float
    running: float


def running_limit(layout: KVLayout, num_blocks: int, load: Load) -> float:
    """Requests of a load that run at once: what fits the pool at their mean length, and ``max_num_seqs``.

    One of ``num_blocks`` is vLLM's null block. At least one request runs: an engine that serves none does not start.
    """
    needed = layout.blocks_for_request(load.prompt_tokens + load.output_tokens // 2)
    fits = (num_blocks - 1) / needed if needed else float(layout.resolved.max_num_seqs)
    return max(1.0, min(fits, layout.resolved.max_num_seqs))


def steady_state(times: StepTimes, load: Load, limit: float, tokens_per_step: float = 1.0) -> Steady:
    """Latency of a load that never changes; ``tokens_per_step`` are what a step yields for a request.

    While a request makes its output, every other running one is replaced once: so many prompts its steps carry (chunked
    prefill). A first token waits for the step under way and for its own prefill; clients that start together also wait
    for one another's. Requests beyond ``limit`` queue, by Little's law.
    """
    prompt_tokens = max(1, load.prompt_tokens)
    running = max(1.0, min(load.concurrency, limit))
    decoding = max(1.0, running / times.pipeline_parallel)
    context = decoding * (prompt_tokens + load.output_tokens / 2)
    steps = max(1.0, load.output_tokens / tokens_per_step)
    tpot = _mean_step_seconds(times, prompt_tokens, decoding, context, (decoding - 1) / steps) / tokens_per_step
    plain = times.step_seconds(decoding, context)
    fit = times.fit
    first = (
        fit.arrival_seconds * times.correction
        + fit.wait_steps * plain
        + fit.prefill_share * times.prefill_seconds(prompt_tokens, 0, decoding, context)
        + fit.burst_share * (running - 1) * times.prefill_seconds(prompt_tokens)
    )
    queued = max(0.0, load.concurrency - running) / running * (first + load.output_tokens * tpot)
    return Steady(first + queued, tpot, plain, running)


def _mean_step_seconds(
    times: StepTimes, prompt_tokens: int, decoding: float, context_tokens: float, prompts_per_step: float
) -> float:
    """The mean step when that many prompts arrive in each: a share of the steps carries a chunk, the others none.

    A step never carries more than its budget; prompts beyond it delay first tokens, not this one.
    """
    plain = times.step_seconds(decoding, context_tokens)
    chunks = times.chunks(prompt_tokens, decoding)
    share = min(1.0, prompts_per_step * chunks)
    if not share:
        return plain
    carried = min(prompts_per_step * prompt_tokens / share, times.room_tokens(decoding))
    attention = times.prefill_attention_seconds(prompt_tokens) * carried / prompt_tokens
    mixed = times.correction * (times.body_seconds(decoding, context_tokens, carried) + attention)
    return (1 - share) * plain + share * mixed
