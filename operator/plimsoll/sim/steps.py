"""What a step of an engine costs, as the simulator needs it: linear in what grows while a batch only decodes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class StepCost(Protocol):
    """Seconds of engine steps. A decode-only step of ``n`` requests with ``s`` context tokens costs ``a + b * s``."""

    def decode_line(self, requests: int) -> tuple[float, float]:
        """``(a, b)``: seconds of a decode-only step with no context, and seconds per token of context."""

    def mixed_seconds(self, decoding: int, context_tokens: int, chunks: list[tuple[int, int]]) -> float:
        """A step that also prefills ``chunks``: (tokens, tokens of the same request already in the cache) each."""


@dataclass(frozen=True)
class FittedSteps:
    """Step times fitted to a measured run.

    Every step pays ``base_seconds``. The matrices take ``weights_seconds`` (reading them) or ``token_seconds`` for each
    token, whichever is more; ``expert_seconds`` are paid for reading experts, in so far as the tokens of the step
    touch them: the share 1 - 1/e by ``expert_tokens``. Attention reads ``context_seconds`` for each cached token of
    each decode, and computes ``prefill_seconds`` for each pair of prompt tokens. ``request_seconds`` for each sequence
    is scheduling and sampling.
    """

    base_seconds: float
    weights_seconds: float
    token_seconds: float
    context_seconds: float
    prefill_seconds: float
    request_seconds: float = 0.0
    expert_seconds: float = 0.0
    expert_tokens: float = 1.0

    def decode_line(self, requests: int) -> tuple[float, float]:
        """Seconds with no context, and seconds per token of context."""
        return self._body_seconds(requests, requests), self.context_seconds

    def mixed_seconds(self, decoding: int, context_tokens: int, chunks: list[tuple[int, int]]) -> float:
        """Seconds of a step that also prefills."""
        tokens, pairs = decoding, 0.0
        for chunk, before in chunks:
            tokens += chunk
            pairs += chunk * (before + chunk / 2)
        attention = self.context_seconds * context_tokens + self.prefill_seconds * pairs
        return self._body_seconds(tokens, decoding + len(chunks)) + attention

    def _body_seconds(self, tokens: int, sequences: int) -> float:
        seconds = self.base_seconds + max(self.weights_seconds, self.token_seconds * tokens)
        if self.expert_seconds:
            seconds += self.expert_seconds * (1 - math.exp(-tokens / self.expert_tokens))
        return seconds + self.request_seconds * sequences


StepSeconds = Callable[[float, float, float, float], float]
"""(decoding requests, their context tokens, prefill tokens, context tokens before the prefill) → seconds."""


@dataclass
class ModelledSteps:
    """Step times of a model of them, such as ``plimsoll.core.latency.StepTimes.step_seconds``.

    The line of a batch size is taken through its steps with no context and with ``reference_tokens`` each.
    """

    step_seconds: StepSeconds
    reference_tokens: int = 8192
    _lines: dict[int, tuple[float, float]] = field(default_factory=dict)

    def decode_line(self, requests: int) -> tuple[float, float]:
        """Seconds with no context, and seconds per token of context."""
        line = self._lines.get(requests)
        if line is None:
            context = requests * self.reference_tokens
            empty, full = self.step_seconds(requests, 0, 0, 0), self.step_seconds(requests, context, 0, 0)
            line = self._lines[requests] = (empty, (full - empty) / context)
        return line

    def mixed_seconds(self, decoding: int, context_tokens: int, chunks: list[tuple[int, int]]) -> float:
        """Seconds of a step that also prefills."""
        tokens = sum(chunk for chunk, _ in chunks)
        # A head of line that no longer fits, once the decodes have taken their blocks, leaves a step without prompts.
        before = sum(chunk * context for chunk, context in chunks) / max(1, tokens)
        return self.step_seconds(decoding, context_tokens, tokens, before)


def stretch_seconds(line: tuple[float, float], requests: int, context_tokens: int, steps: int) -> float:
    """``steps`` decode-only steps in a row: each finds one token more of every request in the cache."""
    fixed, slope = line
    return steps * (fixed + slope * (context_tokens + requests * (steps - 1) / 2))


def steps_until(line: tuple[float, float], requests: int, context_tokens: int, seconds: float) -> int:
    """The fewest decode-only steps, at least one, that last ``seconds`` or more: a step begun is a step finished."""
    fixed, slope = line
    linear = fixed + slope * (context_tokens - requests / 2)
    square = slope * requests / 2
    # seconds = square * k² + linear * k, in the form that does not cancel for a small square.
    steps = 2 * seconds / (linear + math.sqrt(linear * linear + 4 * square * seconds))
    return max(1, math.ceil(steps - 1e-9))
