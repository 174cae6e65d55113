"""How a pod ends without losing a request: three times, each longer than the one before needs.

1. ``preStop`` keeps the engine serving until every router has forgotten the pod: a draining vLLM answers new requests
   with 500 (``vllm-server.md``).
2. SIGTERM with ``--shutdown-timeout``: requests in flight may finish. Releases before 0.19 have no such flag and abort
   at SIGTERM, so their preStop waits as long instead.
3. The grace period is longer than both: past its timeout vLLM's server can hang on open connections, and only then is
   SIGKILL right.
"""

import math
from dataclasses import dataclass
from typing import Final

from plimsoll.core.lifecycle.figures import Drain

ENDPOINT_SECONDS: Final = 10
"""EndpointSlices, kube-proxy and gateways follow a deletion within seconds."""
KILL_MARGIN_SECONDS: Final = 30
LEAST_SECONDS: Final = 60
MOST_SECONDS: Final = 540
"""With the other two times still below the 600 s that the cluster autoscaler grants a pod at most by default."""
SLOWEST_TOKEN_SECONDS: Final = 0.1
"""Between two tokens where no latency is known."""
LONGEST_OVER_TYPICAL: Final = 4
"""The longest generation, in typical ones: output lengths of public traces have their 99th percentile below that."""
_STEP_SECONDS: Final = 30


@dataclass(frozen=True)
class Generation:
    """The longest generation a request may ask for, and how fast tokens come at the cautious end."""

    context_tokens: int
    output_tokens: int | None
    """Typical output, where somebody said what the traffic is."""
    first_token_seconds: float | None
    token_seconds: float | None

    @property
    def tokens(self) -> int:
        """Output tokens of the longest generation that is waited for."""
        if self.output_tokens is None:
            return self.context_tokens
        return min(self.context_tokens, LONGEST_OVER_TYPICAL * self.output_tokens)

    @property
    def seconds(self) -> float:
        """From the arrival of such a request to its last token."""
        each = SLOWEST_TOKEN_SECONDS if self.token_seconds is None else self.token_seconds
        return (self.first_token_seconds or 0.0) + self.tokens * each


def drain(
    generation: Generation,
    *,
    knows_timeout: bool,
    timeout_seconds: float | None = None,
    endpoint_seconds: float | None = None,
) -> Drain:
    """The three times, whole seconds; ``timeout_seconds`` and ``endpoint_seconds`` where somebody chose them."""
    timeout = _bounded(generation.seconds) if timeout_seconds is None else math.ceil(timeout_seconds)
    endpoint = ENDPOINT_SECONDS if endpoint_seconds is None else math.ceil(endpoint_seconds)
    return Drain(
        pre_stop_seconds=endpoint if knows_timeout else endpoint + timeout,
        timeout_seconds=timeout,
        grace_seconds=endpoint + timeout + KILL_MARGIN_SECONDS,
        basis="as asked" if timeout_seconds is not None else _basis(generation, timeout),
    )


def _bounded(seconds: float) -> int:
    stepped = math.ceil(min(seconds, MOST_SECONDS) / _STEP_SECONDS) * _STEP_SECONDS
    return max(LEAST_SECONDS, stepped)


def _basis(generation: Generation, timeout: int) -> str:
    each = SLOWEST_TOKEN_SECONDS if generation.token_seconds is None else generation.token_seconds
    cut = f", cut to {MOST_SECONDS} s" if generation.seconds > MOST_SECONDS else ""
    cut = cut or (f", at least {LEAST_SECONDS} s" if timeout == LEAST_SECONDS > generation.seconds else "")
    first = f"a first token after {generation.first_token_seconds:.0f} s, " if generation.first_token_seconds else ""
    return f"{first}{generation.tokens:,} at {each * 1e3:.0f} ms: {generation.seconds:,.0f} s{cut}"
